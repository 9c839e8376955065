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
        self.partitions = [FIRST, SECOND]
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

    async def renew_partitions(self) -> None:
        """As TopicFeed's."""

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


class Topic:
    """With one record in each of its partitions, and the readers that were opened on it."""

    def __init__(self) -> None:
        """Of one partition."""
        self.partitions = [FIRST]
        self.feeds: list[TopicsFeed] = []

    async def open(self, *_: object, is_reading: bool = True, **__: object) -> TopicsFeed:
        """As TopicFeed's."""
        del is_reading
        self.feeds.append(TopicsFeed(self))
        return self.feeds[-1]


class TopicsFeed:
    """As TopicFeed: it knows the partitions that were there when it was opened."""

    def __init__(self, topic: Topic) -> None:
        """At the beginning."""
        self._topic = topic
        self.partitions = list(topic.partitions)
        self._positions = dict.fromkeys(self.partitions, 0)
        self.is_closed = False

    async def renew_partitions(self) -> None:
        """As TopicFeed's."""
        self.partitions = list(self._topic.partitions)

    async def ends(self) -> dict[TopicPartition, int]:
        """As TopicFeed's."""
        return dict.fromkeys(self.partitions, 1)

    def seek(self, positions: dict[TopicPartition, int]) -> None:
        """As TopicFeed's, which knows no other partitions either."""
        assert positions.keys() <= self._positions.keys()
        self._positions |= positions

    async def poll(self) -> list[list[Any]]:
        """As TopicFeed's."""
        await asyncio.sleep(0.2)
        behind = [partition for partition, position in self._positions.items() if position == 0]
        self._positions |= dict.fromkeys(behind, 1)
        return [[record(partition, 0)] for partition in behind]

    async def positions(self) -> dict[TopicPartition, int]:
        """As TopicFeed's."""
        return self._positions

    async def close(self) -> None:
        """As TopicFeed's."""
        self.is_closed = True


@pytest.mark.looptime
async def test_partitions_that_a_topic_is_given_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers write to them at once; what was read is not given again, and a partition less does no harm."""
    topic = Topic()
    monkeypatch.setattr(TopicFeed, "open", topic.open)
    received: list[Any] = []
    told: list[str | None] = []
    tail = TopicTail(KafkaSettings(bootstrap="x:1"), "configs", receive=received.extend, tell=told.append)
    await tail.start()
    await tail.read_to_end()
    topic.partitions.append(SECOND)
    await tail.read_to_end()
    await tail.read_to_end(is_pending_awaited=False)
    assert [each.partition for each in received] == [0, 1]
    assert told == ["topic 'configs' has been given partitions", None]
    assert not tail.has_missed
    topic.partitions.remove(FIRST)
    await tail.read_to_end()
    assert tail.has_missed
    await tail.stop()
    assert all(feed.is_closed for feed in topic.feeds)
