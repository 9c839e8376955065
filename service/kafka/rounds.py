"""One run of an errand for everyone who asked before it began.

A thousand tasks that start at once all ask where the offset topic ends. An answer serves whoever asked before the
question was sent; so the first asks alone, and the second asks for all the others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Answer = TypeVar("Answer")


class SharedRounds(Generic[Answer]):
    """Runs `errand`, never twice at a time; an answer is good for `lasting_seconds` from when its run began."""

    def __init__(self, errand: Callable[[], Awaitable[Answer]], *, lasting_seconds: float = 0.0) -> None:
        """Nothing runs before it is asked for."""
        self._errand = errand
        self._lasting_seconds = lasting_seconds
        self._lasts_until = 0.0
        self._running = asyncio.Lock()
        self._asked = 0
        self._last: tuple[int, Answer] | None = None

    async def answer(self) -> Answer:
        """What a run gave that began after this call, or lasts; an error is the caller's own whose run it was."""
        self._asked += 1
        mine = self._asked
        # Held across the errand on purpose: whoever waits wants what comes of it, or the next one.
        async with self._running:
            began = asyncio.get_running_loop().time()
            if self._last is None or (self._last[0] < mine and began >= self._lasts_until):
                serves = self._asked
                self._last = (serves, await self._errand())
                self._lasts_until = began + self._lasting_seconds
            return self._last[1]
