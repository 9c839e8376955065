"""A door before any server on TCP that loses an answer or cuts it in its middle, or keeps a request for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from service.embedded.ports import free_ports

_READ_BYTES = 1 << 16


@dataclass
class FaultProxy:
    """Passes bytes on both ways until it is told otherwise; set the patterns before what they are to hit is sent."""

    server_port: int
    port: int = field(default_factory=lambda: free_ports(1)[0])
    """It stands at the same one each time: between two times a connection of somebody else must not get it."""
    lose_after: bytes = b""
    """Of a request: the server does what it asks, and the connection breaks before its answer."""
    lose_at: bytes = b""
    """Of an answer, in place of the first bytes behind such a request: what is dropped in its stead."""
    cut_behind: bytes = b""
    """Of an answer: it reaches the client up to the end of these bytes, and the connection breaks there."""
    keep: bytes = b""
    """Of a request: it and all that follows it reach the server when `may_go` is set."""
    losses_max: int = 1
    spared: int = 0
    """So many such requests are answered before."""
    lost: int = 0
    kept: asyncio.Event = field(default_factory=asyncio.Event)
    may_go: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FaultProxy]:
        """It stands there until the block ends; then its connections are broken, and nothing of them is left."""
        passing: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:

            def accept(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
                passing.add(group.create_task(self._serve(client, to_client)))

            async with await asyncio.start_server(accept, "127.0.0.1", self.port):
                try:
                    yield self
                finally:
                    for each in passing:
                        each.cancel()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self.server_port)
        except OSError:
            to_client.transport.abort()
            return
        passing = _Connection(self, to_client, to_server)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(passing.requests(client))
                group.create_task(passing.answers(server))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for writer in (to_client, to_server):
                writer.transport.abort()


@dataclass
class _Connection:
    proxy: FaultProxy
    to_client: asyncio.StreamWriter
    to_server: asyncio.StreamWriter
    is_lost_next: bool = False

    async def requests(self, client: asyncio.StreamReader) -> None:
        proxy, before = self.proxy, b""
        while piece := await client.read(_READ_BYTES):
            if not proxy.kept.is_set() and _has(proxy.keep, before, piece):
                proxy.kept.set()
                await proxy.may_go.wait()
            if proxy.lost < proxy.losses_max and _has(proxy.lose_after, before, piece):
                self.is_lost_next = proxy.spared == 0
                proxy.spared = max(0, proxy.spared - 1)
            before = piece
            self.to_server.write(piece)
            await self.to_server.drain()
        with suppress(OSError):
            self.to_server.write_eof()

    async def answers(self, server: asyncio.StreamReader) -> None:
        proxy, before = self.proxy, b""
        while piece := await server.read(_READ_BYTES):
            if self.is_lost_next and (not proxy.lose_at or _has(proxy.lose_at, before, piece)):
                self.is_lost_next = False
                proxy.lost += 1
                break
            if proxy.lost < proxy.losses_max and _has(proxy.cut_behind, before, piece):
                proxy.lost += 1
                kept = max(0, len(before) - len(proxy.cut_behind) + 1)
                end = (before[kept:] + piece).index(proxy.cut_behind) + len(proxy.cut_behind) - len(before[kept:])
                self.to_client.write(piece[:end])
                await self.to_client.drain()
                self.to_client.close()  # what was written arrives, and then the end
                await self.to_client.wait_closed()
                break
            before = piece
            self.to_client.write(piece)
            await self.to_client.drain()
        # Nothing more will be said: who still asks is to see it at once.
        raise ConnectionResetError


def _has(pattern: bytes, before: bytes, piece: bytes) -> bool:
    """Whether a pattern ends in this piece; it may have begun in the one before."""
    return bool(pattern) and pattern in before[max(0, len(before) - len(pattern) + 1) :] + piece
