"""A server on the loopback that talks by itself: what the cases of listeners on HTTP have in common."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence

from aiohttp import web
from typing_extensions import override

from fetchers.sdk.testing import TalkingSource

TOKEN = "tok-51b0d2c9a7e84f63"
FLOOD_RECORDS = 6_000
PAD = b"x" * 8_000


class Talker(TalkingSource):
    """Says its records to every connection, and waits for more; a subclass knows the protocol."""

    first_records = 20

    def __init__(self) -> None:
        self.items = [self.item(number) for number in range(self.first_records)]
        self.url = ""
        self.given = 0
        self.mood = "well"
        self.asked = asyncio.Event()
        self.requests = 0
        self._news = asyncio.Event()
        self._connections: set[asyncio.Transport] = set()

    @staticmethod
    def item(number: int, pad: bytes = b"caf\\u00e9 \xe2\x80\xa8") -> bytes:
        """One record."""
        return b'{"id": %d, "text": "%b"}' % (number, pad)

    @abstractmethod
    async def talk(self, request: web.Request) -> web.StreamResponse:
        """Answer a connection that is welcome."""

    @property
    @override
    def expected(self) -> Sequence[bytes]:
        return tuple(self.items)

    @override
    async def add(self) -> None:
        self._append([self.item(len(self.items) + more) for more in range(3)])

    @override
    async def add_flood(self) -> None:
        self._append([self.item(len(self.items) + more, PAD) for more in range(FLOOD_RECORDS)])

    def _append(self, items: Sequence[bytes]) -> None:
        self.items += items
        self._news.set()

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
    async def be_away(self) -> None:
        self.mood = "away"
        await self.cut()

    @override
    async def cut(self) -> None:
        for transport in self._connections:
            transport.abort()

    @property
    @override
    def records_given(self) -> int:
        return self.given

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Whatever the mood is."""
        self.requests += 1
        self.asked.set()
        sent = request.headers.get("Authorization")
        if self.mood == "refuses" or sent != f"Bearer {TOKEN}":
            return web.Response(status=401, text=f"no entry with {sent}")
        if self.mood == "away":
            return web.Response(status=503, text="come back later")
        transport = request.transport
        assert transport is not None
        self._connections.add(transport)
        try:
            return await self.talk(request)
        except ConnectionError:
            return web.Response()
        finally:
            self._connections.discard(transport)

    async def items_from(self, index: int) -> Sequence[bytes]:
        """The records from ``index`` on, as soon as there are any; none while it hangs."""
        while index >= len(self.items) or self.mood == "hangs":
            self._news.clear()
            await self._news.wait()
        return self.items[index : index + 50]
