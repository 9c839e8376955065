"""Where code of connectors runs that may block: their imports, their checks, the splitting of their work.

A few threads, which nobody waits for longer than the time limit. A call that hangs for ever keeps its thread, another
takes its place; it ends with the process, and is not made a second time beside itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Protocol, TypeVar

from fetchers.sdk import Retriable
from service.domain.errors import ConnectorExitError
from service.worker.turnstile import Turnstile

T = TypeVar("T")

CALL_SECONDS_MAX = 30.0
CALLS_AT_ONCE = 4
"""Python runs one thread at a time: more would only keep the event loop waiting for longer."""
COUNTED_SECONDS_MAX = 1.0
"""A call that takes longer is waiting for something, and makes room for the next."""


class ForeignCallHangsError(Retriable):
    """A connector's code has not returned; it may be waiting for something that comes back."""


class Calls(Protocol):
    """Where blocking calls of connectors' own code are made."""

    async def run(self, call: Callable[[], T], *, subject: Hashable, seconds_max: float | None = None) -> T:
        """What the call returns or raises; raises ``ForeignCallHangsError`` when it does neither in time.

        ``subject``: whose call it is; one at a time. ``seconds_max``: how long it is waited for, if not as usual.
        """

    def close(self) -> None:
        """Let threads end that wait for calls; more calls may follow."""


class ForeignCalls:
    """Runs blocking calls for one event loop."""

    def __init__(self, *, seconds_max: float = CALL_SECONDS_MAX) -> None:
        """``seconds_max``: how long a call is waited for; nothing runs yet."""
        self._seconds_max = seconds_max
        self._turnstile = Turnstile(CALLS_AT_ONCE, seconds_max=COUNTED_SECONDS_MAX)
        self._running: set[Hashable] = set()
        self._errands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads_idle = 0
        self._is_closed = False

    async def run(self, call: Callable[[], T], *, subject: Hashable, seconds_max: float | None = None) -> T:
        """See ``Calls``."""
        if subject in self._running:
            message = f"{subject}: an earlier call of the connector's own code still hangs"
            raise ForeignCallHangsError(message)
        self._is_closed = False
        limit_seconds = seconds_max or self._seconds_max
        place = await self._turnstile.enter()
        try:
            async with asyncio.timeout(limit_seconds):
                return await self._started(call, subject)
        except TimeoutError as error:
            message = f"{subject}: the connector's own code did not return within {limit_seconds:g} s"
            raise ForeignCallHangsError(message) from error
        finally:
            place.leave()

    def _started(self, call: Callable[[], T], subject: Hashable) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._running.add(subject)

        def finish(value: T | None, error: BaseException | None) -> None:
            self._running.discard(subject)
            self._thread_is_free()
            if answer.done():
                return
            if error is None:
                answer.set_result(value)  # type: ignore[arg-type] # of type T where there is no error
            else:
                answer.set_exception(error)

        def errand() -> None:
            value, error = _outcome(call)
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(finish, value, error)

        self._errands.put(errand)
        if self._threads_idle:
            self._threads_idle -= 1
        else:
            Thread(target=_work, args=(self._errands,), name="connector code", daemon=True).start()
        return answer

    def _thread_is_free(self) -> None:
        """Keep it for the next call, but no more threads than may be wanted at once; none after ``close``."""
        if self._threads_idle < CALLS_AT_ONCE and not self._is_closed:
            self._threads_idle += 1
        else:
            self._errands.put(None)

    def close(self) -> None:
        """See ``Calls``. A thread whose call is still running ends with it."""
        self._is_closed = True
        for _ in range(self._threads_idle):
            self._errands.put(None)
        self._threads_idle = 0


def _work(errands: SimpleQueue[Callable[[], None] | None]) -> None:
    while (errand := errands.get()) is not None:
        errand()


def _outcome(call: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 - carried to whoever waits for the answer
        # A future cannot carry the end of an iteration.
        return None, _as_failure(error) if isinstance(error, StopIteration) else error
    except BaseException as error:  # noqa: BLE001 - an end of the thread or the process is not the connector's to ask for
        return None, _as_failure(error)


def _as_failure(error: BaseException) -> ConnectorExitError:
    failure = ConnectorExitError.of(error)
    failure.__cause__ = error
    return failure
