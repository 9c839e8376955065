"""When records of some topics arrive, seen by a ``read_committed`` consumer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from service.background import Background

POLL_MS = 50


@dataclass(slots=True)
class ArrivalWatch:
    """The longest time between two arrivals, by topic. Use ``opened``; every topic has one partition."""

    pause_seconds: dict[str, float] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)

    @classmethod
    @asynccontextmanager
    async def opened(cls, bootstrap: str, topics: Sequence[str]) -> AsyncIterator[Self]:
        """Watch for the length of a block; counted from when the ends of the topics are found."""
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None)
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, 0) for topic in topics]
            consumer.assign(partitions)
            await consumer.seek_to_end()
            for partition in partitions:
                await consumer.position(partition)
            now = time.monotonic()
            watch = cls(dict.fromkeys(topics, 0.0), dict.fromkeys(topics, now))
            async with Background() as beside:
                beside.start(watch._look(consumer), name="arrivals")
                yield watch
        finally:
            await consumer.stop()

    async def has_heard_of_all_since(self, moment: float) -> bool:
        """Whether something has arrived in every topic after that."""
        return all(last > moment for last in self._last.values())

    async def _look(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            arrived = await consumer.getmany(timeout_ms=POLL_MS)
            now = time.monotonic()
            # A pause that goes on counts too: it may not end before the watch does.
            for topic, seconds in self.pause_seconds.items():
                self.pause_seconds[topic] = max(seconds, now - self._last[topic])
            self._last.update({partition.topic: now for partition in arrived})
