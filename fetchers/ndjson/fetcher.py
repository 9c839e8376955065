"""``NdjsonStreamSource``: messages of an endless HTTP body.

Source offset ``{"cursor": value}`` where ``stream.cursor.field`` is given, else ``{"received_at_ms": time}``, from
which only the gap can be told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

import msgspec
import pyarrow as pa

from fetchers.ndjson.config import NdjsonStreamConfig
from fetchers.sdk import (
    Authorizer,
    Disconnected,
    FetchContext,
    Finding,
    Inbox,
    Page,
    Rejection,
    Retriable,
    SourceConnector,
    listen,
)
from fetchers.toolkit.framing import CUT_OFF, Frames, Framing, LengthFraming, LineFraming
from fetchers.toolkit.listener import Sorting, address_finding, in_url


class NdjsonStreamSource(SourceConnector[NdjsonStreamConfig]):
    """Listens to an endless HTTP body."""

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        config = self.config
        cursor = config.cursor.findings("stream", [config.stream_url], asked_by="stream.url")
        return (*config.findings(), *address_finding("stream.url", config.stream_url), *cursor)

    def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Messages until the task is stopped."""
        auth = self.config.auth(clock=context.clock)
        return listen(context, partial(self._receive, context, auth), silence_seconds=self.config.silence_seconds)

    async def _receive(self, context: FetchContext, auth: Authorizer | None, inbox: Inbox) -> None:
        config, cursor = self.config, self.config.cursor
        framing: Framing
        if config.stream_framing == "length":
            framing = LengthFraming(config.listener_message_bytes_max)
        else:
            framing = LineFraming(config.listener_message_bytes_max)
        sorting = Sorting(config)
        url = cursor.filled(config.stream_url, inbox.offset, encode=in_url)
        async with context.http.stream("GET", url, **config.request(auth)) as answer:
            if answer.is_skipped:
                raise Disconnected("the source has nothing to say now")
            inbox.connected(is_resumed=cursor.field is not None)
            is_clean = False
            try:
                async for chunk in answer.chunks():
                    inbox.heard()
                    frames = framing.feed(chunk)
                    if frames is not None:
                        await self._put(sorting, inbox, frames)
                is_clean = answer.is_framed
            except Retriable:
                await self._put_rest(sorting, inbox, framing.finish(), is_clean=False)
                raise
            await self._put_rest(sorting, inbox, framing.finish(), is_clean=is_clean)

    async def _put(self, sorting: Sorting, inbox: Inbox, frames: Frames) -> None:
        cursor, before = self.config.cursor, inbox.offset
        await sorting.put(
            inbox,
            frames.payloads,
            offset_after=lambda count: cursor.after(frames.payloads[:count], before),
            rejections=frames.rejections,
        )

    async def _put_rest(self, sorting: Sorting, inbox: Inbox, rest: bytes, *, is_clean: bool) -> None:
        """The message in whose middle the connection ended, where the source will not send it again.

        It may be whole and only lack its line end: an object ends with its bracket, a number only with a clean end.
        """
        cursor = self.config.cursor
        is_whole = (is_clean or rest[:1] in {b"{", b"["}) and _is_json(rest)
        if not rest or (cursor.field is not None and not is_whole):
            return
        rejections = () if is_whole else (Rejection(0, CUT_OFF, "the connection ended in the middle of this message"),)
        await self._put(sorting, inbox, Frames(pa.array([rest], pa.binary()), rejections))


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
