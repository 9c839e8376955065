# ruff: noqa: S608 - statements of tests
"""``JdbcSource`` on a real PostgreSQL: every type, late commits, changes while it runs."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import pytest

from fetchers.sdk import Fatal, Page, Retriable
from tests.databases import Postgres
from tests.edge_values import OWN, POSTGRESQL, POSTGRESQL_NAMES, table_of
from tests.integration.sql.reading import SECONDS_MAX, RealContext, read_rows, read_until, rows_of, source

pytestmark = pytest.mark.integration
WRITERS, TRANSACTIONS = 20, 10


async def test_every_type_comes_as_the_database_says_it(postgres: Postgres) -> None:
    """Each value against what is written here and, where it is a text, against the database's own; or rejected."""
    postgres.run(*POSTGRESQL_NAMES, *table_of(POSTGRESQL, "bigserial primary key"))
    pages = await read_until(
        {"connection.url": postgres.url, "mode": "incrementing", "table.whitelist": "kinds"},
        lambda pages: sum(map(len, pages)) >= len(POSTGRESQL),
    )
    rejected = {rejection.index: rejection.message for page in pages for rejection in page.rejections}
    texts = postgres.rows(f"select {', '.join(f'c{at}::text' for at in range(len(POSTGRESQL)))} from kinds order by id")
    wrong = []
    for at, (row, (kind, literal, told)) in enumerate(zip(rows_of(pages), POSTGRESQL, strict=True)):
        own = texts[at][at]
        expected = own if told == OWN else told
        if expected is None:
            ok = at in rejected and f"column c{at}" in rejected[at]
        else:
            ok = row[f"c{at}"] == expected and at not in rejected
            ok = ok and (
                not isinstance(expected, str)
                or kind in {"bytea", "timestamp", "timestamptz"}
                or _same(row[f"c{at}"], own)
            )
        if not ok:
            wrong.append((kind, literal, row[f"c{at}"], own, rejected.get(at)))
    assert not wrong


def _same(ours: object, own: object) -> bool:
    return ours == own or str(ours) == str(own).strip() or str(ours).rstrip() == str(own)


async def test_names_that_must_be_quoted_are(postgres: Postgres) -> None:
    """Quotes, dots, capitals, letters beyond ASCII, 63 bytes."""
    long = "é" * 31
    postgres.run(
        'create schema "My.Schema"',
        f'create table "My.Schema"."Ta""b.le" ("I d" bigserial primary key, "{long}" text not null, "select" int)',
        f'insert into "My.Schema"."Ta""b.le" ("{long}") values (\'x\')',
    )
    pages = await read_until(
        {"connection.url": postgres.url, "mode": "incrementing", "key.columns": "I d", "schema.pattern": "My%"},
        lambda pages: len(pages) == 1,
    )
    assert rows_of(pages) == [{"I d": 1, long: "x", "select": None}]
    assert pages[0].topic == 't.Ta"b.le'
    assert pages[0].partition == {"protocol": "1", "table": 'My.Schema.Ta"b.le'}
    assert pages[0].original(0)[0] == b'{"I d":1}'


@pytest.mark.parametrize("mode", ["incrementing", "timestamp"])
@pytest.mark.parametrize("ending", ["commit", "prepare"])
async def test_a_row_that_commits_late_is_delivered_once(postgres: Postgres, mode: str, ending: str) -> None:
    """Its number and time are lower than those of a row that was committed before it; also by two-phase commit."""
    postgres.run("create table late (id bigserial primary key, at timestamptz not null default now())")
    properties = {
        "connection.url": postgres.url,
        "mode": mode,
        "table.whitelist": "late",
        **({"timestamp.column.name": "at"} if mode == "timestamp" else {}),
    }
    context = RealContext()
    async with asyncio.timeout(SECONDS_MAX), aclosing(source(properties).fetch(context)) as fetched:
        with postgres.connect(autocommit=False) as late, late.cursor() as cursor:
            cursor.execute("insert into late default values")
            postgres.run("insert into late default values")
            async with asyncio.TaskGroup() as group:
                first = group.create_task(anext(fetched))
                await context.wait_looks(20)
                assert not first.done(), "a row was read while an earlier one could still be committed"
                if ending == "prepare":
                    cursor.execute("prepare transaction 'late'")
                    await context.wait_looks(10)
                    assert not first.done(), "a prepared transaction was forgotten"
                    postgres.run("commit prepared 'late'")
                else:
                    late.commit()
            pages = [first.result()]
        while sum(map(len, pages)) < 2:
            pages.append(await anext(fetched))
    assert [row["id"] for row in rows_of(pages)] == [1, 2]


async def test_other_connectors_way_loses_that_row(postgres: Postgres) -> None:
    """``late.commits=ignore`` is what they do; so the test above can fail."""
    postgres.run("create table late (id bigserial primary key)")
    properties = {"connection.url": postgres.url, "mode": "incrementing", "table.whitelist": "late"}
    context = RealContext()
    with postgres.connect(autocommit=False) as late, late.cursor() as cursor:
        cursor.execute("insert into late default values")
        postgres.run("insert into late default values")
        first = await read_rows(properties | {"late.commits": "ignore"}, 1, context)
        late.commit()
    postgres.run("insert into late default values")
    later = await read_rows(properties | {"late.commits": "ignore"}, 1, context)
    assert [row["id"] for row in first + later] == [2, 3]


@pytest.mark.parametrize("mode", ["incrementing", "timestamp+incrementing"])
async def test_hundreds_of_transactions_out_of_order_lose_and_repeat_nothing(postgres: Postgres, mode: str) -> None:
    """Under load, with rollbacks and restarts of the source from its committed offset: each row once, in order."""
    postgres.run("create table busy (id bigserial primary key, at timestamptz not null default now(), who int)")
    properties = {
        "connection.url": postgres.url,
        "mode": mode,
        "table.whitelist": "busy",
        "batch.max.rows": "7",
        **({"timestamp.column.name": "at"} if mode != "incrementing" else {}),
    }
    context = RealContext()
    pages: list[Page] = []
    stop = threading.Event()
    with ThreadPoolExecutor(WRITERS + 1) as threads:
        ticker = threads.submit(_tick, postgres, stop)
        writers = [threads.submit(_write, postgres, number) for number in range(WRITERS)]
        try:
            while not all(writer.done() for writer in writers):
                pages += await _read_some(properties, context, 40)
        finally:
            stop.set()  # else the threads would be waited for for ever
    for writer in (*writers, ticker):
        writer.result()
    expected = [row[0] for row in postgres.rows("select id from busy order by id")]
    while sum(map(len, pages)) < len(expected):
        pages += await _read_some(properties, context, 1)
    found = [row["id"] for row in rows_of(pages)]
    assert len(expected) > WRITERS * TRANSACTIONS / 2
    assert sorted(found) == expected
    if mode == "incrementing":
        assert found == expected


async def _read_some(properties: dict[str, str], context: RealContext, count: int) -> list[Page]:
    return await read_until(properties, lambda pages: len(pages) >= count, context)


def _tick(postgres: Postgres, stop: threading.Event) -> None:
    """Rows until the end, so that a reader always finds some."""
    with postgres.connect() as connection, connection.cursor() as cursor:
        while not stop.is_set():
            cursor.execute("insert into busy (who) select -1 from pg_sleep(0.01)")


def _write(postgres: Postgres, number: int) -> None:
    """Transactions of several statements and of different lengths; every fifth is rolled back."""
    dice = random.Random(number)
    with postgres.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for _ in range(TRANSACTIONS):
            for _ in range(dice.randrange(1, 4)):
                cursor.execute(f"insert into busy (who) values ({number})")
                cursor.execute(f"insert into busy (who) select {number} from pg_sleep({dice.random() / 50})")
            if dice.random() < 0.2:
                connection.rollback()
            else:
                connection.commit()


async def test_thousands_of_rows_of_one_timestamp_are_cut_and_resumed(postgres: Postgres) -> None:
    """By the key where there is one; without one they are one page. Updates come again, with their new time."""
    postgres.run(
        "create table ties (id int primary key, at timestamp not null)",
        "insert into ties select i, '2024-01-01 12:00:00.123456' from generate_series(1, 500) i",
        "create table bare (id int, at timestamp)",
        "insert into bare select i, '2024-01-01' from generate_series(1, 500) i",
        "insert into bare select i, '2024-01-02' from generate_series(501, 600) i",
    )
    ties = {
        "connection.url": postgres.url,
        "mode": "timestamp",
        "timestamp.column.name": "at",
        "table.whitelist": "ties",
        "batch.max.rows": "100",
    }
    context = RealContext()
    found = []
    for _ in range(5):  # a restart after each page
        pages = await read_until(ties, lambda pages: len(pages) == 1, context)
        found += rows_of(pages)
    assert [row["id"] for row in found] == list(range(1, 501))
    postgres.run("update ties set at = '2024-01-01 12:00:00.123457' where id = 7")
    assert [row["id"] for row in await read_rows(ties, 1, context)] == [7]
    bare = ties | {"table.whitelist": "bare", "validate.non.null": "false"}
    pages = await read_until(bare, lambda pages: sum(map(len, pages)) == 600)
    assert [len(page) for page in pages] == [500, 100]


async def test_columns_change_while_it_runs(postgres: Postgres) -> None:
    """Added, dropped, renamed, widened: the next page has the next schema."""
    postgres.run("create table shape (id serial primary key, a int)", "insert into shape (a) values (1)")
    properties = {"connection.url": postgres.url, "mode": "incrementing", "table.whitelist": "shape"}
    changes = [
        ("alter table shape add column b text", "insert into shape (a, b) values (2, 'x')"),
        ("alter table shape rename column b to c", "insert into shape (a, c) values (3, 'y')"),
        ("alter table shape alter column a type bigint", "insert into shape (a) values (4)"),
        ("alter table shape drop column c", "insert into shape (a) values (5)"),
    ]
    pages: list[Page] = []
    context = RealContext()
    async with asyncio.timeout(SECONDS_MAX), aclosing(source(properties).fetch(context)) as fetched:
        pages.append(await anext(fetched))
        for change in changes:
            postgres.run(*change)
            pages.append(await anext(fetched))
    rows: list[dict[str, object]] = [{"a": 1}, {"a": 2, "b": "x"}, {"a": 3, "c": "y"}, {"a": 4, "c": None}, {"a": 5}]
    assert rows_of(pages) == [{"id": number, **row} for number, row in enumerate(rows, 1)]
    assert len({page.schema for page in pages}) == 5


async def test_new_tables_are_found_and_dealt_over_tasks(postgres: Postgres) -> None:
    """While it runs; each table is read by one task alone, and lists choose."""
    postgres.run("create table one (id serial primary key)", "insert into one default values")
    properties = {"connection.url": postgres.url, "mode": "incrementing", "table.exclude.list": ".*secret.*"}
    context = RealContext()
    async with asyncio.timeout(SECONDS_MAX), aclosing(source(properties).fetch(context)) as fetched:
        assert (await anext(fetched)).topic == "t.one"
        postgres.run("create table a_secret (id serial primary key)", "insert into a_secret default values")
        postgres.run("create table two (id serial primary key)", "insert into two default values")
        assert (await anext(fetched)).topic == "t.two"
    tasks = source(properties).task_configs(2)
    topics = []
    for task in tasks:
        reader = source(properties | dict(task))
        database = reader._database(context)
        await database.open()
        topics.append({table.name for table in await reader._tables(database)})
        database.close()
    assert topics[0] | topics[1] == {"one", "two"}
    assert not topics[0] & topics[1]


async def test_a_counter_that_was_set_back_is_fatal(postgres: Postgres) -> None:
    """Rows would get numbers that were read before; deleting rows sets nothing back."""
    postgres.run("create table t (id serial primary key)", "insert into t select from generate_series(1, 9)")
    properties = {"connection.url": postgres.url, "mode": "incrementing", "table.whitelist": "t"}
    context = RealContext()
    await read_rows(properties, 9, context)
    postgres.run("delete from t", "insert into t default values")
    assert await read_rows(properties, 1, context) == [{"id": 10}]
    postgres.run("truncate t restart identity", "insert into t default values")
    with pytest.raises(Fatal, match="last number given out is 1, but rows up to 10 were read"):
        await read_rows(properties, 1, context)


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"connection.url": "jdbc:postgresql://127.0.0.1:{port}/nowhere?user=postgres"}, "connection.url", "nowhere"),
        ({"connection.user": "stranger"}, "connection.url", 'role "stranger" does not exist'),
        ({"table.whitelist": "nothing"}, "table.whitelist", "no table nothing"),
        ({"table.whitelist": "bare"}, "incrementing.column.name", "ALTER TABLE"),
        ({"incrementing.column.name": "n"}, "incrementing.column.name", "SET NOT NULL"),
        ({"incrementing.column.name": "x"}, "incrementing.column.name", "has no column x; it has id, n, at"),
        ({"mode": "timestamp", "timestamp.column.name": "at"}, "timestamp.column.name", "SET NOT NULL"),
        ({"table.whitelist": "cached"}, "late.commits", "ALTER SEQUENCE cached_id_seq CACHE 1"),
        ({"key.columns": "y"}, "key.columns", "has no column y"),
        ({"table.whitelist": "odd", "incrementing.column.name": "u"}, "incrementing.column.name", "no whole number"),
        ({"table.whitelist": "odd", "incrementing.column.name": "f"}, "incrementing.column.name", "no whole number"),
        (
            {"table.whitelist": "odd", "mode": "timestamp", "timestamp.column.name": "t"},
            "timestamp.column.name",
            "no timestamps",
        ),
        ({"table.whitelist": "seen", "table.types": "VIEW"}, "incrementing.column.name", "name one in"),
        (
            {"table.whitelist": "seen", "table.types": "VIEW", "incrementing.column.name": "id"},
            "incrementing.column.name",
            "is nullable. Columns of a view may always be null",
        ),
        ({"table.include.list": "public\\.new.*", "table.whitelist": ""}, "table.include.list", "until there is one"),
        ({"table.whitelist": "", "schema.pattern": "nowhere"}, "schema.pattern", "until there is one"),
        (
            {"table.whitelist": "", "query": "select * from nowhere", "mode": "bulk"},
            "query",
            '"nowhere" does not exist',
        ),
        ({"table.whitelist": "", "query": "select id, n as id from good", "mode": "bulk"}, "query", "columns id"),
        ({"table.whitelist": "", "query": "select 1 as a; select 2", "mode": "bulk"}, "query", "syntax error"),
    ],
)
async def test_bad_configs_are_refused_with_what_mends_them(
    postgres: Postgres, changes: dict[str, str], key: str, message: str
) -> None:
    """By asking the database."""
    postgres.run(
        "create table good (id serial primary key, n int, at timestamp)",
        "create table bare (n int)",
        "create table cached (id serial primary key)",
        "create table odd (u uuid not null, f numeric(9,2) not null, t text not null)",
        "create view seen as select * from good",
        "alter sequence cached_id_seq cache 10",
    )
    properties = {"connection.url": postgres.url, "mode": "incrementing", "table.whitelist": "good"} | {
        name: text.replace("{port}", str(postgres.server.port)) for name, text in changes.items()
    }
    found = await source(properties).check(RealContext())
    assert [finding.key for finding in found] == [key]
    assert message in found[0].message
    assert "ALTER TABLE" not in found[0].message or "view" not in found[0].message


async def test_a_killed_database_is_no_end(postgres: Postgres) -> None:
    """What may pass is retriable; the place is kept."""
    postgres.run("create table t (id serial primary key)", "insert into t default values")
    properties = {"connection.url": postgres.url, "mode": "incrementing", "table.whitelist": "t"}
    context = RealContext()

    async def read() -> Any:
        async with asyncio.timeout(SECONDS_MAX), aclosing(source(properties).fetch(context)) as fetched:
            async for page in fetched:
                context.commit(page)
                postgres.server.kill()

    try:
        with pytest.raises(Retriable):
            await read()
    finally:
        postgres.server.start()
    postgres.run("insert into t default values")
    (row,) = await read_rows(properties, 1, context)
    assert row["id"] > 1  # the sequence may have passed over some numbers when it was killed
