"""``WebSocketSource`` against a server that is less than kind."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import WSMsgType, web

from fetchers.catalog import shared_http
from fetchers.sdk import Disconnected, Fatal
from fetchers.sdk.reach import AllowedAddresses
from fetchers.sdk.testing import FakeContext
from tests.apis.streams.listening import hear, in_turn, socket

NAME = "WebSocketSource"


async def test_subscriptions_carry_the_cursor() -> None:
    """Each line is a message; the value stands in JSON as it must."""
    sent: list[str] = []

    async def feed(request: web.Request) -> web.StreamResponse:
        opened = web.WebSocketResponse(timeout=0.1)
        await opened.prepare(request)
        sent.extend([await opened.receive_str() for _ in range(2)])
        await opened.send_str('{"data": {"seq": "a\\"b"}}')
        await opened.send_str('{"data": {}}')
        await opened.close()
        return opened

    subscribe = '{"op":"auth"}\n{"op":"subscribe","after":"{offset}"}'
    heard = await hear(
        NAME,
        feed,
        records=4,
        websocket_subscribe=subscribe,
        websocket_cursor_field="data.seq",
        websocket_cursor_initial="0",
    )
    assert [json.loads(text) for text in sent[:4]] == [
        {"op": "auth"},
        {"op": "subscribe", "after": "0"},
        {"op": "auth"},
        {"op": "subscribe", "after": 'a"b'},
    ]
    assert heard.pages[-1].offset == {"cursor": 'a"b'}
    assert heard.gaps == []


async def test_text_stays_bytes_and_binary_is_a_dead_letter_unless_it_is_wanted() -> None:
    """Also text that is no UTF-8: the conversion judges it."""

    async def feed(request: web.Request) -> web.StreamResponse:
        opened = web.WebSocketResponse(timeout=0.1)
        await opened.prepare(request)
        await opened.send_frame(b"\xff{}", WSMsgType.TEXT)
        await opened.send_bytes(b"{}")
        await asyncio.Event().wait()
        return opened

    heard = await hear(NAME, feed, records=2)
    assert (heard.payloads, heard.rejected) == ([b"\xff{}", b"{}"], [(b"{}", "binary")])
    heard = await hear(NAME, feed, records=2, websocket_binary="accept")
    assert heard.rejected == []


async def test_a_message_over_the_limit_is_a_dead_letter_and_one_far_over_it_fails_the_task() -> None:
    """Fetched again, it would be as large."""
    heard = await hear(NAME, socket("x" * 300, "{}"), records=2, listener_message_bytes_max="100")
    assert heard.rejected == [(b"x" * 100, "too_large")]
    with pytest.raises(Fatal, match=r"raise listener\.message\.bytes\.max"):
        await hear(NAME, socket("x" * 500), records=1, listener_message_bytes_max="100")


async def test_fragments_are_one_message() -> None:
    """RFC 6455 §5.4, with a ping between two of them."""

    async def feed(request: web.Request) -> web.StreamResponse:
        opened = web.WebSocketResponse(timeout=0.1, autoping=False)
        await opened.prepare(request)
        assert request.transport is not None
        request.transport.write(b'\x01\x03{"a' + b"\x89\x02hi" + b'\x80\x04":1}')
        pong = await opened.receive()
        await opened.send_str(json.dumps({"pong": bytes(pong.data).decode(), "is_pong": pong.type is WSMsgType.PONG}))
        await asyncio.Event().wait()
        return opened

    heard = await hear(NAME, feed, records=2)
    assert heard.payloads == [b'{"a":1}', b'{"pong": "hi", "is_pong": true}']


async def test_close_codes_decide() -> None:
    """1001 and the like: again at once; 1013: later, as it asks; those of the config: the task fails."""
    heard = await hear(NAME, in_turn(socket("1", close=1001), socket("2", close=1013), socket("3")), records=3)
    assert heard.payloads == [b"1", b"2", b"3"]
    waits = [wait for _, wait in heard.context.retries]
    assert waits[0] == 0.0
    assert waits[1] >= 5.0
    assert heard.gaps == ["disconnected", "disconnected"]
    with pytest.raises(Fatal, match="closed with code 4401: token expired"):
        await hear(NAME, socket(close=4401, reason=b"token expired"), records=1)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_handshake_ends_after_one_request_with_the_words_of_the_service(status: int) -> None:
    """They are in the body of its answer."""

    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"title": "Forbidden", "detail": "no plan for this feed"}, status=status)

    with pytest.raises(Fatal, match=r"no plan for this feed") as raised:
        await hear(NAME, refuse, records=1)
    assert raised.value.__notes__ == ["1 requests"]


async def test_a_refusal_in_a_message_fails_the_task_with_its_words() -> None:
    """As exchanges do it."""
    error = '{"type":"error","message":"Authentication Failed","reason":"{}"}'
    with pytest.raises(Fatal, match="Authentication Failed"):
        await hear(NAME, socket(error), records=1, listener_fatal="type=error")


async def test_what_logs_in_by_a_message_is_not_repeated() -> None:
    """Neither from a refusal nor from the reason of a close; what everybody may know is."""
    subscribe = '{"op":"subscribe","args":{"key":"AK12345","sign":["s1gn"]}}\nLOGIN hunter2'
    refusal = '{"type":"error","message":"cannot subscribe: AK12345 s1gn LOGIN hunter2"}'
    with pytest.raises(Fatal, match=r"cannot subscribe: \[hidden\] \[hidden\] \[hidden\]"):
        await hear(NAME, socket(refusal), records=1, listener_fatal="type=error", websocket_subscribe=subscribe)
    with pytest.raises(Fatal, match=r"closed with code 4401: no such key \[hidden\]"):
        await hear(NAME, socket(close=4401, reason=b"no such key AK12345"), records=1, websocket_subscribe=subscribe)


async def test_what_speaks_no_websocket_is_told() -> None:
    """A plain answer is fatal, a web page of a login wall may pass, a redirect is not followed."""

    async def plain(_: web.Request) -> web.Response:
        return web.json_response({})

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>", content_type="text/html")

    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:9/")

    with pytest.raises(Fatal, match="no WebSocket is spoken here, status 200"):
        await hear(NAME, plain, records=1)
    heard = await hear(NAME, in_turn(page, socket("1")), records=1)
    assert "a web page (HTML) came" in str(heard.context.retries[0][0])
    with pytest.raises(Fatal, match="status 302"):
        await hear(NAME, elsewhere, records=1)


async def test_a_silent_connection_is_pinged_and_one_that_is_dead_is_given_up() -> None:
    """A pong is a sign of life; nothing at all is none."""
    pings = 0

    async def alive(request: web.Request) -> web.StreamResponse:
        nonlocal pings
        opened = web.WebSocketResponse(timeout=0.1, autoping=False)
        await opened.prepare(request)
        while pings < 6:
            message = await opened.receive()
            if message.type is WSMsgType.PING:
                pings += 1
                await opened.pong(message.data)
        await opened.send_str("1")
        await asyncio.Event().wait()
        return opened

    async def dead(request: web.Request) -> web.StreamResponse:
        opened = web.WebSocketResponse(timeout=0.1, autoping=False)
        await opened.prepare(request)
        await asyncio.Event().wait()
        return opened

    heard = await hear(NAME, in_turn(dead, alive), records=1, listener_silence_ms="600")
    assert pings >= 6
    assert len(heard.requests) >= 2
    assert isinstance(heard.context.retries[0][0], Disconnected)


async def test_an_internal_address_is_not_even_asked() -> None:
    """The bounds of the worker are those of every request."""
    async with shared_http(addresses=AllowedAddresses(is_internal_free=False)) as http:
        with pytest.raises(Fatal, match=r"connector\.allowed\.addresses"):
            async with FakeContext(http=http).http.websocket("ws://127.0.0.1:9/", message_bytes_max=10):
                pass
