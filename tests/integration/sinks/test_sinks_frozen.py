"""Two workers own a partition for a moment: one is frozen beyond its session, another goes on, and the first wakes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pyiceberg.exceptions import NoSuchTableError

from tests.bound import bound
from tests.databases import MariaDb, Postgres
from tests.iceberg_rest import RestLake
from tests.integration.sinks.sink_runs import LOOK_SECONDS, QUICK, Sinks, make_topic, produce, wait_until
from tests.object_storage import Bucket
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[3]
BEFORE, AFTER, KEYS = 400, 200, 50
"""Records before the first worker wakes and after it, and how many keys they have."""
SCHEMA = b'{"type":"struct","fields":[{"field":"n","type":"int32"}]}'
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "consumer.override.max.poll.records": "100",
}
Read = Callable[[], Awaitable[object]]


@dataclass
class Frozen:
    """A worker in a process of its own that freezes, and is woken."""

    bootstrap: str
    properties: Mapping[str, str]
    call: str
    told_in: Path
    number: int = 2
    flush_seconds: float = 0.5
    _process: subprocess.Popen[bytes] | None = None

    @asynccontextmanager
    async def asleep(self) -> AsyncIterator[Frozen]:
        """It is frozen when the block begins, and killed when it ends."""
        program = Path(__file__).with_name("frozen_process.py")
        command = [sys.executable, str(program), self.bootstrap, json.dumps({**self.properties, **QUICK})]
        command += [self.call, str(self.number), str(self.told_in), str(self.flush_seconds)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = await asyncio.to_thread(subprocess.Popen, bound(command), cwd=ROOT, env=environment)
        try:
            await wait_until(self.is_stopped)
            yield self
        finally:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def is_stopped(self) -> bool:
        """By the third word of its line in ``/proc``."""
        assert self._process is not None
        assert self._process.poll() is None, "it ended before it was to freeze"
        line = Path(f"/proc/{self._process.pid}/stat").read_text()
        return line.rpartition(")")[2].split()[0] == "T"

    async def wake(self) -> str:
        """Let it go on; returns what came of the call it was frozen in."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        await wait_until(lambda: self.told_in.exists() and bool(self.told_in.read_text()))
        return self.told_in.read_text()


def payloads(begin: int, count: int, *, with_schema: bool = False) -> list[bytes | None]:
    """Records whose number is their offset."""
    plain = (b'{"n":%d}' % number for number in range(begin, begin + count))
    return [b'{"schema":%s,"payload":%s}' % (SCHEMA, each) if with_schema else each for each in plain]


async def put_to_the_test(frozen: Frozen, topic: str, read: Read, expected: Callable[[int], object]) -> str:
    """Freeze, let another one go on, wake; returns what the first was told. ``expected``: of so many records."""
    is_schemaless = frozen.properties["value.converter.schemas.enable"] == "false"

    async def bring(begin: int, count: int) -> None:
        keys: list[bytes | None] = [b"key-%d" % (number % KEYS) for number in range(begin, begin + count)]
        await produce(frozen.bootstrap, topic, payloads(begin, count, with_schema=not is_schemaless), keys)

    async def wait_for(count: int) -> None:
        async with asyncio.timeout(300):
            while await read() != expected(count):
                await asyncio.sleep(LOOK_SECONDS)

    await make_topic(frozen.bootstrap, topic)
    await bring(0, BEFORE)
    sinks = Sinks(frozen.bootstrap, frozen.properties, flush_seconds=0.5)
    async with frozen.asleep(), sinks.running():
        await wait_for(BEFORE)
        told = await frozen.wake()
        assert await read() == expected(BEFORE)
        await bring(BEFORE, AFTER)
        await wait_for(BEFORE + AFTER)
    assert await read() == expected(BEFORE + AFTER)
    return told


async def test_of_opensearch(kafka: KafkaStack, topic_name: str, opensearch: str, tmp_path: Path) -> None:
    """What it sends is refused document by document: versions are offsets, and newer ones are there."""
    properties = {
        **JSON,
        "name": topic_name,
        "connector.class": "ElasticsearchSink",
        "topics": topic_name,
        "connection.url": opensearch,
        "schema.ignore": "true",
        "max.in.flight.requests": "1",
        "connection.timeout.ms": "30000",
        "read.timeout.ms": "30000",
    }
    async with aiohttp.ClientSession() as client:

        async def read() -> object:
            await client.post(f"{opensearch}/{topic_name}/_refresh")
            asked = {"size": 10 * KEYS, "version": True}
            async with client.post(f"{opensearch}/{topic_name}/_search", json=asked) as answer:
                hits = (await answer.json()).get("hits", {}).get("hits", ())
            return {hit["_id"]: (hit["_source"]["n"], hit["_version"]) for hit in hits}

        def expected(count: int) -> object:
            return {f"key-{number % KEYS}": (number, number) for number in range(count - KEYS, count)}

        frozen = Frozen(kafka.bootstrap, properties, "put", tmp_path / "told")
        assert await put_to_the_test(frozen, topic_name, read, expected) == "done"


def rows_once(url: str, topic: str) -> dict[str, str]:
    """A table without any key; what keeps a row from being there twice is the table of offsets."""
    return {
        **JSON,
        "name": topic,
        "connector.class": "JdbcSink",
        "topics": topic,
        "connection.url": url,
        "table.name.format": "numbers",
        "auto.create": "true",
        "offsets.table": "headrace_offsets",
        "retry.backoff.ms": "200",
        "value.converter.schemas.enable": "true",
    }


async def _of_a_database(frozen: Frozen, read: Read) -> None:
    told = await put_to_the_test(frozen, frozen.properties["topics"], read, lambda count: list(range(count)))
    assert "another task has taken over partition 0" in told


async def test_of_postgresql(kafka: KafkaStack, topic_name: str, postgres: Postgres, tmp_path: Path) -> None:
    """With ``offsets.table``: its put is refused, each row is there once."""

    async def read() -> object:
        if postgres.rows("select to_regclass('numbers')::text") == [(None,)]:
            return []
        return [row[0] for row in postgres.rows("select n from numbers order by n")]

    await _of_a_database(Frozen(kafka.bootstrap, rows_once(postgres.url, topic_name), "put", tmp_path / "told"), read)


async def test_of_mariadb(kafka: KafkaStack, topic_name: str, mariadb: MariaDb, tmp_path: Path) -> None:
    """With ``offsets.table``: its put is refused, each row is there once."""

    async def read() -> object:
        tables = "select 1 from information_schema.tables where table_schema = database() and table_name = 'numbers'"
        if not await mariadb.rows(tables):
            return []
        return [int(row[0]) for row in await mariadb.rows("select n from numbers order by n")]

    await _of_a_database(Frozen(kafka.bootstrap, rows_once(mariadb.url, topic_name), "put", tmp_path / "told"), read)


async def test_of_sqlite(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """With ``offsets.table``: its put is refused, each row is there once."""
    file = tmp_path / "shop.db"

    async def read() -> object:
        with closing(sqlite3.connect(file, timeout=120)) as connection:
            if not connection.execute("select 1 from sqlite_master where name = 'numbers'").fetchall():
                return []
            return [row[0] for row in connection.execute("select n from numbers order by n")]

    await _of_a_database(
        Frozen(kafka.bootstrap, rows_once(f"jdbc:sqlite:{file}", topic_name), "put", tmp_path / "told"), read
    )


async def test_of_an_iceberg_table(kafka: KafkaStack, topic_name: str, rest_lake: RestLake, tmp_path: Path) -> None:
    """Frozen before its commit: the table says that another one has written, and its data files are nobody's."""
    properties = {
        **JSON,
        **rest_lake.properties,
        "name": topic_name,
        "connector.class": "IcebergSink",
        "topics": topic_name,
        "iceberg.control.commit.interval-ms": "300",
    }

    async def read() -> object:
        try:
            return await asyncio.to_thread(rest_lake.numbers)
        except NoSuchTableError:
            return []

    frozen = Frozen(kafka.bootstrap, properties, "flush", tmp_path / "told", number=1)
    told = await put_to_the_test(frozen, topic_name, read, lambda count: list(range(count)))
    assert "another task has written records of partition 0" in told


def _files(properties: Mapping[str, str], topic: str) -> dict[str, str]:
    return {**JSON, **properties, "name": topic, "topics": topic, "flush.size": "10"}


def _lines(contents: list[bytes]) -> list[int]:
    return sorted(json.loads(line)["n"] for content in contents for line in content.split(b"\n")[:-1])


async def test_of_a_folder(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Its files get no final names: the log beside the files says who owns the partition."""
    own = {
        "connector.class": "FileSystemSink",
        "store.url": f"file://{tmp_path}/lake",
        "format.class": "io.confluent.connect.hdfs.json.JsonFormat",
    }
    folder = tmp_path / "lake/topics" / topic_name

    async def read() -> object:
        return _lines([file.read_bytes() for file in folder.rglob("*.json")])

    frozen = Frozen(kafka.bootstrap, _files(own, topic_name), "put", tmp_path / "told")
    told = await put_to_the_test(frozen, topic_name, read, lambda count: list(range(count)))
    assert "another task has taken the partition over" in told


async def test_of_a_bucket(kafka: KafkaStack, topic_name: str, bucket: Bucket, tmp_path: Path) -> None:
    """The same by conditional puts of objects."""
    own = {
        **bucket.properties,
        "connector.class": "S3Sink",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    }

    async def read() -> object:
        found = await asyncio.to_thread(bucket.objects, f"topics/{topic_name}/")
        return _lines(list(found.values()))

    frozen = Frozen(kafka.bootstrap, _files(own, topic_name), "put", tmp_path / "told")
    told = await put_to_the_test(frozen, topic_name, read, lambda count: list(range(count)))
    assert "another task has taken the partition over" in told


@dataclass
class Hook:
    """A server that notes what it is sent, and takes each name of a request once."""

    posts: Counter[int] = field(default_factory=Counter)
    named: dict[str, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        """One record."""
        number = (await request.json())["n"]
        self.posts[number] += 1
        self.order.append(number)
        self.named.setdefault(request.headers["Idempotency-Key"], number)
        return web.Response()


async def test_of_an_address(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """At least once is what is promised: it sends again, behind newer ones; a server that knows names takes none."""
    hook = Hook()
    app = web.Application()
    app.router.add_post("/", hook.take)
    async with TestServer(app) as server:
        properties = {
            **JSON,
            "name": topic_name,
            "connector.class": "HttpSink",
            "topics": topic_name,
            "http.api.url": str(server.make_url("/")),
            "idempotency.header": "Idempotency-Key",
        }

        async def read() -> Any:
            return list(hook.named.values())

        frozen = Frozen(kafka.bootstrap, properties, "put", tmp_path / "told")
        told = await put_to_the_test(frozen, topic_name, read, lambda count: list(range(count)))
    assert told == "done"
    assert max(hook.posts.values()) == 2
    assert hook.order != sorted(hook.order)
