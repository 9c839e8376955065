# ruff: noqa: S608 - statements of tests
"""XA transactions on a real MariaDB and a real MySQL: rows come when they are committed, whoever fails in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import asyncmy.errors
import pytest

from fetchers.mysql_cdc import replay
from fetchers.mysql_cdc.fetcher import MySqlCdcSource
from fetchers.sdk import Fatal, Page
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MySql
from tests.integration.mysql_cdc.test_binlog import has_row, read, rows_of, source, state_of
from tests.integration.sql.reading import RealContext

pytestmark = pytest.mark.integration
KEYS = {"event.form": "row"}
CREATE = (
    "create table t (id int primary key, v varchar(200))",
    "create table u (id int primary key, v varchar(200))",
    "create table unwanted (id int primary key)",
)
CLIENTS, ROUNDS = 3, 25


def xa(xid: str, *statements: str, end: str = "prepare") -> list[str]:
    """A transaction up to ``XA PREPARE``, or ``XA COMMIT … ONE PHASE``."""
    last = {"prepare": [f"xa prepare {xid}"], "one phase": [f"xa commit {xid} one phase"]}[end]
    return [f"xa start {xid}", *statements, f"xa end {xid}", *last]


def ids(pages: Sequence[Page], table: str = "t") -> list[str]:
    """The keys of a table's records."""
    return [str(key) for topic, key, _ in rows_of(pages) if topic.endswith(f".{table}")]


async def begun(database: MySql, **keys: str) -> FakeContext:
    """A context of a connector that has begun with the log as it is now."""
    context = FakeContext()
    await read(source(database, **{**KEYS, "snapshot.mode": "no_data", **keys}), context, until=bool)
    return context


def whole(number: int, *before: Page) -> Callable[[list[Page]], bool]:
    """Whether a row of ``t`` is told, and the pages of other tables that were read with it; ``before``: by others."""

    def is_told(pages: list[Page]) -> bool:
        return bool(pages) and pages[-1].ends_transaction and key(number)[0] in ids([*before, *pages])

    return is_told


def key(*numbers: int) -> list[str]:
    """As ``ids`` tells them."""
    return [f'{{"id":{number}}}' for number in numbers]


@pytest.mark.parametrize("bytes_max", ["1000", "4000000"])
async def test_rows_come_when_they_are_committed(each_mysql: MySql, bytes_max: str) -> None:
    """Commit, rollback, one phase, another session, and other transactions between; from each page the rest comes.

    Those larger than the limit of bytes are read from the log a second time.
    """
    await each_mysql.rows(*CREATE)
    keys = {**KEYS, "max.batch.bytes": bytes_max, "table.exclude.list": r".*\.unwanted"}
    context = await begun(each_mysql)
    stored = dict(context.offsets)
    large = f"values {', '.join(f'({at}, repeat({chr(39)}x{chr(39)}, 100))' for at in range(100, 130))}"
    await each_mysql.rows(*xa("'large', 'b', 9", f"insert into t {large}", f"insert into u {large}"))
    await each_mysql.rows(*xa("'none'", "insert into unwanted values (1)"), "xa commit 'none'")
    await each_mysql.rows(*xa("'late'", "insert into t values (1, 'a')", "update t set v = 'b' where id = 1"))
    await each_mysql.rows(*xa("'lost'", "insert into t values (2, 'a')"))
    await each_mysql.rows("insert into t values (3, 'a')")
    await each_mysql.rows(*xa("'once'", "insert into t values (4, 'a')", end="one phase"))
    await each_mysql.rows(*xa("'nothing'", "insert into t values (5, 'a')")[:-1], "xa rollback 'nothing'")
    await each_mysql.rows("xa rollback 'lost'", "insert into t values (6, 'a')")
    await each_mysql.rows("xa commit 'late'", "insert into t values (7, 'a')", "xa commit 'large', 'b', 9")
    await each_mysql.rows("insert into t values (9, 'end')")
    pages = await read(source(each_mysql, **keys), context, until=whole(9))
    assert ids(pages) == key(3, 4, 6, 1, 1, 7, *range(100, 130), 9)
    assert ids(pages, "u") == key(*range(100, 130))
    assert {page.topic for page in pages if len(page)} == {f"shop.{each_mysql.name}.{name}" for name in "tu"}
    assert "prepared" not in pages[-1].offset
    for cut in range(len(pages) - 1):
        again = FakeContext(offsets=stored)
        for page in pages[: cut + 1]:
            again.commit(page)
        rest = await read(source(each_mysql, **keys), again, until=whole(9, *pages[: cut + 1]))
        for table in "tu":
            told = ids([*pages[: cut + 1], *rest], table)
            assert told == ids(pages, table), pages[cut].offset


async def test_server_and_reader_fail_between_prepare_and_commit(each_mysql: MySql) -> None:
    """The place in the offset is enough; what is ended after the restart comes or does not come."""
    await each_mysql.rows(*CREATE[:2])
    await each_mysql.rows("set global innodb_flush_log_at_trx_commit = 1")
    context = await begun(each_mysql)
    for number, xid in enumerate(("'a'", "'b'", "'c'"), 1):
        await each_mysql.rows(*xa(xid, f"insert into t values ({number}, 'x')"))
    await each_mysql.rows("insert into t values (8, 'x')")
    first = await read(source(each_mysql, **KEYS), context, until=has_row("t", 8))
    assert ids(first) == key(8)
    assert len(str(first[-1].offset["prepared"]).split('"pos"')) == 4
    each_mysql.server.kill()
    log = each_mysql.server.folder / "data" / str(first[-1].offset["file"])
    size = log.stat().st_size
    each_mysql.server.start()
    # What was read from the log has to be in it still, which is the server's part.
    told = (each_mysql.server.folder / "console").read_text(errors="replace")[-4000:]
    assert size >= int(str(first[-1].offset["pos"])), (first[-1].offset, size)
    assert log.stat().st_size == size, (first[-1].offset, size, log.stat().st_size, told)
    await each_mysql.rows("xa commit 'b'", "xa rollback 'a'", "insert into t values (9, 'x')")
    rest = await read(source(each_mysql, **KEYS), context, until=has_row("t", 9))
    assert ids(rest) == key(2, 9)
    await each_mysql.rows("xa commit 'c'", "insert into t values (10, 'x')")
    rest = await read(source(each_mysql, **KEYS), context, until=has_row("t", 10))
    assert ids(rest) == key(3, 10)
    assert "prepared" not in rest[-1].offset


async def test_the_log_is_not_begun_while_older_ones_are_prepared(each_mysql: MySql) -> None:
    """They are named; once they have ended, it begins. One that is prepared meanwhile is found in the log."""
    await each_mysql.rows(*CREATE[:2])
    await each_mysql.rows(*xa("'old'", "insert into t values (1, 'x')"))
    with pytest.raises(Fatal, match=r"XA COMMIT or XA ROLLBACK.*X'6f6c64',X'',1"):
        await read(source(each_mysql, **KEYS), FakeContext(), until=lambda _: False)
    await each_mysql.rows("xa commit 'old'")
    context = FakeContext()
    pages = await read(source(each_mysql, **KEYS), context, until=has_row("t", 1))
    assert ids(pages) == key(1)


async def _client(database: MySql, seed: int) -> None:
    """XA transactions that are ended by other sessions, later ones before earlier ones."""
    chance = random.Random(seed)
    waiting: list[str] = []
    for number in range(ROUNDS):
        xid, at = f"'c{seed}n{number}'", chance.randrange(50)
        connection: Any = await database.connect()
        try:
            async with connection.cursor() as cursor:
                own = seed * 100 + at
                for statement in xa(xid, f"replace into t values ({own}, 'n{number}')", f"delete from u where id={own}",
                                    f"insert into u values ({own}, 'n{number}')"):  # fmt: skip
                    await cursor.execute(statement)
            waiting.append(xid)
        except asyncmy.errors.Error:  # another prepared one of this client has the row
            pass
        finally:
            await connection.ensure_closed()
        if waiting and (chance.random() < 0.7 or number == ROUNDS - 1):
            ends = waiting if number == ROUNDS - 1 else [waiting[chance.randrange(len(waiting))]]
            for one in list(ends):
                waiting.remove(one)
                await database.rows(f"xa {chance.choice(['commit', 'commit', 'rollback'])} {one}")


async def test_the_state_rebuilt_is_the_tables(each_mysql: MySql, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot begins, and is read, while XA transactions are prepared, committed and rolled back all the time.

    On a slow machine a client needs longer for its last ones than a beginning waits for those that are prepared.
    """
    monkeypatch.setattr(replay, "WAIT_SECONDS_MAX", 300)
    await each_mysql.rows(*CREATE[:2])
    await each_mysql.rows("set global innodb_lock_wait_timeout = 1")
    context = RealContext()
    keys = {**KEYS, "snapshot.fetch.size": "20"}
    try:
        async with asyncio.TaskGroup() as group:
            for seed in range(CLIENTS):
                group.create_task(_client(each_mysql, seed))
            first = await read(source(each_mysql, **keys), context, until=lambda pages: bool(pages) and _is_over(pages))
    finally:  # other tests of this server have rows to wait for
        await each_mysql.rows("set global innodb_lock_wait_timeout = default")
    await each_mysql.rows("insert into t values (9999, 'end')")
    rest = await read(source(each_mysql, **keys), context, until=whole(9999))
    state = state_of(rows_of([*first, *rest]))
    for table in "tu":
        told = await each_mysql.rows(f"select id, v from {table} order by id")
        mine = [(str(row["id"]), row["v"]) for (topic, _), row in state.items() if topic.endswith(f".{table}")]
        assert sorted(mine, key=lambda one: int(one[0])) == [tuple(row) for row in told]


def _is_over(pages: list[Page]) -> bool:
    return not pages[-1].offset.get("snapshot")


async def test_without_the_right_to_list_a_commit_of_unknown_rows_stops_the_task(mysql: MySql) -> None:
    """Rather than that they are missing; what is prepared behind the beginning is right without it."""
    await mysql.rows(*CREATE[:2])
    user = f"poor{random.randrange(10**6)}"
    await mysql.rows(
        f"create user {user} identified by ''",
        f"grant select, replication slave, replication client, reload on *.* to {user}",
    )
    await mysql.rows(*xa("'old'", "insert into t values (1, 'x')"))
    keys = {**KEYS, "database.user": user}
    context = await begun(mysql, **keys)
    await mysql.rows(*xa("'new'", "insert into t values (2, 'x')"), "xa commit 'new'", "insert into t values (9, 'x')")
    connector: MySqlCdcSource = source(mysql, **keys)
    assert ids(await read(connector, context, until=has_row("t", 9))) == key(2, 9)
    await mysql.rows("xa commit 'old'")
    with pytest.raises(Fatal, match="XA_RECOVER_ADMIN"):
        await read(source(mysql, **keys), context, until=lambda _: False)
