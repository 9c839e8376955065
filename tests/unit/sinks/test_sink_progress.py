"""Calls of a sink that take long because there is much to do, in virtual time: nobody takes them for hanging."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import pytest

from fetchers.sdk import Fatal, Retriable
from metrics.events import DeadLettersWritten, RetryScheduled, SinkCommitFailed
from service.sinks.contract import Offsets, Partition, PutLimits, SinkBatch, SinkContext
from service.sinks.dead_letters import DeadLetterRules
from service.sinks.task import CALL_SECONDS_MAX
from tests.unit.sinks.fake_library import FakeGroup
from tests.unit.sinks.fakes import World, numbers, run_until, texts

pytestmark = pytest.mark.looptime
STEP_SECONDS = 40.0
"""Less than any limit; four of them are more than each."""
STEPS = 4
TOLERANT = DeadLetterRules(is_tolerant=True, topic="letters")


def told_of_progress(world: World) -> Callable[[int], Coroutine[Any, Any, None]]:
    """Work of so many steps, of which the worker is told after each."""
    start, contexts = world.sink.start, []

    async def start_and_keep(context: SinkContext) -> None:
        contexts.append(context)
        await start(context)

    async def work(steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(STEP_SECONDS)
            contexts[-1].note_progress()

    world.sink.start = start_and_keep  # type: ignore[method-assign]
    return work


async def test_a_put_that_goes_on_is_not_given_up() -> None:
    """However long it takes: with ``errors.retry.timeout`` the task would fail for a target that is well."""
    world = World(FakeGroup(numbers(12)), retry_seconds_max=10)
    work, put = told_of_progress(world), world.sink.put

    async def put_step_by_step(batch: SinkBatch) -> None:
        await work(STEPS)
        await put(batch)

    world.sink.put = put_step_by_step  # type: ignore[method-assign]
    await run_until(world.task(), lambda: world.group.committed == 12)
    assert world.sink.values == texts(numbers(12))
    assert not world.told(RetryScheduled)


async def test_a_put_that_stands_still_after_some_steps_is_given_up() -> None:
    """Its time limit counts from the last of them."""
    world = World(FakeGroup(numbers(3)))
    work, puts = told_of_progress(world), []

    async def stand_still_once(batch: SinkBatch) -> None:
        puts.append(asyncio.get_running_loop().time())
        if len(puts) == 1:
            await work(STEPS)
            await asyncio.Event().wait()
        world.sink.values += batch.records.column("value").to_pylist()

    world.sink.put = stand_still_once  # type: ignore[method-assign]
    await run_until(world.task(), lambda: len(world.sink.values) == 3)
    [failure] = world.told(RetryScheduled)
    assert failure.error_class == "CallTimedOut"
    seconds = STEPS * STEP_SECONDS + PutLimits().seconds_max
    assert seconds <= puts[1] - puts[0] <= seconds + 10


async def test_a_flush_that_goes_on_is_committed() -> None:
    """Whenever commits take minutes: else the group's offset never moves, and no dead letter is ever written."""
    world = World(FakeGroup([*numbers(3), b"\xff"]), TOLERANT, flush_seconds=60)
    work, flush = told_of_progress(world), world.sink.flush

    async def flush_step_by_step(offsets: Offsets) -> Offsets:
        await work(STEPS)
        return await flush(offsets)

    world.sink.flush = flush_step_by_step  # type: ignore[method-assign]
    await run_until(world.task(), lambda: world.group.committed == 4)
    assert [event.count for event in world.told(DeadLettersWritten)] == [1]
    assert not world.told(SinkCommitFailed)


async def test_an_open_that_goes_on_is_waited_for() -> None:
    """Whoever has the partitions next may have thousands of files to give their names first."""
    world = World(FakeGroup(numbers(3)))
    work, open_ = told_of_progress(world), world.sink.open

    async def open_step_by_step(partitions: Mapping[Partition, int | None]) -> Offsets:
        await work(STEPS)
        return await open_(partitions)

    world.sink.open = open_step_by_step  # type: ignore[method-assign]
    await run_until(world.task(), lambda: world.group.committed == 3)


async def test_a_rebalance_waits_for_no_put_without_end() -> None:
    """The other members of the group wait too: from then on progress gives a call no more time."""
    world = World(FakeGroup(numbers(3)))
    work = told_of_progress(world)
    asked_at: list[float] = []

    async def put_without_end(batch: SinkBatch) -> None:
        if not asked_at:
            await work(STEPS)
            asked_at.append(asyncio.get_running_loop().time())
            world.group.rebalance()
            await work(1_000)
        world.sink.values += batch.records.column("value").to_pylist()

    world.sink.put = put_without_end  # type: ignore[method-assign]
    task = world.task()
    async with asyncio.TaskGroup() as group:
        group.create_task(task.run())
        async with asyncio.timeout(10_000):
            while world.log.count("open [None]") < 2:
                await asyncio.sleep(0.1)
        assert asyncio.get_running_loop().time() - asked_at[0] <= PutLimits().seconds_max + 10
        async with asyncio.timeout(1_000):
            while world.group.committed != 3:
                await asyncio.sleep(0.1)
        task.request_stop()
    assert world.sink.values == texts(numbers(3))


async def test_a_stop_waits_for_no_put_without_end() -> None:
    """Nor for one that begins anew."""
    world = World(FakeGroup(numbers(3)))
    work, task = told_of_progress(world), world.task()

    async def put_without_end(_batch: SinkBatch) -> None:
        task.request_stop()
        await work(1_000)

    world.sink.put = put_without_end  # type: ignore[method-assign, assignment]
    async with asyncio.timeout(10_000):
        await task.run()
        assert asyncio.get_running_loop().time() <= PutLimits().seconds_max + 10
    assert world.group.committed is None


@pytest.mark.parametrize("waits_for", ["flush", "put"])
async def test_it_stays_a_member_while_a_commit_waits(waits_for: str) -> None:
    """For the flush itself, or for the puts that are under way, however long: as long as it polls the group waits."""
    world = World(FakeGroup(numbers(10)), limits=PutLimits(records_max=5, puts_max=2), flush_seconds=1)
    polls: list[int] = []

    async def wait_long() -> None:
        polls.append(world.clients[0].polls)
        await asyncio.sleep(50)
        polls.append(world.clients[0].polls)

    async def put(batch: SinkBatch) -> None:
        values = batch.records.column("value").to_pylist()
        if waits_for == "put" and "5" in values:
            await wait_long()
        world.sink.values += values

    flush = world.sink.flush

    async def flush_slowly(offsets: Offsets) -> Offsets:
        if waits_for == "flush" and not polls:
            await wait_long()
        return await flush(offsets)

    world.sink.put, world.sink.flush = put, flush_slowly  # type: ignore[method-assign]
    await run_until(world.task(), lambda: world.group.committed == 10)
    assert polls[1] - polls[0] > 50


async def test_what_is_refused_by_a_put_of_another_assignment_is_no_second_letter() -> None:
    """A put that was given up may go on in a thread: its records are refused again by whoever has them next."""
    world = World(FakeGroup([b"0", b"odd", b"2"]), TOLERANT)
    given_up: list[Any] = []
    put, close = world.sink.put, world.sink.close

    async def refuse_odd(batch: SinkBatch) -> None:
        if not given_up:
            given_up.append(batch)
            world.group.rebalance()
            raise Retriable("given up")
        batch.refuse(1, "odd", "this is odd")
        await put(batch)

    async def close_behind_the_thread(partitions: Any) -> None:
        if world.group.committed is None:
            given_up[0].refuse(1, "odd", "this is odd")
        await close(partitions)

    world.sink.put, world.sink.close = refuse_odd, close_behind_the_thread  # type: ignore[method-assign]
    await run_until(world.task(), lambda: world.group.committed == 3)
    assert world.letters.values == [b"odd"]


async def test_a_stop_of_a_task_that_failed_waits_for_no_put_without_end() -> None:
    """A thread of the sink may go on, and tell of it, when nobody waits for its put any more."""
    world = World(FakeGroup(numbers(3)))
    work, stop = told_of_progress(world), world.sink.stop
    threads: list[asyncio.Task[None]] = []

    async def stop_behind_the_threads() -> None:
        await asyncio.wait(threads)
        await stop()

    async with asyncio.TaskGroup() as group:

        async def put_in_a_thread(_batch: SinkBatch) -> None:
            threads.append(group.create_task(work(1_000)))
            message = "full"
            raise Fatal(message)

        world.sink.put, world.sink.stop = put_in_a_thread, stop_behind_the_threads  # type: ignore[method-assign, assignment]
        with pytest.raises(Fatal, match="full"):
            await world.task().run()
        assert asyncio.get_running_loop().time() <= CALL_SECONDS_MAX + 10
        threads[0].cancel()


async def test_nothing_is_flushed_behind_a_put_that_failed_for_good() -> None:
    """Though a commit waits for that put: the sink may hold half of it."""
    limits = PutLimits(records_max=1, puts_max=2)
    world = World(FakeGroup(numbers(3)), limits=limits, flush_seconds=1)

    async def put(batch: SinkBatch) -> None:
        values = batch.records.column("value").to_pylist()
        if values == ["1"]:
            await asyncio.sleep(30)
            raise Fatal("full")
        world.sink.values += values

    world.sink.put = put  # type: ignore[method-assign]
    with pytest.raises(Fatal, match="full"):
        await world.task().run()
    assert world.sink.values == ["0"]
    assert not [line for line in world.log if line.startswith("flush")]


@pytest.mark.parametrize("call", ["put", "flush"])
async def test_a_call_that_cancels_itself_is_tried_again(call: str) -> None:
    """As clients do of which something else was cancelled: nobody has cancelled the task, and it ends for no such."""
    world = World(FakeGroup(numbers(3)), flush_seconds=1)
    goes_well: Callable[..., Awaitable[Any]] = getattr(world.sink, call)
    calls: list[object] = []

    async def cancel_once(given: object) -> Any:
        calls.append(given)
        if len(calls) == 1:
            raise asyncio.CancelledError
        return await goes_well(given)

    setattr(world.sink, call, cancel_once)
    await run_until(world.task(), lambda: world.group.committed == 3, seconds_max=100)
    assert world.sink.values == texts(numbers(3))
    assert len(calls) > 1


async def test_a_member_that_was_given_up_takes_no_offset_back() -> None:
    """Others have gone further meanwhile, and have left: a group without members refuses nobody by itself."""
    world = World(FakeGroup(numbers(10)))
    flush = world.sink.flush

    async def flush_behind_others(offsets: Offsets) -> Offsets:
        if world.group.committed is None:
            world.group.lose_member()
            await asyncio.sleep(5)
            world.group.committed = 10
        return await flush(offsets)

    world.sink.flush = flush_behind_others  # type: ignore[method-assign]
    await run_until(world.task(), lambda: world.log.count("open [10]") == 1)
    assert world.told(SinkCommitFailed)
    assert all(event.is_outdated for event in world.told(SinkCommitFailed))
    assert world.group.committed == 10
    assert not [line for line in world.log if line.startswith("commit ")]
