"""The contract suite's view of ``HttpSource``: a feed on the loopback, newest first, in pages by cursor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from typing_extensions import override

from fetchers.http.fetcher import HttpSource
from fetchers.sdk.testing import BadConfig, FetcherCase, ScriptedSource
from tests.contracts.loopback import serve

TOKEN = "tok-9f3a7c55e1d24b80"
HEADER = "hdr-77aa31c0ffee4411"
PAGE_RECORDS = 10


class Feed(ScriptedSource):
    """Items in pages; several share a time stamp, and the key tells them apart."""

    def __init__(self) -> None:
        self.items = [self._item(number) for number in range(45)]
        self.url = ""
        self.given = 0
        self.mood = "well"
        self.asked = asyncio.Event()
        self.limit_seconds: int | None = None

    @staticmethod
    def _item(number: int) -> bytes:
        return b'{"id": %d, "updated": %d, "text": "caf\\u00e9 \xe2\x80\xa8 %d"}' % (number, 1000 + number // 4, number)

    @property
    @override
    def properties(self) -> Mapping[str, str]:
        return {
            "topic": "feed",
            "http.url": self.url,
            "http.header.X-Client": HEADER,
            "http.auth.type": "bearer",
            "http.auth.token": TOKEN,
            "http.records.path": "data.items",
            "http.offset.field": "updated",
            "http.offset.key": "id",
            "http.pagination.type": "cursor",
            "http.pagination.cursor.path": "next",
            "poll.interval.ms": "1000",
        }

    @property
    @override
    def expected(self) -> Sequence[bytes]:
        return tuple(self.items)

    @override
    async def add(self) -> None:
        # Two of them have the time stamp of the last that was there.
        self.items += [self._item(len(self.items) + more) for more in range(5)]

    @override
    async def hang(self) -> None:
        self.mood = "hangs"

    @override
    async def wait_until_asked(self) -> None:
        await self.asked.wait()

    @override
    async def refuse(self) -> None:
        self.mood = "refuses"

    @override
    async def limit(self, seconds: int) -> None:
        self.limit_seconds = seconds

    @property
    @override
    def records_given(self) -> int:
        return self.given

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The page that the cursor names."""
        self.asked.set()
        if self.mood == "hangs":
            await asyncio.Event().wait()
        sent = request.headers.get("Authorization"), request.headers.get("X-Client")
        if self.mood == "refuses" or sent != (f"Bearer {TOKEN}", HEADER):
            return web.Response(status=401, text=f"no entry with {sent} for {request.url}")
        if self.limit_seconds is not None:
            seconds, self.limit_seconds = self.limit_seconds, None
            return web.Response(status=429, headers={"Retry-After": str(seconds)})
        start = int(request.query.get("cursor", "0"))
        chosen = self.items[start : start + PAGE_RECORDS]
        self.given += len(chosen)
        following = start + PAGE_RECORDS if start + PAGE_RECORDS < len(self.items) else None
        body = b'{"data": {"items": [' + b" , ".join(chosen) + b']}, "next": ' + json.dumps(following).encode() + b"}"
        return web.Response(body=body, content_type="application/json")


class HttpCase(FetcherCase):
    """``HttpSource`` with cursor, offset field and key."""

    connector = HttpSource
    secrets = (TOKEN, HEADER)
    records_ahead_max = 3 * PAGE_RECORDS
    can_limit = True
    bad_configs = (
        BadConfig(
            {"http.url": "ftp://here", "topic": None, "http.format": "xml"},
            frozenset({"http.url", "topic", "http.format"}),
        ),
        BadConfig(
            {
                "http.auth.token": None,
                "http.pagination.cursor.path": None,
                "http.status.retry": "6xx",
                "http.rate.limits": "3",
            },
            frozenset({"http.auth.token", "http.pagination.cursor.path", "http.status.retry", "http.rate.limits"}),
        ),
        BadConfig({"http.query.since": "{offset.other}"}, frozenset({"http.offset.field", "http.offset.initial"})),
        BadConfig({"http.offset.field": None}, frozenset({"http.offset.key"})),
        BadConfig({"http.url": "http://user:odd-password-1@host/"}, frozenset({"http.url"})),
    )

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[Feed]:
        """A server on a free port."""
        del folder
        feed = Feed()
        async with serve(feed.answer) as address:
            feed.url = f"{address}/feed?shape=full"
            yield feed


CASE = HttpCase()
