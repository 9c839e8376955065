"""One WebSocket of a task (RFC 6455): opened through the worker's client, with its bounds, credentials and messages."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, WSCloseCode, WSMsgType

from fetchers.sdk.errors import Disconnected, Fatal, Retriable, SocketClosed
from fetchers.toolkit.http.failures import excerpt, outside_errors

HANDSHAKE_STATUS = 101
CLOSE_SECONDS_MAX = 0.3
"""How long the other side is waited for when we close."""
_REASON_CHARACTERS_MAX = 200


class HandshakeRefusedError(Exception):
    """The server has answered something else than 101; ``response`` is still open, with the server's own words."""

    def __init__(self, response: ClientResponse) -> None:
        super().__init__(response.status)
        self.response = response


async def refuse_handshake(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Middleware of the session: no redirect of a handshake is followed, and what refuses it can be read."""
    response = await handler(request)
    if request.headers.get("Upgrade", "").lower() == "websocket" and response.status != HANDSHAKE_STATUS:
        raise HandshakeRefusedError(response)
    return response


@dataclass(frozen=True, slots=True)
class SocketMessage:
    """What came: a text or binary message, or only a sign of life (``payload`` is None)."""

    payload: bytes | None
    is_text: bool = True


class OpenSocket:
    """A connection that is open. Text is not decoded: what is no UTF-8 is for the conversion to judge."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse[Literal[False]],
        *,
        place: str,
        secrets: tuple[str, ...],
        message_bytes_max: int,
    ) -> None:
        self._socket = socket
        self._place = place
        self._secrets = secrets
        self._message_bytes_max = message_bytes_max
        self.bytes_received = 0

    async def send(self, text: str) -> None:
        """Send one text message."""
        with outside_errors(self._place):
            await self._socket.send_str(text)

    async def ping(self) -> None:
        """Show that we are here: a ping, and a pong that nobody asked for (§5.5.3), for when we read no pings."""
        with outside_errors(self._place):
            await self._socket.ping()
            await self._socket.pong()

    async def receive(self) -> SocketMessage:
        """The next message; fragments are joined, pings answered.

        Raises ``SocketClosed`` where the other side closes, Fatal for a message over the hard limit, and Disconnected.
        """
        with outside_errors(self._place):
            message = await self._socket.receive()
        match message.type:
            case WSMsgType.TEXT | WSMsgType.BINARY:
                payload: bytes = message.data
                self.bytes_received += len(payload)
                return SocketMessage(payload, is_text=message.type is WSMsgType.TEXT)
            case WSMsgType.PING:
                with outside_errors(self._place):
                    await self._socket.pong(message.data)
                return SocketMessage(None)
            case WSMsgType.PONG:
                return SocketMessage(None)
            case WSMsgType.CLOSE:
                raise self._closed(int(message.data or WSCloseCode.OK), str(message.extra or ""))
            case _:
                raise self._broken(message.data)

    async def close(self) -> None:
        """Say goodbye, and wait for the answer only a little."""
        with suppress(TimeoutError):
            # One limit for all: whoever goes on talking would hold us for ever.
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._socket.close()

    def _closed(self, code: int, reason: str) -> SocketClosed:
        shown = excerpt(reason.encode(), self._secrets, characters_max=_REASON_CHARACTERS_MAX)
        return SocketClosed(f"{self._place}: closed with code {code}" + (f": {shown}" if shown else ""), code)

    def _broken(self, error: Any) -> Retriable | Fatal:
        code = getattr(error, "code", None)
        if code == WSCloseCode.MESSAGE_TOO_BIG:
            return Fatal(
                f"{self._place}: a message is larger than {self._message_bytes_max} bytes; "
                "raise listener.message.bytes.max"
            )
        if code is not None:
            return Disconnected(f"{self._place}: not the WebSocket protocol (close code {int(code)})")
        return Disconnected(f"{self._place}: the connection broke")
