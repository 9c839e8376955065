"""Bad records among good ones, sink by sink: the task fails at the first, or they are dead letters; all else is there.

One that the converter cannot read, one that the target refuses, one that is null where none is taken.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pyiceberg.exceptions import NoSuchTableError

from metrics.events import RecordsRejected
from service.domain.errors import RecordRejectedError
from tests.integration.sinks.sink_runs import LOOK_SECONDS, Sinks, make_topic, produce, stored
from tests.integration.sinks.test_file_sink import committed_offset
from tests.stack import KafkaStack
from tests.unit.sinks.iceberg.iceberg_runs import LakeFolder

pytestmark = [pytest.mark.integration, pytest.mark.slow]
RECORDS = 12
REFUSED, UNREADABLE, NULL = 3, 6, 8
GOOD = [number for number in range(RECORDS) if number not in {REFUSED, UNREADABLE, NULL}]
SCHEMA = {
    "type": "struct",
    "fields": [{"field": "n", "type": "int32"}, {"field": "text", "type": "string", "optional": True}],
}


@dataclass(frozen=True)
class BadCase:
    """One sink: how it is configured, what it refuses, what stands at its target."""

    properties: Mapping[str, str]
    refused: Mapping[str, Any]
    """The value that the converter takes and the target does not."""
    written: Callable[[], Awaitable[list[int]]]
    has_schema: bool = False

    def values(self) -> list[bytes | None]:
        """Of all records, whose numbers are their offsets."""
        made: list[bytes | None] = [self._value({"n": number, "text": "ok"}) for number in range(RECORDS)]
        made[REFUSED], made[UNREADABLE], made[NULL] = self._value(self.refused), b'{"n": \xff', None
        return made

    def _value(self, payload: Mapping[str, Any]) -> bytes:
        return json.dumps({"schema": SCHEMA, "payload": payload} if self.has_schema else payload).encode()


@asynccontextmanager
async def of_sqlite(folder: Path, _topic: str, _opensearch: Callable[[], str]) -> AsyncIterator[BadCase]:
    """A text that is too long for its column."""
    file = folder / "shop.db"
    with closing(sqlite3.connect(file)) as made:
        made.execute("create table rows (n int, text varchar(5))")

    async def written() -> list[int]:
        with closing(sqlite3.connect(file, timeout=120)) as connection:
            return [row[0] for row in connection.execute("select n from rows order by n")]

    keys = {
        "connector.class": "JdbcSink",
        "connection.url": f"jdbc:sqlite:{file}",
        "table.name.format": "rows",
        "offsets.table": "headrace_offsets",
    }
    yield BadCase(keys, {"n": REFUSED, "text": "too long"}, written, has_schema=True)


@asynccontextmanager
async def of_search(_folder: Path, topic: str, opensearch: Callable[[], str]) -> AsyncIterator[BadCase]:
    """A mapping conflict: a text where the index has numbers."""
    url = opensearch()
    async with aiohttp.ClientSession() as client:
        mapping = {"mappings": {"properties": {"n": {"type": "long"}}}}
        await (await client.put(f"{url}/{topic}", json=mapping)).read()

        async def written() -> list[int]:
            await (await client.post(f"{url}/{topic}/_refresh")).read()
            async with client.get(f"{url}/{topic}/_search?size=100") as answer:
                return sorted(hit["_source"]["n"] for hit in (await answer.json())["hits"]["hits"])

        keys = {"connector.class": "ElasticsearchSink", "connection.url": url, "schema.ignore": "true"}
        keys |= {"behavior.on.malformed.documents": "WARN", "connection.timeout.ms": "30000"}
        keys |= {"read.timeout.ms": "30000"}
        yield BadCase(keys, {"n": "no number"}, written)


@asynccontextmanager
async def of_http(_folder: Path, _topic: str, _opensearch: Callable[[], str]) -> AsyncIterator[BadCase]:
    """A record that the server does not take, in a batch with others."""
    taken: set[int] = set()

    async def take(request: web.Request) -> web.Response:
        rows = await request.json()
        if any(row["text"] == "bad" for row in rows):
            return web.Response(status=422)
        taken.update(row["n"] for row in rows)
        return web.Response()

    async def written() -> list[int]:
        return sorted(taken)

    app = web.Application()
    app.router.add_post("/", take)
    async with TestServer(app) as server:
        keys = {"connector.class": "HttpSink", "http.api.url": str(server.make_url("/")), "batch.max.size": "5"}
        keys |= {"batch.json.as.array": "true", "behavior.on.null.values": "fail"}
        yield BadCase(keys, {"n": REFUSED, "text": "bad"}, written)


@asynccontextmanager
async def of_iceberg(folder: Path, _topic: str, _opensearch: Callable[[], str]) -> AsyncIterator[BadCase]:
    """A number that is too large for its column."""
    lake = LakeFolder(folder)
    async with lake.running() as sink:
        del sink
        catalog = lake.catalog
        catalog.create_namespace("shop")
        catalog.create_table(lake.name, files_schema())

    async def written() -> list[int]:
        try:
            return lake.rows("n")
        except NoSuchTableError:
            return []

    keys = {
        "connector.class": "IcebergSink",
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": f"sqlite:///{folder}/catalog.db",
        "iceberg.catalog.warehouse": f"file://{folder}/lake",
        "iceberg.tables": lake.name,
        "iceberg.control.commit.interval-ms": "300",
        "behavior.on.null.values": "fail",
    }
    yield BadCase(keys, {"n": 2**40, "text": "ok"}, written)


def files_schema() -> Any:
    """Columns of the table."""
    columns: list[pa.Field[Any]] = [pa.field("n", pa.int32()), pa.field("text", pa.string())]
    return pa.schema(columns)


@asynccontextmanager
async def of_files(folder: Path, topic: str, _opensearch: Callable[[], str]) -> AsyncIterator[BadCase]:
    """A time beyond the calendar, in the field that says its folder."""

    async def written() -> list[int]:
        files = (folder / "topics" / topic).rglob("*.json")
        return sorted(json.loads(line)["n"] for file in files for line in file.read_text().splitlines())

    keys = {
        "connector.class": "FileSystemSink",
        "store.url": f"file://{folder}",
        "flush.size": "1",
        "format.class": "io.confluent.connect.hdfs.json.JsonFormat",
        "partitioner.class": "io.confluent.connect.storage.partitioner.DailyPartitioner",
        "timestamp.extractor": "RecordField",
        "timestamp.field": "n",
        "locale": "en-US",
        "timezone": "UTC",
        "behavior.on.null.values": "fail",
    }
    yield BadCase(keys, {"n": 10**17}, written)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", [of_sqlite, of_search, of_http, of_iceberg, of_files])
async def test_bad_records_among_good_ones(  # noqa: PLR0917 - fixtures
    place: Any, kafka: KafkaStack, topic_name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """FAILED there by ``errors.tolerance=none``; with ``all`` each is one dead letter that says where and why."""
    letters = f"{topic_name}-letters"
    await make_topic(kafka.bootstrap, topic_name)
    async with place(tmp_path, topic_name, lambda: request.getfixturevalue("opensearch")) as case:
        keys: list[bytes | None] = [b"key-%d" % number for number in range(RECORDS)]
        await produce(kafka.bootstrap, topic_name, case.values(), keys)
        properties = {
            "name": topic_name,
            "topics": topic_name,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": str(case.has_schema).lower(),
            **case.properties,
        }
        sinks = Sinks(kafka.bootstrap, properties, flush_seconds=0.2)
        with pytest.RaisesGroup(pytest.RaisesExc(RecordRejectedError, match="Tolerance exceeded in error handler")):
            async with sinks.running():
                await asyncio.Event().wait()
        assert await committed_offset(kafka.bootstrap, topic_name, topic_name) in {None, *range(REFUSED + 1)}

        tolerant = {
            **properties,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": letters,
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
        async with Sinks(kafka.bootstrap, tolerant, flush_seconds=0.2).running():
            async with asyncio.timeout(200):
                while await case.written() != GOOD or len(await stored(kafka.bootstrap, letters)) < RECORDS - len(GOOD):
                    await asyncio.sleep(LOOK_SECONDS)
        assert await case.written() == GOOD
        assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == RECORDS
    found = await stored(kafka.bootstrap, letters)
    told = {int(dict(letter.headers)["__connect.errors.offset"]): letter for letter in found}
    assert len(found) == len(told)
    assert sorted(told) == [REFUSED, UNREADABLE, NULL]
    values = case.values()
    for offset, letter in told.items():
        headers = dict(letter.headers)
        stage = b"VALUE_CONVERTER" if offset == UNREADABLE else b"TASK_PUT"
        assert (letter.key, letter.value) == (keys[offset], values[offset])
        assert headers["__connect.errors.stage"] == stage
        assert headers["__connect.errors.topic"] == topic_name.encode()
        assert headers["__connect.errors.exception.message"]
    assert sinks.told(RecordsRejected)
