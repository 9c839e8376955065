# ruff: noqa: S608 - tables and rows are this measurement's own
"""What an operator feels of a database's changes: latency, many tables that say little, memory over very many rows."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncmy
import click
import psycopg
from aiokafka import AIOKafkaConsumer

from tests.benchmarks.databases import demand_once
from tests.benchmarks.processes import Child
from tests.benchmarks.rows import Row, quantile
from tests.benchmarks.service_level import LATENCY_SECONDS, RATE_PER_SECOND, delays_of
from tests.benchmarks.subjects import AVRO, JSON, SUBJECTS, TABLE, Opened, Subject, connector, postgresql
from tests.benchmarks.throughput import Field, run_name
from tests.benchmarks.watching import WAIT_SECONDS_MAX, processor_seconds, watch

MEBIBYTE = 1024 * 1024
TABLES_SECONDS, TABLES_RATE = 30.0, 10
LOOK_SECONDS = 0.25
TRANSACTION_BYTES_MAX = 64 * MEBIBYTE
"""``source.transaction.bytes.max`` of the run with one large transaction, which is larger than it."""
TRANSACTION_TIMES = 3
"""What is held of a transaction is also decoded, converted and delivered: each of these has a part of it at once."""


def limited() -> AbstractAsyncContextManager[object]:
    """What does not come at all ends the measurement."""
    return asyncio.timeout(WAIT_SECONDS_MAX)


async def measure_latency(field: Field) -> list[Row]:
    """Rows inserted one by one, each with the moment before its statement; seen by a ``read_committed`` consumer."""
    rows = []
    for database, opened in SUBJECTS.items():
        with opened() as subject:
            name = f"latency-{subject.name.lower()}-{run_name(0)}"
            json = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
            with subject.changes(field, name, **json):
                async with asyncio.TaskGroup() as group:
                    inserting = group.create_task(_insert(subject, seconds=WAIT_SECONDS_MAX), name="inserts")
                    await watch(field.servers.bootstrap, subject.topic(name), records=1)
                    delays = await delays_of(
                        field.servers.bootstrap, subject.topic(name), seconds=LATENCY_SECONDS, sent_at=_sent_at
                    )
                    inserting.cancel()
        assert len(delays) > RATE_PER_SECOND * LATENCY_SECONDS / 4, f"only {len(delays)} changes came"
        what = f"{database}: change committed → readable by read_committed, at {RATE_PER_SECOND}/s"
        for share, word, aim in ((0.5, "p50", 0.3), (0.99, "p99", 1.0)):
            seen = quantile(delays, share)
            rows.append(Row(f"{what}, {word}", f"{seen:.3f} s", f"≤ {aim} s", seen <= aim))
    return rows


def _sent_at(document: Any) -> float:
    return float(document["after"]["b"])


async def _insert(subject: Subject, *, seconds: float) -> None:
    """The insert is over when it is committed, so that what is measured includes the commit itself."""
    until, number = time.monotonic() + seconds, 0
    async with _session(subject) as execute:
        while time.monotonic() < until:
            number += 1
            begun = time.monotonic()
            await execute(f"insert into {TABLE} (id, b) values ({number}, {begun!r})")
            await asyncio.sleep(max(0.0, begun + 1 / RATE_PER_SECOND - time.monotonic()))


@asynccontextmanager
async def _session(subject: Subject) -> AsyncIterator[Any]:
    """Runs statements, each in a transaction of its own, beside whatever else the loop has to do."""
    if subject.name == "PostgreSQL":
        connection = psycopg.connect(host="127.0.0.1", port=subject.server.port, user="postgres", dbname="postgres")
        connection.autocommit = True
        cursor = connection.cursor()

        async def execute(sql: str) -> None:
            await asyncio.to_thread(cursor.execute, sql)

        try:
            yield execute
        finally:
            connection.close()
        return
    driver = await asyncmy.connect(
        host="127.0.0.1", port=subject.server.port, user="root", database="bench", autocommit=True
    )
    try:
        async with driver.cursor() as found:
            yield found.execute
    finally:
        await driver.ensure_closed()


async def measure_tables(field: Field, *, tables: int) -> list[Row]:
    """Many tables in one connector, with few rows over all of them: by polling, and by the log."""
    rows = []
    for kind in ("JdbcSource", "PostgresCdcSource"):
        with postgresql() as subject:
            names = [f"quiet_{number}" for number in range(tables)]
            subject.run(*(f"create table {name} (id bigserial primary key, a int, b text)" for name in names))
            name = f"tables-{kind.lower()}-{run_name(0)}"
            with connector(field, name, {"connector.class": kind, **_many(subject, name, kind, "quiet_.*")}) as child:
                share, python, jvm = await _quiet(field, subject, child, [f"{name}.public.{each}" for each in names])
        what = f"{tables} tables in one {kind}, {TABLES_RATE} rows/s over all"
        rows.append(Row(f"{what}: processor time, Python and Spark", f"{share:.0%} of a core", "≤ 25 %", share <= 0.25))
        told = f"{(python + jvm) / 1e6:.0f} MB ({python / 1e6:.0f} and {jvm / 1e6:.0f})"
        rows.append(Row(f"{what}: memory of Python and Spark, peaks", told, "≤ 600 MB", python + jvm <= 600e6))
        click.echo(f"  {what}: {share:.0%} of a core, {told}")
    return rows


def _many(subject: Subject, name: str, kind: str, tables: str) -> Mapping[str, str]:
    """Keys of a connector over the tables whose names are of that pattern; their topics are called alike for both."""
    if kind == "JdbcSource":
        polled = {"mode": "incrementing", "incrementing.column.name": "id", "topic.prefix": f"{name}.public."}
        return {"connection.url": subject.url, "table.include.list": rf"public\.{tables}", **polled, **AVRO}
    keys = {key: text for key, text in subject.change_keys(name).items() if key != "database.server.id"}
    return {**keys, "table.include.list": rf"public\.{tables}", **AVRO}


async def _quiet(field: Field, subject: Subject, child: Child, topics: list[str]) -> tuple[float, int, int]:
    """Share of a core, and peaks of Python and of the JVM in bytes, once every table has had its first row.

    Raises ``AssertionError`` where another number of records comes than of rows that were inserted.
    """
    drawn = random.Random(1)
    tables = [topic.rpartition(".")[2] for topic in topics]
    sample = processor_seconds({"Python": child.pid})
    looks: list[tuple[int, int]] = []
    async with _session(subject) as execute:
        for table in tables:
            await execute(f"insert into {table} (a, b) values (1, 'first')")
        await _demand_all(field, topics, len(topics))
        before, begun, count = sum(sample().values()), time.monotonic(), 0
        while time.monotonic() < begun + TABLES_SECONDS:
            await execute(f"insert into {drawn.choice(tables)} (a, b) values (1, 'text')")
            count += 1
            looks.append((child.memory_bytes(), child.jvm_memory_bytes()))
            await asyncio.sleep(max(0.0, begun + count / TABLES_RATE - time.monotonic()))
        share = (sum(sample().values()) - before) / (time.monotonic() - begun)
    await _demand_all(field, topics, len(topics) + count)
    return share, max(python for python, _ in looks), max(jvm for _, jvm in looks)


async def _demand_all(field: Field, topics: list[str], records: int) -> None:
    """Return when so many records are readable in the topics together; more of them are an ``AssertionError``."""
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=field.servers.bootstrap,
        isolation_level="read_committed",
        group_id=None,
        auto_offset_reset="earliest",
        metadata_max_age_ms=1_000,
    )
    await consumer.start()
    found = 0
    try:
        async with limited():
            while found < records:
                found += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
    finally:
        await consumer.stop()
    assert found == records, f"{found} records are in the topics of {records} rows"


def _tell(row: Row) -> Row:
    click.echo(f"  {row.what}: {row.figure}")
    return row


async def measure_rows(field: Field, *, records: int) -> list[Row]:
    """Very many rows that are read at once, by polling and by a snapshot, of both databases."""
    rows: list[Row] = []
    for opened in SUBJECTS.values():
        with opened() as subject:
            subject.fill(1, records)
            sources = {"JdbcSource": subject.polling, subject.own_class: subject.changes}
            rows += [
                _tell(await _measure_rows(field, subject, kind, start, records=records))
                for kind, start in sources.items()
            ]
    return rows


async def _measure_rows(field: Field, subject: Subject, kind: str, start: Opened, *, records: int) -> Row:
    name = f"rows-{kind.lower()}-{subject.name.lower()}-{run_name(0)}"
    topic = subject.topic(name)
    with start(field, name) as child:
        peaks = []
        async with _peak(child) as looks:
            for part in (records // 10, records // 2, records):
                await watch(field.servers.bootstrap, topic, records=part)
                peaks.append(max(looks))
        await demand_once(field, topic, records, part="value" if kind == "JdbcSource" else "key")
    early, _, late = peaks
    return Row(
        f"{subject.name}: {records:,} rows by {kind}: peak of the Python process after a tenth, half, all of them",
        " ".join(f"{peak / MEBIBYTE:.0f}" for peak in peaks) + " MiB",
        "flat (≤ 10 % more)",
        late <= 1.1 * early,
    )


async def measure_transactions(field: Field, *, rows: int) -> list[Row]:
    """Transactions that are larger than their limit, of both databases."""
    found: list[Row] = []
    for opened in SUBJECTS.values():
        with opened() as subject:
            found += [_tell(await _measure_transaction(field, subject, count)) for count in (rows * 3 // 10, rows)]
    return found


async def _measure_transaction(field: Field, subject: Subject, rows: int) -> Row:
    name = f"transaction-{subject.name.lower()}-{run_name(0)}"
    topic = subject.topic(name)
    subject.run(f"truncate table {TABLE}")
    subject.fill(1, 1)
    with subject.changes(field, name, source_transaction_bytes_max=str(TRANSACTION_BYTES_MAX)) as child:
        await watch(field.servers.bootstrap, topic, records=1)
        idle = child.memory_bytes()
        async with _peak(child) as held, asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(subject.fill, 2, rows + 1), name="fill")
            await watch(field.servers.bootstrap, topic, records=rows + 1)
        await demand_once(field, topic, rows + 1)
    more = max(held) - idle
    return Row(
        f"{subject.name}: one transaction of {rows:,} rows, source.transaction.bytes.max of "
        f"{TRANSACTION_BYTES_MAX / MEBIBYTE:.0f} MiB: Python's peak above its idle memory",
        f"{more / MEBIBYTE:.0f} MiB",
        f"≤ {TRANSACTION_TIMES} times the limit",
        more <= TRANSACTION_TIMES * TRANSACTION_BYTES_MAX,
    )


@asynccontextmanager
async def _peak(child: Child) -> AsyncIterator[list[int]]:
    """Resident bytes of the Python process, looked at while this is open."""
    looks = [child.memory_bytes()]

    async def look() -> None:
        while True:
            looks.append(child.memory_bytes())
            await asyncio.sleep(LOOK_SECONDS)

    async with asyncio.TaskGroup() as group:
        looking = group.create_task(look(), name="looks")
        yield looks
        looking.cancel()
