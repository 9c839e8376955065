"""``NdjsonStreamSource`` against a server that is less than kind."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from fetchers.sdk import Disconnected, Fatal
from tests.apis.streams.listening import body, hear, in_turn

NAME = "NdjsonStreamSource"
JSON = "application/x-ndjson"


async def test_messages_come_as_they_are_keep_alives_are_none() -> None:
    """CRLF and LF; U+2028 inside a text ends nothing, and a message may be cut inside a character."""
    text = '{"id":1,"text":"caf\u00e9 \u2028"}'.encode()
    heard = await hear(
        NAME, body(b"\r\n", text[:17], text[17:] + b"\r\n\r\n", b'{"id":2}\n\n', content_type=JSON), records=2
    )
    assert heard.payloads == [text, b'{"id":2}']
    assert heard.pages[-1].offset.keys() == {"received_at_ms"}


async def test_lengths_before_messages() -> None:
    """``delimited=length``: a line feed inside a message is no end of it."""
    chunks = (b'\r\n11\r\n{"a":\n1}\r\n', b'\r\n9\r\n{"b":', b"2}\r\n")
    heard = await hear(NAME, body(*chunks, content_type=JSON), records=2, stream_framing="length")
    assert heard.payloads == [b'{"a":\n1}', b'{"b":2}']


async def test_a_body_without_lengths_is_told() -> None:
    """As what it is, and not as an endless wait."""
    with pytest.raises(Fatal, match="is it delimited by lines"):
        await hear(NAME, body(b'{"a":1}\n', content_type=JSON), records=1, stream_framing="length")


async def test_a_cursor_goes_on_where_it_was_and_half_a_message_is_fetched_again() -> None:
    """The value of the field goes into the URL; messages without it move nothing."""
    first = body(b'{"seq":"7 a"}\n{"seq":"8&b"}\n{"heartbeat":1}\n{"seq":9', content_type=JSON, is_framed=False)
    second = body(b'{"seq":9}\n', content_type=JSON)
    heard = await hear(
        NAME,
        in_turn(first, second),
        records=4,
        path="/changes?since={offset}",
        stream_cursor_field="seq",
        stream_cursor_initial="0",
    )
    assert [request.query["since"] for request in heard.requests[:2]] == ["0", "8&b"]
    assert heard.payloads == [b'{"seq":"7 a"}', b'{"seq":"8&b"}', b'{"heartbeat":1}', b'{"seq":9}']
    assert (heard.rejected, heard.gaps) == ([], [])


async def test_half_a_message_that_nobody_sends_again_is_a_dead_letter_with_its_bytes() -> None:
    """And the time until the next connection is a gap."""
    first = body(b'{"a":1}\n{"a":', content_type=JSON, is_framed=False)
    heard = await hear(NAME, in_turn(first, body(b'{"a":3}\n', content_type=JSON)), records=3)
    assert heard.payloads == [b'{"a":1}', b'{"a":', b'{"a":3}']
    assert heard.rejected == [(b'{"a":', "cut_off")]
    assert heard.gaps[0] == "disconnected"


async def test_a_last_message_without_its_line_end_may_be_whole() -> None:
    """An object is, whatever ended the connection; of a number only a clean end tells."""
    for is_framed in (True, False):
        whole = body(b'{"a":1}', content_type=JSON, is_framed=is_framed)
        assert (await hear(NAME, whole, records=1)).rejected == []
        number = body(b"12", content_type=JSON, is_framed=is_framed)
        assert (await hear(NAME, number, records=1)).rejected == ([] if is_framed else [(b"12", "cut_off")])


async def test_a_message_over_the_limit_is_a_dead_letter_and_the_next_one_is_none() -> None:
    """Its first bytes are kept."""
    heard = await hear(
        NAME,
        body(b"x" * 500, b"y" * 500 + b"\n{}\n", content_type=JSON),
        records=2,
        listener_message_bytes_max="100",
    )
    assert heard.payloads == [b"x" * 100, b"{}"]
    assert heard.rejected == [(b"x" * 100, "too_large")]


async def test_what_is_about_the_connection_is_passed_over_and_a_refusal_is_shown() -> None:
    """Both by a field and its value; what came before the refusal is handed over."""
    messages = b'{"type":"hello"}\n{"v":1}\n{"type":"error","message":"no such channel"}\n{"v":2}\n'
    with pytest.raises(Fatal, match="no such channel"):
        await hear(
            NAME, body(messages, content_type=JSON), records=9, listener_skip="type=hello", listener_fatal="type=error"
        )
    heard = await hear(
        NAME, body(messages, content_type=JSON), records=1, listener_skip="type=hello", listener_fatal="type=error"
    )
    assert heard.payloads == [b'{"v":1}']


async def test_what_came_before_a_refusal_does_not_come_again() -> None:
    """Its page ends with its own last message, so that a restart asks for what follows it."""
    chunk = b'{"seq":8}\n{"seq":9}\n{"type":"error"}\n{"seq":10}\n'
    heard = await hear(
        NAME,
        body(chunk, content_type=JSON),
        records=2,
        path="/?since={offset}",
        listener_fatal="type=error",
        stream_cursor_field="seq",
        stream_cursor_initial="0",
    )
    assert heard.payloads == [b'{"seq":8}', b'{"seq":9}']
    assert heard.pages[-1].offset == {"cursor": "9"}


async def test_a_refusal_without_a_line_end_is_one() -> None:
    """Such as the only line of a body, and it is no record."""
    for is_framed in (True, False):
        refusal = body(b'{"type":"error","message":"no plan"}', content_type=JSON, is_framed=is_framed)
        with pytest.raises(Fatal, match="no plan"):
            await hear(NAME, refusal, records=1, listener_fatal="type=error")


async def test_true_false_and_numbers_are_matched_as_they_are_written() -> None:
    """A field need not be a text."""
    messages = b'{"ping":true}\n{"code":1.50}\n{"ping":false}\n{"code":1.5}\n{"success":false,"why":"no plan"}\n'
    with pytest.raises(Fatal, match="no plan"):
        await hear(NAME, body(messages, content_type=JSON), records=9, listener_fatal="success=false")
    heard = await hear(
        NAME, body(messages, content_type=JSON), records=3, listener_skip="ping=true,code=1.50,success=false"
    )
    assert heard.payloads[:2] == [b'{"ping":false}', b'{"code":1.5}']


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_wrong_credentials_end_after_one_request_with_the_words_of_the_service(status: int) -> None:
    """Asked again and again, it would be a 429 in the end."""

    async def refuse(_: web.Request) -> web.Response:
        problem = {"title": "Unauthorized", "detail": "the app has no access"}
        return web.json_response(problem, status=status, content_type="application/problem+json")

    with pytest.raises(Fatal, match=r"Unauthorized.*the app has no access") as raised:
        await hear(NAME, refuse, records=1)
    assert raised.value.__notes__ == ["1 requests"]


async def test_a_stream_that_never_sends_a_byte_is_made_anew() -> None:
    """With headers or without them."""

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def headers_only(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    turns = in_turn(silent, headers_only, body(b"{}\n", content_type=JSON))
    heard = await hear(NAME, turns, records=1, listener_silence_ms="500")
    assert len(heard.requests) >= 3
    assert {type(error) for error, _ in heard.context.retries} == {Disconnected}


async def test_a_refusal_that_may_pass_waits_as_long_as_it_asks() -> None:
    """429 with Retry-After: not before."""

    async def busy(_: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "900"})

    heard = await hear(NAME, in_turn(busy, body(b"{}\n", content_type=JSON)), records=1)
    assert [wait for _, wait in heard.context.retries] == [900.0]
