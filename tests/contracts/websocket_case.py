"""The contract suite's view of ``WebSocketSource``: a feed that goes on after a number."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from typing_extensions import override

from fetchers.sdk.testing import BadConfig, ListenerCase
from fetchers.websocket.fetcher import WebSocketSource
from tests.contracts.loopback import serve
from tests.contracts.talking import TOKEN, Talker


class Feed(Talker):
    """Confirms a subscription, then says what comes after the number in it."""

    first_records = 5
    """Each may be a page of its own, and the suite resumes after every page."""

    @property
    @override
    def properties(self) -> Mapping[str, str]:
        return {
            "topic": "feed",
            "websocket.url": self.url,
            "websocket.subscribe": '{"type": "subscribe", "after": {offset}}',
            "websocket.cursor.field": "id",
            "websocket.cursor.initial": "-1",
            "listener.skip": "type=subscribed",
            "http.auth.type": "bearer",
            "http.auth.token": TOKEN,
        }

    @override
    async def talk(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(timeout=0.1)
        await socket.prepare(request)
        index = int(json.loads(await socket.receive_str())["after"]) + 1
        await socket.send_str('{"type": "subscribed"}')
        while True:
            for item in await self.items_from(index):
                await socket.send_str(item.decode())
                index += 1
                self.given = index


class WebSocketCase(ListenerCase):
    """``WebSocketSource`` with a cursor."""

    connector = WebSocketSource
    secrets = (TOKEN,)
    bad_configs = (
        BadConfig({"websocket.url": "tcp://x", "topic": None}, frozenset({"websocket.url", "topic"})),
        BadConfig(
            {"websocket.cursor.initial": None, "websocket.close.fatal": "many", "http.auth.token": None},
            frozenset({"websocket.cursor.initial", "websocket.close.fatal", "http.auth.token"}),
        ),
        BadConfig({"websocket.subscribe": "{}"}, frozenset({"websocket.cursor.field"})),
    )

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[Feed]:
        """A server on a free port."""
        del folder
        feed = Feed()
        async with serve(feed.answer) as address:
            feed.url = f"ws{address.removeprefix('http')}/feed"
            yield feed


CASE = WebSocketCase()
