"""A worker killed in the middle of a bulk request, and answers lost after the work was done, on a real OpenSearch."""

from __future__ import annotations

import asyncio
from collections import Counter
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
RECORDS, DOCUMENTS = 2_000, 50
"""How many, and how many keys they have: each bulk has records of every key."""
ROUNDS = 4
"""A record changes one of so many fields, beside the one that each changes."""
HELD = 7
"""The first bulk request whose answer the first worker is killed without, after others have been answered."""
LOST = tuple(b'{"n":%d,' % number for number in (1_750, 1_850, 1_950))
"""In bulk requests of its successor, the last ones, that are done, and whose connections then break, each once."""


@dataclass
class FaultyDoor:
    """Passes every request on to the server, and keeps some of its answers for itself."""

    server: str
    client: aiohttp.ClientSession
    bulks: int = 0
    seen: Counter[bytes] = field(default_factory=Counter)
    """How often what is in ``LOST`` has come."""
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def pass_on(self, request: web.Request) -> web.Response:
        """One request; what is asked has been done when its answer is lost."""
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        url = f"{self.server}{request.path_qs}"
        asked = await request.read()
        async with self.client.request(request.method, url, data=asked, headers=headers, compress=False) as answer:
            body = await answer.read()
        if request.path.endswith("/_bulk"):
            self.bulks += 1
            if self.bulks >= HELD:
                await self.may_answer.wait()
            self.seen.update(each for each in LOST if each in asked)
            if any(self.seen[each] == 1 for each in LOST if each in asked) and request.transport is not None:
                request.transport.abort()
        return web.Response(body=body, status=answer.status, content_type=answer.content_type)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", ["INSERT", "UPSERT"])
async def test_replays_leave_each_document_as_its_last_record_says(
    kafka: KafkaStack, topic_name: str, opensearch: str, method: str
) -> None:
    """Records come again after a kill and after lost answers; versions are offsets, so no older one stays.

    Partial updates have no version, and each changes two fields: they come again in their order, so the last record
    that has a field says what is in it.
    """
    values: list[bytes | None] = [
        b'{"n":%d,"round%d":%d}' % (number, number // DOCUMENTS % ROUNDS, number) for number in range(RECORDS)
    ]
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
                "write.method": method,
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
                await wait_until(lambda: all(door.seen[each] > 1 for each in LOST))
                async with asyncio.timeout(300):
                    while await found(client, opensearch, topic_name, method) != expected(method):
                        await asyncio.sleep(0.2)
            assert await found(client, opensearch, topic_name, method) == expected(method)


Documents = dict[str, tuple[dict[str, int], int | None]]


def expected(method: str) -> Documents:
    """Each document and its version: those of the last record with its key, or the fields of its last records."""
    documents: Documents = {}
    for key in range(DOCUMENTS):
        numbers = range(key, RECORDS, DOCUMENTS)
        last = numbers[-1]
        fields = {f"round{number // DOCUMENTS % ROUNDS}": number for number in numbers[-ROUNDS:]}
        if method == "INSERT":
            documents[f"key-{key}"] = {"n": last, f"round{ROUNDS - 1}": last}, last
        else:
            documents[f"key-{key}"] = {"n": last, **fields}, None
    return documents


async def found(client: aiohttp.ClientSession, server: str, index: str, method: str) -> Documents:
    """The documents of an index, with their versions where those are offsets."""
    await client.post(f"{server}/{index}/_refresh")
    async with client.post(f"{server}/{index}/_search", json={"size": RECORDS, "version": True}) as answer:
        told: dict[str, Any] = await answer.json()
    hits = told.get("hits", {}).get("hits", ())
    return {hit["_id"]: (hit["_source"], hit["_version"] if method == "INSERT" else None) for hit in hits}
