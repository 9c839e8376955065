"""A Debezium connector for MariaDB that is stopped in the middle of a stream, and ``MySqlCdcSource`` that goes on."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.fetcher import MySqlCdcSource
from fetchers.sdk import SystemClock
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MariaDb
from tests.debezium import SECONDS_MAX, Change, Debezium, ours

pytestmark = pytest.mark.integration
ROWS = 10
"""Of a transaction; the snapshot has five times as many."""


async def _insert(mariadb: MariaDb) -> None:
    """Transactions of several rows."""
    for first in range(51, 2051, ROWS):
        await mariadb.rows(f"insert into t select seq, 'row' from seq_{first}_to_{first + ROWS - 1}")  # noqa: S608


async def test_a_stopped_debezium_is_gone_on_from(debezium: Debezium, mariadb: MariaDb) -> None:
    """From its offset, as REST tells it: nothing lost, no snapshot; the transaction in which it stands comes anew."""
    await mariadb.rows(
        "create table t (id int primary key, s text)",
        "create table marker (id int primary key)",
        "insert into t select seq, 'first' from seq_1_to_50",
    )
    prefix = f"{mariadb.name}-taken"
    config = {
        "database.hostname": "127.0.0.1",
        "database.port": str(mariadb.server.port),
        "database.user": "root",
        "database.server.id": "77001",
        "database.include.list": mariadb.name,
        "topic.prefix": prefix,
    }
    history = {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.password": "",
        "schema.history.internal.kafka.bootstrap.servers": debezium.bootstrap,
        "schema.history.internal.kafka.topic": f"{prefix}-history",
        "max.batch.size": "16",
        "max.queue.size": "32",
    }
    topic = f"{prefix}.{mariadb.name}.t"
    await debezium.start(prefix, {**config, **history})
    await debezium.wait_for(prefix, topic, 50)
    async with asyncio.TaskGroup() as group:
        group.create_task(_insert(mariadb), name="inserts")
        await debezium.wait_for(prefix, topic, 60)
        await debezium.stop(prefix)
    stored = await debezium.offset(prefix)
    before = await debezium.changes(topic)
    await debezium.delete(prefix)
    await mariadb.rows("insert into marker values (1)")
    parsed = MySqlCdcConfig.parse(config)
    assert parsed.config is not None, parsed.findings
    connector = MySqlCdcSource(parsed.config)
    context = FakeContext(partition=connector.partition(), offset=stored, clock=SystemClock())  # type: ignore[arg-type]
    after: list[Change] = []
    async with asyncio.timeout(SECONDS_MAX), aclosing(connector.fetch(context)) as pages:
        async for page in pages:
            after += ours(page) if page.topic == topic else []
            if str(page.topic).endswith(".marker"):
                break
    read, gone_on = ([(change.value["op"], change.key["id"]) for change in part] for part in (before, after))
    expected = [*(("r", at) for at in range(1, 51)), *(("c", at) for at in range(51, 2051))]
    assert read == expected[: len(read)]
    assert gone_on == expected[-len(gone_on) :]
    transaction_begin = len(read) - 1 - (len(read) - 1) % ROWS  # of the last row that Debezium has delivered
    assert len(expected) - len(gone_on) in (len(read), transaction_begin)
