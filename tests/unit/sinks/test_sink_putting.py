"""How much of a poll a sink is handed at once, and what is committed between its puts; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from fetchers.sdk import Fatal
from metrics.events import RetryScheduled, SinkRecordsRead
from service.sinks.contract import PutLimits, SinkBatch
from service.sinks.dead_letters import DeadLetterRules
from tests.unit.sinks.fake_library import FakeGroup
from tests.unit.sinks.fakes import World, numbers, run_until, texts

pytestmark = pytest.mark.looptime
TOLERANT = DeadLetterRules(is_tolerant=True, topic="letters")


async def test_a_sink_too_slow_for_a_batch_gets_smaller_ones() -> None:
    """A put that timed out is halved until it goes through; what went through is committed and does not come again."""
    world = World(FakeGroup(numbers(20)), flush_seconds=1, limits=PutLimits(seconds_max=10))
    sizes: list[int] = []

    async def put_slowly(batch: SinkBatch) -> None:
        sizes.append(len(batch))
        await asyncio.sleep(3 * len(batch))
        world.sink.values += batch.records.column("value").to_pylist()

    world.sink.put = put_slowly  # type: ignore[method-assign]
    await run_until(world.task(), lambda: len(world.sink.values) >= 20)
    assert world.sink.values == texts(numbers(20))
    assert sizes == [10, 5, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    assert world.group.committed == 20
    assert [event.error_class for event in world.told(RetryScheduled)] == ["CallTimedOut", "CallTimedOut"]


async def test_batches_grow_again_when_the_sink_is_quick() -> None:
    """One time-out does not leave a sink with small batches for ever."""
    world = World(FakeGroup(numbers(60)))
    sizes: list[int] = []
    put = world.sink.put

    async def hang_once(batch: SinkBatch) -> None:
        sizes.append(len(batch))
        if len(sizes) == 1:
            await asyncio.Event().wait()
        await put(batch)

    world.sink.put = hang_once  # type: ignore[method-assign]
    await run_until(world.task(), lambda: len(world.sink.values) >= 60)
    assert world.sink.values == texts(numbers(60))
    assert sizes == [10, 5, 5, 10, 10, 10, 10, 10]


async def test_what_is_put_is_committed_in_the_middle_of_a_poll() -> None:
    """A task that dies later has it not put again, though the rest of its poll was never put."""
    world = World(FakeGroup(numbers(10)), flush_seconds=1, limits=PutLimits(records_max=2))
    world.sink.before_put = lambda batch: Fatal("refused") if batch.ends == {("lines", 0): 8} else None
    with pytest.raises(Fatal, match="refused"):
        await world.task().run()
    assert world.sink.values == texts(numbers(6))
    assert world.group.committed == 2
    slow = World(FakeGroup(numbers(10)), flush_seconds=1, limits=PutLimits(records_max=2))

    async def put_slowly(batch: SinkBatch) -> None:
        if batch.ends == {("lines", 0): 8}:
            raise Fatal("refused")
        await asyncio.sleep(2)

    slow.sink.put = put_slowly  # type: ignore[method-assign]
    with pytest.raises(Fatal, match="refused"):
        await slow.task().run()
    assert slow.group.committed == 6


async def test_batches_are_bounded_by_bytes() -> None:
    """A record over the limit goes alone."""
    values: list[bytes | None] = [b"12345", b"12345", b"12345", b"x" * 50, None, None, b"12", b"1234567890"]
    world = World(FakeGroup(values), limits=PutLimits(bytes_max=10))
    sizes: list[int] = []
    world.sink.before_put = lambda batch: sizes.append(len(batch))
    await run_until(world.task(), lambda: len(world.sink.values) == len(values))
    assert world.sink.values == texts(values)
    assert sizes == [2, 1, 1, 3, 1]


async def test_a_stop_waits_for_one_put_and_not_for_a_poll() -> None:
    """What was put is committed, the rest comes again."""
    world = World(FakeGroup(numbers(10)), limits=PutLimits(records_max=2))
    task = world.task()

    def stop_at_four(batch: SinkBatch) -> None:
        if batch.ends == {("lines", 0): 4}:
            task.request_stop()

    world.sink.before_put = stop_at_four
    await task.run()
    assert world.group.committed == 4


async def test_the_group_hears_of_the_task_between_the_puts_of_a_poll() -> None:
    """A poll whose puts take longer than ``max.poll.interval.ms`` does not cost the partitions."""
    world = World(FakeGroup(numbers(10)), limits=PutLimits(records_max=2))
    heard: list[int] = []
    world.sink.before_put = lambda _batch: heard.append(world.clients[0].polls)
    await run_until(world.task(), lambda: len(world.sink.values) == 10)
    assert len(set(heard)) == len(heard) == 5


async def test_dead_letters_of_a_poll_are_only_of_what_is_done() -> None:
    """A rebalance in the middle of a poll leaves those of its rest to whoever reads them again."""
    world = World(FakeGroup([b"0", b"\xff0", b"2", b"3", b"\xff4", b"5"]), TOLERANT, limits=PutLimits(records_max=1))

    def rebalance_once(batch: SinkBatch) -> None:
        if batch.ends == {("lines", 0): 3} and "letters 1" not in world.log:
            world.group.rebalance()

    world.sink.before_put = rebalance_once
    await run_until(world.task(), lambda: world.group.committed == 6)
    assert world.sink.values == ["0", "2", "3", "5"]
    assert world.letters.values == [b"\xff0", b"\xff4"]


async def test_a_poll_ends_with_the_bytes_that_it_may_bring() -> None:
    """However many records it may have: what is left comes with the next."""
    world = World(FakeGroup([b"x" * (1 << 20) + b"yz"] * 70), poll_records_max=200)
    await run_until(world.task(), lambda: world.group.committed == 70)
    assert [event.records for event in world.told(SinkRecordsRead)] == [64, 6]
