"""Looks of many tasks together, what a call that hangs does to others, and who closes the files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from fetchers.file.calls import Changes, FileCalls
from fetchers.sdk import Disconnected, Retriable
from fetchers.sdk.testing import FakeClock, FakeContext
from tests.passing_time import let_pass


async def test_looks_of_one_moment_share_one_thread_call() -> None:
    """A thousand idle tasks cost one hand-over, not a thousand."""
    changes, context = Changes(), FakeContext()
    first = threading.get_ident()
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(
                changes.wait(threading.get_ident, since=first, subject=str(number), context=context, every_seconds=0.5)
            )
            for number in range(1_000)
        ]
    assert len({task.result() for task in asked}) == 1


async def test_who_waits_for_a_change_is_woken_by_it_alone() -> None:
    """All are looked after at one beat, whoever keeps it: those whose thing is as it was wait on."""
    changes, clock = Changes(), FakeClock(is_automatic=False)
    context = FakeContext(clock=clock)
    seen = dict.fromkeys(range(20), "old")

    def waiting(number: int) -> asyncio.Task[str]:
        changed = changes.wait(
            lambda: seen[number], since="old", subject=str(number), context=context, every_seconds=0.5
        )
        return group.create_task(changed)

    async with asyncio.TaskGroup() as group:
        tasks = [waiting(number) for number in seen]
        for number in (7, 0, 1, 19):
            seen[number] = "new"
            await _beat(clock, tasks[number])
            assert await tasks[number] == "new"
            assert sum(task.done() for task in tasks) == sum(value == "new" for value in seen.values())
        assert len(clock.slept) < len(seen), "one sleeps for all"
        for task in tasks:
            task.cancel()


async def test_who_keeps_the_beat_may_be_cancelled() -> None:
    """The next one goes on, though it was cancelled itself in the same moment; nobody is forgotten."""
    changes, clock, seen = Changes(), FakeClock(is_automatic=False), ["old"]
    context = FakeContext(clock=clock)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                changes.wait(lambda: seen[0], since="old", subject=name, context=context, every_seconds=0.5)
            )
            for name in "abcd"
        ]
        await asyncio.sleep(0)
        for task in tasks[:2]:
            task.cancel()
        await asyncio.wait(tasks[:2])
        seen[0] = "new"
        await _beat(clock, tasks[2])
        assert [await task for task in tasks[2:]] == ["new", "new"]


async def test_a_round_that_was_left_running_makes_nobody_fail() -> None:
    """A fetch is stopped in the middle of a round, and its successor finds the thread still at it."""
    changes, release = Changes(seconds_max=60), threading.Event()
    context, asked = FakeContext(), threading.Event()

    def slow() -> str:
        asked.set()
        release.wait(60)
        return "old"

    def waiting(call: Callable[[], str]) -> asyncio.Task[str]:
        changed = changes.wait(call, since="old", subject="x", context=context, every_seconds=0.5)
        return group.create_task(changed)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        stopped = waiting(slow)
        while not asked.is_set():
            await asyncio.sleep(0.001)
        stopped.cancel()
        await asyncio.wait([stopped])
        following = waiting(lambda: "new")
        await asyncio.sleep(0.01)
        assert not following.done()
        release.set()
    assert following.result() == "new"


async def test_one_that_fails_fails_alone() -> None:
    """Its error reaches whoever asked, and nobody else."""
    changes, context = Changes(), FakeContext()

    def fail() -> None:
        raise FileNotFoundError(2, "gone")

    async with asyncio.TaskGroup() as group:
        good = group.create_task(changes.wait(lambda: 1, since=0, subject="good", context=context, every_seconds=0.5))
        with pytest.raises(FileNotFoundError):
            await changes.wait(fail, since=None, subject="bad", context=context, every_seconds=0.5)
    assert good.result() == 1


async def test_one_that_hangs_while_many_wait_is_the_only_one_to_fail() -> None:
    """The others are looked after in another thread, and it is not asked a second time meanwhile."""
    changes, context, release = Changes(seconds_max=300), FakeContext(), threading.Event()
    asked: list[str] = []
    seen = {"before": "old", "hanging": "old", "behind": "old"}
    hangs = threading.Event()

    def look(subject: str) -> str:
        asked.append(subject)
        if subject == "hanging":
            hangs.set()
            release.wait()
        return seen[subject]

    async def changed(subject: str) -> str:
        return await changes.wait(
            lambda: look(subject), since="old", subject=subject, context=context, every_seconds=0.5
        )

    async def hang() -> None:
        with pytest.raises(Retriable, match="no answer within"):
            await changed("hanging")

    try:
        async with asyncio.TaskGroup() as group:
            before, hanging, behind = (
                group.create_task(each) for each in (changed("before"), hang(), changed("behind"))
            )
            while not hangs.is_set():
                await asyncio.sleep(0.001)
            let_pass(300)
            await hanging
            seen |= {"before": "new", "behind": "new"}
            assert [await before, await behind] == ["new", "new"]
        assert asked.count("hanging") == 1
    finally:
        release.set()


async def test_files_are_closed_at_the_end_and_not_read_any_more() -> None:
    """A call that was waiting for its thread must not open them again."""
    closed: list[int] = []
    calls = FileCalls(FakeContext(), "x", stopping=threading.Event(), close=lambda: closed.append(1))
    assert await calls.run(lambda: 7) == 7
    assert not closed
    await calls.stop()
    assert closed
    with pytest.raises(Disconnected):
        await calls.run(lambda: 7)


async def test_files_that_are_being_read_are_closed_by_the_read_that_hangs() -> None:
    """A descriptor that is closed under a read may be another file's by the time it is used; nobody waits for it."""
    release, closed, reading = threading.Event(), threading.Event(), threading.Event()
    is_reading: list[bool] = []

    def read() -> None:
        is_reading.append(True)
        reading.set()
        release.wait(60)
        is_reading.clear()

    def close() -> None:
        assert not is_reading
        closed.set()

    calls = FileCalls(FakeContext(), "x", stopping=threading.Event(), close=close)
    async with asyncio.TaskGroup() as group:
        fetch = group.create_task(calls.run(read))
        while not reading.is_set():
            await asyncio.sleep(0.001)
        fetch.cancel()
    await calls.stop()
    assert not closed.is_set()
    release.set()
    assert await asyncio.to_thread(closed.wait, 60)


async def _beat(clock: FakeClock, wanted: asyncio.Task[str]) -> None:
    """Let time pass until this one has its answer."""
    async with asyncio.timeout(60):
        while not wanted.done():
            await clock.advance(0.5)
            await asyncio.sleep(0.01)
