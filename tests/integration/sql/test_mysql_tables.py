# ruff: noqa: S608 - statements of tests
"""``JdbcSource`` on MariaDB and MySQL: names, tables that change while they are read, and what is refused."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import aclosing

import pytest

from fetchers.sdk import Fatal, Page, Retriable
from fetchers.sql.fetcher import JdbcSource
from fetchers.toolkit.refusals import Unreachable
from tests.databases import MySql
from tests.integration.mysql_cdc.test_binlog_names import NAMES, quoted
from tests.integration.sql.reading import SECONDS_MAX, RealContext, read_rows, read_until, rows_of, source

pytestmark = pytest.mark.integration
SECRET = "pa55-right"


async def test_odd_names_are_those_of_the_database(each_mysql: MySql) -> None:
    """Of tables in lists, in topics and in partitions; of columns in rows, in keys and as the one that orders."""
    columns = ", ".join(f"{quoted(name)} varchar(9)" for name in NAMES[1:])
    literals = ", ".join(f"'v{at}'" for at in range(1, len(NAMES)))
    expected = {NAMES[0]: 7, **{name: f"v{at}" for at, name in enumerate(NAMES[1:], 1)}}
    for name in NAMES:
        await each_mysql.rows(
            f"create table {quoted(name)} ({quoted(NAMES[0])} int primary key, {columns})",
            f"insert into {quoted(name)} values (7, {literals})",
        )
    properties = {
        "connection.url": each_mysql.url,
        "mode": "incrementing",
        "incrementing.column.name": NAMES[0],
        "key.columns": f"{NAMES[0]},{NAMES[-1]}",
        "table.whitelist": ",".join(NAMES),
    }
    assert list(await source(properties).check(RealContext())) == []
    context = RealContext()
    pages = await read_until(properties, lambda pages: sum(map(len, pages)) == len(NAMES), context)
    assert rows_of(pages) == [expected] * len(NAMES)
    assert {page.topic for page in pages} == {f"t.{name}" for name in NAMES}
    partitions = {page.partition["table"] for page in pages if page.partition is not None}
    assert partitions == {f"{each_mysql.name}.{name}" for name in NAMES}
    keys = [json.loads(page.original(0)[0] or b"") for page in pages]
    assert keys == [{NAMES[0]: 7, NAMES[-1]: f"v{len(NAMES) - 1}"}] * len(NAMES)
    await each_mysql.rows(f"insert into {quoted(NAMES[1])} ({quoted(NAMES[0])}) values (8)")
    assert [row[NAMES[0]] for row in await read_rows(properties, 1, context)] == [8]


async def test_columns_change_while_it_runs(each_mysql: MySql) -> None:
    """Added, renamed, widened, dropped: the next page has the next schema."""
    await each_mysql.rows("create table shape (id int primary key auto_increment, a int)")
    await each_mysql.rows("insert into shape (a) values (1)")
    properties = {"connection.url": each_mysql.url, "mode": "incrementing", "table.whitelist": "shape"}
    changes = [
        ("alter table shape add column b text", "insert into shape (a, b) values (2, 'x')"),
        ("alter table shape change b c text", "insert into shape (a, c) values (3, 'y')"),
        ("alter table shape modify a bigint", "insert into shape (a) values (4)"),
        ("alter table shape drop column c", "insert into shape (a) values (5)"),
    ]
    pages: list[Page] = []
    async with asyncio.timeout(SECONDS_MAX), aclosing(source(properties).fetch(RealContext())) as fetched:
        pages.append(await anext(fetched))
        for change in changes:
            await each_mysql.rows(*change)
            pages.append(await anext(fetched))
    rows: list[dict[str, object]] = [{"a": 1}, {"a": 2, "b": "x"}, {"a": 3, "c": "y"}, {"a": 4, "c": None}, {"a": 5}]
    assert rows_of(pages) == [{"id": number, **row} for number, row in enumerate(rows, 1)]
    assert len({page.schema for page in pages}) == 5


ALTERED_KEYS = {
    "enum": ("k enum('a','b','c','d') not null, n int, primary key (k)", "modify k enum('d','c','b','a') not null"),
    "columns": ("k enum('a','b','c','d'), n int, primary key (k, n)", "drop primary key, add primary key (n, k)"),
    "more columns": ("k enum('a','b','c','d'), n int, primary key (k)", "drop primary key, add primary key (k, n)"),
}


@pytest.mark.parametrize("case", ALTERED_KEYS)
async def test_rows_of_one_time_are_read_again_where_their_key_was_altered(each_mysql: MySql, case: str) -> None:
    """In their new order others are behind the last one that was read than were left."""
    columns, change = ALTERED_KEYS[case]
    await each_mysql.rows(
        f"create table t (at timestamp not null default '2024-05-01 01:02:03', {columns})",
        "insert into t (k, n) values ('a', 4), ('b', 3), ('c', 2), ('d', 1)",
    )
    properties = {
        "connection.url": each_mysql.url,
        "mode": "timestamp",
        "timestamp.column.name": "at",
        "table.whitelist": "t",
        "batch.max.rows": "1",
    }
    context = RealContext()
    first = await read_rows(properties, 2, context)
    await each_mysql.rows(f"alter table t {change}")
    rest = await read_rows(properties, 4, context)
    assert [row["k"] for row in first] == ["a", "b"]
    assert sorted(row["k"] for row in rest) == ["a", "b", "c", "d"]
    await each_mysql.rows("update t set at = '2024-05-02 01:02:03' where k = 'a'")
    assert [row["k"] for row in await read_rows(properties, 1, context)] == ["a"]


@pytest.mark.parametrize("columns", ["at", "changed,at"])
async def test_days_are_read_when_they_are_over(each_mysql: MySql, columns: str) -> None:
    """Rows of today may still come, with keys before those that are there."""
    await each_mysql.rows(
        "create table t (k int primary key, at date not null, changed datetime)",
        "insert into t (k, at) values (5, utc_date()), (9, utc_date() - interval 1 day)",
    )
    properties = {"connection.url": each_mysql.url, "mode": "timestamp", "timestamp.column.name": columns}
    context = RealContext()
    async with asyncio.timeout(SECONDS_MAX), aclosing(source(properties).fetch(context)) as fetched:
        first = await anext(fetched)
        async with asyncio.TaskGroup() as group:
            more = group.create_task(anext(fetched))
            await context.wait_looks(5)
            assert not more.done(), "a row of today was read while another one of today could still come"
            more.cancel()
    assert [row["k"] for row in rows_of([first])] == [9]


async def test_new_tables_are_found_and_dealt_over_tasks(each_mysql: MySql) -> None:
    """While it runs; each table is read by one task alone, and lists choose."""
    await each_mysql.rows("create table one (id int primary key auto_increment)", "insert into one values ()")
    properties = {"connection.url": each_mysql.url, "mode": "incrementing", "table.exclude.list": ".*secret.*"}
    async with asyncio.timeout(SECONDS_MAX), aclosing(source(properties).fetch(RealContext())) as fetched:
        assert (await anext(fetched)).topic == "t.one"
        for name in ("a_secret", "two"):
            await each_mysql.rows(
                f"create table {name} (id int primary key auto_increment)", f"insert into {name} values ()"
            )
        assert (await anext(fetched)).topic == "t.two"
    dealt = [await _tables(source(properties | dict(task))) for task in source(properties).task_configs(2)]
    assert dealt[0] | dealt[1] == {"one", "two"}
    assert not dealt[0] & dealt[1]


async def _tables(reader: JdbcSource) -> set[str]:
    database = reader._database(RealContext())
    await database.open()
    try:
        return {table.name for table in await reader._tables(database)}
    finally:
        database.close()


async def test_a_counter_that_was_set_back_is_fatal(each_mysql: MySql) -> None:
    """Rows would get numbers that were read before; deleting rows sets nothing back."""
    await each_mysql.rows("create table t (id int primary key auto_increment)", "insert into t values (9)")
    properties = {"connection.url": each_mysql.url, "mode": "incrementing", "table.whitelist": "t"}
    context = RealContext()
    await read_rows(properties, 1, context)
    await each_mysql.rows("delete from t", "insert into t values ()")
    assert await read_rows(properties, 1, context) == [{"id": 10}]
    await each_mysql.rows("truncate t", "insert into t values ()")
    with pytest.raises(Fatal, match="last number given out is 1, but rows up to 10 were read"):
        await read_rows(properties, 1, context)


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"connection.user": "stranger"}, "connection.url", "Access denied.*ALTER USER … IDENTIFIED BY"),
        ({"connection.user": "shut_out", "connection.password": SECRET}, "connection.url", "is locked.*ACCOUNT UNLOCK"),
        ({"connection.url": "nowhere"}, "connection.url", "Unknown database 'nowhere'.*CREATE DATABASE"),
        ({"table.whitelist": "nothing"}, "table.whitelist", "no table nothing"),
        ({"table.whitelist": "bare"}, "incrementing.column.name", "ALTER TABLE `bare` ADD COLUMN id .*AUTO_INCREMENT"),
        ({"incrementing.column.name": "x"}, "incrementing.column.name", "has no column x; it has id, n, at"),
        (
            {"incrementing.column.name": "n"},
            "incrementing.column.name",
            "nullable.*MODIFY `n` int(\\(11\\))? NOT NULL; or",
        ),
        (
            {"mode": "timestamp", "timestamp.column.name": "at"},
            "timestamp.column.name",
            "all of these columns are nullable.*ALTER TABLE `good` MODIFY `at` timestamp NOT NULL; or",
        ),
    ],
)
async def test_bad_configs_are_refused_with_what_mends_them(
    each_mysql: MySql, changes: dict[str, str], key: str, message: str
) -> None:
    """At validation by asking the server, and where a task starts."""
    await each_mysql.rows(
        "create table good (id int primary key auto_increment, n int, at timestamp null)",
        "create table bare (n int)",
        f"create user if not exists shut_out identified by '{SECRET}' account lock",
    )
    properties = {"connection.url": each_mysql.url, "mode": "incrementing", "table.whitelist": "good"} | changes
    if properties["connection.url"] == "nowhere":
        properties["connection.url"] = each_mysql.url.replace(each_mysql.name, "nowhere")
    (found,) = await source(properties).check(RealContext())
    assert found.key == key
    assert re.search(message, found.message), found.message
    assert SECRET not in found.message
    with pytest.raises(Fatal, match=message):
        await read_until(properties, bool)


NULLABLE = {
    "id": ("bigint unsigned default 7 comment 'it''s \\\\ b'", "1"),
    "d": ("decimal(20,0)", "1"),
    "at": (
        "timestamp(3) null default current_timestamp(3) on update current_timestamp(3)",
        "'2024-01-01 00:00:00'",
    ),
    "b": ("datetime default '2024-01-01 00:00:00'", "'2024-01-01 00:00:00'"),
}
"""Columns that may be null, and a value of each."""


@pytest.mark.parametrize("column", NULLABLE)
async def test_the_statement_that_is_told_takes_null_from_a_column_and_nothing_else(
    each_mysql: MySql, column: str
) -> None:
    """Such as ON UPDATE, without which changed rows would not be read any more; a generated column has no statement."""
    kind, value = NULLABLE[column]
    await each_mysql.rows(
        f"create table t (pk int primary key, {column} {kind}, g bigint as (pk + 1) stored)",
        f"insert into t (pk, {column}) values (1, {value})",
    )
    is_number = column in {"id", "d"}
    mode = {"mode": "incrementing", "incrementing.column.name": column}
    times = {"mode": "timestamp", "timestamp.column.name": column}
    properties = {"connection.url": each_mysql.url, "table.whitelist": "t", **(mode if is_number else times)}
    told = "information_schema.columns where table_name = 't' and table_schema = database() order by ordinal_position"
    asked = f"select column_name, column_type, nullif(column_default, 'NULL'), extra, column_comment from {told}"
    before = await each_mysql.rows(asked)
    (found,) = await source(properties).check(RealContext())
    statement = re.search(r"Mend it by: (ALTER .*); or set", found.message)
    assert statement is not None, found.message
    await each_mysql.rows(statement[1])
    assert list(await source(properties).check(RealContext())) == []
    assert await each_mysql.rows(asked) == before
    generated = source({**properties, **mode, "incrementing.column.name": "g"})
    (found,) = await generated.check(RealContext())
    assert "nullable. Set validate.non.null=false" in found.message


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nobody.invalid:1"])
@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "mariadb"])
async def test_a_server_that_does_not_answer_is_a_finding_and_may_come_back(scheme: str, address: str) -> None:
    """At validation the address is wrong; a task waits for it."""
    properties = {"connection.url": f"jdbc:{scheme}://{address}/shop?user=root", "mode": "bulk"}
    (found,) = await source(properties).check(RealContext())
    assert (found.key, found.is_error) == ("connection.url", True)
    assert "Is a server running there" in found.message
    with pytest.raises(Unreachable) as failed:
        await read_until(properties, bool)
    assert isinstance(failed.value, Retriable)
