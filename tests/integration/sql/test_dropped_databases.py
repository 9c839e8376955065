# ruff: noqa: S608 - statements of tests
"""What a test leaves in a server that others use after it: nothing, also where it failed half-way."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import asyncmy.errors
import pytest

from tests.databases import DatabaseServer, MariaDb, MySql, Postgres, own_database, own_postgres

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kind", [MariaDb, MySql])
async def test_neither_a_prepared_transaction_nor_a_session_keeps_a_database(
    request: pytest.FixtureRequest, kind: type[MySql]
) -> None:
    """``DROP DATABASE`` waits for whoever has used one of its tables, by default for a year."""
    server = request.getfixturevalue(f"{kind.scheme}_server")
    sessions: list[Any] = []
    with ExitStack() as stack:
        database = await asyncio.to_thread(stack.enter_context, own_database(kind(server, "test_left")))
        await database.rows("create table t (id int primary key)", "create table u (id int primary key)")
        for xid in ("'left'", "'right', 'b', 7"):
            sessions.append(await database.connect())
            async with sessions[-1].cursor() as cursor:
                for statement in (f"xa start {xid}", f"insert into t values ({len(sessions)})", f"xa end {xid}"):
                    await cursor.execute(statement)
                await cursor.execute(f"xa prepare {xid}")
        await sessions[0].ensure_closed()
        sessions.append(await database.connect(autocommit=False))
        async with sessions[-1].cursor() as cursor:
            await cursor.execute("select * from u")
        await asyncio.to_thread(stack.close)
    assert await database.rows("xa recover", database=None) == []
    assert await database.rows("show databases like 'test_left'", database=None) == []
    for session in sessions[1:]:
        session.close()


def test_neither_keeps_one_of_postgresql(postgres_server: DatabaseServer) -> None:
    """A prepared transaction would forbid the drop, and hold up the horizon of all databases of the server."""
    with own_postgres(Postgres(postgres_server, "test_left")) as database:
        database.run("create table t (id int primary key)")
        with database.connect(autocommit=False) as session, session.cursor() as cursor:
            cursor.execute("insert into t values (1)")
            cursor.execute("prepare transaction 'it''s left'")
    with database.connect(name="postgres") as session, session.cursor() as cursor:
        cursor.execute("select gid from pg_prepared_xacts")
        assert cursor.fetchall() == []
        cursor.execute("select datname from pg_database where datname = 'test_left'")
        assert cursor.fetchall() == []


async def test_a_prepared_transaction_is_ended_once_its_session_has_gone(each_mysql: MySql) -> None:
    """Which is a moment after it was closed; until then nobody else may end it."""
    await each_mysql.rows("create table t (id int primary key)")
    session, other = await each_mysql.connect(), await each_mysql.connect()
    async with session.cursor() as cursor:
        for statement in ("xa start 'late'", "insert into t values (1)", "xa end 'late'", "xa prepare 'late'"):
            await cursor.execute(statement)
    async with asyncio.TaskGroup() as group:
        ended = group.create_task(each_mysql.rows("xa commit 'late'"))
        async with other.cursor() as cursor:
            for _ in range(20):  # the task has asked meanwhile
                with pytest.raises(asyncmy.errors.Error, match="XAER_NOTA"):
                    await cursor.execute("xa commit 'late'")
        assert not ended.done()
        await session.ensure_closed()
    await other.ensure_closed()
    assert await each_mysql.rows("select id from t") == [("1",)]
