"""A worker killed in the middle of a bulk request, and answers lost after the work was done, on a real OpenSearch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.integration.sinks.sink_runs import LOOK_SECONDS, Sinks, produce, wait_until
from tests.integration.sinks.test_file_sink_killed import process
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]
RECORDS, DOCUMENTS = 2_000, 500
HELD = 7
"""The bulk request whose answer the first worker is killed without, after others have been answered."""
LOST = range(HELD + 3, HELD + 6)
"""Bulk requests of its successor that are done, and whose connections then break."""


@dataclass
class FaultyDoor:
    """Passes every request on to the server, and keeps some of its answers for itself."""

    server: str
    client: aiohttp.ClientSession
    bulks: int = 0
    lost: int = 0
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[str]:
        """Its address for one worker; when the block has ended, nothing of that worker will reach the server any more.

        A request that came late from a worker that is dead could undo what its successor has written.
        """
        async with asyncio.TaskGroup() as passing:

            async def take(request: web.Request) -> web.Response:
                return await self.pass_on(request, passing)

            app = web.Application(client_max_size=2**26)
            app.router.add_route("*", "/{tail:.*}", take)
            async with TestServer(app) as server:
                yield str(server.make_url("/")).rstrip("/")

    async def pass_on(self, request: web.Request, passing: asyncio.TaskGroup) -> web.Response:
        """One request; what is asked has been done when its answer is lost, or its worker is dead."""
        done = passing.create_task(self._done(request, await request.read()))
        response = await asyncio.shield(done)
        if request.path.endswith("/_bulk"):
            self.bulks = number = self.bulks + 1
            if number == HELD:
                await self.may_answer.wait()
            if number in LOST and request.transport is not None:
                self.lost += 1
                request.transport.abort()
        return response

    async def _done(self, request: web.Request, body: bytes) -> web.Response:
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        url = f"{self.server}{request.path_qs}"
        async with self.client.request(request.method, url, data=body, headers=headers, compress=False) as answer:
            return web.Response(body=await answer.read(), status=answer.status, content_type=answer.content_type)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", ["INSERT", "UPSERT"])
async def test_replays_leave_each_document_as_its_records_say(
    kafka: KafkaStack, topic_name: str, opensearch: str, method: str
) -> None:
    """Records come again after a kill and after lost answers: no older one replaces a newer one or sets a field back.

    With INSERT versions are offsets, and the last record is there; with UPSERT each field is that of its last record.
    """
    documents = [document(number) for number in range(RECORDS)]
    values: list[bytes | None] = [json.dumps(each).encode() for each in documents]
    keys: list[bytes | None] = [b"key-%d" % (number % DOCUMENTS) for number in range(RECORDS)]
    expected: dict[str, dict[str, int]] = {}
    for number, each in enumerate(documents):
        name = f"key-{number % DOCUMENTS}"
        expected[name] = each if method == "INSERT" else expected.get(name, {}) | each
    await produce(kafka.bootstrap, topic_name, values, keys)
    async with aiohttp.ClientSession() as client:
        door = FaultyDoor(opensearch, client)
        properties = {
            "name": topic_name,
            "connector.class": "ElasticsearchSink",
            "topics": topic_name,
            "write.method": method,
            "schema.ignore": "true",
            "batch.size": "100",
            "max.in.flight.requests": "2",
            "retry.backoff.ms": "50",
            "connection.timeout.ms": "300000",
            "read.timeout.ms": "300000",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "consumer.override.max.poll.records": "200",
        }
        async with door.opened() as url:
            with process(kafka.bootstrap, {**properties, "connection.url": url}):
                await wait_until(lambda: door.bulks >= HELD)
            door.may_answer.set()
        async with door.opened() as url:
            sinks = Sinks(kafka.bootstrap, {**properties, "connection.url": url}, flush_seconds=0.5)
            async with sinks.running(), asyncio.timeout(300):
                while door.lost < len(LOST) or await sources(client, opensearch, topic_name) != expected:
                    await asyncio.sleep(LOOK_SECONDS)
        assert await sources(client, opensearch, topic_name) == expected
        if method == "INSERT":
            versions = {name: each["_version"] for name, each in (await hits(client, opensearch, topic_name)).items()}
            assert versions == {name: each["n"] for name, each in expected.items()}


def document(number: int) -> dict[str, int]:
    """Its number, also under one of three names: the records of a key have all of them, by turns."""
    return {"n": number, f"f{number % 3}": number}


async def sources(client: aiohttp.ClientSession, server: str, index: str) -> dict[str, dict[str, int]]:
    """The documents of an index, by id."""
    return {name: each["_source"] for name, each in (await hits(client, server, index)).items()}


async def hits(client: aiohttp.ClientSession, server: str, index: str) -> dict[str, Any]:
    """What a search for all of them finds, by id."""
    await client.post(f"{server}/{index}/_refresh")
    async with client.post(f"{server}/{index}/_search", json={"size": RECORDS, "version": True}) as answer:
        told: dict[str, Any] = await answer.json()
    return {hit["_id"]: hit for hit in told.get("hits", {}).get("hits", ())}
