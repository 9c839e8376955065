"""Runs a fetcher as the worker would, for as long as a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fetchers.sdk.connector import SourceConnector
from fetchers.sdk.page import Page
from fetchers.sdk.testing.context import FakeContext

PAGES_MAX = 100_000
SECONDS_MAX = 120.0


class ManyPagesError(AssertionError):
    """The fetcher hands over pages without end."""


async def collect(
    connector: SourceConnector[Any],
    context: FakeContext,
    *,
    pages: int | None = None,
    rounds: int | None = None,
    records: int | None = None,
    seconds_max: float = SECONDS_MAX,
    on_page: Callable[[Page], None] | None = None,
) -> list[Page]:
    """Pages that the fetcher hands over until it ends, or has given ``pages`` or ``records``, or finished ``rounds``.

    Without any of them it is one round. Stopping is cancellation, as in the worker; offsets of pages are *not* stored
    (see ``FakeContext.commit``). What the fetcher raises is raised. More than ``seconds_max`` of real time is a
    TimeoutError. ``context.on_round`` is called as ever.
    """
    if pages is None and rounds is None and records is None:
        rounds = 1
    found: list[Page] = []
    async with running(connector, context, rounds=rounds, seconds_max=seconds_max) as stream:
        async for page in stream:
            found.append(page)
            if on_page is not None:
                on_page(page)
            if pages is not None and len(found) >= pages:
                break
            if records is not None and sum(map(len, found)) >= records:
                break
            if len(found) > PAGES_MAX:
                message = f"more than {PAGES_MAX} pages"
                raise ManyPagesError(message)
    return found


@asynccontextmanager
async def running(
    connector: SourceConnector[Any],
    context: FakeContext,
    *,
    rounds: int | None = None,
    seconds_max: float = SECONDS_MAX,
) -> AsyncIterator[AsyncIterator[Page]]:
    """The stream of pages; leaving the block stops the fetcher, as does the end of that many rounds more."""
    stream = connector.fetch(context)
    try:
        yield _until_round(stream, context, rounds, seconds_max)
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


async def _until_round(
    stream: AsyncIterator[Page], context: FakeContext, rounds: int | None, seconds_max: float
) -> AsyncIterator[Page]:
    wanted = None if rounds is None else context.rounds + rounds
    is_over = False
    heard = context.on_round
    while not is_over:
        async with asyncio.timeout(seconds_max) as patience:
            scope = asyncio.timeout(None)

            def on_round(count: int, scope: asyncio.Timeout = scope) -> None:
                nonlocal is_over
                if heard is not None:
                    heard(count)
                if wanted is not None and count >= wanted:
                    is_over = True
                    scope.reschedule(asyncio.get_running_loop().time())

            context.on_round = on_round
            page: Page | None = None
            try:
                async with scope:
                    page = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not scope.expired() or patience.expired():
                    raise
            finally:
                context.on_round = heard
        if page is not None:
            yield page
