"""``HttpSink`` behind a token server: what is asked for a token, when the next one is, and a secret that is wrong."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, Retriable, SystemClock
from metrics.events import discard
from service.sinks.contract import SinkContext
from service.sinks.http.config import HttpSinkConfig
from service.sinks.http.sink import HttpSink
from tests.apis.sinks.test_http_sink import batch_of
from tests.apis.toolkit.token_server import SECRET, TokenServer
from tests.contracts.loopback import serve

CONFLUENT = {"auth.type": "OAUTH2", "oauth2.client.id": "me", "oauth2.client.secret": SECRET}
OWN = {"http.auth.type": "oauth2", "http.auth.client.id": "me", "http.auth.client.secret": SECRET}
TOKEN_KEYS = {"auth.type": "oauth2.token.url", "http.auth.type": "http.auth.token.url"}


class Hook(TokenServer):
    """Keeps the bodies of what it has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []
        self.withdraws_after = -1
        """The token is withdrawn when so many records were taken."""
        self.takes_tokens = True

    async def answer(self, request: web.Request) -> web.Response:
        """A token, or whether a record was taken."""
        answer = await super().answer(request)
        if request.path == "/token" and not self.takes_tokens:
            self.valid = "another"
        if request.path != "/token" and answer.status < web.HTTPBadRequest.status_code:
            self.taken.append(await request.text())
            if len(self.taken) == self.withdraws_after:
                self.valid = "withdrawn"
        return answer


@asynccontextmanager
async def running(config: Mapping[str, str]) -> AsyncIterator[tuple[Hook, HttpSink]]:
    """A started sink, and its server."""
    hook = Hook()
    async with serve(hook.answer) as url, shared_http() as http:
        hook.url = url
        key = next(TOKEN_KEYS[name] for name in config if name in TOKEN_KEYS)
        parsed = HttpSinkConfig.parse({"http.api.url": f"{url}/orders", key: f"{url}/token", **config})
        assert parsed.config is not None, parsed.findings
        assert not list(parsed.config.own_findings())
        sink = HttpSink(parsed.config)
        await sink.start(SinkContext("hook", 0, SystemClock(), discard, http))
        yield hook, sink


@pytest.mark.parametrize("config", [CONFLUENT, OWN])
async def test_a_token_is_asked_for_once_and_sent(config: Mapping[str, str]) -> None:
    """Partitions side by side wait for the same one; the secret goes to the token server alone."""
    async with running(config) as (hook, sink):
        await sink.put(batch_of([1, 2, 3, 4], partitions=[0, 1, 2, 3]))
        await sink.put(batch_of([5]))
    assert sorted(hook.taken) == ["1", "2", "3", "4", "5"]
    assert hook.headers == [f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"]
    assert set(hook.asked) == {f"Bearer token-1-{SECRET}"}
    assert hook.forms[0]["grant_type"] == "client_credentials"
    assert hook.forms[0].get("scope") == ("any" if config is CONFLUENT else None)


@pytest.mark.parametrize("config", [CONFLUENT, OWN])
async def test_a_token_that_is_withdrawn_in_mid_put(config: Mapping[str, str]) -> None:
    """It costs one 401 and one token; each record is taken once and in order, and none is refused."""
    refused: list[object] = []
    async with running(config) as (hook, sink):
        hook.withdraws_after = 2
        await sink.put(batch_of([1, 2, 3, 4], refused=refused))
    assert (hook.taken, refused) == (["1", "2", "3", "4"], [])
    assert len(hook.forms) == 2
    assert [text and text.split("-")[1] for text in hook.asked] == ["1", "1", "1", "2", "2"]


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_secret_that_is_wrong(status: int) -> None:
    """The task fails, names the token server's status and shows no secret; nothing is sent or refused."""
    refused: list[object] = []
    async with running(CONFLUENT) as (hook, sink):
        hook.broken = web.json_response({"error": "invalid_client", "error_description": SECRET}, status=status)
        with pytest.raises(Fatal, match=str(status)) as told:
            await sink.put(batch_of([1, 2], refused=refused))
        assert (hook.asked, refused) == ([], [])
    assert SECRET not in str(told.value)


async def test_a_token_server_that_is_in_trouble() -> None:
    """All records come again, and each is taken once when it is well."""
    async with running(CONFLUENT) as (hook, sink):
        hook.broken = web.Response(status=503)
        with pytest.raises(Retriable) as told:
            await sink.put(batch_of([1, 2]))
        assert told.value.rows == [0, 1]
        hook.broken = None
        await sink.put(batch_of([1, 2]))
    assert hook.taken == ["1", "2"]


async def test_a_client_whose_token_may_do_nothing() -> None:
    """Every token is refused: the task fails, and does not ask for tokens for ever."""
    refused: list[object] = []
    async with running(CONFLUENT) as (hook, sink):
        hook.takes_tokens = False
        with pytest.raises(Fatal, match="401"):
            await sink.put(batch_of([1], refused=refused))
    assert (len(hook.asked), len(hook.forms), refused) == (2, 2, [])
