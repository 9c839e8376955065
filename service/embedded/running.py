"""Embedded servers for code without an event loop: a thread that has one, for as long as a `with` block.

For notebooks and for fixtures that outlive the loops of single tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

CALL_SECONDS_MAX = 180.0

ServerT = TypeVar("ServerT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Running(Generic[ServerT]):
    """A server on another thread's event loop. Attributes may be read from anywhere, coroutines go by `call`."""

    server: ServerT
    loop: asyncio.AbstractEventLoop

    def call(
        self, action: Callable[[ServerT], Coroutine[object, object, ResultT]], *, seconds_max: float = CALL_SECONDS_MAX
    ) -> ResultT:
        """Run `action(server)` on the server's loop and wait for its result: `kafka.call(EmbeddedBroker.restart)`."""
        return asyncio.run_coroutine_threadsafe(action(self.server), self.loop).result(seconds_max)


@contextlib.contextmanager
def running(opening: AbstractAsyncContextManager[ServerT], *, name: str) -> Iterator[Running[ServerT]]:
    """Keep an asynchronous context open on a thread of its own, entered on return and left with the block.

    Raises what entering it raised. Leaving the block leaves the context, on that thread, and waits for it.
    """
    started: Future[Running[ServerT]] = Future()
    request_stop: Future[Callable[[], object]] = Future()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        async with opening as server:
            request_stop.set_result(lambda: loop.call_soon_threadsafe(stop.set))
            started.set_result(Running(server, loop))
            await stop.wait()

    def live() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # handed to the thread that waits for it
            if started.done():
                raise
            started.set_exception(error)

    # Daemon: an interpreter that ends without closing this is not held up; the guard stops the server then.
    thread = threading.Thread(target=live, name=f"embedded {name}", daemon=True)
    thread.start()
    server = started.result(CALL_SECONDS_MAX)
    try:
        yield server
    finally:
        request_stop.result()()
        thread.join(CALL_SECONDS_MAX)
