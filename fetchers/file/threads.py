"""Where blocking calls on files run: reads in a thread of the task's own, looks in threads that all tasks share.

A network file system that hangs must harm only the task that reads it. A thousand idle tasks, on the other hand,
must cost next to nothing, so their looks (one ``stat`` each) are gathered and done in one go; a look that hangs is
left behind in its thread, and the others go on in another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fetchers.sdk import Retriable

T = TypeVar("T")

CALL_SECONDS_MAX = 300.0
"""Time limit of one read; checking a large archive is the longest."""
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


@dataclass(slots=True)
class _Look:
    subject: str
    call: Callable[[], Any]
    answer: asyncio.Future[Any]
    value: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class _Batch:
    looks: list[_Look]
    done: int = 0
    is_left_behind: bool = False


class Looks:
    """Gathers cheap blocking calls of many tasks and runs them together."""

    def __init__(self, *, seconds_max: float = LOOK_SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._waiting: list[_Look] = []
        self._hanging: set[str] = set()
        self._executor = ThreadPoolExecutor(max_workers=LOOK_THREADS_MAX, thread_name_prefix="file-look")

    async def run(self, call: Callable[[], T], *, subject: str) -> T:
        """Run a cheap blocking call, soon. Raises what it raises, and Retriable while it hangs."""
        if subject in self._hanging:
            # It still blocks a thread; a second one would help nobody.
            raise Retriable(f"'{subject}': the file system does not answer")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        if not self._waiting:
            loop.call_later(GATHER_SECONDS, self._start, loop)
        self._waiting.append(_Look(subject, call, answer))
        return await answer

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        looks, self._waiting = self._waiting, []
        self._submit(_Batch([look for look in looks if not look.answer.done()]), loop)

    def _submit(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> None:
        watch = loop.call_later(self._seconds_max, self._leave_behind, batch, loop)

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
        if not hanging.answer.done():
            text = f"'{hanging.subject}': no answer within {self._seconds_max:g} s"
            hanging.answer.set_exception(Retriable(text))
        batch.looks = [hanging]
        if rest:
            self._submit(_Batch(rest), loop)

    def _answer(self, batch: _Batch) -> None:
        for look in batch.looks:
            self._hanging.discard(look.subject)
            if look.answer.done():
                continue
            if look.error is None:
                look.answer.set_result(look.value)
            else:
                look.answer.set_exception(look.error)


def _run_all(batch: _Batch, loop: asyncio.AbstractEventLoop, answer_all: Callable[[], None]) -> None:
    """Run in a thread; the answers of one batch go back to the loop together."""
    for look in tuple(batch.looks):
        try:
            look.value = look.call()
        except Exception as error:  # noqa: BLE001 - carried to whoever waits for the answer
            look.error = error
        if batch.is_left_behind:
            break
        batch.done += 1
    if not loop.is_closed():
        loop.call_soon_threadsafe(answer_all)


_LOOKS: WeakKeyDictionary[asyncio.AbstractEventLoop, Looks] = WeakKeyDictionary()


def shared_looks() -> Looks:
    """The looks of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _LOOKS:
        _LOOKS[loop] = Looks()
    return _LOOKS[loop]
