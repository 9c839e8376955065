"""Where blocking calls on files run: reads in a thread of the task's own, looks in a thread that all tasks share.

A network file system that hangs must harm only the task that reads it. A thousand idle tasks, on the other hand,
must cost next to nothing, so their looks (one ``stat`` each) are gathered and done in one go.
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

CALL_SECONDS_MAX = 60.0
"""Time limit of one read."""
LOOK_SECONDS_MAX = 10.0
"""Time limit of one look."""
GATHER_SECONDS = 0.01
"""How long a look waits for others to go with."""
LOOK_THREADS_MAX = 8


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
            message = f"{subject} gave no answer within {CALL_SECONDS_MAX:g} s"
            raise Retriable(message) from error

    def rest(self, last_call: Callable[[], object] | None = None) -> None:
        """End the thread, after ``last_call`` and whatever runs; does not wait for it."""
        if self._executor is None:
            if last_call is not None:
                last_call()
            return
        if last_call is not None:
            self._executor.submit(last_call)
        self._executor.shutdown(wait=False)
        self._executor = None


@dataclass(frozen=True, slots=True)
class _Look:
    call: Callable[[], Any]
    answer: asyncio.Future[Any]


class Looks:
    """Gathers cheap blocking calls of many tasks and runs them together."""

    def __init__(self) -> None:
        self._waiting: list[_Look] = []
        self._executor = ThreadPoolExecutor(max_workers=LOOK_THREADS_MAX, thread_name_prefix="file-look")

    async def run(self, call: Callable[[], T], *, subject: str) -> T:
        """Run a cheap blocking call, soon. Raises what it raises, and Retriable when it hangs."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        if not self._waiting:
            loop.call_later(GATHER_SECONDS, self._start, loop)
        self._waiting.append(_Look(call, answer))
        try:
            async with asyncio.timeout(LOOK_SECONDS_MAX):
                return await answer
        except TimeoutError as error:
            message = f"{subject} gave no answer within {LOOK_SECONDS_MAX:g} s"
            raise Retriable(message) from error

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        looks, self._waiting = self._waiting, []
        self._executor.submit(_run_all, looks, loop)


def _run_all(looks: list[_Look], loop: asyncio.AbstractEventLoop) -> None:
    """Run in a thread; the answers of one batch go back to the loop together."""
    answers: list[tuple[_Look, Any, OSError | None]] = []
    for look in looks:
        try:
            answers.append((look, look.call(), None))
        except OSError as error:
            answers.append((look, None, error))
    loop.call_soon_threadsafe(_answer_all, answers)


def _answer_all(answers: list[tuple[_Look, Any, OSError | None]]) -> None:
    for look, value, error in answers:
        if look.answer.done():
            continue
        if error is None:
            look.answer.set_result(value)
        else:
            look.answer.set_exception(error)


_LOOKS: WeakKeyDictionary[asyncio.AbstractEventLoop, Looks] = WeakKeyDictionary()


def shared_looks() -> Looks:
    """The looks of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _LOOKS:
        _LOOKS[loop] = Looks()
    return _LOOKS[loop]
