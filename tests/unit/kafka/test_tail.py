"""Where a tail goes on from."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.structs import TopicPartition

from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryRetriable
from service.kafka.reader import STALL_SECONDS_MAX, TopicFeed
from service.kafka.tail import TailStopped, TopicTail

FIRST, SECOND = TopicPartition("configs", 0), TopicPartition("configs", 1)


class Feed:
    """Gives two lists, or others; then `positions` fails, unless a test says where each partition stands."""

    def __init__(
        self, positions: dict[TopicPartition, int] | None = None, *, lists: list[list[Any]] | None = None
    ) -> None:
        """Not read from yet."""
        self._positions = positions
        self._lists = [[record(FIRST, 0), record(FIRST, 2)], [record(SECOND, 0)]] if lists is None else lists
        self._is_read = False

    async def poll(self) -> list[list[Any]]:
        """As TopicFeed's."""
        if self._is_read:
            await asyncio.Event().wait()
        self._is_read = True
        return self._lists

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
    assert not tail.has_missed


class Ends:
    """Where the topic ends, as a tail asks it."""

    def __init__(self, ends: dict[TopicPartition, int]) -> None:
        """Always the same."""
        self._ends = ends

    async def ask(self) -> dict[TopicPartition, int]:
        """As the tail's own questions."""
        return self._ends

    async def close(self) -> None:
        """As the tail's own questions."""


class Clock:
    """Seconds since a tail was known to be complete."""

    seconds = 0.0


def standing_tail(*, ends: dict[TopicPartition, int], tombstone_seconds: float) -> TopicTail:
    """A tail that has read its topic once, up to 5 in the first partition; its topic ends there now."""
    tail = TopicTail(
        KafkaSettings(bootstrap="x:1"),
        "configs",
        receive=lambda _: None,
        tell=lambda _: None,
        tombstone_seconds=tombstone_seconds,
    )
    tail._positions = {FIRST: 5}
    questions: Any = Ends(ends)
    tail._written = tail._committed = questions
    clock: Any = Clock()
    tail._complete = clock
    return tail


@pytest.mark.parametrize(("seconds", "has_missed"), [(49.0, False), (51.0, True)])
async def test_who_looks_too_late_may_have_missed_a_tombstone(*, seconds: float, has_missed: bool) -> None:
    """Half of delete.retention.ms between two readings is too much: what was forgotten may be forgotten by all."""
    tail = standing_tail(ends={FIRST: 5}, tombstone_seconds=100)
    cast("Any", tail._complete).seconds = seconds
    await tail.read_to_end(is_pending_awaited=False)
    assert tail.has_missed is has_missed
    await tail.read_to_end()
    assert tail.has_missed is has_missed, "once missed it does not come back"


async def test_a_reading_of_everything_proves_the_tail_complete() -> None:
    """One of what is committed does not: what it leaves out was perhaps written, and will be forgotten, earlier."""
    tail = standing_tail(ends={FIRST: 5}, tombstone_seconds=100)
    cast("Any", tail._complete).seconds = 40.0
    await tail.read_to_end(is_pending_awaited=False)
    assert tail._complete.seconds == 40.0
    await tail.read_to_end()
    assert tail._complete.seconds < 40.0


@pytest.mark.parametrize("ends", [{FIRST: 4}, {}])
async def test_a_topic_that_was_made_anew_is_another(ends: dict[TopicPartition, int]) -> None:
    """It ends before what has been read, or has a partition less."""
    tail = standing_tail(ends=ends, tombstone_seconds=100)
    await tail.read_to_end()
    assert tail.has_missed


@pytest.mark.looptime
@pytest.mark.parametrize("lists", [[[record(FIRST, 0)]], []], ids=["with records", "empty"])
async def test_a_topic_that_was_made_anew_and_is_read_on_is_another(lists: list[list[Any]]) -> None:
    """The library goes to its beginning by itself, so that it ends where the tail stands at the next look."""
    tail = standing_tail(ends={FIRST: 1}, tombstone_seconds=100)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await tail._read_on(cast("TopicFeed", cast("Any", Feed({FIRST: 1}, lists=lists))))
    await tail.read_to_end()
    assert tail.has_missed


@pytest.mark.looptime
async def test_a_partition_that_is_held_up_is_given_up_while_others_move() -> None:
    """What moves elsewhere is no news of the one that is waited for."""
    tail = standing_tail(ends={FIRST: 6, SECOND: 0}, tombstone_seconds=100)

    async def move_the_other() -> None:
        for offset in range(1000):
            tail._move({SECOND: offset})
            await asyncio.sleep(1)

    began = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        moving = group.create_task(move_the_other())
        with pytest.raises(DeliveryRetriable, match="does not move"):
            await tail.read_to_end()
        moving.cancel()
    assert asyncio.get_running_loop().time() - began == pytest.approx(STALL_SECONDS_MAX)


@pytest.mark.looptime
async def test_who_waits_on_a_tail_that_is_stopped_hears_it_at_once(looptime: Any) -> None:
    """Nothing will move any more, so there is no transaction to wait for; so it is for who comes later."""
    tail = standing_tail(ends={FIRST: 6}, tombstone_seconds=100)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(stopped_reading(tail))
        await asyncio.sleep(1)
        assert not reading.done()
        await tail.stop()
    await stopped_reading(tail)
    assert looptime == 1


async def stopped_reading(tail: TopicTail) -> None:
    """Of a tail that is stopped meanwhile, or was before."""
    with pytest.raises(TailStopped):
        await tail.read_to_end()


class AskedFeed:
    """A reader that is asked where its topic ends, and answers when `answers` is set."""

    def __init__(self) -> None:
        """Open, and not asked yet."""
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.is_closed = False

    async def ends(self) -> dict[TopicPartition, int]:
        """As TopicFeed's."""
        self.asked.set()
        await self.answers.wait()
        return {FIRST: 0}

    async def close(self) -> None:
        """As TopicFeed's."""
        self.is_closed = True


async def test_a_question_that_outlives_its_tail_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail is stopped while it asks where the topic ends."""
    feed = AskedFeed()

    async def opened(*_: object, **__: object) -> AskedFeed:
        return feed

    monkeypatch.setattr(TopicFeed, "open", opened)
    tail = TopicTail(KafkaSettings(bootstrap="x:1"), "configs", receive=lambda _: None, tell=lambda _: None)
    async with asyncio.TaskGroup() as group:
        group.create_task(tail.read_to_end())
        await feed.asked.wait()
        await tail.stop()
        feed.answers.set()
    assert feed.is_closed
