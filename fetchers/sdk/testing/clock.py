"""Virtual time that moves by itself when everyone sleeps."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta

PATIENCE_TURNS = 20
"""Turns of the event loop that others get before time moves."""


class FakeClock:
    """A ``Clock`` without waiting: a sleeper wakes as soon as the event loop has nothing nearer to do.

    Real input and output go on meanwhile in real time, so time stands still only for the fetcher. Set
    ``is_automatic`` to False to move it by ``advance`` alone.
    """

    def __init__(self, start: datetime = datetime(2024, 1, 1, tzinfo=UTC), *, is_automatic: bool = True) -> None:
        self.start = start
        self.is_automatic = is_automatic
        self.slept: list[float] = []
        """Every sleep asked for, in seconds."""
        self._seconds = 0.0
        self._wall_shift = timedelta()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()
        self._driver: asyncio.Handle | None = None

    def now(self) -> datetime:
        """The time of day in virtual time, aware, in UTC."""
        return self.start + timedelta(seconds=self._seconds) + self._wall_shift

    def monotonic(self) -> float:
        """Virtual seconds since the clock was made."""
        return self._seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or a time server does."""
        self._wall_shift += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        """Wait for so many virtual seconds; returns as soon as everybody sleeps, or ``advance`` gets there."""
        self.slept.append(seconds)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        wake: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self._seconds + seconds, len(self.slept), wake))
        self._changed.set()
        self._drive(loop, PATIENCE_TURNS)
        await wake

    @property
    def sleepers(self) -> int:
        """How many calls of ``sleep`` have not returned yet."""
        return sum(not wake.done() for _, _, wake in self._sleepers)

    async def wait_for_sleeper(self) -> None:
        """Wait (in real time) until somebody sleeps."""
        while not self.sleepers:
            self._changed.clear()
            await self._changed.wait()

    async def advance(self, seconds: float) -> None:
        """Move time; whoever is due wakes, in order."""
        end = self._seconds + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self._wake_next()
            await asyncio.sleep(0)
        self._seconds = end

    def _drive(self, loop: asyncio.AbstractEventLoop, turns: int) -> None:
        if self._driver is not None:
            self._driver.cancel()
        self._driver = loop.call_soon(self._drive, loop, turns - 1) if turns else None
        if turns == 0 and self.is_automatic and self._sleepers:
            self._wake_next()
            self._drive(loop, PATIENCE_TURNS)

    def _wake_next(self) -> None:
        due, _, wake = heapq.heappop(self._sleepers)
        if not wake.done():  # a cancelled sleeper does not move time
            self._seconds = max(self._seconds, due)
            wake.set_result(None)
