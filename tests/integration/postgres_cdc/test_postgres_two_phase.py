# ruff: noqa: S608 - statements of tests
"""Two-phase commits and quiet tables of ``PostgresCdcSource`` on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fetchers.postgres_cdc import fetcher
from fetchers.sdk import Page
from tests.databases import Postgres
from tests.integration.postgres_cdc.test_postgres_log import SECONDS_MAX, Followed, is_after_snapshot, records

pytestmark = pytest.mark.integration
SLOT = (
    "select (confirmed_flush_lsn - '0/0')::int8, (restart_lsn - '0/0')::int8 from pg_replication_slots "
    "where slot_name = '{}'"
)
LOG_END = "select (pg_current_wal_flush_lsn() - '0/0')::int8"


@pytest.fixture
def followed(postgres: Postgres) -> Iterator[Followed]:
    """A database with a table that is read, and a marker table."""
    postgres.run("create table marker (id serial primary key)", "create table t (id int primary key, v text)")
    made = Followed(postgres)
    yield made
    made.drop()


def prepare(postgres: Postgres, name: str, *statements: str) -> str:
    """A transaction that waits for its second phase, under its global name."""
    gid = f"{name} of {postgres.name}"
    with postgres.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        cursor.execute(f"prepare transaction '{gid}'")
    return gid


def ids(found: list[tuple[Any, Any]]) -> list[tuple[str, int]]:
    """Operations and keys."""
    return [(value["op"], key["id"]) for key, value in found if value is not None]


async def test_a_prepared_transaction_is_told_when_it_is_committed_and_never_when_it_is_rolled_back(
    followed: Followed,
) -> None:
    """In the order of the commits, whole, with its savepoints; whatever was prepared and is committed in between."""
    postgres = followed.postgres
    await followed.read(stops=is_after_snapshot)
    first = prepare(
        postgres,
        "first",
        "insert into t values (1, 'a')",
        "savepoint s",
        "insert into t values (2, 'b')",
        "rollback to savepoint s",
        "insert into t values (3, 'c')",
        "update t set v = 'd' where id = 1",
    )
    gone = prepare(postgres, "gone", "insert into t values (10, 'x')", "insert into t values (11, 'x')")
    assert ids(await followed.read_on("insert into t values (20, 'between')")) == [("c", 20)]
    postgres.run(f"rollback prepared '{gone}'")
    assert ids(await followed.read_on(f"commit prepared '{first}'")) == [("c", 1), ("c", 3), ("u", 1)]
    assert ids(await followed.read_on("delete from t where id = 3")) == [("d", 3)]


async def test_what_was_prepared_before_the_slot_is_read_once(followed: Followed) -> None:
    """The slot waits for its second phase, after which the snapshot has it; or the log, if it comes later."""
    postgres = followed.postgres
    before = prepare(postgres, "before", "insert into t values (1, 'a')", "insert into t values (2, 'b')")
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(followed.read(stops=is_after_snapshot))
        await waits_for_it(postgres)
        assert not reading.done()
        postgres.run("insert into t values (3, 'c')", f"commit prepared '{before}'")
    found = [record for page in reading.result() for record in records(page)]
    found += await followed.read_on("insert into t values (4, 'd')")
    assert sorted(ids(found))[-3:] == [("r", 1), ("r", 2), ("r", 3)]
    assert ids(found).count(("c", 4)) == 1
    assert len(found) == 4


async def waits_for_it(postgres: Postgres) -> None:
    """Return when the server holds up the making of the slot for an older transaction."""
    sql = (
        "select 1 from pg_stat_activity where datname = current_database() and backend_type = 'walsender' "
        "and wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(SECONDS_MAX):
        while not postgres.rows(sql):
            await asyncio.sleep(0.02)


async def test_a_prepared_transaction_survives_a_restart_of_the_source(followed: Followed) -> None:
    """It is prepared while one task reads, and committed while none does."""
    postgres = followed.postgres
    await followed.read(stops=is_after_snapshot)
    gid = prepare(postgres, "long", "insert into t select g, 'x' from generate_series(1, 50) g")
    for number in (100, 101):
        assert ids(await followed.read_on(f"insert into t values ({number}, 'y')")) == [("c", number)]
    postgres.run(f"commit prepared '{gid}'")
    assert ids(await followed.read_on("insert into t values (200, 'z')")) == [
        *(("c", number) for number in range(1, 51)),
        ("c", 200),
    ]


@pytest.mark.parametrize("interval", ["50", "0"])
async def test_a_quiet_table_beside_a_busy_one_holds_back_no_log(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, interval: str
) -> None:
    """What is confirmed follows the log of a table that nobody reads, and the slot lets go; also without beats."""
    postgres = followed.postgres
    monkeypatch.setattr(fetcher, "QUIET_SECONDS", 0.05)
    followed.properties |= {"table.include.list": "public\\.t", "heartbeat.interval.ms": interval}
    postgres.run("create table busy (id bigserial primary key, v text)")
    await followed.read(stops=is_after_snapshot)
    seen: list[Page] = []

    def stops(page: Page) -> bool:
        seen.append(page)
        return page.topic == "srv.public.t"

    busy = "insert into busy (v) select md5(g::text) from generate_series(1, 1000) g"
    async with asyncio.TaskGroup() as group:
        group.create_task(followed.read(stops=stops))
        first = 0
        for _ in range(3):
            postgres.run(busy, "checkpoint")
            ((end,),) = postgres.rows(LOG_END)
            first = first or end
            while (await slot(postgres))[0] < end:
                pass
        while (await slot(postgres))[1] < first:
            postgres.run("checkpoint")  # it tells which transactions run, without which no slot can let go
        postgres.run("insert into t values (1, 'a')")
    assert ids([record for page in seen if page.topic == "srv.public.t" for record in records(page)]) == [("c", 1)]
    assert {page.topic for page in seen} <= {None, "__debezium-heartbeat.srv", "srv.public.t"}
    assert ("__debezium-heartbeat.srv" in {page.topic for page in seen}) is (interval != "0")


async def slot(postgres: Postgres) -> tuple[int, int]:
    """What is confirmed, and where the log begins that the slot keeps; after a moment."""
    await asyncio.sleep(0.02)
    ((confirmed, restart),) = postgres.rows(SLOT.format(postgres.name))
    return confirmed, restart
