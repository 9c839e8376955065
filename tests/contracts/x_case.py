"""The contract suite's view of ``XStreamSource``: a stream that sends all it has again, as backfill does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from typing_extensions import override

from fetchers.sdk.testing import BadConfig, ListenerCase
from fetchers.x.fetcher import XStreamSource
from tests.contracts.loopback import serve
from tests.contracts.talking import TOKEN, Talker

FIRST_ID = 1_741_610_183_685_046_272
"""Of the first moment of 2024, when the suite's clock begins."""


class Stream(Talker):
    """Rules that are there, and posts of the last minutes for every connection."""

    @staticmethod
    @override
    def item(number: int, pad: bytes = b"caf\\u00e9 \xe2\x80\xa8") -> bytes:
        return b'{"data":{"id":"%d","text":"%b"},"matching_rules":[{"id":"7","tag":"t"}]}' % (FIRST_ID + number, pad)

    @property
    @override
    def properties(self) -> Mapping[str, str]:
        return {
            "topic": "posts",
            "x.base.url": self.url,
            "x.bearer.token": TOKEN,
            "x.keywords": "kafka",
            "x.recovery": "backfill",
        }

    @override
    async def talk(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/rules"):
            return web.json_response({"data": [{"id": "7", "value": "kafka", "tag": "t"}], "meta": {}})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        index = 0
        while True:
            items = await self.items_from(index)
            await response.write(b"\r\n" + b"".join(item + b"\r\n" for item in items))
            index += len(items)
            self.given = index


class XStreamCase(ListenerCase):
    """``XStreamSource`` with backfill."""

    connector = XStreamSource
    secrets = (TOKEN,)
    bad_configs = (
        BadConfig({"x.base.url": "x.com", "topic": None}, frozenset({"x.base.url", "topic"})),
        BadConfig(
            {"x.bearer.token": None, "x.keywords": None, "x.user.ids": "jack"},
            frozenset({"x.consumer.key", "x.consumer.secret", "x.user.ids"}),
        ),
        BadConfig({"x.keywords": None, "x.query.start_time": "now"}, frozenset({"x.keywords", "x.query.start_time"})),
        BadConfig({"x.rule.long": "cat " * 600, "x.rule.none": ""}, frozenset({"x.rule.long", "x.rule.none"})),
    )

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[Stream]:
        """A server on a free port."""
        del folder
        stream = Stream()
        async with serve(stream.answer) as address:
            stream.url = address
            yield stream

    @override
    def dedupe_key(self, payload: bytes) -> Hashable | None:
        """By the post's id."""
        return str(json.loads(payload)["data"]["id"])


CASE = XStreamCase()
