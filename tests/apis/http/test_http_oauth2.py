"""``HttpSource`` behind a token server: what is asked for a token, and when the next one is."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.http.fetcher import HttpSource
from fetchers.sdk.testing import collect
from fetchers.toolkit.http import SharedHttp
from tests.apis.http.paged import resume, source
from tests.apis.toolkit.token_server import SECRET, TokenServer
from tests.contracts.loopback import serve

ASKED = {"grant_type": "client_credentials", "scope": "orders:read", "audience": "https://orders.test"}
BASIC = "Basic " + base64.b64encode(f"client-7:{SECRET}".encode()).decode()


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


@pytest.fixture(name="server")
async def server_fixture() -> AsyncIterator[TokenServer]:
    """A token server with its API."""
    server = TokenServer()
    async with serve(server.answer) as url:
        server.url = url
        yield server


def client_of(server: TokenServer, **more: str) -> HttpSource:
    """A source that is this server's client."""
    keys = {
        "http.auth.type": "oauth2",
        "http.auth.token.url": f"{server.url}/token",
        "http.auth.client.id": "client-7",
        "http.auth.client.secret": SECRET,
        "http.auth.scope": ASKED["scope"],
        "http.auth.audience": ASKED["audience"],
    }
    return source(f"{server.url}/orders", **keys, **more)


def bearers(*numbers: int) -> list[str]:
    """How requests with these tokens are authorized, numbered from 1 as they were given out."""
    return [f"Bearer token-{number}-{SECRET}" for number in numbers]


@pytest.mark.parametrize(
    ("in_body", "expected"),
    [
        ("false", (ASKED, BASIC)),
        ("true", ({**ASKED, "client_id": "client-7", "client_secret": SECRET}, None)),
    ],
)
async def test_a_token_is_asked_for_as_configured_and_sent(
    http: SharedHttp, server: TokenServer, in_body: str, expected: tuple[dict[str, str], str | None]
) -> None:
    """Scope and audience are asked for, id and secret go where the key says; the API gets the token, nothing else."""
    made = client_of(server, **{"http.auth.secret.in.body": in_body})
    await collect(made, resume(made, http, []), rounds=2)
    assert list(zip(server.forms, server.headers, strict=True)) == [expected]
    assert server.asked == bearers(1, 1)


@pytest.mark.parametrize(("interval_seconds", "numbers"), [(1765, (1, 1, 1)), (1775, (1, 1, 2))])
async def test_a_token_is_renewed_before_it_ends(
    http: SharedHttp, server: TokenServer, interval_seconds: int, numbers: tuple[int, ...]
) -> None:
    """Of an hour's token, the round after 3530 s still uses it; the one after 3550 s has the next, and no 401."""
    made = client_of(server, **{"poll.interval.ms": str(interval_seconds * 1000)})
    context = resume(made, http, [])
    await collect(made, context, rounds=3)
    assert context.clock.monotonic() == pytest.approx(2 * interval_seconds)
    assert server.asked == bearers(*numbers)


async def test_a_token_that_is_refused_is_fetched_anew(http: SharedHttp, server: TokenServer) -> None:
    """A token that is withdrawn between two rounds costs one 401 and one token; the task goes on."""

    async def answer(request: web.Request) -> web.Response:
        response = await server.answer(request)
        if len(server.asked) == 1:
            server.valid = "withdrawn"
        return response

    async with serve(answer) as url:
        server.url = url
        made = client_of(server)
        context = resume(made, http, [])
        await collect(made, context, rounds=3)
    assert context.rounds == 3
    assert server.asked == bearers(1, 1, 2, 2)
    assert len(server.forms) == 2
