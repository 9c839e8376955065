"""Runs the configs of ``docs/examples/streams`` on the published formats of their services, and judges what comes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.sdk import Page
from fetchers.sdk.testing import FakeContext, collect
from service.config.definition import ConnectorDefinition
from service.job import read_job
from service.simulators.x import XSimulator
from spark_batch.exact.verdicts import exact_verdict
from tests.contracts.loopback import serve

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
RECORDED = Path(__file__).parent / "streams"
TOKEN = "tok-example-0001"
URL_KEYS = {"SseSource": "sse.url", "WebSocketSource": "websocket.url"}


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("MASTODON_TOKEN", "X_BEARER_TOKEN"):
        monkeypatch.setenv(name, TOKEN)


def defined(name: str) -> ConnectorDefinition:
    """The example, valid and without a warning."""
    job = read_job(EXAMPLES / "orders" / "worker.properties", [EXAMPLES / "streams" / f"{name}.properties"])
    assert job.warnings == ()
    (definition,) = job.definitions()
    return definition


async def listened(definition: ConnectorDefinition, content: bytes, *, records: int) -> tuple[list[Page], list[str]]:
    """What the example makes of a service that says this, and what was sent to the service."""
    sent: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        sent.append(request.headers.get("Authorization") or request.headers["User-Agent"])
        if request.headers.get("Upgrade"):
            socket = web.WebSocketResponse(timeout=0.1)
            await socket.prepare(request)
            sent.append(await socket.receive_str())
            for line in content.decode().splitlines():
                await socket.send_str(line)
            return socket
        return web.Response(body=content, content_type="text/event-stream")

    connector = definition.for_task({})
    key = URL_KEYS[type(connector).__name__]
    async with shared_http() as http, serve(answer) as url:
        # With the address of the stand-in.
        config = type(connector).config_class.parse({**definition.properties, key: url}).config
        assert config is not None
        return await collect(type(connector)(config), FakeContext(http=http), records=records), sent


@pytest.mark.parametrize(
    ("name", "recorded", "expected"),
    [
        ("wikimedia", "wikimedia.sse", [b'"id":300000001', b'"id":300000002']),
        ("mastodon", "mastodon.sse", [b'"id":"111000000000000001"', b'"id":"111000000000000002"']),
        ("coinbase", "coinbase.jsonl", [b'"trade_id":9', b'"trade_id":10']),
    ],
)
async def test_an_example_runs_as_it_stands(name: str, recorded: str, expected: list[bytes]) -> None:
    """Its records are those of the service, and meet its contract."""
    definition = defined(name)
    pages, sent = await listened(definition, (RECORDED / recorded).read_bytes(), records=len(expected))
    payloads = [payload or b"" for page in pages for payload in page.values()][: len(expected)]
    assert [mark in payload for mark, payload in zip(expected, payloads, strict=True)] == [True] * len(expected)
    assert definition.contract_source is not None
    plan = definition.plan(definition.contract_source.text)
    assert [exact_verdict(plan, payload).rejection for payload in payloads] == [None] * len(expected)
    marks = {"wikimedia": "admin@example.com", "mastodon": f"Bearer {TOKEN}", "coinbase": '"type": "subscribe"'}
    assert any(marks[name] in text for text in sent)


async def test_the_example_of_x_runs_as_it_stands() -> None:
    """On the simulated X: posts that meet its keywords and its rule, under their ids, which meet its contract."""
    definition = defined("x")
    texts = ["olympics in San Jose", "nothing of it", "kafka"]
    async with XSimulator() as x, shared_http() as http, asyncio.TaskGroup() as group:

        async def post() -> None:
            await x.wait_for_connections(1)
            for text in texts:
                x.post(text)

        properties = {**definition.properties, "x.bearer.token": x.settings.bearer_token}
        config = type(definition.for_task({})).config_class.parse({**properties, "x.base.url": x.url}).config
        assert config is not None
        group.create_task(post())
        pages = await collect(type(definition.for_task({}))(config), FakeContext(http=http), records=2)
    payloads = [payload or b"" for page in pages for payload in page.values()]
    assert [json.loads(payload)["data"]["text"] for payload in payloads] == [texts[0], texts[2]]
    assert [user["id"] for user in json.loads(payloads[0])["includes"]["users"]] == ["9876543210"]
    assert definition.contract_source is not None
    plan = definition.plan(definition.contract_source.text)
    assert [exact_verdict(plan, payload).rejection for payload in payloads] == [None, None]
