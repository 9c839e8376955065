"""A server that dies is started again, with longer and longer waits while it does not start."""

from __future__ import annotations

import asyncio
import errno

import pytest

from service.embedded.errors import StartFailed
from service.embedded.supervision import RESTART_WAIT_SECONDS_MAX, keep_running


class FlakyServer:
    """Dies as soon as it runs; of its starts the first `failures` fail."""

    def __init__(self, *, failures: int, starts: int, failure: Exception | None = None) -> None:
        """Stop the test's world after `starts` starts by never ending again."""
        self._failure = failure or StartFailed("no")
        self.started_at: list[float] = []
        self._failures = failures
        self._starts = starts
        self.is_done = asyncio.Event()

    async def wait_exited(self) -> int:
        """End at once, until the test has seen enough."""
        if len(self.started_at) >= self._starts:
            self.is_done.set()
            await asyncio.Event().wait()
        return 137

    async def start(self) -> None:
        """Fail as often as asked to."""
        self.started_at.append(asyncio.get_running_loop().time())
        if len(self.started_at) <= self._failures:
            raise self._failure


@pytest.mark.looptime
async def test_waits_grow_while_starts_fail_and_fall_back_after_one_succeeds() -> None:
    """0.5 s, doubled per failed start up to the cap, and 0.5 s again after a success."""
    server = FlakyServer(failures=9, starts=12)
    told: list[str] = []
    async with asyncio.TaskGroup() as group:
        supervision = group.create_task(keep_running(server, tell=told.append))
        await server.is_done.wait()
        supervision.cancel()
    waits = [b - a for a, b in zip(server.started_at, server.started_at[1:], strict=False)]
    assert waits[:4] == pytest.approx([1, 2, 4, 8])
    assert waits[8] == pytest.approx(RESTART_WAIT_SECONDS_MAX)
    assert waits[10] == pytest.approx(0.5)
    assert max(waits) == pytest.approx(RESTART_WAIT_SECONDS_MAX)
    assert told.count("no") == 9
    assert told.count("runs again") == 3


@pytest.mark.looptime
async def test_what_the_system_refuses_is_told_and_tried_again() -> None:
    """A disk that is full when a server died ends no worker: one day there is room again."""
    server = FlakyServer(failures=2, starts=3, failure=OSError(errno.ENOSPC, "No space left on device", "/data"))
    told: list[str] = []
    async with asyncio.TaskGroup() as group:
        supervision = group.create_task(keep_running(server, tell=told.append))
        await server.is_done.wait()
        supervision.cancel()
    assert sum("No space left on device" in text for text in told) == 2
    assert told.count("runs again") == 1
