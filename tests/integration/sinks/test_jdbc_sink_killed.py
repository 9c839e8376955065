"""Kill -9 a worker that writes to a database: the table holds every record once."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.databases import MariaDb, Postgres
from tests.integration.sinks.sink_runs import LOOK_SECONDS, Sinks, produce
from tests.integration.sinks.test_file_sink_killed import process
from tests.integration.sinks.test_sinks_frozen import Frozen
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


KEYS = 30
NEVER_SECONDS = 1e9
"""Between commits to Kafka of the worker that is killed. The first commit comes with its first put, and then none."""
FEW = 300
KEYED = b'{"type":"struct","fields":[{"field":"k","type":"int32"},{"field":"n","type":"int32"}]}'
Rows = Callable[[], Awaitable[list[tuple[int, int]]]]


async def _put_and_not_committed(frozen: Frozen, rows: Rows, is_whole: Callable[[list[int]], bool]) -> list[int]:
    """Kill a worker behind its second put, and let another one go on; returns what the first has put.

    The first stands still at the beginning of its third put, so the second one is in the table, and nowhere else.
    """
    topic = frozen.properties["topics"]
    payloads = (b'{"k":%d,"n":%d}' % (n % KEYS, n) for n in range(FEW))
    await produce(frozen.bootstrap, topic, [b'{"schema":%s,"payload":%s}' % (KEYED, each) for each in payloads])
    async with frozen.asleep():
        put = sorted(n for _, n in await rows())
        assert put
        assert max(put) < FEW - 1
    async with Sinks(frozen.bootstrap, frozen.properties).running():
        async with asyncio.timeout(300):
            while not is_whole(sorted(n for _, n in await rows())):
                await asyncio.sleep(LOOK_SECONDS)
    return put


def _without_offsets(topic: str, url: str, told_in: Path, bootstrap: str, **keys: str) -> Frozen:
    properties = {
        "name": topic,
        "connector.class": "JdbcSink",
        "topics": topic,
        "connection.url": url,
        "table.name.format": "numbers",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "consumer.override.max.poll.records": "100",
        **{key.replace("_", "."): text for key, text in keys.items()},
    }
    return Frozen(bootstrap, properties, "put", told_in, number=3, flush_seconds=NEVER_SECONDS)


UPSERT = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "k"}
KEYED_TABLE = "create table numbers (k int primary key, n int)"
LAST_ROWS = [(n % KEYS, n) for n in range(FEW - KEYS, FEW)]


async def _upserted(frozen: Frozen, rows: Rows) -> None:
    await _put_and_not_committed(frozen, rows, lambda found: found == [n for _, n in LAST_ROWS])
    assert await rows() == LAST_ROWS


@pytest.mark.timeout(600)
async def test_upserts_without_offsets_are_as_if_written_once(
    kafka: KafkaStack, topic_name: str, postgres: Postgres, tmp_path: Path
) -> None:
    """What was not committed comes again, and the table is what the last record of each key says."""
    postgres.run(KEYED_TABLE)

    async def rows() -> list[tuple[int, int]]:
        return postgres.rows("select k, n from numbers order by k")

    await _upserted(_without_offsets(topic_name, postgres.url, tmp_path / "told", kafka.bootstrap, **UPSERT), rows)


@pytest.mark.timeout(600)
async def test_upserts_into_mariadb_without_offsets(
    kafka: KafkaStack, topic_name: str, mariadb: MariaDb, tmp_path: Path
) -> None:
    """The same there."""
    await mariadb.rows(KEYED_TABLE)

    async def rows() -> list[tuple[int, int]]:
        return [(int(k), int(n)) for k, n in await mariadb.rows("select k, n from numbers order by k")]

    await _upserted(_without_offsets(topic_name, mariadb.url, tmp_path / "told", kafka.bootstrap, **UPSERT), rows)


@pytest.mark.timeout(600)
async def test_inserts_without_offsets_are_there_at_least_once(
    kafka: KafkaStack, topic_name: str, postgres: Postgres, tmp_path: Path
) -> None:
    """What was put and not committed is there twice, for want of a key; nothing is lost."""
    postgres.run("create table numbers (k int, n int)")

    async def rows() -> list[tuple[int, int]]:
        return postgres.rows("select k, n from numbers")

    frozen = _without_offsets(topic_name, postgres.url, tmp_path / "told", kafka.bootstrap)
    put = await _put_and_not_committed(frozen, rows, lambda found: found[-1] == FEW - 1)
    assert put == list(range(len(put)))
    times = Counter(n for _, n in await rows())
    assert sorted(times) == list(range(FEW))
    twice = sorted(n for n, count in times.items() if count == 2)
    assert twice == put[-len(twice) :], "nothing came twice, or something else did"
    assert len(twice) + FEW == times.total()
