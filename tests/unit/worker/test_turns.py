"""Who may convert beside whom."""

from __future__ import annotations

import asyncio

import pytest

from service.worker.turns import Turns

pytestmark = pytest.mark.looptime


async def test_one_that_is_alone_has_nobody_beside_it() -> None:
    """It waits for those who run, and those who come later wait for it."""
    turns, log = Turns(), list[str]()

    async def take(name: str, *, is_alone: bool, seconds: float) -> None:
        async with turns.alone() if is_alone else turns.together():
            log.append(f"+{name}")
            await asyncio.sleep(seconds)
            log.append(f"-{name}")

    async with asyncio.TaskGroup() as group:
        for name, is_alone in (("a", False), ("b", False), ("x", True), ("c", False)):
            group.create_task(take(name, is_alone=is_alone, seconds=1))
            await asyncio.sleep(0.1)
    assert log == ["+a", "+b", "-a", "-b", "+x", "-x", "+c", "-c"]


async def test_one_that_gives_up_waiting_holds_nobody_up() -> None:
    """Cancelled while it waited to be alone, it leaves the turn to others."""
    turns = Turns()
    async with turns.together():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), turns.alone():
                pytest.fail("somebody else had a turn")
        async with asyncio.timeout(1), turns.together():
            pass
