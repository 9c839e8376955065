"""What the offset store knows while it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from service.kafka.client import KafkaSettings
from service.kafka.tail import TailStopped
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
        self.transaction_ended = asyncio.Event()
        """Whoever awaits what is pending waits for it too."""
        self.transaction_ended.set()
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
        table.read(record.key, record.value, at_ms=record.timestamp, topic_partition=0)


class Tail:
    """As TopicTail."""

    def __init__(self, topic: Topic, receive: Callable[[], None]) -> None:
        """Nothing is read yet."""
        self._topic = topic
        self._receive = receive
        self.has_missed = False
        self._stopped = asyncio.Event()

    @property
    def is_stopped(self) -> bool:
        """Whether nothing comes any more."""
        return self._stopped.is_set()

    async def start(self) -> None:
        """As TopicTail's."""

    async def read_to_end(self, *, is_pending_awaited: bool = True) -> None:
        """As TopicTail's."""
        await self._awaited(self._topic.goes_on)
        if is_pending_awaited:
            await self._awaited(self._topic.transaction_ended)
        if self._topic.error is not None:
            raise self._topic.error
        self._receive()

    async def stop(self) -> None:
        """As TopicTail's."""
        self._stopped.set()

    async def _awaited(self, event: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(each.wait()) for each in (event, self._stopped)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                each.cancel()
        if not event.is_set():
            raise TailStopped("the tail is stopped")


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
        [written] = store.encode("c", [(PARTITION, {"p": 20})])
        assert written.keys == pa.array([JAVAS], pa.binary())
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
        [written] = store.encode("c", [(PARTITION, None)])
        assert written.keys == pa.array([JAVAS], pa.binary())
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


@pytest.mark.looptime
async def test_a_reading_goes_on_with_the_table_that_another_began() -> None:
    """It waits for an open transaction while another finds that something was missed, and replaces its tail.

    The other did not await what the transaction has written, so the new table may lack it.
    """
    topic = Topic()
    store = store_on(topic)
    await store.read("c")
    topic.transaction_ended.clear()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(store.read("c"))
        await asyncio.sleep(1)
        topic.tails[0].has_missed = True
        await store.read("c", is_pending_awaited=False)
        assert len(topic.tails) == 2
        assert not reading.done()
        await asyncio.sleep(1)
        assert not reading.done(), "the transaction is open still"
        topic.records.append(SimpleNamespace(key=JAVAS, value=b'{"p":20}', timestamp=3_600_001, offset=1, headers=()))
        topic.transaction_ended.set()
    assert reading.result() == {'{"a":2,"b":1}': {"p": 20}}
    assert [tail.is_stopped for tail in topic.tails] == [True, False]


@pytest.mark.looptime
async def test_a_store_that_is_closed_begins_nothing_anew() -> None:
    """Who waits for an open transaction hears that nothing comes any more."""
    topic = Topic()
    store = store_on(topic)
    await store.read("c")
    topic.transaction_ended.clear()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(failed_reading(store))
        await asyncio.sleep(1)
        await store.close()
    assert reading.done()
    assert len(topic.tails) == 1


async def failed_reading(store: OffsetStore) -> None:
    """Of a store that is closed meanwhile."""
    with pytest.raises(TailStopped):
        await store.read("c")
