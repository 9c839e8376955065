"""What a server, a login or a log lacks for ``MySqlCdcSource``: told at validation, and where it starts or reads."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from fetchers.mysql_cdc.fetcher import MySqlCdcSource
from fetchers.sdk import Fatal, Retriable
from fetchers.sdk.testing.context import FakeContext
from fetchers.toolkit.refusals import Unreachable
from tests.databases import MariaDb, MySql, own_database, running_mariadb, running_mysql
from tests.integration.mysql_cdc.test_binlog import has_row, read, rows_of, source

pytestmark = pytest.mark.integration
SECRET = "pa55-right"


@pytest.fixture(params=["mariadb", "mysql"])
def without_log(request: pytest.FixtureRequest, database_folder: Path) -> Iterator[MySql]:
    """A database in a server that keeps no log."""
    folder = database_folder / uuid.uuid4().hex
    folder.mkdir()
    server = request.getfixturevalue(f"{request.param}_server")  # it skips where there is none
    with ExitStack() as stack:
        if request.param == "mariadb":
            server = stack.enter_context(running_mariadb(folder, "--skip-log-bin", "--skip-log-slave-updates"))
        else:
            programs = request.getfixturevalue("mysql_programs")
            server = stack.enter_context(running_mysql(folder, programs, "--skip-log-bin"))
        made = stack.enter_context(own_database(MySql(server, "d")))
        made.run("create table t (id int primary key)")
        yield made


async def errors(connector: MySqlCdcSource) -> list[tuple[str, str]]:
    """Keys and words of what validation finds wrong."""
    return [(one.key, one.message) for one in await connector.check(FakeContext()) if one.is_error]


async def refused_at_both(connector: MySqlCdcSource, key: str, words: str) -> str:
    """Validation has this one error, whose words are handed back; a task fails with them."""
    ((found, message),) = await errors(connector)
    assert found == key
    assert re.search(words, message), message
    with pytest.raises(Fatal, match=words):
        await read(connector, FakeContext(), until=bool)
    return message


async def test_a_server_without_a_log_is_refused(without_log: MySql) -> None:
    """Which only its start can mend."""
    await refused_at_both(source(without_log), "database.hostname", "keeps no log: start it with log_bin=binlog")


@asynccontextmanager
async def set_globally(database: MySql, name: str, value: str) -> AsyncIterator[None]:
    """As long as this is open, for sessions that begin in it."""
    ((before,),) = await database.rows(f"select @@global.{name}")
    try:
        await database.rows(f"set global {name} = {value}")
        yield
    finally:
        await database.rows(f"set global {name} = {before}")


@pytest.mark.parametrize(
    ("name", "value", "mended"),
    [
        ("binlog_format", "STATEMENT", "ROW"),
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_image", "NOBLOB", "FULL"),
    ],
)
async def test_a_log_that_lacks_rows_or_columns_is_refused(
    each_mysql: MySql, name: str, value: str, mended: str
) -> None:
    """With the SQL, behind which nothing is wrong any more."""
    await each_mysql.rows("create table t (id int primary key)")
    async with set_globally(each_mysql, name, value):
        sql = f"SET GLOBAL {name} = {mended}"
        message = await refused_at_both(source(each_mysql), "database.hostname", f"{name} is {value}.*Run: {sql}")
        await each_mysql.rows(message.partition("Run: ")[2])
        assert await errors(source(each_mysql)) == []


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("binlog_format = STATEMENT", "SET GLOBAL binlog_format = ROW"),
        ("binlog_row_image = MINIMAL", "SET GLOBAL binlog_row_image = FULL"),
    ],
)
async def test_a_session_that_logs_in_another_way_is_found_in_the_log(
    each_mysql: MySql, setting: str, words: str
) -> None:
    """No setting of the server tells of it; the task stops there, and goes on behind nothing."""
    await each_mysql.rows("create table t (id int primary key, v int)", "insert into t values (1, 1)")
    context = FakeContext()
    await read(source(each_mysql, **{"snapshot.mode": "no_data"}), context, until=bool)
    await each_mysql.rows("insert into t values (2, 2)", f"set session {setting}", "update t set v = 3 where id = 1")
    assert await errors(source(each_mysql)) == []
    with pytest.raises(Fatal, match=words):
        await read(source(each_mysql), context, until=lambda _: False)
    with pytest.raises(Fatal, match=words):
        await read(source(each_mysql), context, until=lambda _: False)


FUNCTION = "create function f(n int) returns int deterministic begin insert into t values (n, n); return n; end"
HIDDEN = {
    "load": ("load data infile '{file}' into table t", MariaDb),
    "select": ("select f(7)", None),
    "do": ("do f(7)", None),
    "with": ("with w as (select 5 as n) update t, w set v = w.n", MySql),
    "set": ("set statement max_statement_time=9 for update t set v = 5", MariaDb),
    "comment": ("/*!40000 update */ t set v = 5", None),
}
"""Statements that change rows and do not begin with the word for it, and the server that alone has it."""


@pytest.mark.parametrize("name", HIDDEN)
async def test_a_change_that_is_told_as_any_statement_stops_the_task(each_mysql: MySql, name: str) -> None:
    """Passed over it would be lost: no row of it comes."""
    statement, only = HIDDEN[name]
    if only is not None and only is not type(each_mysql):
        return
    file = f"/tmp/headrace-{each_mysql.name}"
    await each_mysql.rows("create table t (id int primary key, v int)", "insert into t values (1, 1)", FUNCTION)
    context = FakeContext()
    await read(source(each_mysql, **{"snapshot.mode": "no_data"}), context, until=bool)
    try:
        if "{file}" in statement:
            await each_mysql.rows(f"select 7, 7 into outfile '{file}'")
        await each_mysql.rows("set session binlog_format = STATEMENT", statement.format(file=file))
        await each_mysql.rows("insert into t values (9, 9)")
        with pytest.raises(Fatal, match="SET GLOBAL binlog_format = ROW"):
            await read(source(each_mysql), context, until=has_row("t", 9))
    finally:
        Path(file).unlink(missing_ok=True)


async def test_each_right_that_is_missing_is_named(each_mysql: MySql) -> None:
    """What the SQL of the finding gives is enough to read the snapshot and the log."""
    user = f"'{each_mysql.name}'@'%'"
    await each_mysql.rows(
        "create table t (id int primary key)",
        "insert into t values (1)",
        f"create user {user} identified by '{SECRET}'",
        f"grant select on {each_mysql.name}.* to {user}",
    )
    keys = {"database.user": each_mysql.name, "database.password": SECRET, "event.form": "row"}
    rights = ["REPLICATION SLAVE", "BINLOG MONITOR"]
    if each_mysql.scheme == "mysql":
        rights = ["REPLICATION SLAVE", "REPLICATION CLIENT", "RELOAD"]
    try:
        sql = f"GRANT {', '.join(rights)} ON *.* TO {user}"
        message = await refused_at_both(source(each_mysql, **keys), "database.user", re.escape(f"Run: {sql}"))
        await each_mysql.rows(message.partition("Run: ")[2])
        for right in rights:
            await each_mysql.rows(f"revoke {right} on *.* from {user}")
            ((_, message),) = await errors(source(each_mysql, **keys))
            assert message.partition("Run: ")[2] == f"GRANT {right} ON *.* TO {user}"
            await each_mysql.rows(message.partition("Run: ")[2])
        assert await errors(source(each_mysql, **keys)) == []
        context = FakeContext()
        await read(source(each_mysql, **keys), context, until=has_row("t", 1))
        await each_mysql.rows("insert into t values (2)")
        rest = await read(source(each_mysql, **keys), context, until=has_row("t", 2))
        assert [value["id"] for _, _, value in rows_of(rest)] == [2]
    finally:
        await each_mysql.rows(f"drop user {user}")


@pytest.mark.parametrize(
    ("login", "key", "words"),
    [
        ("account lock", "database.user", "is locked.*ACCOUNT UNLOCK"),
        ("password expire", "database.password", "(?i)password.*ALTER USER … IDENTIFIED BY"),
        ("require ssl", "database.user", "Access denied.*must use TLS"),
        ("", "database.user", "Access denied.*ALTER USER … IDENTIFIED BY"),
    ],
)
async def test_a_login_that_is_refused_is_told_with_what_mends_it(
    each_mysql: MySql, login: str, key: str, words: str
) -> None:
    """Waiting mends none of it; a password that was named is not shown."""
    user = f"'{each_mysql.name}'@'%'"
    await each_mysql.rows(f"create user {user} identified by '{SECRET}' {login}")
    keys = {"database.user": each_mysql.name, "database.password": SECRET if login else "pa55-wrong"}
    try:
        assert "pa55" not in await refused_at_both(source(each_mysql, **keys), key, words)
    finally:
        await each_mysql.rows(f"drop user {user}")


@pytest.mark.parametrize("changed", [{"database.port": "1"}, {"database.hostname": "nobody.invalid"}])
async def test_a_server_that_does_not_answer_is_a_finding_and_may_come_back(
    mariadb: MariaDb, changed: dict[str, str]
) -> None:
    """At validation the address is wrong; a task waits for it."""
    ((key, message),) = await errors(source(mariadb, **changed))
    assert key == "database.hostname"
    assert "Is a server running there" in message
    with pytest.raises(Unreachable) as failed:
        await read(source(mariadb, **changed), FakeContext(), until=bool)
    assert isinstance(failed.value, Retriable)


async def test_a_mode_of_tls_that_the_server_has_not_is_refused(mariadb: MariaDb) -> None:
    """It was tried again for ever."""
    tls = source(mariadb, **{"database.ssl.mode": "required"})
    await refused_at_both(tls, "database.hostname", "WRONG_VERSION_NUMBER.*The server speaks no TLS")


async def test_tables_that_are_not_there_are_told(each_mysql: MySql) -> None:
    """As a warning: they may come."""
    await each_mysql.rows("create table t (id int primary key)")
    (found,) = await source(each_mysql, **{"table.include.list": f"{each_mysql.name}\\.nothing"}).check(FakeContext())
    assert (found.key, found.is_error) == ("table.include.list", False)
    assert "no such table yet" in found.message
