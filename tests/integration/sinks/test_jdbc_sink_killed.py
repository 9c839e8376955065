"""Kill -9 a worker that writes to a database: the table holds every record once."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.databases import MariaDb, Postgres
from tests.integration.sinks.sink_runs import LOOK_SECONDS, Sinks, produce
from tests.integration.sinks.test_file_sink_killed import process
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]
RECORDS = 20_000
TRIES_MAX = 10
SCHEMA = b'{"type":"struct","fields":[{"field":"n","type":"int32"}]}'
MADE = "create table numbers (n int)"
FOUND = "select count(*), count(distinct n), max(n) from numbers"


async def _killed(kafka: KafkaStack, topic: str, url: str, found: Callable[[], Awaitable[tuple[int, ...]]]) -> None:
    """Without any key in the table: what was written and not committed to Kafka is known by its offsets."""

    async def bring(begin: int) -> None:
        numbers = range(begin, begin + RECORDS)
        await produce(kafka.bootstrap, topic, [b'{"schema":%s,"payload":{"n":%d}}' % (SCHEMA, n) for n in numbers])

    properties = {
        "name": topic,
        "connector.class": "JdbcSink",
        "topics": topic,
        "connection.url": url,
        "table.name.format": "numbers",
        "offsets.table": "headrace_offsets",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "consumer.override.max.poll.records": "20",
    }

    async def wait_for(count: int) -> None:
        async with asyncio.timeout(300):
            while (await found())[0] < count:
                await asyncio.sleep(LOOK_SECONDS)

    count = 0
    # On a busy machine it may be killed too late to prove anything: then with more records again.
    while (await found())[0] == count:
        assert count < TRIES_MAX * RECORDS
        await bring(count)
        count += RECORDS
        with process(kafka.bootstrap, properties):
            await wait_for(count - RECORDS + 1)
            await asyncio.sleep(random.Random(7).uniform(0, 0.2))
    async with Sinks(kafka.bootstrap, {**properties, "consumer.override.max.poll.records": "20000"}).running():
        await wait_for(count)
    assert await found() == (count, count, count - 1)


@pytest.mark.timeout(600)
async def test_inserts_of_a_killed_worker_are_there_once(
    kafka: KafkaStack, topic_name: str, postgres: Postgres
) -> None:
    """In PostgreSQL."""
    postgres.run(MADE)

    async def found() -> tuple[int, ...]:
        return postgres.rows(FOUND)[0]

    await _killed(kafka, topic_name, postgres.url, found)


@pytest.mark.timeout(600)
async def test_inserts_into_mariadb_of_a_killed_worker(kafka: KafkaStack, topic_name: str, mariadb: MariaDb) -> None:
    """The server may still be at the statement of the killed one when its successor claims the partition."""
    await mariadb.rows(MADE)

    async def found() -> tuple[int, ...]:
        return tuple(int(each or 0) for each in (await mariadb.rows(FOUND))[0])

    await _killed(kafka, topic_name, mariadb.url, found)


@pytest.mark.timeout(600)
async def test_inserts_into_sqlite_of_a_killed_worker(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """What it leaves in the journal is rolled back by whoever opens the file next."""
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as made:
        made.execute(MADE)

    async def found() -> tuple[int, ...]:
        with closing(sqlite3.connect(file, timeout=120)) as connection:
            counted: tuple[int, ...] = connection.execute(FOUND).fetchone()
            return counted

    await _killed(kafka, topic_name, f"jdbc:sqlite:{file}", found)
