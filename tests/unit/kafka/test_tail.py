"""Where a tail goes on from."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.structs import TopicPartition

from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryRetriable
from service.kafka.reader import TopicFeed
from service.kafka.tail import TopicTail

FIRST, SECOND = TopicPartition("configs", 0), TopicPartition("configs", 1)


class Feed:
    """Gives two lists; then `positions` fails, unless a test says where each partition stands."""

    def __init__(self, positions: dict[TopicPartition, int] | None = None) -> None:
        """Not read from yet."""
        self._positions = positions
        self._lists = [[record(FIRST, 0), record(FIRST, 2)], [record(SECOND, 0)]]

    async def poll(self) -> list[list[Any]]:
        """As TopicFeed's."""
        given, self._lists = self._lists, []
        if not given:
            await asyncio.Event().wait()
        return given

    async def positions(self) -> dict[TopicPartition, int]:
        """As TopicFeed's."""
        if self._positions is None:
            raise DeliveryRetriable("no leader")
        return self._positions


def record(partition: TopicPartition, offset: int) -> Any:
    """What a tail looks at."""
    return SimpleNamespace(topic=partition.topic, partition=partition.partition, offset=offset)


async def test_what_was_handed_over_is_not_read_again() -> None:
    """An error between a list and the question where the reader stands: it goes on behind the list."""
    received: list[Any] = []
    tail = TopicTail(KafkaSettings(bootstrap="x:1"), "configs", receive=received.append, tell=lambda _: None)
    moved = tail._moved
    with pytest.raises(DeliveryRetriable):
        await tail._read_on(cast("TopicFeed", cast("Any", Feed())))
    assert [len(records) for records in received] == [2, 1]
    assert tail._positions == {FIRST: 3, SECOND: 1}
    assert moved.is_set(), "whoever waits for the end is told"


@pytest.mark.looptime
async def test_markers_behind_the_last_record_are_passed_over() -> None:
    """The position of the reader counts, where it is further on."""
    tail = TopicTail(KafkaSettings(bootstrap="x:1"), "configs", receive=lambda _: None, tell=lambda _: None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await tail._read_on(cast("TopicFeed", cast("Any", Feed({FIRST: 4, SECOND: 1}))))
    assert tail._positions == {FIRST: 4, SECOND: 1}
