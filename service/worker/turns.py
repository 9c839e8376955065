"""Turns at one thing: many at once, or one alone.

A micro-batch that was lost with Spark may be the one that kills it. Tried alone, it takes no innocent one with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Whoever wants to be alone goes first: those who come later wait for it."""

    def __init__(self) -> None:
        """Nobody has a turn."""
        self._changed = asyncio.Condition()
        self._together = 0
        self._waiting_alone = 0
        self._is_one_alone = False

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """A turn beside others."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._is_one_alone and not self._waiting_alone)
            self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            await self._tell()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """A turn with nobody beside."""
        async with self._changed:
            self._waiting_alone += 1
            try:
                await self._changed.wait_for(lambda: not self._is_one_alone and not self._together)
                self._is_one_alone = True
            finally:
                self._waiting_alone -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            self._is_one_alone = False
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
