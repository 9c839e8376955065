"""An API whose list of items grows all the time, served by a process of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from aiohttp import web

from tests.contracts.loopback import serve

ITEMS_PER_SECOND = 25
PAGE_ITEMS_MAX = 500


@contextmanager
def growing_api() -> Iterator[tuple[str, Connection]]:
    """Its address and a pipe: whoever sends ``stop`` ends the growth and is told how many items there are for good."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield str(ours.recv()), ours
    finally:
        process.terminate()
        process.join()


def _serve(pipe: Connection) -> None:
    began_at = time.monotonic()
    fixed: list[int] = []

    async def items(request: web.Request) -> web.Response:
        if pipe.poll():
            pipe.recv()
            fixed.append(int((time.monotonic() - began_at) * ITEMS_PER_SECOND))
            pipe.send(fixed[0])
        count = fixed[0] if fixed else int((time.monotonic() - began_at) * ITEMS_PER_SECOND)
        first = int(request.query.get("after") or -1) + 1
        return web.json_response([{"id": number} for number in range(first, min(count, first + PAGE_ITEMS_MAX))])

    async def run() -> None:
        async with serve(items) as url:
            pipe.send(url)
            await asyncio.Event().wait()

    asyncio.run(run())
