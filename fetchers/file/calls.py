"""Blocking calls on files: reads of one task, and looks of many idle tasks together, in threads of the worker.

A network file system that hangs must harm only the task that reads it. A thousand idle tasks, on the other hand,
must cost next to nothing, so their looks (one ``stat`` each) are done in one call, by whoever waited first, and who
waits for a change is not woken before there is one. A look that hangs is left behind in its thread, and the others go
on in another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fetchers.sdk import Clock, FetchContext, Retriable
from fetchers.sdk.context import BLOCKING_SECONDS_MAX
from fetchers.toolkit.exclusive_calls import ExclusiveCalls

T = TypeVar("T")

LOOK_SECONDS_MAX = 30.0
"""Time limit of one look."""


class FileCalls:
    """Blocking calls on the files of one fetch, one at a time; the files are closed when the last of them has ended."""

    def __init__(self, context: FetchContext, subject: str, *, stopping: Event, close: Callable[[], None]) -> None:
        """``subject``: the path that is told of a call that hangs; ``close``: may be called twice."""
        self._context = context
        self._subject = subject
        self._stopping = stopping
        self._calls = ExclusiveCalls(close, closed=stopping)

    async def run(self, call: Callable[[], T], *, seconds_max: float = BLOCKING_SECONDS_MAX) -> T:
        """What the call returns or raises. Raises Retriable when it takes too long, and after ``stop``."""

        def guarded() -> T:
            with self._calls.call():
                return call()

        return await self._context.run_blocking(guarded, subject=self._subject, seconds_max=seconds_max)

    async def stop(self) -> None:
        """Make no more calls, and close the files: now, or when the call that is still running has ended."""
        self._stopping.set()
        try:
            # One that hangs is not waited for: it closes the files itself.
            with suppress(Retriable):
                release = self._calls.release_if_last
                await self._context.run_blocking(release, subject=self._subject, seconds_max=LOOK_SECONDS_MAX)
        finally:
            self._calls.close()


_KEEP_THE_BEAT = object()
"""An answer that is none: whoever gets it looks for all others from now on."""


@dataclass(slots=True, eq=False)
class _Look:
    """One who waits for a change."""

    call: Callable[[], Any]
    since: Any
    """What was seen before: it is no answer."""
    context: FetchContext
    subject: str
    answer: asyncio.Future[Any]
    value: Any = None
    error: Exception | None = None

    def take(self) -> None:
        """Make the call, in a thread."""
        try:
            value = self.call()
            self.value = self.since if value == self.since else value
        except Exception as error:  # noqa: BLE001 - carried to whoever waits for the answer
            self.error = error

    def tell(self) -> None:
        """Answer, if there is news."""
        if self.answer.done() or (self.error is None and self.value is self.since):
            return
        if self.error is None:
            self.answer.set_result(self.value)
        else:
            self.answer.set_exception(self.error)


@dataclass(slots=True, eq=False)
class _Round:
    """Looks that are made one after the other in one blocking call."""

    looks: list[_Look]
    done: int = 0
    has_begun: bool = False
    is_left_behind: bool = False

    def make(self) -> None:
        """Make them, in a thread, until one of them hangs for so long that nobody waits for it any more."""
        self.has_begun = True
        for look in self.looks:
            look.take()
            if self.is_left_behind:
                break
            self.done += 1


@dataclass(slots=True)
class _Beat:
    """Those who want to be looked after equally often; the first of them does it for all."""

    clock: Clock
    seconds: float
    looks: dict[_Look, None] = field(default_factory=dict)
    keeper: _Look | None = None


class Changes:
    """Waits of many tasks for something to change, looked after together."""

    def __init__(self, *, seconds_max: float = LOOK_SECONDS_MAX) -> None:
        """``seconds_max``: how long one look may take."""
        self._seconds_max = seconds_max
        self._beats: dict[tuple[Clock, float], _Beat] = {}
        self._hung = 0
        """Looks that were left behind: the threads they hold are not waited for again."""

    async def wait(
        self, call: Callable[[], T], *, since: T, subject: str, context: FetchContext, every_seconds: float
    ) -> T:
        """Make a cheap blocking call again and again until it gives something else than ``since``.

        All who wait at one beat are looked after together. Raises what the call raises, and Retriable when it hangs.
        """
        loop = asyncio.get_running_loop()
        beat = self._beats.setdefault((context.clock, every_seconds), _Beat(context.clock, every_seconds))
        look = _Look(call, since, context, subject, loop.create_future())
        beat.looks[look] = None
        try:
            while True:
                beat.keeper = beat.keeper or look
                if beat.keeper is look:
                    await self._keep(beat, look)
                answer: T = await look.answer
                if answer is not _KEEP_THE_BEAT:
                    return answer
                look.answer = loop.create_future()
        finally:
            self._leave(beat, look)

    async def _keep(self, beat: _Beat, mine: _Look) -> None:
        """Look for all of them until there is news for who does it."""
        while not mine.answer.done():
            await beat.clock.sleep(beat.seconds)
            waiting = [look for look in beat.looks if not look.answer.done()]
            while waiting:
                waiting = await self._make(_Round(waiting), mine.context)

    async def _make(self, made: _Round, context: FetchContext) -> list[_Look]:
        """Make a round, tell the news, and give the looks that are left because one before them hangs."""
        try:
            await context.run_blocking(made.make, subject=f"look at files {self._hung}", seconds_max=self._seconds_max)
        except Retriable:
            if not made.has_begun:
                # The round of a fetch of this task that was stopped in its midst is not over: the next beat is soon.
                return []
            made.is_left_behind = True
            self._hung += 1
        for look in made.looks[: made.done]:
            look.tell()
        if made.done == len(made.looks):
            return []
        hanging = made.looks[made.done]
        if not hanging.answer.done():
            text = f"'{hanging.subject}': no answer within {self._seconds_max:g} s"
            hanging.answer.set_exception(Retriable(text))
        return made.looks[made.done + 1 :]

    def _leave(self, beat: _Beat, look: _Look) -> None:
        del beat.looks[look]
        if beat.keeper is look:
            beat.keeper = next((each for each in beat.looks if not each.answer.done()), None)
            if beat.keeper is not None:
                beat.keeper.answer.set_result(_KEEP_THE_BEAT)
        if not beat.looks:
            self._beats.pop((beat.clock, beat.seconds), None)


_CHANGES: WeakKeyDictionary[asyncio.AbstractEventLoop, Changes] = WeakKeyDictionary()


def shared_changes() -> Changes:
    """Those of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _CHANGES:
        _CHANGES[loop] = Changes()
    return _CHANGES[loop]
