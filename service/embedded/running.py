"""Embedded servers for code without an event loop: a thread that has one, for as long as a `with` block.

For notebooks and for fixtures that outlive the loops of single tests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

CALL_SECONDS_MAX = 400.0
"""Longer than any server here may take to start, on a machine with far too much to do."""

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
        """Run `action(server)` on the server's loop and wait for its result: `kafka.call(EmbeddedServer.restart)`."""
        return asyncio.run_coroutine_threadsafe(action(self.server), self.loop).result(seconds_max)


@contextlib.contextmanager
def running(opening: AbstractAsyncContextManager[ServerT], *, name: str) -> Iterator[Running[ServerT]]:
    """Keep an asynchronous context open on a thread of its own, entered on return and left with the block.

    Raises what entering it raised. Leaving the block leaves the context, on that thread, and waits for it.
    """
    started: Future[Running[ServerT]] = Future()
    stop = asyncio.Event()

    async def serve() -> None:
        async with opening as server:
            started.set_result(Running(server, asyncio.get_running_loop()))
            await stop.wait()

    with ThreadPoolExecutor(1, thread_name_prefix=f"embedded-{name}") as thread:
        serving = thread.submit(lambda: asyncio.run(serve()))
        first: list[Future[Any]] = [started, serving]
        wait(first, timeout=CALL_SECONDS_MAX, return_when=FIRST_COMPLETED)
        if serving.done():
            serving.result()
        server = started.result(0)
        try:
            yield server
        finally:
            # Its loop is closed where it has ended by itself; then the reason is what matters.
            with contextlib.suppress(RuntimeError):
                server.loop.call_soon_threadsafe(stop.set)
            serving.result(CALL_SECONDS_MAX)
