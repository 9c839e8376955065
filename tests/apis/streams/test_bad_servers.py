"""What listeners on HTTP make of servers that answer wrongly: the same for each of them."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from fetchers.sdk import Disconnected, Fatal
from tests.apis.streams.listening import body, hear, in_turn, socket
from tests.contracts.loopback import Handler

GOOD: dict[str, Handler] = {
    "NdjsonStreamSource": body(b"{}\n", content_type="application/x-ndjson"),
    "SseSource": body(b"data: {}\n\n", content_type="text/event-stream"),
    "WebSocketSource": socket("{}"),
}
names = pytest.mark.parametrize("name", GOOD)


async def silent(_: web.Request) -> web.StreamResponse:
    """Not even a status."""
    await asyncio.Event().wait()
    raise AssertionError


async def elsewhere(request: web.Request) -> web.Response:
    """Look for it here."""
    raise web.HTTPFound(request.path)


@names
async def test_an_endless_redirect_is_fatal(name: str) -> None:
    """And says so; a WebSocket follows none at all."""
    with pytest.raises(Fatal, match=r"redirected more than|status 302"):
        await hear(name, elsewhere, records=1)


@names
async def test_a_web_page_in_place_of_the_stream_is_tried_again(name: str) -> None:
    """A proxy or a login wall answers for the source, with status 200."""
    page = body(b"<html>log in</html>", content_type="text/html")
    heard = await hear(name, in_turn(page, GOOD[name]), records=1)
    assert heard.payloads == [b"{}"]
    assert "a web page (HTML) came" in str(heard.context.retries[0][0])


@names
async def test_a_server_that_never_sends_a_byte_is_asked_anew(name: str) -> None:
    """After the silence that the config allows."""
    heard = await hear(name, in_turn(silent, GOOD[name]), records=1, listener_silence_ms="500")
    assert heard.payloads == [b"{}"]
    assert {type(error) for error, _ in heard.context.retries} == {Disconnected}


@pytest.mark.parametrize(
    ("name", "handler"),
    [
        ("NdjsonStreamSource", body(b'{"a":"\xff"}\n', content_type="application/x-ndjson")),
        ("SseSource", body(b'data: {"a":"\xff"}\n\n', content_type="text/event-stream")),
    ],
)
async def test_broken_utf8_keeps_its_bytes_for_the_dead_letter(name: str, handler: Handler) -> None:
    """The conversion rejects it (``invalid_utf8``); a replaced character would hide it."""
    heard = await hear(name, handler, records=1)
    assert heard.payloads == [b'{"a":"\xff"}']


async def test_half_a_message_of_a_websocket_is_no_record_and_the_gap_is_told() -> None:
    """A fragment without its end was never a message (RFC 6455 §5.4)."""

    async def half(request: web.Request) -> web.StreamResponse:
        opened = web.WebSocketResponse(timeout=0.1)
        await opened.prepare(request)
        await opened.send_str('{"n":1}')
        assert request.transport is not None
        request.transport.write(b'\x01\x05{"n":')
        request.transport.close()
        return opened

    heard = await hear("WebSocketSource", in_turn(half, socket('{"n":3}')), records=2)
    assert heard.payloads == [b'{"n":1}', b'{"n":3}']
    assert heard.gaps[0] == "disconnected"
