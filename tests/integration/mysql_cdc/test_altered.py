# ruff: noqa: S608 - tables and rows are this test's own
"""Stretches of tables that are being altered or locked, on a real MariaDB and a real MySQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from fetchers.mysql_cdc.snapshot import log_end, tables_at, tables_of
from fetchers.mysql_cdc.stretches import LATER
from fetchers.sdk import Page, SystemClock
from fetchers.sdk.testing.context import FakeContext
from fetchers.toolkit.mysql import MySqlConnection
from fetchers.toolkit.table_reading import UnseenTableError
from tests.databases import MariaDb, MySql
from tests.integration.mysql_cdc.test_binlog import SECONDS_MAX, has_row, read, rows_of, source
from tests.integration.mysql_cdc.test_stretches import is_read

pytestmark = pytest.mark.integration


async def _wait_for_lock(database: MySql, statement: str) -> None:
    """Return when such a statement waits until it may alter its table."""
    asked = (
        f"select 1 from information_schema.processlist where db = '{database.name}' and info like '{statement}' "
        "and state = 'Waiting for table metadata lock'"
    )
    while not await database.rows(asked):
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _altered(database: MySql, change: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """``change`` of the table t waits for a transaction that has read it, up to a call of what this gives."""
    reader = await database.connect(autocommit=False)
    async with reader.cursor() as cursor:
        await cursor.execute("select * from t limit 1")
        await cursor.fetchall()
    async with asyncio.TaskGroup() as group:
        altering = group.create_task(database.rows(f"alter table t {change}"), name="alter")

        async def over() -> None:
            await reader.ensure_closed()
            await altering

        try:
            await _wait_for_lock(database, "alter table t %")
            yield over
        finally:
            await over()


async def test_the_log_goes_on_while_a_stretch_waits_for_an_alter(each_mysql: MySql) -> None:
    """Then its rows have the columns that the table has now; none is lost, and none comes twice."""
    name, count = each_mysql.name, 30
    await each_mysql.rows(
        "create table t (id int primary key, v int)",
        "insert into t values " + ", ".join(f"({at}, 0)" for at in range(count)),
        "create table u (id int primary key)",
    )
    keys = {"snapshot.fetch.size": "4", "event.form": "row"}
    again = {**keys, "snapshot.request.id": "1", "snapshot.request.tables": f"{name}\\.t"}
    context = FakeContext(clock=SystemClock())  # type: ignore[arg-type]
    await read(source(each_mysql, **keys), context, until=lambda _: is_read(context))
    pages = list[Page]()
    async with asyncio.timeout(SECONDS_MAX), aclosing(source(each_mysql, **again).fetch(context)) as stream:

        async def read_on(is_enough: Callable[[Page], bool]) -> None:
            async for page in stream:
                pages.append(page)
                context.commit(page)
                if is_enough(page):
                    return

        await read_on(lambda page: str(page.topic).endswith(".t") and len(page) > 0)
        async with _altered(each_mysql, "add column x int not null default 5") as over:
            await each_mysql.rows("insert into u values (1)")
            await read_on(lambda page: str(page.topic).endswith(".u"))
            begun = [value for topic, _, value in rows_of(pages) if topic.endswith(".t")]
            await over()
        await read_on(lambda _: is_read(context))
        await each_mysql.rows(f"insert into t values ({count}, 1, 6)")
        await read_on(lambda _: has_row("t", count)(pages))
    rows = [value for topic, _, value in rows_of(pages) if topic.endswith(".t")]
    assert [set(value) & {"x"} for value in rows] == [set()] * len(begun) + [{"x"}] * (len(rows) - len(begun))
    assert 0 < len(begun) < count
    assert {value["id"]: value["x"] for value in rows[len(begun) :]}.items() >= {(count, 6), (count - 1, 5)}
    assert [value["id"] for value in rows] == list(range(count + 1))


async def test_a_stretch_begins_anew_where_its_table_was_altered(
    each_mysql: MySql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what it waits for, and is read later: its rows have the columns that the table has then."""
    await each_mysql.rows("create table t (id int primary key, v int)", "insert into t values (1, 2)")
    connector, context = source(each_mysql), FakeContext()
    connection = await connector._opened()
    stretches = connector._stretches(await tables_at(connection, connector.config), context)
    begin = stretches._begin

    async def overtaken(connection: MySqlConnection) -> str:
        waits_for = await begin(connection)
        await each_mysql.rows("alter table t change w x varchar(9)")
        return waits_for

    async def after() -> list[Any]:
        found = await stretches.stretch(table, ())
        assert found is not None
        return [found.waits_for, *(value["after"] for _, _, value in rows_of([found.page]))]

    try:
        (table,) = await stretches.tables()
        stretches.told = await log_end(connection)
        async with asyncio.timeout(SECONDS_MAX), _altered(each_mysql, "change v w bigint") as over:
            (lock,) = await after()
            assert lock.startswith("a lock")
            await over()
        assert await after() == [lock]
        await context.clock.advance(LATER.cap_seconds * 2)
        assert await after() == ["", {"id": 1, "w": 2}]
        with monkeypatch.context() as patch:
            patch.setattr(stretches, "_begin", overtaken)
            (altered,) = await after()
        assert altered.startswith("a new beginning")
        await context.clock.advance(LATER.cap_seconds * 2)
        assert await after() == ["", {"id": 1, "x": "2"}]
        await each_mysql.rows("drop table t")
        assert await stretches.stretch(table, ()) is None
    finally:
        stretches.close()
        connection.close()


async def test_without_gtids_a_stretch_waits_for_the_lock_without_holding_writers_up(mysql: MySql) -> None:
    """It asks for it no more than now and then: who asks stops all writers."""
    await mysql.rows("create table t (id int primary key)", "insert into t values (1)", "create table u (id int)")
    connector, context = source(mysql, **{"snapshot.lock.timeout.ms": "1000"}), FakeContext()
    connection, writer = await connector._opened(), await mysql.connect()
    stretches = connector._stretches(await tables_at(connection, connector.config), context)
    asked, table = "show global status like 'Com_flush'", f"{mysql.name}.t"
    await mysql.rows("set global gtid_mode = ON_PERMISSIVE")
    try:
        await stretches.tables()
        stretches.told = await log_end(connection)
        async with writer.cursor() as cursor:
            await cursor.execute("lock tables u write")
        async with asyncio.timeout(SECONDS_MAX):
            held = await stretches.stretch(table, ())
            count = await mysql.rows(asked)
            again = await stretches.stretch(table, ())
            assert await mysql.rows(asked) == count
            await mysql.rows("insert into t values (2)")
        assert held is not None
        assert again is not None
        assert held.waits_for.startswith("a lock")
        assert again.waits_for == held.waits_for
        await writer.ensure_closed()
        await context.clock.advance(LATER.cap_seconds * 2)
        seen = await stretches.stretch(table, ())
        assert seen is not None
        assert (len(seen.page), seen.waits_for) == (2, "")
    finally:
        await writer.ensure_closed()
        await mysql.rows("set global gtid_mode = ON")
        stretches.close()
        connection.close()


@asynccontextmanager
async def _hidden(mariadb: MariaDb) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """MariaDB cannot look at the table m, which is being renamed to n, up to a call of what this gives."""
    reader = await mariadb.connect(autocommit=False)
    async with reader.cursor() as cursor:
        await cursor.execute("select * from z")
    async with asyncio.TaskGroup() as group:
        renaming = group.create_task(mariadb.rows("rename table m to n, z to y"), name="rename")

        async def over() -> None:
            await reader.ensure_closed()
            await renaming

        try:
            await _wait_for_lock(mariadb, "rename table %")
            yield over
        finally:
            await over()


@pytest.mark.parametrize("views", [0, 80])
async def test_a_table_that_is_being_renamed_is_not_taken_for_one_that_is_gone(mariadb: MariaDb, views: int) -> None:
    """MariaDB leaves it out of its catalogue, with a warning, when it cannot be looked at in time; one of many."""
    await mariadb.rows("create table m (id int primary key)", "create table z (id int primary key)")
    await mariadb.rows("create table b (id int)", *(f"create view b{at} as select id from b" for at in range(views)))
    await mariadb.rows("drop table b")
    connection = await source(mariadb)._opened()
    try:
        async with asyncio.timeout(SECONDS_MAX), _hidden(mariadb):
            await connection.rows("SET SESSION lock_wait_timeout = 1")
            with pytest.raises(UnseenTableError, match="could not be looked at in time"):
                await tables_of(connection, lambda name: name.startswith(mariadb.name))
        found = await tables_of(connection, lambda name: name.startswith(mariadb.name))
        assert [table.table for table in found] == ["n", "y"]
    finally:
        connection.close()


async def test_the_log_goes_on_while_tables_cannot_be_looked_at(mariadb: MariaDb) -> None:
    """Then it is known which there are; no table is taken for one that is gone, or was never read."""
    await mariadb.rows("create table u (id int primary key)")
    for table in ("m", "z"):
        await mariadb.rows(f"create table {table} (id int primary key)", f"insert into {table} values (1)")
    context, pages = FakeContext(clock=SystemClock()), list[Page]()  # type: ignore[arg-type]
    keys = {"table.poll.interval.ms": "20"}
    await read(source(mariadb, **keys), context, until=lambda _: is_read(context))
    async with asyncio.timeout(60.0), aclosing(source(mariadb, **keys).fetch(context)) as stream:

        async def read_on(is_enough: Callable[[Page], bool]) -> None:
            async for page in stream:
                pages.append(page)
                context.commit(page)
                if is_enough(page):
                    return

        await mariadb.rows("insert into u values (1)")
        await read_on(lambda page: str(page.topic).endswith(".u"))
        async with _hidden(mariadb) as over:
            for number in range(2, 5):
                await mariadb.rows(f"insert into u values ({number})")
                await read_on(lambda page: str(page.topic).endswith(".u"))
            await over()
        await read_on(lambda _: is_read(context) and has_row("y", 1)(pages))
    told = [(topic.rpartition(".")[2], value["op"]) for topic, _, value in rows_of(pages)]
    assert sorted(told) == [("n", "r"), *[("u", "c")] * 4, ("y", "r")]
