"""One thing done ahead: the next page is fetched while the last one waits in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

Result = TypeVar("Result")


class Ahead(Generic[Result]):
    """Runs at most one coroutine ahead; ``async with`` ends it, whatever happens.

    Made for async generators, which a TaskGroup alone does not suit: its child's failure would cancel whoever
    happens to iterate at that moment, and closing the generator would come out as an exception group. Here a
    failure, also a ``SystemExit`` of foreign code, waits until the result is taken.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[Result | None] | None = None
        self._work: Coroutine[Any, Any, Result] | None = None
        self._failure: Exception | SystemExit | None = None

    async def __aenter__(self) -> Self:
        """Begin."""
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what still runs, and wait until it has ended."""
        if self._task is not None:
            self._task.cancel()
        await self._group.__aexit__(None, None, None)
        if self._work is not None:
            self._work.close()  # cancelled before its first step it would be called "never awaited"

    def start(self, work: Coroutine[Any, Any, Result], *, name: str) -> None:
        """Begin with the next thing; the one before must have been taken."""
        self._work = work
        self._task = self._group.create_task(self._kept(work), name=name)

    async def take(self) -> Result:
        """The result of what was started; raises what it raised."""
        task, self._task = self._task, None
        if task is None:
            message = "nothing was started"
            raise LookupError(message)
        try:
            result = await task
        except asyncio.CancelledError:
            task.cancel()  # whoever waits was cancelled: the work goes with it
            raise
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value]  # None only together with a failure

    async def _kept(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        try:
            return await work
        except (Exception, SystemExit) as error:  # noqa: BLE001 - not handled here: ``take`` raises it
            # asyncio would carry a SystemExit out of the event loop, past whoever takes the result.
            self._failure = error
            return None
