"""What the offset store knows while it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from service.kafka.client import KafkaSettings
from service.stores.offset_table import OffsetTable
from service.stores.offsets import OffsetStore

JAVAS = b'["c",{"b":1,"a":2}]'
PARTITION = {"a": 2, "b": 1}


class Topic:
    """With one offset that Connect wrote; its tails give it once `goes_on` is set, and may have missed something."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.error: Exception | None = None
        self.records = [SimpleNamespace(key=JAVAS, value=b'{"p":10}', timestamp=3_600_000, offset=0, headers=())]
        self.tails: list[Tail] = []

    async def tail(self, table: OffsetTable) -> Tail:
        """As OffsetStore's `_tail_into`."""
        self.tails.append(Tail(self, lambda: store_receives(table, self.records)))
        return self.tails[-1]


def store_receives(table: OffsetTable, records: list[Any]) -> None:
    """As the store's own receiver."""
    for record in records:
        table.read(record.key, record.value, at_ms=record.timestamp)


class Tail:
    """As TopicTail."""

    def __init__(self, topic: Topic, receive: Callable[[], None]) -> None:
        """Nothing is read yet."""
        self._topic = topic
        self._receive = receive
        self.has_missed = False
        self.is_stopped = False

    async def start(self) -> None:
        """As TopicTail's."""

    async def read_to_end(self, *, is_pending_awaited: bool = True) -> None:
        """As TopicTail's."""
        del is_pending_awaited
        await self._topic.goes_on.wait()
        if self._topic.error is not None:
            raise self._topic.error
        self._receive()

    async def stop(self) -> None:
        """As TopicTail's."""
        self.is_stopped = True


def store_on(topic: Topic) -> OffsetStore:
    """A store whose tails are `topic`'s."""
    store = OffsetStore(KafkaSettings(bootstrap="nowhere:1"), "offsets")
    tails: Any = topic
    store._tail_into = tails.tail  # type: ignore[method-assign]
    return store


async def test_a_commit_during_a_reading_from_the_beginning_keeps_the_key_that_is_there() -> None:
    """Under another key the older offset would win after a take-over: its host's clock may be ahead."""
    topic = Topic()
    store = store_on(topic)
    await store.read("c")
    topic.tails[0].has_missed = True
    topic.goes_on.clear()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(store.read("c"))
        await asyncio.sleep(0)
        assert store.encode("c", [(PARTITION, {"p": 20})]).keys == pa.array([JAVAS], pa.binary())
        topic.goes_on.set()
    assert reading.result() == {'{"a":2,"b":1}': {"p": 10}}
    assert [tail.is_stopped for tail in topic.tails] == [True, False]


async def test_a_reading_that_fails_leaves_what_was_known() -> None:
    """Whether it reads on or begins anew: until it is whole commits need the keys."""
    topic = Topic()
    store = store_on(topic)
    await store.read("c")
    topic.error = OSError("the broker has gone")
    for has_missed in (False, True):
        topic.tails[0].has_missed = has_missed
        with pytest.raises(OSError, match="gone"):
            await store.read("c")
        assert store.encode("c", [(PARTITION, None)]).keys == pa.array([JAVAS], pa.binary())
    assert [tail.is_stopped for tail in topic.tails] == [False, True]


async def test_what_is_gone_without_a_trace_is_forgotten() -> None:
    """A tail that may have missed a tombstone is replaced by one from the beginning, and so is the table."""
    topic = Topic()
    store = store_on(topic)
    assert await store.read("c")
    topic.records.clear()
    assert await store.read("c"), "nothing was missed, so what was read counts"
    topic.tails[0].has_missed = True
    assert await store.read("c") == {}
    await store.close()
    assert all(tail.is_stopped for tail in topic.tails)


async def test_many_that_find_it_out_together_begin_anew_once() -> None:
    """Whoever comes second uses what the first began."""
    topic = Topic()
    store = store_on(topic)
    await store.read("c")
    topic.tails[0].has_missed = True
    async with asyncio.TaskGroup() as group:
        for is_pending_awaited in (True, False, True, False):
            group.create_task(store.read("c", is_pending_awaited=is_pending_awaited))
    assert len(topic.tails) == 2
