# ruff: noqa: S608 - statements of tests
"""``JdbcSource`` on a real MariaDB, and in part on a real MySQL: every type, late commits, the seed's own table."""

from __future__ import annotations

import asyncio
import base64
import random
from contextlib import aclosing

import pytest

from fetchers.sdk import Page
from fetchers.sql.ranges import wanted_range
from tests.databases import MariaDb, MySql
from tests.edge_values import OWN, mysql_types, table_of
from tests.integration.sql.reading import SECONDS_MAX, RealContext, read_rows, read_until, rows_of, source

pytestmark = pytest.mark.integration
WRITERS, TRANSACTIONS = 20, 10


async def test_every_type_comes_as_the_database_says_it(each_mysql: MySql) -> None:
    """Each value against what is written here, which for texts is the database's own; or rejected."""
    types = mysql_types(each_mysql.scheme)
    await each_mysql.rows("set sql_mode = ''", *table_of(types, "bigint unsigned primary key auto_increment"))
    pages = await read_until(
        {"connection.url": each_mysql.url, "mode": "incrementing", "table.whitelist": "kinds"},
        lambda pages: sum(map(len, pages)) >= len(types),
    )
    rejected = {rejection.index: rejection.message for page in pages for rejection in page.rejections}
    texts = await each_mysql.rows("select * from kinds order by id")
    wrong = []
    for at, (row, (kind, literal, told)) in enumerate(zip(rows_of(pages), types, strict=True)):
        own = texts[at][at + 1]
        expected = own if told == OWN else told
        is_right = at in rejected and f"column c{at}" in rejected[at] if expected is None else row[f"c{at}"] == expected
        if not is_right or (expected is not None and at in rejected):
            wrong.append((kind, literal, row[f"c{at}"], own, rejected.get(at)))
    assert not wrong


async def test_a_row_that_commits_late_is_delivered_once(each_mysql: MySql) -> None:
    """Its number is lower than that of a row that was committed before it."""
    await each_mysql.rows("create table late (id int primary key auto_increment, n int)")
    properties = {"connection.url": each_mysql.url, "mode": "incrementing", "table.whitelist": "late"}
    context = RealContext()
    late = await each_mysql.connect(autocommit=False)
    async with late.cursor() as cursor, asyncio.timeout(SECONDS_MAX):
        await cursor.execute("insert into late (n) values (1)")
        await each_mysql.rows("insert into late (n) values (2)")
        async with aclosing(source(properties).fetch(context)) as fetched:
            async with asyncio.TaskGroup() as group:
                first = group.create_task(anext(fetched))
                await context.wait_looks(10)
                assert not first.done(), "a row was read while an earlier one could still be committed"
                await late.commit()
            pages = [first.result()]
            while sum(map(len, pages)) < 2:
                pages.append(await anext(fetched))
    await late.ensure_closed()
    assert [row["id"] for row in rows_of(pages)] == [1, 2]


@pytest.mark.parametrize("mode", ["incrementing", "timestamp+incrementing"])
async def test_hundreds_of_transactions_out_of_order_lose_and_repeat_nothing(mariadb: MariaDb, mode: str) -> None:
    """Under load, with rollbacks and restarts of the source from its committed offset: each row once."""
    await mariadb.rows(
        "create table busy (id bigint unsigned primary key auto_increment, "
        "at timestamp(6) not null default now(6), n int)"
    )
    properties = {
        "connection.url": mariadb.url,
        "mode": mode,
        "table.whitelist": "busy",
        "batch.max.rows": "7",
        **({"timestamp.column.name": "at"} if mode != "incrementing" else {}),
    }
    context = RealContext()
    pages: list[Page] = []
    async with asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        group.create_task(_tick(mariadb, stop))
        writers = [group.create_task(_write(mariadb, number)) for number in range(WRITERS)]
        while not all(writer.done() for writer in writers):
            pages += await read_until(properties, lambda pages: len(pages) >= 40, context)
        stop.set()
    expected = [int(row[0]) for row in await mariadb.rows("select id from busy order by id")]
    while sum(map(len, pages)) < len(expected):
        pages += await read_until(properties, lambda pages: len(pages) >= 1, context)
    found = [row["id"] for row in rows_of(pages)]
    assert len(expected) > WRITERS * TRANSACTIONS / 2
    assert sorted(found) == expected


async def _tick(mariadb: MariaDb, stop: asyncio.Event) -> None:
    """Rows until the end, so that a reader always finds some."""
    connection = await mariadb.connect()
    try:
        async with connection.cursor() as cursor:
            while not stop.is_set():
                await cursor.execute("insert into busy (n) select sleep(0.01)")
    finally:
        await connection.ensure_closed()


async def _write(mariadb: MariaDb, number: int) -> None:
    """Transactions of several statements and of different lengths; every fifth is rolled back."""
    dice = random.Random(number)
    connection = await mariadb.connect(autocommit=False)
    try:
        async with connection.cursor() as cursor:
            for _ in range(TRANSACTIONS):
                for _ in range(dice.randrange(1, 4)):
                    await cursor.execute(f"insert into busy (n) values ({number})")
                    await cursor.execute(f"insert into busy (n) select {number} + sleep({dice.random() / 50})")
                await (connection.rollback() if dice.random() < 0.2 else connection.commit())
    finally:
        await connection.ensure_closed()


async def test_the_tables_of_the_book_are_read_as_printed(mariadb: MariaDb) -> None:
    """``login`` of "Kafka: The Definitive Guide": no key, a time that may be null, in whole seconds."""
    await mariadb.rows(
        "create table login (username varchar(30), login_time datetime)",
        "insert into login values ('gwenshap', '2016-10-14 05:46:02'), ('tpalino', '2016-10-14 05:46:21')",
    )
    properties = {
        "connection.url": mariadb.url.replace("mariadb", "mysql", 1),
        "mode": "timestamp",
        "table.whitelist": "login",
        "validate.non.null": "false",
        "timestamp.column.name": "login_time",
        "topic.prefix": "mysql.",
    }
    context = RealContext()
    pages = await read_until(properties, lambda pages: sum(map(len, pages)) == 2, context)
    assert {page.topic for page in pages} == {"mysql.login"}
    assert [row["username"] for row in rows_of(pages)] == ["gwenshap", "tpalino"]
    assert pages[0].keys is None
    assert pages[-1].offset["timestamp"] == 1476423981000
    await mariadb.rows("insert into login values ('nnarkede', '2016-10-17 02:50:46')")
    assert (await read_rows(properties, 1, context))[0]["username"] == "nnarkede"


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"connection.user": "stranger", "connection.password": "x"}, "connection.url", "Access denied for user"),
        ({"table.whitelist": "nothing"}, "table.whitelist", "no table nothing"),
        ({"connection.user": "reader", "connection.password": "x"}, "late.commits", "GRANT PROCESS ON *.* TO 'reader'"),
        ({"incrementing.column.name": "n"}, "incrementing.column.name", "NOT NULL"),
        ({"incrementing.column.name": "f"}, "incrementing.column.name", "no whole number"),
        ({"mode": "timestamp", "timestamp.column.name": "f"}, "timestamp.column.name", "no timestamps"),
        ({"table.whitelist": "seen", "table.types": "VIEW"}, "incrementing.column.name", "name one in"),
        ({"table.whitelist": "", "query": "select * from nowhere", "mode": "bulk"}, "query", "nowhere"),
        ({"table.whitelist": "", "query": "select 1 as a, 2 as a", "mode": "bulk"}, "query", "Duplicate column name"),
        ({"table.whitelist": "", "query": "select from", "mode": "bulk"}, "query", "error in your SQL syntax"),
    ],
)
async def test_bad_configs_are_refused_with_what_mends_them(
    mariadb: MariaDb, changes: dict[str, str], key: str, message: str
) -> None:
    """By asking the database."""
    await mariadb.rows(
        "create table good (id int primary key auto_increment, n int, f float not null)",
        "create view seen as select * from good",
        "create or replace user reader identified by 'x'",
        f"grant select on {mariadb.name}.* to reader",
    )
    properties = {"connection.url": mariadb.url, "mode": "incrementing", "table.whitelist": "good"} | changes
    found = await source(properties).check(RealContext())
    assert [finding.key for finding in found] == [key]
    assert message in found[0].message


async def test_a_query_may_end_with_a_comment(mariadb: MariaDb) -> None:
    """It is wrapped, and what closes it is none of the comment."""
    asked = {"connection.url": mariadb.url, "mode": "bulk", "query": "select 1 as a -- the first"}
    assert (await read_rows(asked, 1))[0] == {"a": 1}


async def test_a_table_with_system_versioning_is_a_table(mariadb: MariaDb) -> None:
    """The server's list has another word for it; its history is not read."""
    await mariadb.rows(
        "create table t (id int primary key auto_increment, n int) with system versioning",
        "insert into t (n) values (1), (2)",
        "update t set n = n + 10",
        "delete from t where id = 1",
    )
    properties = {"connection.url": mariadb.url, "mode": "incrementing"}
    assert await read_rows(properties, 1) == [{"id": 2, "n": 12}]


async def test_rows_that_are_not_committed_are_never_read(each_mysql: MySql) -> None:
    """Also where the server's sessions may see them by default."""
    await each_mysql.rows("create table t (id int primary key)", "insert into t values (1)")
    shown = "show global variables where variable_name in ('tx_isolation', 'transaction_isolation')"
    before = (await each_mysql.rows(shown))[0][1]
    writer = await each_mysql.connect(autocommit=False)
    try:
        await each_mysql.rows("set global transaction isolation level read uncommitted")
        async with writer.cursor() as cursor:
            await cursor.execute("insert into t values (2)")
        assert await each_mysql.rows("select id from t") == [("1",), ("2",)]
        assert await read_rows({"connection.url": each_mysql.url, "mode": "bulk"}, 1) == [{"id": 1}]
    finally:
        writer.close()
        await each_mysql.rows(f"set global transaction isolation level {before.replace('-', ' ')}")


async def test_a_query_is_read_by_its_own_columns(mariadb: MariaDb) -> None:
    """Signs and digits of its columns are those of the tables."""
    await mariadb.rows(
        "create table a (id bigint unsigned, n decimal(5,2), t text, b blob)",
        "insert into a values (18446744073709551615, 1.50, 'ü', 'x')",
    )
    pages = await read_until(
        {"connection.url": mariadb.url, "mode": "bulk", "query": "select * from a", "topic.prefix": "q"},
        lambda pages: len(pages) == 1,
    )
    assert rows_of(pages) == [{"id": 18446744073709551615, "n": "1.50", "t": "ü", "b": "eA=="}]


async def test_a_querys_bound_is_a_whole_second(mariadb: MariaDb) -> None:
    """Nothing says how many digits its times have; in whole seconds, a later row would lie before a finer bound."""
    await mariadb.rows("create table a (id int, at datetime not null default now())", "insert into a (id) values (1)")
    query = {"connection.url": mariadb.url, "mode": "timestamp", "query": "select * from a", "topic.prefix": "q"}
    reader = source(query | {"timestamp.column.name": "at"})
    database = reader._database(RealContext())
    await database.open()
    try:
        wanted = wanted_range(reader.config, await database.query("select * from a"), database)
        assert (await database.bound(wanted) or "").endswith(".000000")
    finally:
        database.close()


async def test_binary_keys_tell_rows_of_one_timestamp_apart(mariadb: MariaDb) -> None:
    """Bytes that are no text: they are stored as hexadecimal digits, and compared as bytes."""
    keys = ["00", "27", "5C", "7F", "80", "FF", "FFFE"]
    await mariadb.rows(
        "create table ties (k varbinary(4) primary key, at datetime not null)",
        *(f"insert into ties values (x'{key}', '2024-01-01')" for key in keys),
    )
    properties = {
        "connection.url": mariadb.url,
        "mode": "timestamp",
        "timestamp.column.name": "at",
        "table.whitelist": "ties",
        "batch.max.rows": "1",
    }
    context = RealContext()
    found = []
    for _ in keys:  # a restart after each row
        pages = await read_until(properties, lambda pages: len(pages) == 1, context)
        found += [base64.b64decode(row["k"]).hex().upper() for row in rows_of(pages)]
    assert found == keys
