"""``SseSource``: server-sent events.

Source offset ``{"id": last event id}``, sent back as ``Last-Event-ID``; of a stream without ids
``{"received_at_ms": time}``, from which only the gap can be told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from fetchers.sdk import (
    Authorizer,
    Disconnected,
    Fatal,
    FetchContext,
    Finding,
    Inbox,
    Offset,
    Page,
    Rejection,
    Retriable,
    SourceConnector,
    SourceEnded,
    listen,
)
from fetchers.sse.config import SseConfig
from fetchers.sse.events import EventParser, ServerEvent
from fetchers.toolkit.access import odd_value
from fetchers.toolkit.framing import CUT_OFF, TOO_LARGE
from fetchers.toolkit.listener import Sorting, address_finding

_DEFAULT_TYPE = b"message"
_NO_CONTENT = 204
ID_BYTES_MAX = 64 * 1024
RETRY_SECONDS_MAX = 3600.0
"""What a stream may ask us to wait before we connect again."""


class SseSource(SourceConnector[SseConfig]):
    """Listens to a stream of server-sent events."""

    def __init__(self, config: SseConfig) -> None:
        """``config``: validated."""
        super().__init__(config)
        self._retry_ms: int | None = None
        """How long the stream wants us to wait before we connect again, as it has last said."""

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        config = self.config
        found = [*config.findings(), *address_finding("sse.url", config.sse_url)]
        if config.sse_event_header is not None and (config.listener_skip or config.listener_fatal):
            message = "It cannot be had together with listener.skip or listener.fatal."
            found.append(odd_value("sse.event.header", config.sse_event_header, message))
        return found

    def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Events until the task is stopped, or the source says 204: no more."""
        auth = self.config.auth(clock=context.clock)
        return listen(context, partial(self._receive, context, auth), silence_seconds=self.config.silence_seconds)

    async def _receive(self, context: FetchContext, auth: Authorizer | None, inbox: Inbox) -> None:
        config = self.config
        last_id = str(inbox.offset.get("id") or "")
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        parser = EventParser(event_bytes_max=config.listener_message_bytes_max, last_id=last_id.encode())
        try:
            async with context.http.stream("GET", config.sse_url, **config.request(auth, headers)) as answer:
                if answer.status == _NO_CONTENT:
                    raise SourceEnded
                _demand_events(answer.headers.get("Content-Type", ""), config.sse_url)
                inbox.connected(is_resumed=bool(last_id))
                await self._read(answer.chunks(), parser, inbox)
        except Retriable as error:
            await self._put_rest(parser, inbox)
            self._retry_ms = self._retry_ms if parser.retry_ms is None else parser.retry_ms
            if self._retry_ms is None or not isinstance(error, Disconnected):
                raise
            wait_seconds = min(self._retry_ms / 1000, RETRY_SECONDS_MAX)
            raise Disconnected(str(error), wait_seconds=wait_seconds) from error

    async def _read(self, chunks: AsyncIterator[bytes], parser: EventParser, inbox: Inbox) -> None:
        sorting = Sorting(self.config)
        wanted = {name.encode() for name in self.config.sse_events}
        async for chunk in chunks:
            inbox.heard()
            events = parser.feed(chunk)
            if not events:
                continue
            last = events[-1]
            if wanted:
                events = [event for event in events if (event.type or _DEFAULT_TYPE) in wanted]
            await self._put(events, last, sorting, inbox)
        raise Disconnected("the source ended the stream")

    async def _put(self, events: list[ServerEvent], last: ServerEvent, sorting: Sorting, inbox: Inbox) -> None:
        """``last``: of all that came, also of those that are no records."""
        offset = _offset(last)
        rejections = tuple(
            Rejection(index, TOO_LARGE, _too_large(event))
            for index, event in enumerate(events)
            if event.size > len(event.data)
        )
        payloads = [event.data for event in events]
        name = self.config.sse_event_header
        if name is None or not events:
            await sorting.put(
                inbox,
                payloads,
                offset_after=lambda count: offset if count == len(events) else _offset(events[count - 1]),
                rejections=rejections,
            )
            return
        headers = [((name, event.type or _DEFAULT_TYPE),) for event in events]
        stored = inbox.stored(offset)
        await inbox.put_page(Page(payloads, stored, headers=headers, rejections=rejections))

    async def _put_rest(self, parser: EventParser, inbox: Inbox) -> None:
        """The event in whose middle the connection ended: with ids it comes again, without them nobody else has it."""
        rest = parser.unfinished
        if rest and not parser.last_id:
            await inbox.put([rest], rejections=(Rejection(0, CUT_OFF, "the connection ended in this event"),))


def _offset(event: ServerEvent) -> Offset | None:
    if len(event.last_id) > ID_BYTES_MAX:
        raise Fatal(f"an event has an id of {len(event.last_id)} bytes, which no request could send back")
    return {"id": event.last_id.decode("utf-8", "replace")} if event.last_id else None


def _too_large(event: ServerEvent) -> str:
    return f"the event has {event.size} bytes, over listener.message.bytes.max; its first {len(event.data)} are kept"


def _demand_events(content_type: str, url: str) -> None:
    """Fail a connection of any other type, as the standard does; a web page was refused before, which may pass."""
    if content_type.partition(";")[0].strip().lower() != "text/event-stream":
        place = url.partition("?")[0]
        raise Fatal(f"{place}: answers with {content_type[:60] or 'no content type'}, and not with text/event-stream")
