"""``./headrace demo pipeline``: the chapter's pipeline on real servers, and the proof that every hop balances.

A table ``login`` of MariaDB is read by ``JdbcSource`` into a topic, and the topic is written to OpenSearch and to
Parquet files. On the way the table gets a column. In the end what MariaDB, Kafka, OpenSearch and Spark SQL each say is
compared.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import asyncmy

from fetchers.sdk.clock import SystemClock
from metrics.events import Event, SinkOffsetsCommitted, SinkRecordsPut, discard
from service.app import RunningWorker, open_worker
from service.background import Background
from service.demo.accounts import Accounts
from service.demo.audit import TopicAudit, audit_records
from service.demo.folder import fresh_folder
from service.demo.run import demo_job
from service.embedded.mariadb import embedded_mariadb
from service.embedded.search import embedded_search
from service.kafka.client import KafkaSettings
from service.registry.client import RegistryClient
from service.registry.settings import RegistrySettings
from service.surroundings import spark_settings
from service.worker.conversion import ConversionService

ROWS = 6_000
ROWS_MAX = 10_000
"""As many documents as one search of OpenSearch gives, by its own default."""
SOURCE, SEARCH, FILES = "mysql-login-connector", "elastic-login-connector", "login-files"
DATABASE = "test"
RUN_SECONDS_MAX = 420.0
ANSWER_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.1
_PAUSE_SECONDS = 0.25
"""Between two inserts, so that there is something to see."""
_INSERTS = 20
_FIRST_LOGIN = datetime(2016, 10, 14, 5, 46, 2)  # noqa: DTZ001 - as in the book: a column DATETIME has no zone
_TABLE = "create table login (username varchar(30), login_time datetime)"
_COLUMN = "alter table login add column device varchar(30)"
_COUNTED = "select count(*), count(distinct login_time), count({device}) from login"


@dataclass(slots=True)
class PipelineAccounts:
    """What the worker says it did: ``source`` at the first hop, the others behind the topic."""

    source: Accounts = field(default_factory=Accounts)
    put: dict[str, int] = field(default_factory=lambda: {SEARCH: 0, FILES: 0})
    """Records that a sink has taken, by connector."""
    committed: dict[str, int] = field(default_factory=lambda: {SEARCH: 0, FILES: 0})
    """Of these, records that the group has committed."""

    def __call__(self, event: Event) -> None:
        """Take an event."""
        self.source(event)
        if isinstance(event, SinkRecordsPut):
            self.put[event.connector] += event.records
        elif isinstance(event, SinkOffsetsCommitted):
            self.committed[event.connector] += event.records


@dataclass(frozen=True, slots=True)
class Counted:
    """What one store holds: all, those that differ, and those that have a value in the later column."""

    all: int
    distinct: int
    with_device: int


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """What each store says of itself, in the order of the hops."""

    inserted: Counted
    """What the demo has written to the table."""
    accounts: PipelineAccounts
    rows: Counted
    records: Counted
    documents: Counted
    parquet: Counted
    files: int
    seconds: float

    def differences(self) -> list[str]:
        """Everything that does not balance."""
        hops = {
            "rows of MariaDB": self.rows,
            "records of the topic": self.records,
            "documents of OpenSearch": self.documents,
            "rows of Parquet, by Spark SQL": self.parquet,
        }
        found = [f"{name}: {held}, inserted: {self.inserted}" for name, held in hops.items() if held != self.inserted]
        delivered = self.accounts.source.delivered.total()
        if delivered != self.inserted.all:
            found.append(f"the worker says that it delivered {delivered}, inserted: {self.inserted.all}")
        return found

    def figures(self) -> dict[str, object]:
        """The outcome as ``--json`` prints it."""
        return {
            "rows": self.rows.all,
            "records": self.records.all,
            "documents": self.documents.all,
            "parquet_rows": self.parquet.all,
            "parquet_files": self.files,
            "with_the_later_column": self.parquet.with_device,
            "seconds": round(self.seconds, 1),
            "balanced": not self.differences(),
        }


@dataclass(frozen=True, slots=True)
class Places:
    """Where the servers are, and what the demo calls its own there."""

    mariadb: str
    """Host and port."""
    search: str
    database: str = DATABASE
    prefix: str = "mysql."

    @property
    def topic(self) -> str:
        """The topic, and the index."""
        return f"{self.prefix}login"


def connectors(places: Places, files: Path) -> tuple[Mapping[str, str], ...]:
    """The three connectors, as a user would write them."""
    converter = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
    return (
        {
            "name": SOURCE,
            "connector.class": "JdbcSourceConnector",
            "connection.url": f"jdbc:mysql://{places.mariadb}/{places.database}?user=root",
            "mode": "timestamp",
            "table.whitelist": "login",
            "validate.non.null": "false",
            "timestamp.column.name": "login_time",
            "topic.prefix": places.prefix,
            "poll.interval.ms": "200",
            **converter,
        },
        {
            "name": SEARCH,
            "connector.class": "ElasticsearchSinkConnector",
            "connection.url": places.search,
            "type.name": "mysql-data",
            "topics": places.topic,
            "key.ignore": "true",
            **converter,
        },
        {
            "name": FILES,
            "connector.class": "FileSystemSink",
            "store.url": files.as_uri(),
            "topics": places.topic,
            "flush.size": "1000",
            "rotate.idle.interval.ms": "1000",
            "format.class": "ParquetFormat",
            "schema.compatibility": "BACKWARD",
            **converter,
        },
    )


@dataclass(slots=True)
class PipelineDemo:
    """A demo whose parts run."""

    running: RunningWorker
    conversion: ConversionService
    places: Places
    files: Path
    accounts: PipelineAccounts
    rows: int
    inserted: int = 0
    with_device: int = 0

    async def run(self) -> PipelineReport:
        """Write to the table while it is read, wait until the sinks have committed all of it, stop, audit."""
        started_at = time.monotonic()
        async with Background() as background:
            background.start(self._write_and_stop(), name="writer of the table")
            await self.running.worker.run()
        inserted = Counted(self.inserted, self.inserted, self.with_device)
        rows, records, documents, parquet = (
            await self._rows_counted(),
            await self._records_counted(),
            await self._documents_counted(),
            await self._parquet_counted(),
        )
        names = len(list(self.files.glob("topics/**/*.parquet")))
        seconds = time.monotonic() - started_at
        return PipelineReport(inserted, self.accounts, rows, records, documents, parquet, names, seconds)

    async def _write_and_stop(self) -> None:
        """A worker that does not follow is stopped all the same, and the accounts show it."""
        worker, why = self.running.worker, "the demo has taken too long"
        try:
            async with asyncio.timeout(RUN_SECONDS_MAX):
                await self._write()
                await _until(lambda: min(self.accounts.committed.values()) >= self.rows)
            why = "the demo is over"
        except TimeoutError:
            pass
        finally:
            worker.request_stop(why)

    async def _write(self) -> None:
        async with connected(self.places.mariadb, self.places.database) as connection:
            for number in range(_INSERTS):
                if number == _INSERTS // 2:
                    # So that there are files and documents of the table as it was.
                    await _until(lambda: min(self.accounts.put.values()) >= self.inserted)
                    await _run(connection, _COLUMN)
                await self._insert(connection, self.rows * (number + 1) // _INSERTS, has_device=2 * number >= _INSERTS)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _insert(self, connection: Any, end: int, *, has_device: bool) -> None:
        rows = [
            (f"person-{number % 97}", str(_FIRST_LOGIN + timedelta(seconds=number)), f"device-{number % 7}")
            for number in range(self.inserted, end)
        ]
        taken = rows if has_device else [row[:2] for row in rows]
        if taken:
            texts = ", ".join(f"{row}" for row in taken)  # tuples of plain texts are written alike in Python and in SQL
            await _run(connection, f"insert into login values {texts}")  # noqa: S608 - all of it is made here
        self.inserted, self.with_device = end, self.with_device + (len(taken) if has_device else 0)

    async def _rows_counted(self) -> Counted:
        async with connected(self.places.mariadb, self.places.database) as connection:
            [row] = await _run(connection, _COUNTED.format(device="device"))
        return Counted(*map(int, row))

    async def _records_counted(self) -> Counted:
        addresses = self.running.addresses
        settings, _ = RegistrySettings.parse({"schema.registry.url": addresses.registry or ""})
        devices = 0

        def key_of(record: Any) -> object:
            nonlocal devices
            devices += record.get("device") is not None
            return record["login_time"]

        kafka = KafkaSettings(bootstrap=addresses.bootstrap)
        async with RegistryClient(settings) as registry:
            found: TopicAudit = await audit_records(kafka, self.places.topic, registry, key_of)
        return Counted(found.records, found.distinct, devices)

    async def _documents_counted(self) -> Counted:
        index = f"{self.places.search}/{self.places.topic}"
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX)
        async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session:
            async with session.post(f"{index}/_refresh"):
                pass
            async with session.get(f"{index}/_search", params={"size": str(ROWS_MAX)}) as answer:
                found = json.loads(await answer.read())
        documents = [hit["_source"] for hit in found["hits"]["hits"]]
        distinct = len({document["login_time"] for document in documents})
        devices = sum(document.get("device") is not None for document in documents)
        return Counted(len(documents), distinct, devices)

    async def _parquet_counted(self) -> Counted:
        folder = str(self.files / "topics" / self.places.topic).replace("\\", "\\\\").replace("'", "\\'")
        view = f"create or replace temporary view login using parquet options (path '{folder}', mergeSchema 'true')"
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            found = await self.conversion.runner.query(view, _COUNTED.format(device="device"))
        [row] = found.to_pylist()
        return Counted(*map(int, row.values()))


@asynccontextmanager
async def connected(mariadb: str, database: str | None) -> AsyncIterator[Any]:
    """A session of ``root`` that commits by itself, its zone UTC."""
    parts = urlsplit(f"//{mariadb}")
    connection = await asyncmy.connect(
        host=parts.hostname,
        port=parts.port,
        user="root",
        database=database,
        autocommit=True,
        charset="utf8mb4",
        init_command="SET time_zone = '+00:00'",
    )
    try:
        yield connection
    finally:
        await connection.ensure_closed()


async def _run(connection: Any, statement: str) -> list[Any]:
    async with asyncio.timeout(ANSWER_SECONDS_MAX), connection.cursor() as cursor:
        await cursor.execute(statement)
        return list(await cursor.fetchall())


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def open_pipeline_demo(
    folder: Path,
    accounts: PipelineAccounts,
    *,
    listener: str,
    rows: int = ROWS,
    servers: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> AsyncIterator[PipelineDemo]:
    """Start everything on a fresh folder. Raises as ``fresh_folder`` does, and PartsMissing without MariaDB.

    ``servers``: keys of the worker that name other servers than embedded ones; ``places``: other ones than a MariaDB
    and an OpenSearch of the demo's own, with an empty database.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(fresh_folder(folder))
        if places is None:
            mariadb = await stack.enter_async_context(embedded_mariadb(data_dir=folder))
            search = await stack.enter_async_context(embedded_search(data_dir=folder))
            places = Places(mariadb.address, search.address)
            async with connected(places.mariadb, None) as connection:
                await _run(connection, f"create database {DATABASE}")
        async with connected(places.mariadb, places.database) as connection:
            await _run(connection, _TABLE)
        files = folder.absolute() / "files"
        worker = {"offset.flush.interval.ms": "500", **(servers or {})}
        job = demo_job(folder, connectors(places, files), listener, servers=worker)
        conversion = ConversionService(spark_settings(job), job.worker, clock=SystemClock(), emit=discard)
        opening = open_worker(job, observers=(accounts,), conversion=conversion)
        running = await stack.enter_async_context(opening)
        yield PipelineDemo(running, conversion, places, files, accounts, rows)
