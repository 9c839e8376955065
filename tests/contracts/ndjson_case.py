"""The contract suite's view of ``NdjsonStreamSource``: a stream that cannot be resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from typing_extensions import override

from fetchers.ndjson.fetcher import NdjsonStreamSource
from fetchers.sdk.testing import BadConfig, ListenerCase
from tests.contracts.loopback import serve
from tests.contracts.talking import TOKEN, Talker


class Stream(Talker):
    """Lines with CRLF, and keep-alives between them."""

    @property
    @override
    def properties(self) -> Mapping[str, str]:
        return {
            "topic": "stream",
            "stream.url": self.url,
            "http.auth.type": "bearer",
            "http.auth.token": TOKEN,
        }

    @override
    async def talk(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        index = 0
        while True:
            items = await self.items_from(index)
            await response.write(b"\r\n" + b"".join(item + b"\r\n" for item in items))
            index += len(items)
            self.given = index


class NdjsonCase(ListenerCase):
    """``NdjsonStreamSource`` without a cursor."""

    connector = NdjsonStreamSource
    secrets = (TOKEN,)
    is_resumable = False
    bad_configs = (
        BadConfig({"stream.url": "ftp://x", "topic": None}, frozenset({"stream.url", "topic"})),
        BadConfig(
            {"stream.url": "http://x/?since={offset}", "listener.skip": "heartbeat"},
            frozenset({"stream.cursor.field", "stream.cursor.initial", "listener.skip"}),
        ),
        BadConfig({"stream.cursor.field": "seq"}, frozenset({"stream.cursor.field"})),
        BadConfig({"http.auth.token": None}, frozenset({"http.auth.token"})),
    )

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[Stream]:
        """A server on a free port."""
        del folder
        stream = Stream()
        async with serve(stream.answer) as address:
            stream.url = f"{address}/stream"
            yield stream


CASE = NdjsonCase()
