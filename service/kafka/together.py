"""Writes of many callers in few commits: who waits for the writer travels with the next commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Item = TypeVar("Item")


class _Load(Generic[Item]):
    """What one caller wants written, and what became of it."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.is_written = False
        self.error: Exception | None = None


class CommitTogether(Generic[Item]):
    """Calls `commit` with the items of everyone who waits, in the order they came; never twice at a time."""

    def __init__(self, commit: Callable[[list[Item]], Awaitable[None]]) -> None:
        """`commit` writes all it is given, or none."""
        self._commit = commit
        self._waiting: list[_Load[Item]] = []
        self._committing = asyncio.Lock()

    async def write(self, items: Sequence[Item]) -> None:
        """Return once the items are written; an error of their commit is raised to all who travelled in it.

        Whoever is cancelled while carrying the others leaves them to the next.
        """
        load = _Load(items)
        self._waiting.append(load)
        try:
            # Held across the commit: a writer takes one at a time.
            async with self._committing:
                if not load.is_written and load.error is None:
                    await self._carry()
        finally:
            if load in self._waiting:
                self._waiting.remove(load)
        if load.error is not None:
            raise load.error

    async def _carry(self) -> None:
        loads = list(self._waiting)
        try:
            await self._commit([item for load in loads for item in load.items])
        except Exception as error:  # noqa: BLE001 - it is raised again, by each caller
            for load in loads:
                load.error = error
        else:
            for load in loads:
                load.is_written = True
        self._waiting = [load for load in self._waiting if load not in loads]
