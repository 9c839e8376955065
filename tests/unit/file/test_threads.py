"""Looks of many tasks together, and what one that hangs does to the others."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fetchers.file.threads import FileThread, Looks
from fetchers.sdk import Retriable


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
