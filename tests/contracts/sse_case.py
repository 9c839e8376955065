"""The contract suite's view of ``SseSource``: events with ids, resumed by ``Last-Event-ID``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from typing_extensions import override

from fetchers.sdk.testing import BadConfig, ListenerCase
from fetchers.sse.fetcher import SseSource
from tests.contracts.loopback import serve
from tests.contracts.talking import TOKEN, Talker


class Events(Talker):
    """Events whose ids are their numbers, and comments between them."""

    @property
    @override
    def properties(self) -> Mapping[str, str]:
        return {
            "topic": "events",
            "sse.url": self.url,
            "http.auth.type": "bearer",
            "http.auth.token": TOKEN,
        }

    @override
    async def talk(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        index = int(request.headers.get("Last-Event-ID", "-1")) + 1
        while True:
            items = await self.items_from(index)
            events = (b"id: %d\ndata: %b\n\n" % (number, item) for number, item in enumerate(items, index))
            await response.write(b":thump\n" + b"".join(events))
            index += len(items)
            self.given = index


class SseCase(ListenerCase):
    """``SseSource`` on a stream with ids."""

    connector = SseSource
    secrets = (TOKEN,)
    bad_configs = (
        BadConfig({"sse.url": "here", "topic": None}, frozenset({"sse.url", "topic"})),
        BadConfig(
            {"sse.event.header": "event", "listener.skip": "type=a", "http.auth.token": None},
            frozenset({"sse.event.header", "http.auth.token"}),
        ),
        BadConfig({"sse.url": "http://user:odd-password-1@host/"}, frozenset({"sse.url"})),
    )

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[Events]:
        """A server on a free port."""
        del folder
        events = Events()
        async with serve(events.answer) as address:
            events.url = f"{address}/events"
            yield events


CASE = SseCase()
