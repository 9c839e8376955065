"""Connections to a worker: how many there may be, and how long each may keep the worker waiting.

The web server reads requests and writes answers. What it leaves open is done here: a connection above the limits is
answered 429 or 503 and closed before anything of it is read; one on which no whole head of a request comes within the
time limit is closed, as is one whose client does not take its answer; bytes that are no HTTP get Connect's error body.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from aiohttp import web

from metrics.events import ChangeAudited, Emit, RequestAnswered
from service.rest.bodies import error_answer

LINGERING_SECONDS_MAX = 5.0
"""How long the rest of a body that was refused is read, so that the client sees the answer to it."""
_NO_LOG = cast("logging.Logger", None)
"""Switches the library's access log off."""
HANDSHAKE_SECONDS_MAX = 10.0
"""For TLS: a connection is counted once it is through."""
_TOLD_MAX = 1000
"""Addresses that are remembered as told of in the audit log."""


_REASON_MAX = 200
"""Characters of what is wrong with bytes that are no HTTP."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may take of a worker."""

    count_max: int = 1024
    """Connections of all addresses together (``rest.connections.max``)."""
    per_address_max: int = 128
    """``rest.connections.per.address.max``; of IPv6, a network of 64 bits counts as one address."""
    seconds_max: float = 30.0
    """For a request's head to come, then for its body, for an answer to be taken, and for the next request to begin
    (``rest.connection.timeout.ms``)."""


@dataclass(slots=True)
class Connections:
    """Counts the connections of all listeners together."""

    limits: ConnectionLimits
    emit: Emit
    _counts: Counter[str] = field(default_factory=Counter)
    _count: int = 0
    _told: set[str] = field(default_factory=set)

    def open(self, address: str) -> tuple[int, str] | None:
        """Count one in; or the status and the reason of its refusal, which is audited once until there is room."""
        limits = self.limits
        if self._counts[address] >= limits.per_address_max:
            refusal = 429, f"{address} has {limits.per_address_max} connections (rest.connections.per.address.max)"
        elif self._count >= limits.count_max:
            refusal = 503, f"There are {limits.count_max} connections already (rest.connections.max)"
        else:
            self._count += 1
            self._counts[address] += 1
            return None
        self.emit(RequestAnswered(method="other", route="unknown", status=refusal[0], seconds=0.0))
        if address not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(address)
            self.emit(refused_before_read(address, refusal[0]))
        return refusal

    def close(self, address: str) -> None:
        """Count one of this address out; called once for each that was counted in."""
        self._count -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
        if self._count <= self.limits.count_max // 2:
            self._told.clear()


def refused_before_read(remote: str, status: int) -> ChangeAudited:
    """The line in the audit log of what was refused before there was a request to tell of."""
    return ChangeAudited(principal="-", remote=remote, method="-", path="-", query="", status=status, outcome="denied")


def counted_address(peer: object) -> str:
    """What of a peer's address counts as one: all of IPv4, of IPv6 the network of 64 bits that a site has at least."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else "unknown"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, ipaddress.IPv6Address) or address.is_loopback:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))


class Connection(web.RequestHandler):
    """The web server's own connection, counted and with the time limits that it does not have."""

    def __init__(self, server: web.Server, connections: Connections) -> None:
        """``keepalive_timeout`` counts from the connection's begin, and from each answer, to the next whole head."""
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=_NO_LOG,
            keepalive_timeout=connections.limits.seconds_max,
            lingering_time=min(LINGERING_SECONDS_MAX, connections.limits.seconds_max),
        )
        self._connections = connections
        self._address: str | None = None
        """While the connection is counted."""
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or refuse in one line."""
        address = counted_address(transport.get_extra_info("peername"))
        refusal = self._connections.open(address)
        if refusal is None:
            self._address = address
            super().connection_made(transport)
        elif isinstance(transport, asyncio.Transport):
            transport.write(_refusal(*refusal))
            transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count the connection out, however it ended."""
        if self._address is not None:
            self._connections.close(self._address)
            self._address = None
        if self._stalled is not None:
            self._stalled.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Nothing of a refused connection is read."""
        if self._address is not None:
            super().data_received(data)

    def pause_writing(self) -> None:
        """The client takes its answer too slowly: the time for that begins."""
        super().pause_writing()
        loop, transport = asyncio.get_running_loop(), self.transport
        if transport is not None:
            self._stalled = loop.call_later(self._connections.limits.seconds_max, transport.abort)

    def resume_writing(self) -> None:
        """The client has taken what was written."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer bytes that are no HTTP in Connect's form, with a line in the audit log and none of the library's."""
        if status != 400:  # noqa: PLR2004 - all others are bugs, which the library's own answer tells of
            return super().handle_error(request, status, exc, message)
        emit = self._connections.emit
        emit(RequestAnswered(method="other", route="unknown", status=status, seconds=0.0))
        emit(refused_before_read(request.remote or "-", status))
        reason = " ".join((message or "").split())[:_REASON_MAX]
        answer = error_answer(status, f"This is no HTTP/1.1 request with one Host: {reason}")
        answer.force_close()
        return answer


def _refusal(status: int, text: str) -> bytes:
    body = msgspec.json.encode({"error_code": status, "message": text})
    reason = {429: "Too Many Requests", 503: "Service Unavailable"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Retry-After: 1\r\nConnection: close\r\n\r\n".encode() + body


class BoundedSite(web.BaseSite):
    """Listens at one address for connections within limits; several sites share one count."""

    def __init__(
        self,
        runner: web.AppRunner,
        connections: Connections,
        *,
        host: str | None,
        port: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        """``host``: None for every interface."""
        super().__init__(runner, ssl_context=tls)
        self._connections = connections
        self._host, self._wanted_port = host, port

    @property
    def name(self) -> str:
        """The address, for the library's own messages."""
        return f"{'https' if self._ssl_context else 'http'}://{self._host or ''}:{self._wanted_port}"

    @property
    def port(self) -> int:
        """The port that was bound, once it is started."""
        sockets: tuple[socket.socket, ...] = getattr(self._server, "sockets", ())
        return int(sockets[0].getsockname()[1]) if sockets else self._wanted_port

    async def start(self) -> None:
        """Bind and listen; raises OSError."""
        await super().start()
        server = self._runner.server
        assert server is not None  # noqa: S101 - BaseSite refuses a runner that is not set up
        seconds = min(HANDSHAKE_SECONDS_MAX, self._connections.limits.seconds_max)
        tls: dict[str, Any] = {"ssl": self._ssl_context, "ssl_handshake_timeout": seconds} if self._ssl_context else {}
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(server, self._connections), self._host, self._wanted_port, backlog=self._backlog, **tls
        )
