"""A paged API in a process of its own: pages of 1,000 events, rendered before the measurement."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from aiohttp import web

from tests.benchmarks.lines import line
from tests.contracts.loopback import serve

PAGE_RECORDS = 1_000
RENDERED_PAGES = 50
"""Pages that are rendered; further ones repeat them, which costs the API nothing."""


@contextmanager
def page_server(*, pages: int) -> Iterator[str]:
    """URL of ``pages`` pages, the first being number 1; a page past the last is empty."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(pages, theirs), daemon=True)
    process.start()
    try:
        yield str(ours.recv())
    finally:
        process.terminate()
        process.join()


def _serve(pages: int, pipe: Connection) -> None:
    bodies = [_body(number) for number in range(min(pages, RENDERED_PAGES))]

    async def page(request: web.Request) -> web.Response:
        number = int(request.query.get("page", "1"))
        body = bodies[(number - 1) % len(bodies)] if number <= pages else b'{"events":[]}'
        return web.Response(body=body, content_type="application/json")

    async def run() -> None:
        async with serve(page, path="/events") as url:
            pipe.send(f"{url}/events")
            await asyncio.Event().wait()

    asyncio.run(run())


def _body(number: int) -> bytes:
    events = b",".join(line(number * PAGE_RECORDS + offset) for offset in range(PAGE_RECORDS))
    return b'{"events":[' + events + b"]}"
