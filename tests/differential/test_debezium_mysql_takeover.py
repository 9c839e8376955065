# ruff: noqa: S608 - tables and rows are this test's own
"""A Debezium for MySQL or MariaDB that is stopped, and ``MySqlCdcSource`` that goes on where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.fetcher import MySqlCdcSource
from fetchers.sdk import Offset, Page, SystemClock
from fetchers.sdk.testing.context import FakeContext
from service.embedded.ports import free_ports
from tests.cluster.processes import REAL, WorkerProcess
from tests.databases import MySql
from tests.debezium import SECONDS_MAX, Change, Debezium, ours
from tests.differential.test_debezium_mysql import config_of, database, debeziums
from tests.faults.worker_life import write_properties
from tests.java_connect import worker_properties

__all__ = ["database"]
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
FIRST = 50
"""Rows of the snapshot."""
STATEMENTS, ROWS = 20, 90
"""Of each transaction."""
TRANSACTIONS = 3
SMALL = {"max.batch.size": "7", "max.queue.size": "14"}
"""So that Debezium is stopped in the middle of a statement's rows."""
RESTARTS = 12


def _numbers(transaction: int, statement: int) -> range:
    first = 1000 + (transaction * STATEMENTS + statement) * ROWS
    return range(first, first + ROWS)


async def _work(database: MySql, transactions: range) -> None:
    """Of many statements over two tables: of a block of rows, an insert, an update, and some deletes."""
    connection = await database.connect(autocommit=False)
    async with connection.cursor() as cursor:
        for transaction in transactions:
            for statement in range(STATEMENTS):
                block = _numbers(transaction, statement)
                values = ", ".join(f"({number}, 'row')" for number in block)
                await cursor.execute(f"insert into other values {values}")
                await cursor.execute(f"insert into t values {values}")
                await cursor.execute(f"update t set s = 'new' where id between {block[0]} and {block[-1]}")
                await cursor.execute(f"delete from t where id between {block[0]} and {block[9]}")
            await connection.commit()
        if transactions.stop == TRANSACTIONS:
            await cursor.execute("insert into marker values (1)")
            await connection.commit()
    await connection.ensure_closed()


def _expected() -> list[tuple[str, int]]:
    """Operations and keys of ``t``; tombstones left out."""
    found = [("r", number) for number in range(1, FIRST + 1)]
    for transaction in range(TRANSACTIONS):
        for statement in range(STATEMENTS):
            block = _numbers(transaction, statement)
            for operation, numbers in (("c", block), ("u", block), ("d", block[:10])):
                found += [(operation, number) for number in numbers]
    return found


def _told(changes: Sequence[Change]) -> list[tuple[str, int]]:
    return [(change.value["op"], change.key["id"]) for change in changes if change.value is not None]


def _sources(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    """Where in the log each change is; of the snapshot, nothing."""
    names = ("file", "pos", "row", "gtid", "server_id", "thread")
    values = [change.value for change in changes if change.value is not None]
    return [tuple(value["source"][name] for name in names) for value in values if value["op"] != "r"]


async def _stopped(debezium: Debezium, database: MySql, config: Mapping[str, str], *, in_log: bool) -> str:
    """The topic of ``t``, in which Debezium has written the snapshot, and then some of the log.

    The last transaction comes after it has stopped: a machine that is busy elsewhere may be slow to stop it.
    """
    numbers = ", ".join(f"({number}, 'first')" for number in range(1, FIRST + 1))
    await database.rows(
        f"create user {database.name}",
        f"grant all on *.* to {database.name}",
        "create table t (id int primary key, s text)",
        "create table other (id int primary key, s text)",
        "create table marker (id int primary key)",
        f"insert into t values {numbers}",
    )
    prefix = config["topic.prefix"]
    topic = f"{prefix}.{database.name}.t"
    await debezium.start(prefix, debeziums(database, config, debezium.bootstrap))
    await debezium.wait_for(prefix, topic, FIRST)
    if in_log:
        async with asyncio.TaskGroup() as group:
            group.create_task(_work(database, range(TRANSACTIONS - 1)), name="work")
            await debezium.wait_for(prefix, topic, FIRST + 20)
            await debezium.stop(prefix)
        await _work(database, range(TRANSACTIONS - 1, TRANSACTIONS))
    else:
        await debezium.stop(prefix)
        await _work(database, range(TRANSACTIONS))
    return topic


async def _followed(config: Mapping[str, str], offset: Offset, topic: str) -> list[Change]:
    """What ours delivers of a topic, as a task that ends after each of its first pages, and goes on from its offset."""
    parsed = MySqlCdcConfig.parse({key: value for key, value in config.items() if key not in SMALL})
    assert parsed.config is not None, parsed.findings
    connector = MySqlCdcSource(parsed.config)
    context = FakeContext(partition=connector.partition(), offset=offset, clock=SystemClock())  # type: ignore[arg-type]
    found: list[Change] = []
    for run in range(RESTARTS):
        async with asyncio.timeout(SECONDS_MAX), aclosing(connector.fetch(context)) as pages:
            page: Page
            async for page in pages:
                context.commit(page)
                found += ours(page) if page.topic == topic else []
                if str(page.topic).endswith(".marker"):
                    return found
                if page.topic is not None and run < RESTARTS - 1:
                    break
    raise AssertionError("the marker was not read")


@pytest.mark.parametrize("in_log", [False, True])
async def test_a_stopped_debezium_is_gone_on_from(debezium: Debezium, database: MySql, *, in_log: bool) -> None:
    """From its offset, as REST tells it: each change once, at the same place as Debezium itself would have told."""
    config = config_of(database, "taken", number=7001, **SMALL)
    prefix = config["topic.prefix"]
    topic = await _stopped(debezium, database, config, in_log=in_log)
    stored = await debezium.offset(prefix)
    before = await debezium.changes(topic)
    after = await _followed({**config, "max.batch.bytes": "4000"}, stored, topic)
    assert _told([*before, *after]) == _expected()
    assert not in_log or FIRST < len(_told(before)) < len(_expected())
    await debezium.ask("PUT", f"/connectors/{prefix}/resume")
    await debezium.wait_for(prefix, f"{prefix}.{database.name}.marker")
    await debezium.stop(prefix)
    gone_on = (await debezium.changes(topic))[len(before) :]
    await debezium.delete(prefix)
    assert _told(gone_on) == _told(after)
    assert _sources(gone_on) == _sources(after)


@pytest.mark.spark
@pytest.mark.slow
async def test_a_worker_takes_the_connector_over(
    debezium: Debezium, database: MySql, spark_remote: str, tmp_path: Path
) -> None:
    """The same config under the same name, on the same topic of offsets: the topics go on in the middle."""
    config = config_of(database, "moved", number=7002, **SMALL)
    prefix = config["topic.prefix"]
    topic = await _stopped(debezium, database, config, in_log=True)
    before = await debezium.changes(topic)
    (port,) = free_ports(1)
    properties = worker_properties(debezium.bootstrap, group=prefix, port=port)
    properties |= {"offset.storage.topic": f"{debezium.connect.server.group}-offsets", "spark.remote": spark_remote}
    file = write_properties(tmp_path / "headrace.properties", {**properties, "data.dir": str(tmp_path / "data")})
    whole = {**debeziums(database, config, debezium.bootstrap), **debezium.converters}
    async with aiohttp.ClientSession() as client:
        worker = WorkerProcess(file, f"http://127.0.0.1:{port}", client, command=REAL)
        try:
            worker.start()
            await worker.wait_healthy()
            await worker.done("PUT", f"/connectors/{prefix}/config", whole)
            async with asyncio.timeout(SECONDS_MAX):
                while not await debezium.changes(f"{prefix}.{database.name}.marker"):
                    await asyncio.sleep(1)
            assert await worker.stop() == 0
        finally:
            await worker.end()
    assert len(_told(before)) < len(_expected())
    assert _told(await debezium.changes(topic)) == _expected()
    await debezium.delete(prefix)
