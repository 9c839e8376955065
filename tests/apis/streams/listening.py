"""Runs a listener against a handler on the loopback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from fetchers.catalog import find_plugin, shared_http
from fetchers.sdk import Offset, Page
from fetchers.sdk.testing import FakeContext, collect
from metrics.events import SourceGap
from tests.contracts.loopback import Handler, serve

URL_KEYS = {
    "NdjsonStreamSource": "stream.url",
    "SseSource": "sse.url",
    "WebSocketSource": "websocket.url",
}


@dataclass(slots=True)
class Heard:
    """What came of it."""

    pages: list[Page]
    context: FakeContext
    requests: list[web.Request] = field(default_factory=list)

    @property
    def payloads(self) -> list[bytes | None]:
        """All of them in order."""
        return [value for page in self.pages for value in page.values()]

    @property
    def rejected(self) -> list[tuple[bytes | None, str]]:
        """Payloads that the fetcher itself rejects, with their reasons."""
        return [
            (list(page.values())[rejection.index], rejection.reason)
            for page in self.pages
            for rejection in page.rejections
        ]

    @property
    def gaps(self) -> list[str]:
        """Reasons of the gaps that were told."""
        return [event.reason for event in self.context.events if isinstance(event, SourceGap)]


async def hear(
    name: str, handler: Handler, *, records: int, offset: Offset | None = None, path: str = "", **properties: str
) -> Heard:
    """Listen until so many records have come; keys have ``_`` for their dots."""
    requests: list[web.Request] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        return await handler(request)

    async with shared_http() as http, serve(answer) as url:
        kind = find_plugin(name)
        assert kind is not None
        loaded = kind.load()
        texts = {key.replace("_", "."): text for key, text in properties.items()}
        config = loaded.config_class.parse({"topic": "t", URL_KEYS[name]: url + path, **texts})
        assert config.config is not None, config.findings
        connector = loaded(config.config)
        assert list(connector.findings()) == []
        context = FakeContext(http=http, offset=offset)
        pages: list[Page] = []
        try:
            await collect(connector, context, records=records, on_page=pages.append)
        except Exception as error:
            error.add_note(f"{len(requests)} requests")
            raise
        return Heard(pages, context, requests)


def body(*chunks: bytes, content_type: str, is_framed: bool = True) -> Handler:
    """Answer with these chunks, one after the other; not ``is_framed``: break the connection at the end."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if not is_framed and request.transport is not None:
            request.transport.close()
        return response

    return answer


def in_turn(*handlers: Handler) -> Handler:
    """One handler for each request, the last one for all that follow."""
    left: list[Any] = list(handlers)

    async def answer(request: web.Request) -> web.StreamResponse:
        handler: Handler = left.pop(0) if len(left) > 1 else left[0]
        return await handler(request)

    return answer


def socket(*messages: str | bytes, close: int = 1000, reason: bytes = b"") -> Handler:
    """A WebSocket that says these, and closes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        opened = web.WebSocketResponse(timeout=0.1)
        await opened.prepare(request)
        for message in messages:
            await (opened.send_str(message) if isinstance(message, str) else opened.send_bytes(message))
        await opened.close(code=close, message=reason)
        return opened

    return answer


def headers_of(requests: Sequence[web.Request], name: str) -> list[str | None]:
    """A header of each request."""
    return [request.headers.get(name) for request in requests]
