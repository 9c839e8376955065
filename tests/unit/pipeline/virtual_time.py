"""Runs a coroutine on an event loop whose time jumps, for tests that Hypothesis repeats many times."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import looptime

T = TypeVar("T")
SECONDS_MAX = 100_000.0
"""Virtual: a flow that is stuck ends here with a TimeoutError instead of hanging the suite."""


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; waits cost no real time."""

    async def limited() -> T:
        async with asyncio.timeout(SECONDS_MAX):
            return await work

    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        return runner.run(limited())
