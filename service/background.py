"""Tasks that live as long as a worker: one parent for all of them, cancelled at its end."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

PERSISTENT_WAIT_SECONDS = 1.0


class Background:
    """Use as an async context manager; an error in a task ends the block with it."""

    def __init__(self) -> None:
        """Nothing runs before the block is entered and ``start`` is called."""
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Open the parent."""
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel every task and wait for its end."""
        for task in tuple(self._tasks):
            task.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            # The block's own error goes on as it is: whoever catches it need not know of groups.
            if list(group.exceptions) != [error]:
                raise

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run ``work`` until it ends or the block does."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, *, seconds_max: float) -> None:
        """Until every task has ended, or for so long."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=seconds_max)


async def persist(
    work: Callable[[], Awaitable[None]],
    *,
    tell: Callable[[Exception], None],
    wait_seconds: float = PERSISTENT_WAIT_SECONDS,
) -> None:
    """Run ``work`` until it returns; whatever ends it otherwise is told, and it is run again.

    For loops that handle what they foresee: a bug in one, or in a library below it, must not end the worker.
    """
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - see above; told, never swallowed
            tell(error)
            await asyncio.sleep(wait_seconds)
        else:
            return


def located(error: Exception) -> str:
    """An error nobody foresaw in one line: its class, its text, and where it was raised."""
    steps = traceback.extract_tb(error.__traceback__)
    where = f" ({steps[-1].filename}:{steps[-1].lineno})" if steps else ""
    return f"{type(error).__name__}: {error}{where}"
