"""``JdbcSource`` on a real PostgreSQL: queries, partitions that are named, and columns that are no place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from fetchers.sdk import Fatal, Retriable
from fetchers.sql.database import Range, Relation
from fetchers.sql.places import earliest_to_come
from fetchers.sql.postgresql import PostgresDatabase
from fetchers.sql.postgresql_catalogue import bound_by_clock
from tests.databases import Postgres
from tests.integration.postgres_cdc.test_postgres_key_orders import KEYED, TYPES
from tests.integration.sql.reading import SECONDS_MAX, RealContext, read_rows, read_until, rows_of, source

pytestmark = pytest.mark.integration


async def test_a_query_of_nothing_ends_the_task(postgres: Postgres) -> None:
    """It would be asked for ever."""
    asked = {"connection.url": postgres.url, "mode": "bulk", "query": "select * from nowhere"}
    with pytest.raises(Fatal, match=r'the query cannot be read.*"nowhere" does not exist'):
        await read_rows(asked, 1)


async def test_a_statement_that_fails_at_a_later_row_ends_the_task(postgres: Postgres) -> None:
    """With what the server says; a connection that breaks there does not, and the same row would fail for ever."""
    query = "select g, repeat('x', 1000) as v, 1 / (g - 90000) as n from generate_series(1, 100000) g"
    with pytest.raises(Fatal, match=r"division by zero.*22012"):
        await read_rows({"connection.url": postgres.url, "mode": "bulk", "query": query}, 100_000)


async def test_a_number_with_a_fraction_is_no_place(postgres: Postgres) -> None:
    """NUMERIC without digits may hold whole numbers, and is read by them until one is none."""
    postgres.run("create table t (id numeric primary key)", "insert into t values (7), (99999999999999999999)")
    properties = {"connection.url": postgres.url, "mode": "incrementing", "table.whitelist": "t"}
    properties["incrementing.column.name"] = "id"
    context = RealContext()
    await read_rows(properties, 2, context)
    assert context.offset_of({"protocol": "1", "table": "public.t"}) == {"incrementing": 99999999999999999999}
    postgres.run("insert into t values (99999999999999999999.5)")
    with pytest.raises(Fatal, match=r"id of t holds 99999999999999999999.5, which is no whole number"):
        await read_rows(properties, 1, context)


async def test_a_partition_that_is_named_is_read(postgres: Postgres) -> None:
    """A Java driver lists partitions as tables; here they are read as the whole, unless they are named."""
    postgres.run(
        "create table whole (id int primary key) partition by range (id)",
        "create table low partition of whole for values from (0) to (10)",
        "create table high partition of whole for values from (10) to (20)",
        "insert into whole values (1), (11), (2), (12)",
    )
    properties = {"connection.url": postgres.url, "mode": "incrementing", "incrementing.column.name": "id"}
    named = await read_until(properties | {"table.whitelist": "high"}, lambda pages: sum(map(len, pages)) >= 2)
    assert ({page.topic for page in named}, rows_of(named)) == ({"t.high"}, [{"id": 11}, {"id": 12}])
    both = await read_until(properties, lambda pages: sum(map(len, pages)) >= 4)
    assert ({page.topic for page in both}, len(rows_of(both))) == ({"t.whole"}, 4)


async def test_a_query_may_end_with_a_comment(postgres: Postgres) -> None:
    """It is wrapped, and what closes it is none of the comment."""
    asked = {"connection.url": postgres.url, "mode": "bulk", "query": "select 1 as a -- the first"}
    assert (await read_rows(asked, 1))[0] == {"a": 1}


async def test_a_query_is_read_by_its_own_columns(postgres: Postgres) -> None:
    """A join, wrapped; in its topic, under a partition by hash."""
    postgres.run("create table a (id int, n numeric(5,2))", "insert into a values (1, 1.50), (2, 2.25)")
    pages = await read_until(
        {
            "connection.url": postgres.url,
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "query": "select a.*, 'x' || b.id as t from a join a b using (id);",
            "topic.prefix": "joined",
        },
        lambda pages: len(pages) == 1,
    )
    assert rows_of(pages) == [{"id": 1, "n": "1.50", "t": "x1"}, {"id": 2, "n": "2.25", "t": "x2"}]
    assert pages[0].topic == "joined"
    assert set(pages[0].partition or ()) == {"query"}
    assert pages[0].schema is not None
    assert json.loads(pages[0].schema.avro)["fields"][1]["type"][1]["precision"] == 5


@pytest.mark.parametrize("mode", ["incrementing", "timestamp"])
async def test_numbers_and_enums_that_are_shown_as_texts_are_read_in_their_own_order(
    postgres: Postgres, mode: str
) -> None:
    """A source that goes on behind each page anew shows each row once: 9 before 10, letters as they are declared."""
    postgres.run(
        "create type letter as enum ('z', 'a', 'm')",
        "create table t (id numeric(10, 0) not null, l letter not null, "
        "at timestamp not null default '2024-05-01', primary key (id, l))",
        "insert into t select n, l from generate_series(8, 11) n, unnest(enum_range(null::letter)) l",
    )
    if mode == "incrementing":
        postgres.run("delete from t where l <> 'z'")
    context, rows = RealContext(), list[dict[str, object]]()
    properties = {"connection.url": postgres.url, "mode": mode, "table.whitelist": "t", "batch.max.rows": "1"}
    properties |= {"incrementing.column.name": "id"} if mode == "incrementing" else {"timestamp.column.name": "at"}
    letters = "z" if mode == "incrementing" else "zam"
    while len(rows) < 4 * len(letters):
        rows += rows_of(await read_until(properties, lambda pages: bool(len(pages[-1])), context))
    assert [(int(str(row["id"])), row["l"]) for row in rows] == [(n, one) for n in range(8, 12) for one in letters]


@pytest.mark.parametrize("change", ["c type text using 'a'", "id type text"])
async def test_a_type_that_changes_in_the_middle_of_a_look_is_looked_at_again(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A statement that was made for the type of before fails; one that does not fit the types of now ends the task."""
    postgres.run("create table t (id int primary key, c oid)", "insert into t values (1, 2)")
    properties = {"connection.url": postgres.url, "mode": "incrementing", "table.whitelist": "t"}
    properties |= {"incrementing.column.name": "id"}
    plain = PostgresDatabase.read

    def altered(database: PostgresDatabase, sql: str, *, rows_max: int) -> AsyncGenerator[pa.RecordBatch, None]:
        postgres.run(f"alter table t alter {change}")
        return plain(database, sql, rows_max=rows_max)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresDatabase, "read", altered)
        with pytest.raises(Retriable, match="has changed meanwhile"):
            await read_until(properties, bool)
    if change.startswith("c"):
        assert await read_rows(properties, 1) == [{"id": 1, "c": "a"}]
    else:
        with pytest.raises(Fatal, match="its type is no whole number"):
            await read_until(properties, bool)


TURNED = [f"alter type word rename value '{one}' to '{other}'" for one, other in ("ax", "da", "xd")]
ALTERED = {
    "collation": ('text collate "C"', ['alter table t alter k type text collate "und-x-icu"'], ["B", "D", "a", "c"]),
    "labels": ("word", TURNED, ["a", "b", "c", "d"]),
    "blanks": (
        'varchar(9) collate "C"', ['alter table t alter k type char(9) collate "C"'], ["A", "a\t", "a ", "b"]
    ),
}  # fmt: skip
"""A key's type, what becomes of it after two of its values were read, and all values in their first order."""


@pytest.mark.parametrize("case", ALTERED)
async def test_rows_of_one_time_are_read_again_where_their_key_has_another_order(postgres: Postgres, case: str) -> None:
    """In their new order others are behind the last one that was read than were left."""
    kind, changes, values = ALTERED[case]
    rows = ", ".join(f"(E'{value}', {number})" for number, value in enumerate(values))
    postgres.run(
        "create type word as enum ('a', 'b', 'c', 'd')",
        f"create table t (k {kind} primary key, n int, at timestamptz not null default '2024-05-01 01:02:03Z')",
        f"insert into t values {rows}",  # noqa: S608 - this test's own
    )
    properties = {
        "connection.url": postgres.url,
        "mode": "timestamp",
        "timestamp.column.name": "at",
        "table.whitelist": "t",
        "batch.max.rows": "1",
    }
    context = RealContext()
    first = await read_rows(properties, 2, context)
    postgres.run(*changes)
    rest = await read_rows(properties, 4, context)
    assert [row["n"] for row in first] == [0, 1]
    assert sorted(row["n"] for row in rest) == [0, 1, 2, 3]


async def test_keys_of_every_type_tell_rows_of_one_time_apart(postgres: Postgres) -> None:
    """Each row once and in order, with a new task behind each."""
    postgres.run(*TYPES)
    for at, (kind, values) in enumerate(KEYED.items()):
        rows = ", ".join(f"({value}, {number}, '2024-05-01 01:02:03Z')" for number, value in enumerate(values))
        postgres.run(
            f"create table t{at} (k {kind} primary key, n int, at timestamptz not null)",
            f"insert into t{at} values {rows}",  # noqa: S608 - this test's own
        )
    for at, (kind, values) in enumerate(KEYED.items()):
        properties = {
            "connection.url": postgres.url,
            "mode": "timestamp",
            "timestamp.column.name": "at",
            "table.whitelist": f"t{at}",
            "batch.max.rows": "1",
        }
        context, found = RealContext(), list[int]()
        for _ in values:
            found += [row["n"] for row in await read_rows(properties, 1, context)]
        told = [number for (number,) in postgres.rows(f"select n from t{at} order by k")]  # noqa: S608 - as above
        assert (kind, found) == (kind, told)


async def test_an_hour_that_comes_twice_is_waited_for(postgres: Postgres) -> None:
    """The server's own local times, around both switches of several zones, are those that Python has."""
    relation = Relation("t", "t", ())
    wanted = Range(relation, None, '"at"', ("at",))
    days = (("Europe/Berlin", "2024-10-26"), ("Europe/Berlin", "2024-03-30"), ("America/St_Johns", "2024-11-02"))
    for zone, day in days:
        for minutes in range(0, 48 * 60, 23):
            moment = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(minutes=minutes, milliseconds=1500)
            ((found,),) = postgres.rows(bound_by_clock(wanted, f"timestamptz '{moment.isoformat()}'", zone))
            assert datetime.fromisoformat(found) == earliest_to_come(moment, ZoneInfo(zone))


@pytest.mark.parametrize("columns", ["at", "changed,at"])
async def test_days_are_read_when_they_are_over(postgres: Postgres, columns: str) -> None:
    """Rows of today may still come, with keys before those that are there."""
    postgres.run(
        "create table t (k int primary key, at date not null, changed timestamp)",
        "insert into t (k, at) values (5, (now() at time zone 'UTC')::date), (9, '2024-05-01')",
    )
    properties = {"connection.url": postgres.url, "mode": "timestamp", "timestamp.column.name": columns}
    context = RealContext()
    async with asyncio.timeout(SECONDS_MAX), aclosing(source(properties).fetch(context)) as fetched:
        first = await anext(fetched)
        async with asyncio.TaskGroup() as group:
            more = group.create_task(anext(fetched))
            await context.wait_looks(5)
            assert not more.done(), "a row of today was read while another one of today could still come"
            more.cancel()
    assert [row["k"] for row in rows_of([first])] == [9]


async def test_all_rows_come_as_they_are_behind_a_migration_that_was_waited_for(postgres: Postgres) -> None:
    """The SELECT waits for its lock; what the columns were before is of no account then."""
    postgres.run("create table t (a int)", "insert into t values (1), (2)")
    properties = {"connection.url": postgres.url, "mode": "bulk", "table.whitelist": "t"}
    with postgres.connect(autocommit=False) as migration, migration.cursor() as cursor:
        cursor.execute("alter table t alter column a type text using 'n' || a")
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
            read = group.create_task(read_until(properties, lambda pages: len(pages) == 1))
            while not postgres.rows("select 1 from pg_locks where not granted"):
                await asyncio.sleep(0.02)
            migration.commit()
    (page,) = read.result()
    assert (rows_of([page]), page.rejections) == ([{"a": "n1"}, {"a": "n2"}], ())
