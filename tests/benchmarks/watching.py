"""How fast records become readable: the last stable offset of a topic over time, seen by an outside observer.

The same measure for everyone: from the first moment at which records are readable to the moment at which all are,
records made readable in between. Start-up of JVMs and sessions is measured apart. Processor time is read at the same
two moments, for each process that has a part in it.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition

POLL_SECONDS = 0.02
WAIT_SECONDS_MAX = 600.0
BUSY_SHARE = 0.85
"""Of the cores, from which on they are what limits a rate."""
Sample = Callable[[], Mapping[str, float]]
"""Processor seconds used so far, user and system, by part: such as ``Spark`` or ``broker``."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One run through a topic."""

    records: int
    first_records: int
    """Readable at the first look that saw any."""
    first_at: float
    last_at: float
    cpu_seconds: Mapping[str, float]
    """Used between the two looks, by part."""

    @property
    def records_per_second(self) -> float:
        """Rate between the first and the last look."""
        return (self.records - self.first_records) / (self.last_at - self.first_at)

    @property
    def cpu_micros_a_record(self) -> dict[str, float]:
        """Processor time by part, divided by the records that became readable meanwhile."""
        passed = self.records - self.first_records
        return {part: seconds / passed * 1e6 for part, seconds in self.cpu_seconds.items()}

    @property
    def cores_used(self) -> float:
        """Processor seconds a second, of all parts together."""
        return sum(self.cpu_seconds.values()) / (self.last_at - self.first_at)


def cost(passages: Sequence[Passage]) -> str:
    """Medians of the processor time a record by part, the dearest first."""
    costs = {
        part: statistics.median(passage.cpu_micros_a_record[part] for passage in passages)
        for part in passages[0].cpu_micros_a_record
    }
    parts = sorted(costs.items(), key=lambda item: -item[1])
    return " + ".join(f"{part} {micros:.1f}" for part, micros in parts) + f" = {sum(costs.values()):.1f} µs"


def limit(passages: Sequence[Passage]) -> str:
    """What the rate ends at: the processors where they are busy, or else waiting."""
    cores, used = os.cpu_count() or 1, statistics.median(passage.cores_used for passage in passages)
    return f"the limit: {'the processors' if used > BUSY_SHARE * cores else 'waiting'} ({used:.2f} of {cores} busy)"


def processor_seconds(parts: Mapping[str, int]) -> Sample:
    """A sample of processes by id: each with its children, but a JVM of a Python process counts as ``Spark``."""

    def sample() -> dict[str, float]:
        used: dict[str, float] = {}
        for part, pid in parts.items():
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                try:
                    times, program = process.cpu_times(), process.name()
                except psutil.NoSuchProcess:
                    continue  # such as a database's worker for one statement
                name = "Spark" if part == "Python" and program == "java" else part
                used[name] = used.get(name, 0.0) + sum(times[:4])  # with children that have ended
        return used

    return sample


async def watch(bootstrap: str, topic: str, *, records: int, sample: Sample = dict, begin: int = 0) -> Passage:
    """Wait until ``records`` behind the offset ``begin`` are readable by a ``read_committed`` consumer."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None)
    await consumer.start()
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await _watch(consumer, topic, records=records, sample=sample, begin=begin)
    finally:
        await consumer.stop()


async def _watch(consumer: AIOKafkaConsumer, topic: str, *, records: int, sample: Sample, begin: int) -> Passage:
    partition = TopicPartition(topic, 0)
    first: tuple[int, float, Mapping[str, float]] | None = None
    # Asked once only: what the broker answers to the watcher it cannot do for those who are measured.
    while topic not in await consumer.topics():
        await asyncio.sleep(POLL_SECONDS)
    before = (0, time.monotonic(), sample())
    while True:
        readable = await _readable(consumer, partition) - begin
        now = time.monotonic()
        if readable > 0 and first is None:
            # Where all come at once there is nothing between two looks but all the wait before the first of them.
            first = before if readable >= records else (readable, now, sample())
        if first is not None and readable >= records:
            used = {part: seconds - first[2].get(part, 0.0) for part, seconds in sample().items()}
            return Passage(readable, first[0], first[1], now, used)
        await asyncio.sleep(POLL_SECONDS)


async def _readable(consumer: AIOKafkaConsumer, partition: TopicPartition) -> int:
    """Offsets, transaction markers among them: at most one in many thousand records."""
    ends: dict[TopicPartition, int] = await consumer.end_offsets([partition])
    return ends[partition]
