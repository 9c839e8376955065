"""``SseSource`` against a server that is less than kind."""

from __future__ import annotations

import pytest
from aiohttp import web

from fetchers.sdk import Fatal
from tests.apis.streams.listening import body, headers_of, hear, in_turn
from tests.contracts.loopback import serve

NAME = "SseSource"
EVENTS = "text/event-stream"


async def test_a_new_connection_goes_on_after_the_last_id() -> None:
    """Half an event is dropped and comes again; the source says how long to wait before."""
    first = body(b"retry: 4000\nid: caf\xc3\xa9\ndata: 1\n\nid: 2\ndata: 2", content_type=EVENTS, is_framed=False)
    heard = await hear(NAME, in_turn(first, body(b"id: 2\ndata: 2\n\n", content_type=EVENTS)), records=2)
    assert heard.payloads == [b"1", b"2"]
    assert headers_of(heard.requests[:2], "Last-Event-ID") == [None, "caf\u00e9"]
    assert heard.context.retries[0][1] == 4.0
    assert (heard.pages[-1].offset, heard.gaps, heard.rejected) == ({"id": "2"}, [], [])


async def test_a_stored_id_is_sent_by_the_first_request() -> None:
    """After a restart or a kill."""
    heard = await hear(NAME, body(b"data: 2\n\n", content_type=EVENTS), records=1, offset={"id": "1"})
    assert headers_of(heard.requests, "Last-Event-ID")[0] == "1"
    assert heard.pages[0].offset == {"id": "1"}


async def test_without_ids_half_an_event_is_a_dead_letter_and_the_gap_is_told() -> None:
    """Nobody else has it."""
    first = body(b'data: 1\n\ndata: {"a":', content_type=EVENTS, is_framed=False)
    heard = await hear(NAME, in_turn(first, body(b"data: 3\n\n", content_type=EVENTS)), records=3)
    assert heard.payloads == [b"1", b'{"a":', b"3"]
    assert heard.rejected == [(b'{"a":', "cut_off")]
    assert heard.gaps[0] == "disconnected"


async def test_types_are_chosen_and_told() -> None:
    """Records of the wanted types, each with its type as a header; ids of the others count."""
    stream = b"event: update\ndata: 1\n\ndata: 2\n\nevent: delete\nid: 9\ndata: 3\n\n"
    heard = await hear(
        NAME, body(stream, content_type=EVENTS), records=2, sse_events="update,message", sse_event_header="type"
    )
    assert heard.payloads == [b"1", b"2"]
    assert heard.pages[0].headers == [(("type", b"update"),), (("type", b"message"),)]
    assert heard.pages[0].offset == {"id": "9"}


async def test_what_came_before_a_refusal_does_not_come_again() -> None:
    """Its page has the id of its own last event."""
    stream = b'id: 8\ndata: {"v":1}\n\nid: 9\ndata: {"type":"error"}\n\n'
    heard = await hear(NAME, body(stream, content_type=EVENTS), records=1, listener_fatal="type=error")
    assert (heard.payloads, heard.pages[-1].offset) == ([b'{"v":1}'], {"id": "8"})


async def test_a_redirect_to_another_host_is_followed_without_credentials() -> None:
    """What the standard has every request for events send is no secret."""
    events = in_turn(body(b"id: 1\ndata: 1\n\n", content_type=EVENTS), body(b"data: 2\n\n", content_type=EVENTS))
    async with serve(events) as other:

        async def move(_: web.Request) -> web.Response:
            raise web.HTTPFound(other)

        heard = await hear(NAME, move, records=2)
        assert heard.payloads == [b"1", b"2"]
        assert headers_of(heard.requests[:2], "Last-Event-ID") == [None, "1"]
        with pytest.raises(Fatal, match="credentials are not sent there"):
            await hear(NAME, move, records=1, http_auth_type="bearer", http_auth_token="t0k3n")


async def test_an_event_over_the_limit_is_a_dead_letter() -> None:
    """Its first bytes are kept, and the next one is whole."""
    stream = b"data: " + b"x" * 500 + b"\n\ndata: {}\n\n"
    heard = await hear(NAME, body(stream, content_type=EVENTS), records=2, listener_message_bytes_max="100")
    assert heard.payloads == [b"x" * 100, b"{}"]
    assert heard.rejected == [(b"x" * 100, "too_large")]


async def test_an_answer_that_is_no_event_stream_is_fatal() -> None:
    """As the standard has it."""
    with pytest.raises(Fatal, match="answers with application/json, and not with text/event-stream"):
        await hear(NAME, body(b"{}", content_type="application/json"), records=1)


async def test_the_source_may_end_it() -> None:
    """204: the client is to stop reconnecting (HTML Standard §9.2.3)."""

    async def no_more(_: web.Request) -> web.Response:
        return web.Response(status=204)

    heard = await hear(NAME, in_turn(body(b"data: 1\n\n", content_type=EVENTS), no_more), records=9)
    assert heard.payloads == [b"1"]
    assert len(heard.requests) == 2


async def test_a_token_is_asked_for_once_and_sent_by_every_connection() -> None:
    """OAuth 2 client credentials (RFC 6749 §4.4), as for every other source on HTTP."""
    events = in_turn(body(b"id: 1\ndata: 1\n\n", content_type=EVENTS), body(b"data: 2\n\n", content_type=EVENTS))
    asked: list[str] = []

    async def give(request: web.Request) -> web.Response:
        asked.append((await request.text()).partition("&")[0])
        return web.json_response({"access_token": "t0k3n", "token_type": "Bearer", "expires_in": 3600})

    async with serve(give) as token_url:
        heard = await hear(
            NAME,
            events,
            records=2,
            http_auth_type="oauth2",
            http_auth_client_id="me",
            http_auth_client_secret="s3cr3t",
            http_auth_token_url=token_url,
        )
    assert heard.payloads == [b"1", b"2"]
    assert headers_of(heard.requests[:2], "Authorization") == ["Bearer t0k3n"] * 2
    assert asked == ["grant_type=client_credentials"]


async def test_wrong_credentials_end_after_one_request() -> None:
    """With the words of the service."""

    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"error": "The access token is invalid"}, status=401)

    with pytest.raises(Fatal, match="The access token is invalid") as raised:
        await hear(NAME, refuse, records=1)
    assert raised.value.__notes__ == ["1 requests"]


async def test_an_id_that_no_request_could_send_back_is_fatal() -> None:
    """It would be stored with every commit."""
    with pytest.raises(Fatal, match="an id of 70000 bytes"):
        await hear(NAME, body(b"id: " + b"1" * 70_000 + b"\ndata: 1\n\n", content_type=EVENTS), records=1)
