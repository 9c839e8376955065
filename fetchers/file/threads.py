"""Where blocking calls on files run: reads in a thread of the task's own, looks in threads that all tasks share.

A network file system that hangs must harm only the task that reads it. A thousand idle tasks, on the other hand,
must cost next to nothing, so their looks (one ``stat`` each) are gathered and done in one go, and whoever waits for a
change is not woken before there is one. A look that hangs is left behind in its thread, and the others go on in
another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fetchers.sdk import Clock, Retriable

T = TypeVar("T")

CALL_SECONDS_MAX = 300.0
"""Time limit of one read; a share of the check of an archive is the longest."""
LOOK_SECONDS_MAX = 5.0
"""Time limit of one look."""
GATHER_SECONDS = 0.01
"""How long a look waits for others to go with."""
LOOK_THREADS_MAX = 16


class FileThread:
    """One thread for the reads of one task; it exists only while there is something to read."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, call: Callable[[], T], *, subject: str) -> T:
        """Run a blocking call. Raises Retriable when it takes too long."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="file")
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                return await asyncio.get_running_loop().run_in_executor(self._executor, call)
        except TimeoutError as error:
            raise Retriable(f"'{subject}': no answer within {CALL_SECONDS_MAX:g} s") from error

    def rest(self, last_call: Callable[[], object] | None = None) -> None:
        """End the thread, after ``last_call`` and whatever runs; does not wait for it."""
        executor = self._executor
        if last_call is not None:
            executor = executor or ThreadPoolExecutor(max_workers=1, thread_name_prefix="file")
            executor.submit(last_call)
        if executor is not None:
            executor.shutdown(wait=False)
        self._executor = None


_NOTHING = object()
"""Equal to no answer."""
_KEEP_THE_BEAT = object()
"""An answer that is none: whoever gets it looks for all others from now on."""


@dataclass(slots=True, eq=False)
class _Look:
    subject: str
    call: Callable[[], Any]
    answer: asyncio.Future[Any]
    since: Any = _NOTHING
    """What was seen before: it is no answer."""
    value: Any = None
    error: Exception | None = None
    is_under_way: bool = False

    @property
    def is_news(self) -> bool:
        """Whether there is something to answer."""
        return self.error is not None or self.value is not self.since


@dataclass(slots=True)
class _Batch:
    looks: list[_Look]
    done: int = 0
    is_left_behind: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Looks:
    """Gathers cheap blocking calls of many tasks and runs them together."""

    def __init__(self, *, seconds_max: float = LOOK_SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._waiting: list[_Look] = []
        self._beats: dict[tuple[Clock, float], _Beat] = {}
        self._hanging: set[str] = set()
        self._executor = ThreadPoolExecutor(max_workers=LOOK_THREADS_MAX, thread_name_prefix="file-look")

    async def run(self, call: Callable[[], T], *, subject: str) -> T:
        """Run a cheap blocking call, soon. Raises what it raises, and Retriable while it hangs."""
        self._demand_answering(subject)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        if not self._waiting:
            loop.call_later(GATHER_SECONDS, self._start, loop)
        self._waiting.append(_Look(subject, call, answer))
        return await answer

    async def changed(self, call: Callable[[], T], *, since: T, subject: str, clock: Clock, every_seconds: float) -> T:
        """Run a cheap blocking call again and again until it gives something else than ``since``.

        All who wait at one beat are looked after together. Raises as ``run``.
        """
        self._demand_answering(subject)
        beat = self._beats.setdefault((clock, every_seconds), _Beat(clock, every_seconds))
        look = _Look(subject, call, asyncio.get_running_loop().create_future(), since)
        beat.looks[look] = None
        try:
            while True:
                beat.keeper = beat.keeper or look
                if beat.keeper is look:
                    await self._keep(beat, look)
                answer: T = await look.answer
                if answer is not _KEEP_THE_BEAT:
                    return answer
                look.answer = asyncio.get_running_loop().create_future()
        finally:
            self._leave(beat, look)

    async def _keep(self, beat: _Beat, mine: _Look) -> None:
        """Look for all of them until there is news for who does it."""
        loop = asyncio.get_running_loop()
        while not mine.answer.done():
            await beat.clock.sleep(beat.seconds)
            batch = _Batch([look for look in beat.looks if not look.is_under_way and not look.answer.done()])
            self._submit(batch, loop)
            await batch.ended.wait()

    def _leave(self, beat: _Beat, look: _Look) -> None:
        del beat.looks[look]
        if beat.keeper is look:
            beat.keeper = next((each for each in beat.looks if not each.answer.done()), None)
            if beat.keeper is not None:
                beat.keeper.answer.set_result(_KEEP_THE_BEAT)
        if not beat.looks:
            self._beats.pop((beat.clock, beat.seconds), None)

    def _demand_answering(self, subject: str) -> None:
        if subject in self._hanging:
            # It still blocks a thread; a second one would help nobody.
            raise Retriable(f"'{subject}': the file system does not answer")

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        looks, self._waiting = self._waiting, []
        self._submit(_Batch([look for look in looks if not look.answer.done()]), loop)

    def _submit(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> None:
        watch = loop.call_later(self._seconds_max, self._leave_behind, batch, loop)
        for look in batch.looks:
            look.is_under_way = True

        def answer_all() -> None:
            watch.cancel()
            self._answer(batch)

        self._executor.submit(_run_all, batch, loop, answer_all)

    def _leave_behind(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> None:
        """A batch takes too long: the look it is at hangs; those after it go on elsewhere."""
        if batch.done >= len(batch.looks):
            return
        batch.is_left_behind = True
        hanging, rest = batch.looks[batch.done], batch.looks[batch.done + 1 :]
        self._hanging.add(hanging.subject)
        self._answer(_Batch(batch.looks[: batch.done]))
        batch.ended.set()
        if not hanging.answer.done():
            text = f"'{hanging.subject}': no answer within {self._seconds_max:g} s"
            hanging.answer.set_exception(Retriable(text))
        batch.looks = [hanging]
        if rest:
            self._submit(_Batch(rest), loop)

    def _answer(self, batch: _Batch) -> None:
        for look in batch.looks:
            self._hanging.discard(look.subject)
            look.is_under_way = False
            if look.answer.done() or not look.is_news:
                continue
            if look.error is None:
                look.answer.set_result(look.value)
            else:
                look.answer.set_exception(look.error)
        batch.ended.set()


def _run_all(batch: _Batch, loop: asyncio.AbstractEventLoop, answer_all: Callable[[], None]) -> None:
    """Run in a thread; the answers of one batch go back to the loop together."""
    for look in tuple(batch.looks):
        try:
            value = look.call()
            look.value = look.since if value == look.since else value
        except Exception as error:  # noqa: BLE001 - carried to whoever waits for the answer
            look.error = error
        if batch.is_left_behind:
            break
        batch.done += 1
    if not loop.is_closed():
        loop.call_soon_threadsafe(answer_all)


@dataclass(slots=True)
class _Beat:
    """Those who wait for changes and want to be looked after equally often; the first of them does it for all."""

    clock: Clock
    seconds: float
    looks: dict[_Look, None] = field(default_factory=dict)
    keeper: _Look | None = None


_LOOKS: WeakKeyDictionary[asyncio.AbstractEventLoop, Looks] = WeakKeyDictionary()


def shared_looks() -> Looks:
    """The looks of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _LOOKS:
        _LOOKS[loop] = Looks()
    return _LOOKS[loop]
