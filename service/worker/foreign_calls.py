"""Where code of connectors runs that may block: their imports, their checks, the splitting of their work.

Each call has a thread of its own, which nobody waits for longer than the time limit. A call that hangs for ever costs
one idle thread, ends with the process, and is not made a second time beside itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from threading import Thread
from typing import Protocol, TypeVar

from fetchers.sdk import Retriable
from service.worker.turnstile import Turnstile

T = TypeVar("T")

CALL_SECONDS_MAX = 30.0
CALLS_AT_ONCE = 4
"""Python runs one thread at a time: more would only make the event loop wait longer for its turn."""
COUNTED_SECONDS_MAX = 1.0
"""A call that takes longer is waiting for something, and makes room for the next."""


class ForeignCallHangsError(Retriable):
    """A connector's code has not returned; it may be waiting for something that comes back."""


class Calls(Protocol):
    """Where blocking calls of connectors' own code are made."""

    async def run(self, call: Callable[[], T], *, subject: Hashable) -> T:
        """What the call returns or raises; raises ``ForeignCallHangsError`` when it does neither in time.

        ``subject``: whose call it is; one at a time.
        """


class ForeignCalls:
    """Runs blocking calls for one event loop."""

    def __init__(self, *, seconds_max: float = CALL_SECONDS_MAX) -> None:
        """Nothing runs yet."""
        self._seconds_max = seconds_max
        self._turnstile = Turnstile(CALLS_AT_ONCE, seconds_max=COUNTED_SECONDS_MAX)
        self._running: set[Hashable] = set()

    async def run(self, call: Callable[[], T], *, subject: Hashable) -> T:
        """See ``Calls``."""
        if subject in self._running:
            message = f"{subject}: an earlier call of the connector's own code still hangs"
            raise ForeignCallHangsError(message)
        turn = await self._turnstile.enter()
        try:
            async with asyncio.timeout(self._seconds_max):
                return await self._started(call, subject)
        except TimeoutError as error:
            message = f"{subject}: the connector's own code did not return within {self._seconds_max:g} s"
            raise ForeignCallHangsError(message) from error
        finally:
            turn.leave()

    def _started(self, call: Callable[[], T], subject: Hashable) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._running.add(subject)

        def finish(value: T | None, error: BaseException | None) -> None:
            self._running.discard(subject)
            if answer.done():
                return
            if error is None:
                answer.set_result(value)  # type: ignore[arg-type] # of type T where there is no error
            else:
                answer.set_exception(error)

        def work() -> None:
            value, error = _outcome(call)
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish, value, error)

        Thread(target=work, name=f"connector {subject}", daemon=True).start()
        return answer


def _outcome(call: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 - carried to whoever waits for the answer
        return None, error
