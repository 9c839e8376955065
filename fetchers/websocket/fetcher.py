"""``WebSocketSource``: messages of a WebSocket.

Source offset ``{"cursor": value}`` where ``websocket.cursor.field`` is given, else ``{"received_at_ms": time}``, from
which only the gap can be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

from fetchers.sdk import (
    Authorizer,
    Disconnected,
    Fatal,
    FetchContext,
    Finding,
    HttpWebSocket,
    Inbox,
    Page,
    Rejection,
    Retriable,
    SocketClosed,
    SourceConnector,
    listen,
)
from fetchers.sdk.ahead import Ahead
from fetchers.toolkit.access import odd_value
from fetchers.toolkit.framing import KEPT_BYTES, TOO_LARGE
from fetchers.toolkit.listener import Sorting, address_finding, in_json, in_url
from fetchers.websocket.config import WebSocketConfig

HARD_LIMIT_FACTOR = 4
"""A message that is so many times over the limit is not read to its end: the task fails, and says what to raise."""
PINGS_PER_SILENCE = 3
BINARY = "binary"
"""Reason of the rejection of a binary message where text is due."""
_TRY_AGAIN_LATER = 1013


class WebSocketSource(SourceConnector[WebSocketConfig]):
    """Listens to a WebSocket."""

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        config = self.config
        texts = [config.websocket_url, *config.subscriptions]
        asked_by = "websocket.subscribe or websocket.url"
        found = [*config.findings(), *address_finding("websocket.url", config.websocket_url)]
        found += config.cursor.findings("websocket", texts, asked_by=asked_by)
        found += (
            odd_value("websocket.close.fatal", text, "Expected a close code, such as 4401.")
            for text in config.websocket_close_fatal
            if not (text.isascii() and text.isdigit())
        )
        return found

    def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Messages until the task is stopped."""
        auth = self.config.auth(clock=context.clock)
        return listen(context, partial(self._receive, context, auth), silence_seconds=self.config.silence_seconds)

    async def _receive(self, context: FetchContext, auth: Authorizer | None, inbox: Inbox) -> None:
        config, cursor = self.config, self.config.cursor
        url = cursor.filled(config.websocket_url, inbox.offset, encode=in_url)
        hard_limit = config.listener_message_bytes_max * HARD_LIMIT_FACTOR
        async with context.http.websocket(url, message_bytes_max=hard_limit, **config.request(auth)) as socket:
            for text in config.subscriptions:
                await socket.send(cursor.filled(text, inbox.offset, encode=in_json))
            inbox.connected(is_resumed=cursor.field is not None)
            async with Ahead[None]() as pinging:
                # Beside the reading, which stops while the inbox is full.
                pinging.start(_ping_for_ever(socket, config.silence_seconds / PINGS_PER_SILENCE), name="pings")
                try:
                    await self._read(socket, inbox)
                except SocketClosed as error:
                    if str(error.code) in config.websocket_close_fatal:
                        raise Fatal(str(error)) from error
                    if error.code == _TRY_AGAIN_LATER:
                        raise Retriable(str(error)) from error
                    raise

    async def _read(self, socket: HttpWebSocket, inbox: Inbox) -> None:
        sorting = Sorting(self.config)
        while True:
            message = await socket.receive()
            inbox.heard()
            if message.payload is not None:
                await self._put(message.payload, sorting, inbox, is_text=message.is_text)

    async def _put(self, payload: bytes, sorting: Sorting, inbox: Inbox, *, is_text: bool) -> None:
        config = self.config
        rejections: tuple[Rejection, ...] = ()
        if len(payload) > config.listener_message_bytes_max:
            rejections = (Rejection(0, TOO_LARGE, self._too_large(len(payload))),)
            payload = payload[: self._kept_bytes]
        elif not is_text and config.websocket_binary == "reject":
            rejections = (Rejection(0, BINARY, "the message is binary, and websocket.binary=reject"),)
        offset = config.cursor.after([payload], inbox.offset)
        await sorting.put(inbox, [payload], offset_after=lambda _: offset, rejections=rejections)

    @property
    def _kept_bytes(self) -> int:
        return min(self.config.listener_message_bytes_max, KEPT_BYTES)

    def _too_large(self, size: int) -> str:
        limit, kept = self.config.listener_message_bytes_max, self._kept_bytes
        return f"the message has {size} bytes, over listener.message.bytes.max={limit}; its first {kept} are kept"


async def _ping_for_ever(socket: HttpWebSocket, seconds: float) -> None:
    """Until the connection breaks, which whoever reads it hears of."""
    try:
        while True:
            await asyncio.sleep(seconds)
            await socket.ping()
    except Disconnected:
        return
