"""Looks of many tasks together, and what one that hangs does to the others."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fetchers.file.threads import FileThread, Looks
from fetchers.sdk import Retriable
from fetchers.sdk.testing import FakeClock


async def test_a_look_that_hangs_harms_no_other() -> None:
    """Those gathered with it, before and behind, get their answers; it gets a retriable error, then at once."""
    looks = Looks(seconds_max=0.1)
    release = threading.Event()
    try:
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            before = group.create_task(looks.run(lambda: "before", subject="before"))
            hanging = group.create_task(_error(looks.run(release.wait, subject="hanging")))
            behind = group.create_task(looks.run(lambda: "behind", subject="behind"))
        assert (before.result(), behind.result()) == ("before", "behind")
        assert "no answer within 0.1 s" in str(hanging.result())
        with pytest.raises(Retriable, match="does not answer"):
            await looks.run(lambda: "again", subject="hanging")
    finally:
        release.set()
    async with asyncio.timeout(10):
        while isinstance(await _error(looks.run(lambda: "again", subject="hanging")), Retriable):
            await asyncio.sleep(0.01)


async def _error(look: asyncio.Future[object] | object) -> Exception | None:
    try:
        await look  # type: ignore[misc]
    except Retriable as error:
        return error
    return None


async def test_a_look_that_fails_fails_alone() -> None:
    """Its error reaches whoever asked, and nobody else."""
    looks = Looks()

    def fail() -> None:
        raise FileNotFoundError(2, "gone")

    async with asyncio.TaskGroup() as group:
        good = group.create_task(looks.run(lambda: 1, subject="good"))
        with pytest.raises(FileNotFoundError):
            await looks.run(fail, subject="bad")
    assert good.result() == 1


async def test_looks_of_one_moment_share_one_thread_call() -> None:
    """A thousand idle tasks cost one hand-over, not a thousand."""
    looks = Looks()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(looks.run(threading.get_ident, subject=str(number))) for number in range(1_000)]
    assert len({task.result() for task in asked}) == 1


async def test_who_waits_for_a_change_is_woken_by_it_alone() -> None:
    """All are looked after at one beat, whoever keeps it: those whose thing is as it was wait on."""
    looks, clock = Looks(), FakeClock(is_automatic=False)
    seen = dict.fromkeys(range(20), "old")

    def waiting(number: int) -> asyncio.Task[str]:
        changed = looks.changed(lambda: seen[number], since="old", subject=str(number), clock=clock, every_seconds=0.5)
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
    looks, clock, seen = Looks(), FakeClock(is_automatic=False), ["old"]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(looks.changed(lambda: seen[0], since="old", subject=name, clock=clock, every_seconds=0.5))
            for name in "abcd"
        ]
        await asyncio.sleep(0)
        for task in tasks[:2]:
            task.cancel()
        await asyncio.wait(tasks[:2])
        seen[0] = "new"
        await _beat(clock, tasks[2])
        assert [await task for task in tasks[2:]] == ["new", "new"]


async def test_one_that_hangs_while_many_wait_is_the_only_one_to_fail() -> None:
    """The others are looked after in another thread, and it is not asked a second time meanwhile."""
    looks, clock, release = Looks(seconds_max=0.1), FakeClock(), threading.Event()
    asked: list[str] = []
    seen = {"before": "old", "hanging": "old", "behind": "old"}

    def look(subject: str) -> str:
        asked.append(subject)
        if subject == "hanging":
            release.wait()
        return seen[subject]

    def waiting(subject: str) -> asyncio.Task[str]:
        return group.create_task(
            looks.changed(lambda: look(subject), since="old", subject=subject, clock=clock, every_seconds=0.5)
        )

    try:
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            before, behind = waiting("before"), waiting("behind")
            error = await _error(
                looks.changed(lambda: look("hanging"), since="old", subject="hanging", clock=clock, every_seconds=0.5)
            )
            assert "no answer within 0.1 s" in str(error)
            seen |= {"before": "new", "behind": "new"}
            assert [await before, await behind] == ["new", "new"]
        assert asked.count("hanging") == 1
    finally:
        release.set()


async def _beat(clock: FakeClock, wanted: asyncio.Task[str]) -> None:
    """Let time pass until this one has its answer."""
    async with asyncio.timeout(10):
        while not wanted.done():
            await clock.advance(0.5)
            await asyncio.sleep(0.01)


async def test_a_thread_ends_when_there_is_nothing_to_read() -> None:
    """Idle tasks hold none; the last call is still made."""
    thread = FileThread()
    name = await thread.run(lambda: threading.current_thread().name, subject="x")
    closed = threading.Event()
    thread.rest(closed.set)
    assert closed.wait(10)
    assert name.startswith("file")
    again = await thread.run(lambda: 2, subject="x")
    assert again == 2
    thread.rest()
