"""How fast records become readable: the last stable offset of a topic over time, seen by an outside observer.

The same measure for everyone: from the first moment at which records are readable to the moment at which all are,
records made readable in between. Start-up of JVMs and sessions is measured apart.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

POLL_SECONDS = 0.02
WAIT_SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True)
class Passage:
    """One run through a topic."""

    records: int
    first_records: int
    """Readable at the first look that saw any."""
    first_at: float
    last_at: float

    @property
    def records_per_second(self) -> float:
        """Rate between the first and the last look."""
        return (self.records - self.first_records) / (self.last_at - self.first_at)


async def watch(bootstrap: str, topic: str, *, records: int) -> Passage:
    """Wait until ``records`` are readable by a ``read_committed`` consumer."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None)
    await consumer.start()
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await _watch(consumer, topic, records=records)
    finally:
        await consumer.stop()


async def _watch(consumer: AIOKafkaConsumer, topic: str, *, records: int) -> Passage:
    partition = TopicPartition(topic, 0)
    first: tuple[int, float] | None = None
    # Asked once only: what the broker answers to the watcher it cannot do for those who are measured.
    while topic not in await consumer.topics():
        await asyncio.sleep(POLL_SECONDS)
    while True:
        readable = await _readable(consumer, partition)
        now = time.monotonic()
        if readable and first is None:
            first = (readable, now)
        if first is not None and readable >= records:
            return Passage(readable, first[0], first[1], now)
        await asyncio.sleep(POLL_SECONDS)


async def _readable(consumer: AIOKafkaConsumer, partition: TopicPartition) -> int:
    """Offsets, transaction markers among them: at most one in many thousand records."""
    ends: dict[TopicPartition, int] = await consumer.end_offsets([partition])
    return ends[partition]
