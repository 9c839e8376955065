# ruff: noqa: S608 - statements of tests
"""``JdbcSource`` on servers that apply another one's log: its open transactions are seen by nobody there.

They apply in the order of the commits, so that a row with a lower id may come after one with a higher id, and no lock
tells of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress

import pytest

from fetchers.sdk import Retriable
from tests.databases import MySql, Postgres
from tests.integration.mysql_cdc.test_failover import follow, pair, wait_for
from tests.integration.sql.reading import SECONDS_MAX, RealContext, read_rows, source

__all__ = ["pair"]
pytestmark = pytest.mark.integration
MODES: list[dict[str, str]] = [{"mode": "incrementing"}, {"mode": "timestamp", "timestamp.column.name": "at"}]


async def _is_refused(properties: Mapping[str, str], message: str) -> None:
    """At validation and while it runs, in every mode that looks for new rows; unless late commits are ignored."""
    for mode in MODES:
        found = await source({**properties, **mode}).check(RealContext())
        assert [finding.key for finding in found] == ["late.commits"]
        assert message in found[0].message
        with pytest.raises(Retriable, match=message):
            await read_rows({**properties, **mode}, 1)
        ignored = {**properties, **mode, "late.commits": "ignore"}
        assert [row["id"] for row in await read_rows(ignored, 1)] == [2]


async def test_a_replica_is_waited_for_until_it_is_none(pair: tuple[MySql, MySql]) -> None:
    """Its own threads would hold up each range for ever, or its rows be lost."""
    first, second = pair
    await first.rows("create table t (id int primary key auto_increment, at timestamp(6) not null default now(6))")
    await follow(first, second)
    late = await first.connect(autocommit=False)
    properties = {"connection.url": second.url, "table.whitelist": "t"}
    try:
        async with late.cursor() as cursor:
            await cursor.execute("insert into t values ()")
        await first.rows("insert into t values ()")
        await wait_for(second, 2)
        await _is_refused(properties, "The server is a replica")
        await late.commit()
        await wait_for(second, 1)
    finally:
        await late.ensure_closed()
        await second.rows("stop slave", "reset slave all", database=None)
    assert [row["id"] for row in await read_rows({**properties, "mode": "incrementing"}, 2)] == [1, 2]


@pytest.fixture
def publisher(postgres: Postgres) -> Iterator[Postgres]:
    """Another database of the server, whose table the test's database has by a subscription."""
    made, slot = Postgres(postgres.server, f"{postgres.name}_p"), postgres.name
    made.run(f"create database {made.name}", name="postgres")
    table = "create table t (id serial primary key, at timestamptz not null default now())"
    made.run(table, "create publication p for table t")
    made.run(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    postgres.run(table, "create view seen as select * from t")
    place = f"host=127.0.0.1 port={made.server.port} user=postgres dbname={made.name}"
    options = f"create_slot = false, copy_data = false, slot_name = '{slot}'"
    postgres.run(f"create subscription {slot} connection '{place}' publication p with ({options})")
    yield made
    with suppress(Exception):
        postgres.run(f"drop subscription {slot}")
    made.run(f"drop database {made.name} with (force)", name="postgres")


async def test_a_subscribers_table_is_waited_for_until_it_is_none(postgres: Postgres, publisher: Postgres) -> None:
    """A view of it too; a query of it is not seen through, as the guide says."""
    properties = {"connection.url": postgres.url, "table.whitelist": "t"}
    view = {"table.whitelist": "seen", "table.types": "VIEW", "incrementing.column.name": "id"}
    with publisher.connect(autocommit=False) as late, late.cursor() as cursor:
        cursor.execute("insert into t default values")
        publisher.run("insert into t default values")
        await _until(postgres, 2)
        await _is_refused(properties, "A subscription writes into it")
        await _is_refused({**properties, **view, "validate.non.null": "false"}, "A subscription writes into it")
        late.commit()
    await _until(postgres, 1)
    postgres.run(f"alter subscription {postgres.name} disable")
    assert [row["id"] for row in await read_rows({**properties, "mode": "incrementing"}, 2)] == [1, 2]


async def _until(postgres: Postgres, number: int) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not postgres.rows(f"select 1 from t where id = {number}"):
            await asyncio.sleep(0.05)
