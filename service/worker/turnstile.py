"""A narrow place at which a thousand starts become a queue: so many at once, and no one keeps the others out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Place:
    """A place in the turnstile, left once, by its holder or by the clock."""

    def __init__(self, places: asyncio.Semaphore, seconds_max: float) -> None:
        """``places`` is acquired already; the clock releases it after ``seconds_max``."""
        self._places: asyncio.Semaphore | None = places
        self._timer = asyncio.get_running_loop().call_later(seconds_max, self.leave)

    def leave(self) -> None:
        """Let the next one in; harmless when repeated."""
        self._timer.cancel()
        if self._places is not None:
            self._places.release()
        self._places = None


class Turnstile:
    """Lets ``width`` in at once. Whoever takes longer than ``seconds_max`` no longer counts: it may be hanging."""

    def __init__(
        self, width: int, *, seconds_max: float, give_way: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Nobody is in; ``give_way`` is waited for by each before it enters."""
        self._give_way = give_way
        self._places = asyncio.Semaphore(width)
        self._seconds_max = seconds_max

    async def enter(self) -> Place:
        """Wait in order of arrival."""
        if self._give_way is not None:
            await self._give_way()
        await self._places.acquire()
        return Place(self._places, self._seconds_max)
