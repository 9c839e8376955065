"""Credentials reach the source and nobody else; tokens are renewed in time, once, for all who wait."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.sdk import Authorizer, Fatal, Retriable
from fetchers.sdk.testing import FakeContext
from fetchers.toolkit.auth import ApiKeyAuth, BasicAuth, BearerAuth, OAuth2Auth
from tests.apis.toolkit.token_server import SECRET, TokenServer
from tests.contracts.loopback import serve


@pytest.fixture(name="context")
async def context_fixture() -> AsyncIterator[FakeContext]:
    """A context with a client."""
    async with shared_http() as http:
        yield FakeContext(http=http)


@pytest.fixture(name="server")
async def server_fixture() -> AsyncIterator[TokenServer]:
    """A token server."""
    server = TokenServer()
    async with serve(server.answer) as url:
        server.url = url
        yield server


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        (
            BasicAuth("ännchen", "pä:ss"),
            "Authorization",
            "Basic " + base64.b64encode("ännchen:pä:ss".encode()).decode(),
        ),
        (BasicAuth("k3y-4711", ""), "Authorization", "Basic " + base64.b64encode(b"k3y-4711:").decode()),
        (BearerAuth("abc"), "Authorization", "Bearer abc"),
        (ApiKeyAuth("k1"), "X-API-Key", "k1"),
    ],
)
async def test_simple_credentials(context: FakeContext, auth: Authorizer, header: str, value: str) -> None:
    """Basic, bearer and API key arrive as their standards say."""
    seen: list[str | None] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers.get(header))
        return web.Response()

    async with serve(handler) as url:
        await context.http.request("GET", url, auth=auth)
    assert seen == [value]


async def test_a_key_in_the_query(context: FakeContext) -> None:
    """A key may go into the query, besides what is there, and stays out of messages."""
    seen: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(dict(request.query))
        return web.Response(status=403, text=str(request.url))

    auth = ApiKeyAuth("k1+/ ü", header=None, query="api_key")
    async with serve(handler) as url:
        with pytest.raises(Fatal) as caught:
            await context.http.request("GET", f"{url}/?a=1", auth=auth)
    assert seen == [{"a": "1", "api_key": "k1+/ ü"}]
    assert "k1" not in str(caught.value)


@pytest.mark.parametrize("auth", [BasicAuth("u", SECRET), BearerAuth(SECRET), ApiKeyAuth(SECRET)])
def test_printing_shows_no_secret(auth: Authorizer) -> None:
    """Neither ``repr`` nor ``str`` of a way to authorize shows its secret."""
    assert SECRET not in repr(auth) + str(auth)


async def test_one_token_for_all_who_ask_at_once(context: FakeContext, server: TokenServer) -> None:
    """Ten requests at the same moment cost one token request, with id and secret in a Basic header."""
    auth = OAuth2Auth(server.client(), clock=context.clock)
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(context.http.request("GET", server.url, auth=auth))
    assert server.forms == [{"grant_type": "client_credentials", "scope": "read write"}]
    assert server.headers == [f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"]


async def test_the_secret_in_the_body(context: FakeContext, server: TokenServer) -> None:
    """For servers that want it, id and secret go into the form."""
    auth = OAuth2Auth(server.client(is_secret_in_body=True), clock=context.clock)
    await context.http.request("GET", server.url, auth=auth)
    assert (server.forms[0]["client_id"], server.forms[0]["client_secret"]) == ("me", SECRET)
    assert server.headers == [None]


@pytest.mark.parametrize(("life", "kept_seconds"), [(3600, 3540), ("600", 540), (60, 30), (None, 240)])
async def test_a_token_is_renewed_before_it_ends(
    context: FakeContext, server: TokenServer, life: object, kept_seconds: float
) -> None:
    """A minute before its end, or at half of a short life, the next request gets a new token."""
    server.life = life
    auth = OAuth2Auth(server.client(), clock=context.clock)
    await context.http.request("GET", server.url, auth=auth)
    await context.clock.advance(kept_seconds - 1)
    await context.http.request("GET", server.url, auth=auth)
    assert len(server.forms) == 1
    await context.clock.advance(2)
    await context.http.request("GET", server.url, auth=auth)
    assert len(server.forms) == 2


async def test_a_refused_token_is_renewed_once(context: FakeContext, server: TokenServer) -> None:
    """A 401 to a token that ended early costs one new token, and the request succeeds."""
    auth = OAuth2Auth(server.client(), clock=context.clock)
    await context.http.request("GET", server.url, auth=auth)
    server.valid = "another"
    await context.http.request("GET", server.url, auth=auth)
    assert len(server.forms) == 2


async def test_a_second_401_is_final(context: FakeContext, server: TokenServer) -> None:
    """When the new token is refused as well, a person must act; no token is shown."""

    async def handler(request: web.Request) -> web.Response:
        if request.path == "/token":
            return await server.answer(request)
        return web.Response(status=401, text=f"never {request.headers['Authorization']}")

    async with serve(handler) as url:
        server.url = url
        auth = OAuth2Auth(server.client(), clock=context.clock)
        with pytest.raises(Fatal) as caught:
            await context.http.request("GET", url, auth=auth)
    assert len(server.forms) == 2
    assert SECRET not in str(caught.value)


async def test_wrong_client_is_fatal(context: FakeContext, server: TokenServer) -> None:
    """A token server that refuses the client says so in the error, without the secret."""
    server.broken = web.json_response({"error": "invalid_client", "you_sent": SECRET}, status=400)
    with pytest.raises(Fatal, match="invalid_client") as caught:
        await context.http.request("GET", server.url, auth=OAuth2Auth(server.client(), clock=context.clock))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "kind"),
    [('{"token": "x"}', Fatal), ("<html>", Retriable), ('{"access_token": "x", "token_type": "mac"}', Fatal)],
)
async def test_odd_token_answers(context: FakeContext, server: TokenServer, body: str, kind: type[Exception]) -> None:
    """What is no token is told from what may be a passing fault."""
    server.broken = web.Response(text=body)
    with pytest.raises(kind, match="token server"):
        await context.http.request("GET", server.url, auth=OAuth2Auth(server.client(), clock=context.clock))
