# ruff: noqa: S608 - statements of tests
"""``MySqlCdcSource`` goes on at another server: a real replica, whose files and positions are other ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fetchers.sdk import Fatal
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MariaDb, MySql, running_mariadb, running_mysql
from tests.integration.mysql_cdc.test_binlog import has_row, read, rows_of, source

pytestmark = pytest.mark.integration
SECONDS_MAX = 300.0
LOOK_SECONDS = 0.05
OTHER = 2


@pytest.fixture(params=["mariadb", "mysql"])
def pair(request: pytest.FixtureRequest, database_folder: Path) -> Iterator[tuple[MySql, MySql]]:
    """The test's database, and the same one on another server, which is empty and follows nothing yet."""
    first: MySql = request.getfixturevalue(request.param)
    if isinstance(first, MariaDb):
        running = running_mariadb(database_folder, server_id=OTHER)
    else:
        running = running_mysql(database_folder, request.getfixturevalue("mysql_programs"), server_id=OTHER)
    with running as server:
        second = type(first)(server, first.name)
        asyncio.run(_begin_alike(first, second))
        yield first, second


async def _begin_alike(first: MySql, second: MySql) -> None:
    """The second knows all that the first had done: a server that was killed by another test may give no more of it."""
    is_mariadb = isinstance(first, MariaDb)
    done, known = ("gtid_binlog_pos", "gtid_slave_pos") if is_mariadb else ("gtid_executed", "gtid_purged")
    ((place,),) = await first.rows(f"select @@global.{done}")
    await second.rows(
        f"set global {known} = '{place}'",
        "set session sql_log_bin = 0",
        f"create database {second.name}",
        database=None,
    )


async def follow(first: MySql, second: MySql) -> None:
    """Make the second a replica of the first."""
    is_mariadb = isinstance(first, MariaDb)
    user = "create user if not exists replica identified by 'replica'"
    await first.rows(user, "grant replication slave on *.* to replica")
    by = "master_use_gtid=slave_pos" if is_mariadb else "master_auto_position=1"
    await second.rows(
        f"change master to master_host='127.0.0.1', master_port={first.server.port}, master_user='replica', "
        f"master_password='replica', {by}",
        "start slave",
        database=None,
    )


async def wait_for(second: MySql, number: int) -> None:
    """Return when the second has this row of ``t``."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            found = await second.rows(
                f"select count(*) from information_schema.tables where table_schema='{second.name}'", database=None
            )
            if int(found[0][0]) and await second.rows(f"select 1 from t where id = {number}"):
                return
            await asyncio.sleep(LOOK_SECONDS)


async def _purge(server: MySql, file: str) -> None:
    """Remove the logs before a file; the server keeps what it still sends to a reader that has hung up unnoticed."""
    async with asyncio.timeout(SECONDS_MAX):
        while (await server.rows("show binary logs", database=None))[0][0] != file:
            await server.rows("flush binary logs", f"purge binary logs to '{file}'")
            await asyncio.sleep(LOOK_SECONDS)


async def test_a_promoted_replica_is_gone_on_from(pair: tuple[MySql, MySql]) -> None:
    """By GTIDs, without gap or repeat, from any place; a server that lacks what was read, or what was not, is fatal."""
    first, second = pair
    create = "create table t (id int primary key, v int)"
    await first.rows("flush binary logs", create, "insert into t values (1, 0), (2, 0)")
    await second.rows("flush binary logs", "flush binary logs", database=None)
    context = FakeContext()
    await read(source(first), context, until=lambda pages: bool(pages) and "tables_read" in pages[-1].offset)
    await follow(first, second)
    await first.rows("update t set v = 1", "insert into t values (3, 1)")
    await read(source(first), context, until=has_row("t", 3))
    await first.rows("update t set v = 2 where id < 3", "insert into t values (4, 2)")
    await wait_for(second, 4)
    await second.rows("stop slave", "reset slave all", database=None)
    stored = dict(context.offsets)
    await second.rows("insert into t values (5, 5)", "flush binary logs", "delete from t where id = 1")
    await second.rows("insert into t values (6, 6)")
    pages = await read(source(second), context, until=has_row("t", 6))
    records = [(value["op"], key) for _, key, value in rows_of(pages) if value]
    expected = [("u", 1), ("u", 2), ("c", 4), ("c", 5), ("d", 1), ("c", 6)]
    assert records == [(operation, f'{{"id":{number}}}') for operation, number in expected]
    for cut in range(len(pages) - 1):
        again = FakeContext(offsets=stored)
        for page in pages[: cut + 1]:
            again.commit(page)
        rest = await read(source(second), again, until=has_row("t", 6))
        assert [(value["op"], key) for _, key, value in rows_of([*pages[: cut + 1], *rest]) if value] == records
    await first.rows("insert into t values (7, 7)")  # which the other one never has
    ahead = FakeContext(offsets=stored)
    await read(source(first), ahead, until=has_row("t", 7))
    with pytest.raises(Fatal, match="does not have"):
        await read(source(second), ahead, until=lambda _: False)
    ((file, *_),) = (await second.rows("show master status"))[:1]
    await _purge(second, file)
    with pytest.raises(Fatal, match="removed"):
        await read(source(second), FakeContext(offsets=stored), until=lambda _: False)
    bare = {name: value for name, value in stored[("server", "shop"),].items() if name != "gtids"}
    with pytest.raises(Fatal, match="no GTIDs are stored"):
        await read(source(second), FakeContext(offset=bare, partition={"server": "shop"}), until=lambda _: False)
    inside = {**stored[("server", "shop"),], "delivered": 900}
    with pytest.raises(Fatal, match="part of a transaction"):
        await read(source(second), FakeContext(offset=inside, partition={"server": "shop"}), until=lambda _: False)


async def test_a_server_that_went_back_in_time_is_not_gone_on_from(mysql: MySql) -> None:
    """As one of an older backup, under the same UUID: its log reaches beyond the stored place, and has other things."""
    await mysql.rows("reset master", "create table t (id int primary key, v text)")
    context = FakeContext()
    await read(source(mysql, **{"snapshot.mode": "no_data"}), context, until=bool)
    await mysql.rows("insert into t values (1, 'a')")
    await read(source(mysql), context, until=has_row("t", 1))
    await mysql.rows("reset master", "insert into t values (2, repeat('b', 5000))")
    with pytest.raises(
        Fatal, match=r"does not know of the transactions .* any more.*begun anew.*snapshot\.mode=initial"
    ):
        await read(source(mysql), context, until=lambda _: False)
