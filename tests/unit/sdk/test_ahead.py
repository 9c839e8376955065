"""One thing done ahead, inside an async generator, without surprises for whoever iterates it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from fetchers.sdk.ahead import Ahead
from fetchers.sdk.testing.tasks import watched_family


async def _number(number: int, started: list[int], *, hangs_at: int = -1) -> int:
    started.append(number)
    if number == hangs_at:
        await asyncio.Event().wait()
    if number == 3:
        raise LookupError("no three")
    return number


async def _numbers(started: list[int], *, hangs_at: int = -1) -> AsyncIterator[int]:
    async with Ahead[int]() as ahead:
        ahead.start(_number(1, started, hangs_at=hangs_at), name="1")
        for following in range(2, 9):
            number = await ahead.take()
            ahead.start(_number(following, started, hangs_at=hangs_at), name=str(following))
            yield number


async def test_the_next_runs_while_the_last_is_used() -> None:
    """When a result is handed over the next is under way, and only that one."""
    started: list[int] = []
    numbers = _numbers(started)
    assert await anext(numbers) == 1
    await asyncio.sleep(0)
    assert started == [1, 2]


async def test_a_failure_waits_until_it_is_asked_for() -> None:
    """The failure of what runs ahead neither cancels the reader nor gets lost."""
    started: list[int] = []
    numbers = _numbers(started)
    assert [await anext(numbers), await anext(numbers)] == [1, 2]
    for _ in range(5):
        await asyncio.sleep(0)  # the third has failed by now
    assert started == [1, 2, 3]
    with pytest.raises(LookupError, match="no three"):
        await anext(numbers)


async def test_what_wants_to_end_the_process_is_kept_like_a_failure() -> None:
    """Out of a task of its own it would go through the event loop, and end the worker with all its connectors."""

    async def leave() -> None:
        sys.exit(3)

    async with Ahead[None]() as ahead:
        ahead.start(leave(), name="leave")
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(SystemExit):
            await ahead.take()


@pytest.mark.parametrize("has_run", [True, False])
async def test_closing_the_generator_ends_what_runs_ahead(*, has_run: bool) -> None:
    """After ``aclose`` nothing runs any more, begun or not, and nothing is raised."""
    started: list[int] = []

    async def scenario() -> None:
        numbers = _numbers(started, hangs_at=2)
        await anext(numbers)
        if has_run:
            await asyncio.sleep(0)
        await numbers.aclose()  # type: ignore[attr-defined]

    with watched_family() as family:
        async with asyncio.TaskGroup() as group:
            family.found(group.create_task(scenario()))
    assert not family.alive
    assert started == ([1, 2] if has_run else [1])


async def test_cancelling_the_reader_ends_what_it_waits_for() -> None:
    """A reader that is cancelled while it waits takes the work with it."""
    started: list[int] = []

    async def scenario() -> None:
        async for _number in _numbers(started, hangs_at=2):
            pass

    with watched_family() as family:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(scenario())
            family.found(task)
            while len(started) < 2:
                await asyncio.sleep(0)
            task.cancel()
    assert task.cancelled()
    assert not family.alive


async def test_taking_nothing_is_a_mistake() -> None:
    """Nothing was started, so there is nothing to take."""
    async with Ahead[int]() as ahead:
        with pytest.raises(LookupError):
            await ahead.take()
