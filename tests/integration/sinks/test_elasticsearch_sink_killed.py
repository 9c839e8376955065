"""A worker killed in the middle of a bulk request, and answers lost after the work was done, on a real OpenSearch."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.integration.sinks.sink_runs import Sinks, produce, wait_until
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

    async def pass_on(self, request: web.Request) -> web.Response:
        """One request; what is asked has been done when its answer is lost."""
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        url = f"{self.server}{request.path_qs}"
        async with self.client.request(
            request.method, url, data=await request.read(), headers=headers, compress=False
        ) as answer:
            body = await answer.read()
        if request.path.endswith("/_bulk"):
            self.bulks = number = self.bulks + 1
            if number == HELD:
                await self.may_answer.wait()
            if number in LOST and request.transport is not None:
                self.lost += 1
                request.transport.abort()
        return web.Response(body=body, status=answer.status, content_type=answer.content_type)


@pytest.mark.timeout(600)
async def test_replays_leave_each_document_as_its_last_record_says(
    kafka: KafkaStack, topic_name: str, opensearch: str
) -> None:
    """Records come again after a kill and after lost answers; versions are offsets, so no older one stays."""
    values: list[bytes | None] = [b'{"n":%d}' % number for number in range(RECORDS)]
    keys: list[bytes | None] = [b"key-%d" % (number % DOCUMENTS) for number in range(RECORDS)]
    await produce(kafka.bootstrap, topic_name, values, keys)
    async with aiohttp.ClientSession() as client:
        door = FaultyDoor(opensearch, client)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{tail:.*}", door.pass_on)
        async with TestServer(app) as server:
            properties = {
                "name": topic_name,
                "connector.class": "ElasticsearchSink",
                "topics": topic_name,
                "connection.url": str(server.make_url("/")).rstrip("/"),
                "schema.ignore": "true",
                "batch.size": "100",
                "max.in.flight.requests": "2",
                "retry.backoff.ms": "50",
                "connection.timeout.ms": "30000",
                "read.timeout.ms": "30000",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "consumer.override.max.poll.records": "200",
            }
            with process(kafka.bootstrap, properties):
                await wait_until(lambda: door.bulks >= HELD)
            door.may_answer.set()
            sinks = Sinks(kafka.bootstrap, properties, flush_seconds=0.5)
            async with sinks.running():
                async with asyncio.timeout(300):
                    while await found(client, opensearch, topic_name) != expected():
                        await asyncio.sleep(0.2)
    assert door.lost == len(LOST), "no answer was lost: nothing was proven"


def expected() -> dict[str, tuple[int, int]]:
    """For each document its value and its version: those of the last record with its key."""
    return {f"key-{number % DOCUMENTS}": (number, number) for number in range(RECORDS - DOCUMENTS, RECORDS)}


async def found(client: aiohttp.ClientSession, server: str, index: str) -> dict[str, tuple[int, int]]:
    """The documents of an index."""
    await client.post(f"{server}/{index}/_refresh")
    async with client.post(f"{server}/{index}/_search", json={"size": RECORDS, "version": True}) as answer:
        told: dict[str, Any] = await answer.json()
    return {hit["_id"]: (hit["_source"]["n"], hit["_version"]) for hit in told.get("hits", {}).get("hits", ())}
