# ruff: noqa: S608 - tables and rows are this test's own
"""``PostgresCdcSource`` on a real server: what is rebuilt from its events is what the tables hold."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import psycopg
import pytest

from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.fetcher import PostgresCdcSource
from fetchers.sdk import Fatal, Offset, Page, Retriable, SystemClock
from fetchers.sdk.testing import FakeContext
from tests.databases import Postgres

CLIENTS, TRANSACTIONS, FIRST_ROWS = 3, 16, 100
SERVER = {"server": "srv"}
TABLES = {"server": "srv", "snapshot": "tables"}
SECONDS_MAX = 300.0


class Followed:
    """A database whose log is read, again and again from stored offsets."""

    def __init__(self, postgres: Postgres, **changed: str) -> None:
        self.postgres = postgres
        self.offsets: dict[str, Offset] = {}
        """By kind of partition: of the log, and of the tables that are read."""
        self.properties = {
            **postgres.change_keys,
            "topic.prefix": "srv",
            "table.include.list": "public\\..*",
            **{key.replace("_", "."): value for key, value in changed.items()},
        }

    @property
    def offset(self) -> Offset:
        """Of the log."""
        return self.offsets.get("log", {})

    @property
    def is_read(self) -> bool:
        """Whether no table waits to be read."""
        return self.offsets.get("tables", {}).get("tables_waiting") == "[]"

    def connector(self) -> PostgresCdcSource:
        """A new instance."""
        parsed = PostgresCdcConfig.parse(self.properties)
        assert parsed.config is not None, parsed.findings
        return PostgresCdcSource(parsed.config)

    def context(self) -> FakeContext:
        """At the stored offsets, on the real clock."""
        made = FakeContext(partition=SERVER, clock=SystemClock())  # type: ignore[arg-type]
        for kind, partition in (("log", SERVER), ("tables", TABLES)):
            made.commit(Page([], self.offsets.get(kind, {}), partition=partition))
        return made

    async def backlog(self, *, stops: Callable[[Page], bool]) -> int:
        """Bytes that the source tells the server to keep, when it has found the page."""
        context, connector = self.context(), self.connector()
        async with asyncio.timeout(SECONDS_MAX), aclosing(connector.fetch(context)) as found:
            async for page in found:
                self.offsets["tables" if "snapshot" in (page.partition or {}) else "log"] = page.offset
                if stops(page):
                    break
        return context.backlogs[0]

    async def pages(self, *, stops: Callable[[Page], bool]) -> AsyncIterator[Page]:
        """Pages, each committed, until ``stops``; while the slot still has its last reader it is tried again."""
        while True:
            connector = self.connector()
            try:
                async with aclosing(connector.fetch(self.context())) as found:
                    async for page in found:
                        yield page
                        partition = page.partition or {}
                        self.offsets["tables" if "snapshot" in partition else "log"] = page.offset
                        await connector.on_committed(partition, page.offset)
                        if stops(page):
                            return
            except Retriable:
                await asyncio.sleep(0.05)

    async def read(self, *, stops: Callable[[Page], bool]) -> list[Page]:
        """All pages until then."""
        async with asyncio.timeout(SECONDS_MAX):
            return [page async for page in self.pages(stops=stops)]

    async def read_on(self, statement: str) -> list[tuple[Any, Any]]:
        """What a statement brings about, up to a row of a marker table."""
        self.postgres.run(statement, "insert into marker default values")
        found = await self.read(stops=lambda page: page.topic == "srv.public.marker")
        return [record for page in found if page.topic != "srv.public.marker" for record in records(page)]

    def drop(self) -> None:
        """The slot, whoever still reads it."""
        connection = psycopg.connect(
            host="127.0.0.1", port=self.postgres.server.port, user="postgres", dbname="postgres"
        )
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(
                "select pg_terminate_backend(pid, 120000) from pg_stat_activity where datname = %s and pid <> "
                "pg_backend_pid()",
                (self.postgres.name,),
            )
            cursor.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s",
                (self.postgres.name,),
            )
        connection.close()


@pytest.fixture
def followed(postgres: Postgres) -> Iterator[Followed]:
    """A database with a marker table."""
    postgres.run("create table marker (id serial primary key)")
    made = Followed(postgres)
    yield made
    made.drop()


def records(page: Page) -> list[tuple[Any, Any]]:
    """Keys and values, read."""
    found = []
    for at in range(len(page)):
        key, value = page.original(at)
        found.append((key and json.loads(key), value and json.loads(value)))
    return found


def is_after_snapshot(page: Page) -> bool:
    """Whether the snapshot is over."""
    return "lsn_commit" in page.offset


def _work(postgres: Postgres, seed: int) -> None:
    """Transactions of inserts, updates, deletes and key changes, with savepoints and rollbacks."""
    drawn = random.Random(seed)
    connection = psycopg.connect(host="127.0.0.1", port=postgres.server.port, user="postgres", dbname=postgres.name)
    with connection.cursor() as cursor:
        for number in range(TRANSACTIONS):
            try:
                for _ in range(drawn.randint(1, 5)):
                    cursor.execute("savepoint before")
                    _change(cursor, drawn, seed * 1000 + number)
                    if drawn.random() < 0.3:
                        cursor.execute("rollback to savepoint before")
                if seed == 0 and number == TRANSACTIONS // 2:
                    cursor.execute("alter table a add column extra int")
                    cursor.execute("update a set extra = n where id % 3 = 0")
            except psycopg.errors.DeadlockDetected:
                connection.rollback()
            (connection.rollback if drawn.random() < 0.2 else connection.commit)()
    connection.close()


def _change(cursor: Any, drawn: random.Random, number: int) -> None:
    table = drawn.choice(("a", "b"))
    row, other = drawn.randint(1, 2 * FIRST_ROWS), drawn.randint(1, 2 * FIRST_ROWS)
    kind = drawn.random()
    if kind < 0.35:
        cursor.execute(f"insert into {table} values (%s, %s, %s) on conflict do nothing", (row, number, f"ü{number}"))
    elif kind < 0.65:
        cursor.execute(f"update {table} set n = %s where id between %s and %s", (number, row, row + 3))
    elif kind < 0.8:
        cursor.execute(f"update {table} set id = %s where id = %s and not exists "
                       f"(select 1 from {table} where id = %s)", (other, row, other))  # fmt: skip
    else:
        cursor.execute(f"delete from {table} where id = %s", (row,))


async def test_what_is_rebuilt_from_the_events_is_what_the_tables_hold(followed: Followed) -> None:
    """Clients change rows, keys and columns during snapshot and log, while the connector is made anew all the time."""
    postgres = followed.postgres
    followed.properties |= {"snapshot.fetch.size": "37", "max.batch.size": "10"}
    fill = f"select g, g, 'first' from generate_series(1, {FIRST_ROWS}) g"
    postgres.run(
        "create table a (id int primary key, n int not null, s text)",
        "create table b (id int primary key, n int not null, s text)",
        "alter table b replica identity full",
        f"insert into a {fill}",
        f"insert into b {fill}",
    )
    state: dict[str, dict[int, Any]] = {"srv.public.a": {}, "srv.public.b": {}}
    seen: list[Page] = []
    drawn = random.Random(7)

    def is_over(pages: list[Page]) -> bool:
        told = any(page.topic == "srv.public.marker" and is_after_snapshot(page) for page in pages)
        return told and followed.is_read

    def stops(page: Page) -> bool:
        return drawn.random() < 0.1 or is_over([*seen, page])

    async with asyncio.timeout(SECONDS_MAX):
        seen += await followed.read(stops=lambda page: "snapshot_table" in page.offset)  # the snapshot has begun
        work = [asyncio.to_thread(_work, postgres, seed) for seed in range(CLIENTS)]
        working = asyncio.gather(*work)  # noqa: TID251 - all of them end before the test does
        while not working.done():
            seen += await followed.read(stops=lambda page: stops(page) or working.done())
        await working
        postgres.run("insert into marker default values")
        while not is_over(seen):
            seen += await followed.read(stops=stops)
    for page in seen:
        for key, value in records(page) if page.topic in state else ():
            rows = state[page.topic]  # type: ignore[index]
            if value is None or value["op"] == "d":
                rows.pop(key["id"], None)
            else:
                rows[key["id"]] = {"extra": None, **value["after"]}
    for table in ("a", "b"):
        extra = "extra" if table == "a" else "null::int"
        expected = {
            row[0]: {"id": row[0], "n": row[1], "s": row[2], "extra": row[3]}
            for row in postgres.rows(f"select id, n, s, {extra} from {table}")
        }
        assert state[f"srv.public.{table}"] == expected
    assert sum(len(page) for page in seen) > 2 * FIRST_ROWS


async def test_the_snapshot_ends_where_the_log_begins(followed: Followed) -> None:
    """Each row once: of those that are inserted while the snapshot is read none is in both."""
    followed.properties["snapshot.fetch.size"] = "10"
    followed.postgres.run("create table t (id int primary key)", "insert into t select generate_series(1, 30)")

    def stops(page: Page) -> bool:
        if json.loads(str(page.offset.get("snapshot_key") or "[]"))[:1] == ["10"]:
            followed.postgres.run("insert into t select generate_series(31, 40)", "insert into marker default values")
        return page.topic == "srv.public.marker"

    found = [
        record for page in await followed.read(stops=stops) for record in records(page) if page.topic == "srv.public.t"
    ]
    assert [(value["op"], key["id"]) for key, value in found] == [
        *(("r", number) for number in range(1, 31)),
        *(("c", number) for number in range(31, 41)),
    ]
    stored = followed.offsets["tables"]
    assert sorted(json.loads(str(stored["tables_made"]))) == json.loads(str(stored["tables_read"]))


async def test_changes_are_told_by_what_the_log_has(followed: Followed) -> None:
    """Before images by replica identity, large values that have not changed, generated columns, truncate."""
    large = "(select string_agg(md5(g::text), '') from generate_series(1, 400) g)"
    followed.properties |= {"skipped.operations": "none", "decimal.handling.mode": "string"}
    followed.postgres.run(
        "create table t (id int primary key, n numeric, s text, g int generated always as (id * 2) stored)"
    )
    await followed.read(stops=is_after_snapshot)
    ((_, made),) = await followed.read_on(f"insert into t (id, n, s) select 1, 'NaN', {large}")
    assert (made["op"], made["before"], made["after"]["n"]) == ("c", None, "NaN")
    assert set(made["after"]) == {"id", "n", "s"}
    ((_, kept),) = await followed.read_on("update t set n = 1")
    assert (kept["before"], kept["after"]["s"]) == (None, "__debezium_unavailable_value")
    followed.postgres.run("alter table t replica identity full")
    ((_, whole),) = await followed.read_on("update t set n = 2")
    assert (whole["before"]["n"], whole["before"]["s"], whole["after"]["s"]) == (
        "1",
        made["after"]["s"],
        made["after"]["s"],
    )
    old, _, new = await followed.read_on("update t set id = 5")
    assert [(key["id"], value["op"]) for key, value in (old, new)] == [(1, "d"), (5, "c")]
    ((key, gone),) = await followed.read_on("truncate t")
    assert (key, gone["op"], gone["after"]) == (None, "t", None)


async def test_the_server_forgets_what_is_committed_and_nothing_else(followed: Followed) -> None:
    """The slot's position follows the commits, also where the tables that are read are quiet."""
    followed.postgres.run("create table t (id int primary key)")
    await followed.read(stops=is_after_snapshot)
    confirmed = "select (confirmed_flush_lsn - '0/0')::int8 from pg_replication_slots where slot_name = '{}'"
    before = followed.postgres.rows(confirmed.format(followed.postgres.name))[0][0]
    await followed.read_on("insert into t values (1)")
    between = int(str(followed.offset["lsn_commit"]))
    assert before < between
    await followed.read_on("insert into t values (2)")
    async with asyncio.timeout(SECONDS_MAX):  # the server has been told, and may not have listened yet
        while followed.postgres.rows(confirmed.format(followed.postgres.name))[0][0] < between:
            await asyncio.sleep(0.05)


async def test_what_the_slot_holds_back_is_told(followed: Followed) -> None:
    """In bytes of the server's log, which grow while nothing is confirmed."""
    followed.postgres.run("create table t (id int primary key, v text)")
    await followed.read(stops=is_after_snapshot)
    filled = "insert into t select g, repeat('x', 1000) from generate_series(1, 2000) g"
    followed.postgres.run(filled, "insert into marker default values")
    assert 2_000_000 < await followed.backlog(stops=lambda page: page.topic == "srv.public.marker") < 1 << 40


async def test_a_lost_slot_is_fatal_and_says_what_can_be_done(followed: Followed) -> None:
    """Never a silent snapshot; nor where somebody else has read the slot."""
    followed.postgres.run("create table t (id int primary key)")
    await followed.read(stops=is_after_snapshot)
    stored = followed.offsets["log"]
    await followed.read_on("insert into t values (1)")
    await followed.read_on("insert into t values (2)")
    followed.offsets["log"] = stored
    with pytest.raises(Fatal, match="somebody else"):
        await followed.read(stops=is_after_snapshot)
    followed.drop()
    with pytest.raises(Fatal, match=r"no_data"):
        await followed.read(stops=is_after_snapshot)


async def test_findings_say_what_is_missing_with_the_sql_that_mends_it(followed: Followed) -> None:
    """A role without rights, a publication that is not there, a table that is not there."""
    role = followed.postgres.name
    followed.postgres.run(f"create role {role} login", "create table t (id int)")
    followed.properties |= {"database.user": role, "publication.autocreate.mode": "disabled"}
    found = {finding.key: finding.message for finding in await followed.connector().check(followed.context())}
    assert "REPLICATION" in found["database.user"] or "GRANT SELECT" in found["database.user"]
    assert "CREATE PUBLICATION" in found["publication.name"]
    followed.properties |= {"database.user": "postgres", "table.include.list": "public.nothing"}
    found = {finding.key: finding.message for finding in await followed.connector().check(followed.context())}
    assert "table.include.list" in found
    followed.postgres.run(f"drop owned by {role}", f"drop role {role}")


async def test_a_column_that_a_list_does_not_meet_is_told(postgres: Postgres) -> None:
    """What it is to hide would be shown without a word."""
    postgres.run("create table people (id int primary key, secret text)")
    lists = "secret,public.people.secret,public.people.sekret"
    followed = Followed(postgres, column_exclude_list=lists)
    found = await followed.connector().check(followed.context())
    assert [(finding.key, finding.value, finding.is_error) for finding in found] == [
        ("column.exclude.list", "secret", False),
        ("column.exclude.list", "public.people.sekret", False),
    ]
