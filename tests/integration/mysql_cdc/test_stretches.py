# ruff: noqa: S608 - tables and rows are this test's own
"""Snapshots of ``MySqlCdcSource`` beside its log, on real servers: broken off, of added tables, on request."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from contextlib import aclosing

import pytest

from fetchers.mysql_cdc.places import GtidSet
from fetchers.mysql_cdc.snapshot import log_end, tables_at
from fetchers.sdk import Page, SystemClock
from fetchers.sdk.context import partition_key
from fetchers.sdk.testing.context import FakeContext
from metrics.events import TableSnapshotMoved
from tests.databases import MySql
from tests.integration.mysql_cdc.test_binlog import has_row, read, rows_of, source

pytestmark = pytest.mark.integration
SECONDS_MAX = 300.0
ROWS = 600
CHANGES = 12
"""So many transactions are allowed to be written for each time that the reader is made anew: fewer than fill the pages
that it hands over on average, or else a slow reader would never get from the log to the rows of the table."""
PROGRESS = partition_key({"server": "shop", "snapshot": "tables"})
KEYS = {"snapshot.fetch.size": "20", "table.poll.interval.ms": "50", "max.batch.bytes": "3000"}
SET_OF_64 = f"set({', '.join(repr(f'm{number}') for number in range(64))})"
KEYED = {
    "int": [str(number) for number in (-5, 0, 7, 100, 2**31 - 1)],
    "bigint unsigned": ["0", "9", "18446744073709551615"],
    "decimal(30,10)": ["-1.5", "0.0000000001", "12345678901234567890"],
    "double": ["-1e300", "-0.1", "1e-300", "0.1", "1.7976931348623157e308"],
    "float": ["-1.1", "0.1", "1.1", "3.4e38"],
    "varchar(20)": ["''", "'\\''", "'a'", "'B'", "'b c'", "'ü'", "'😀'", "'\\\\'", "'%s'"],
    "varchar(9) character set latin1": ["'A'", "'é'", "'€'", "'z'"],
    "varbinary(4)": ["x''", "x'00'", "x'0001'", "x'27'", "x'ff'"],
    "binary(3)": ["x'00'", "x'61'", "x'ffff'"],
    "enum('z','a','m')": ["'z'", "'a'", "'m'"],
    "set('z','a')": ["''", "'z'", "'a'", "'z,a'"],
    SET_OF_64: [str(number) for number in (2**53, 2**53 + 1, 2**63, 2**63 + 1, 2**64 - 1)],
    "bit(9)": ["0", "5", "511"],
    "year": ["0", "1999", "2024"],
    "date": ["'0000-00-00'", "'1000-01-01'", "'2024-02-29'", "'9999-12-31'"],
    "datetime(6)": ["'0000-00-00'", "'2024-02-29 01:02:03.000004'", "'9999-12-31 23:59:59.999999'"],
    "timestamp(2)": ["'0000-00-00'", "'2024-03-31 02:30:00.01'", "'2038-01-19 03:14:07'"],
    "time(3)": ["'-838:59:59'", "'-00:00:00.001'", "'00:00:00'", "'838:59:59'"],
}
"""Types of keys, with values that are all different."""


def is_read(context: FakeContext) -> bool:
    """Whether no table waits to be read."""
    return context.offsets.get(PROGRESS, {}).get("tables_waiting") == "[]"


async def _change(database: MySql, chance: random.Random, number: int) -> None:
    """One transaction: rows of all parts of the table get a newer version, go, come, change their keys."""
    versions = f"set @v = {number} * 1000"
    low = chance.randrange(ROWS)
    statements = [
        f"update t set v = (@v := @v + 1) where id between {low} and {low + 5}",
        f"delete from t where id = {chance.randrange(ROWS)}",
        f"insert into t values ({chance.randrange(ROWS)}, @v := @v + 1) on duplicate key update v = (@v := @v + 1)",
        f"update ignore t set id = id + {ROWS}, v = (@v := @v + 1) where id = {chance.randrange(ROWS)}",
    ]
    end = chance.choice(["commit", "commit", "commit", "rollback"])
    await database.rows(versions, "begin", *chance.choices(statements, k=3), end)


class Shown:
    """What a consumer of the topic has seen. Versions of all rows only grow."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.state: dict[int, int] = {}
        self.newest: dict[int, int] = {}
        self.read: list[int] = []
        """Keys of rows that a snapshot showed, in their order."""

    def take(self, pages: list[Page]) -> None:
        """No row is older than it was shown before."""
        for topic, key, value in rows_of(pages):
            if topic != self.topic:
                continue
            number = int(str(key).removeprefix('{"id":').removesuffix("}"))
            if value is None or value["op"] == "d":
                self.state.pop(number, None)
                continue
            version = value["after"]["v"]
            assert version >= self.newest.get(number, -1), f"row {number} is shown older than before"
            if value["op"] == "r":
                self.read.append(number)
            self.state[number] = self.newest[number] = version


def _after(count: int, context: FakeContext) -> Callable[[list[Page]], bool]:
    return lambda pages: sum(map(bool, map(len, pages))) >= count or is_read(context)


def _is_of(pages: list[Page], table: str) -> bool:
    return bool(pages) and str(pages[-1].topic).endswith(f".{table}")


async def _write(database: MySql, chance: random.Random, allowed: asyncio.Semaphore, over: asyncio.Event) -> None:
    """As many changes as are allowed: a writer without a bound writes more, on a slow machine, than is ever read."""
    number = 0
    while not over.is_set():
        number += 1
        await _change(database, chance, number)
        await allowed.acquire()


def _allow(allowed: asyncio.Semaphore) -> None:
    for _ in range(CHANGES):
        allowed.release()


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_snapshot_that_is_killed_goes_on_and_shows_nothing_stale_or_twice(each_mysql: MySql, seed: int) -> None:
    """A writer goes on as long as rows are read, by a reader that is made anew again and again; then all once more."""
    await each_mysql.rows(
        "create table t (id int primary key, v bigint not null)",
        "insert into t values " + ", ".join(f"({at}, 0)" for at in range(ROWS)),
    )
    shown, context, chance = Shown(f"shop.{each_mysql.name}.t"), FakeContext(clock=SystemClock()), random.Random(seed)  # type: ignore[arg-type]
    allowed, over = asyncio.Semaphore(0), asyncio.Event()
    shown.take(await read(source(each_mysql, **KEYS), context, until=_after(3, context)))
    assert not is_read(context)
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        group.create_task(_write(each_mysql, chance, allowed, over), name="writer")
        try:
            while not is_read(context):
                _allow(allowed)
                until = _after(chance.randint(1, 6), context)
                shown.take(await read(source(each_mysql, **KEYS), context, until=until))
            assert len(shown.read) == len(set(shown.read)), "a row of the snapshot came twice"
            assert sorted(shown.read) == shown.read, "a part that was read came again"
            shown.read.clear()
            again = {**KEYS, "snapshot.request.id": "again", "snapshot.request.tables": f"{each_mysql.name}\\.t"}
            while context.offsets[PROGRESS].get("request") != "again" or not is_read(context):
                _allow(allowed)
                until = _after(chance.randint(1, 9), context) if "request" in context.offsets[PROGRESS] else bool
                shown.take(await read(source(each_mysql, **again), context, until=until))
        finally:
            over.set()
            _allow(allowed)
    await each_mysql.rows("create table marker (id int primary key)", "insert into marker values (1)")
    shown.take(await read(source(each_mysql, **KEYS), context, until=has_row("marker", 1)))
    told = await each_mysql.rows("select id, v from t")
    assert shown.state == {int(number): int(version) for number, version in told}
    assert sorted(set(shown.read)) == shown.read
    assert len(shown.read) > ROWS // 4


async def test_keys_of_every_type_are_gone_on_from(each_mysql: MySql) -> None:
    """Each row once and in order, one a stretch; alone and as the second column of a key."""
    keys = {
        **KEYS,
        "table.poll.interval.ms": "5000",  # there are many tables to look at
        "snapshot.fetch.size": "1",
        "event.form": "row",
        "bigint.unsigned.handling.mode": "precise",
        "snapshot.request.id": "1",
    }
    for at, (kind, values) in enumerate(KEYED.items()):
        rows = ", ".join(f"({number}, {value}, {place})" for number in (1, 2) for place, value in enumerate(values))
        create = f"create table k{at} (a int, k {kind} not null, n int, primary key (a, k)) default charset utf8mb4"
        single = f"create table s{at} (k {kind} not null primary key, n int) default charset utf8mb4"
        fill = f"insert into s{at} select k, n from k{at} where a = 1"
        await each_mysql.rows("set sql_mode=''", create, f"insert into k{at} values {rows}", single, fill)
    context = FakeContext(clock=SystemClock())  # type: ignore[arg-type]
    await read(source(each_mysql, **keys, **{"snapshot.mode": "no_data"}), context, until=bool)

    def is_over(_: list[Page]) -> bool:
        return is_read(context) and context.offsets[PROGRESS].get("request") == "1"

    pages = await read(source(each_mysql, **keys), context, until=is_over)
    records = rows_of(pages)
    for at, (kind, values) in enumerate(KEYED.items()):
        for table, order in ((f"s{at}", "k"), (f"k{at}", "a, k")):
            told = [int(number) for (number,) in await each_mysql.rows(f"select n from {table} order by {order}")]
            own = [value["n"] for topic, _, value in records if topic == f"shop.{each_mysql.name}.{table}"]
            assert (kind, own) == (kind, told)
            assert set(own) == set(range(len(values)))


ALTERED = {
    "enum turned": ("enum('a','b','c','d')", "enum('d','c','b','a')", ["'a'", "'b'", "'c'", "'d'"]),
    "enum without a value": ("enum('a','b','c','d')", "enum('a','b','c')", ["'a'", "'b'", "'c'", "'d'"]),
    "set turned": ("set('a','b')", "set('b','a')", ["''", "'a'", "'b'", "'a,b'"]),
    "other collation": (
        "varchar(9) collate utf8mb4_bin",
        "varchar(9) collate utf8mb4_general_ci",
        ["'B'", "'D'", "'a'", "'c'"],
    ),
    "other type": ("int", "varchar(9)", ["8", "9", "10", "11"]),
    "wider": ("int", "bigint", ["8", "9", "10", "11"]),
    "longer": ("varchar(9)", "varchar(99)", ["'a'", "'b'", "'c'", "'d'"]),
}
"""What becomes of a key after two of its values were read; those in which it keeps their order are no reason to begin
anew."""
KEPT = {"wider", "longer"}


@pytest.mark.parametrize("case", ALTERED)
async def test_a_key_whose_order_is_altered_is_read_anew(each_mysql: MySql, case: str) -> None:
    """Behind its last place the table would have other rows than those that were not read yet."""
    before, after, values = ALTERED[case]
    rows = ", ".join(f"({value}, {number})" for number, value in enumerate(values))
    await each_mysql.rows(
        f"create table t (k {before} not null primary key, n int) default charset utf8mb4",
        f"insert into t values {rows}",
    )
    keys, context = {"snapshot.fetch.size": "2", "event.form": "row"}, FakeContext(clock=SystemClock())  # type: ignore[arg-type]
    first = await read(source(each_mysql, **keys), context, until=bool)
    await each_mysql.rows("set sql_mode = ''", f"alter table t modify k {after} not null")
    rest = await read(source(each_mysql, **keys), context, until=lambda _: is_read(context))
    own = [[value["n"] for _, _, value in rows_of(pages)] for pages in (first, rest)]
    assert own[0] == [0, 1]
    assert sorted(own[1]) == ([2, 3] if case in KEPT else [0, 1, 2, 3])


async def test_a_key_of_other_columns_is_read_anew(each_mysql: MySql) -> None:
    """As many as before, in another order."""
    await each_mysql.rows(
        "create table t (a int, b int, primary key (a, b))", "insert into t values (1, 4), (2, 3), (3, 2), (4, 1)"
    )
    keys, context = {"snapshot.fetch.size": "2", "event.form": "row"}, FakeContext(clock=SystemClock())  # type: ignore[arg-type]
    await read(source(each_mysql, **keys), context, until=bool)
    await each_mysql.rows("alter table t drop primary key, add primary key (b, a)")
    rest = await read(source(each_mysql, **keys), context, until=lambda _: is_read(context))
    assert [value["a"] for _, _, value in rows_of(rest)] == [4, 3, 2, 1]


async def test_tables_are_added_and_asked_for_while_the_log_is_read(each_mysql: MySql) -> None:
    """One with rows that the log has not, one without a key that waits for a restart; a request by a changed config."""
    name = each_mysql.name
    await each_mysql.rows("create table t (id int primary key, v int)", "insert into t values (1, 0)")
    context = FakeContext(clock=SystemClock())  # type: ignore[arg-type]
    await read(source(each_mysql, **KEYS), context, until=lambda _: is_read(context))
    connector, found = source(each_mysql, **KEYS), list[Page]()
    async with asyncio.timeout(SECONDS_MAX), aclosing(connector.fetch(context)) as stream:
        await each_mysql.rows("update t set v = 1")
        async for page in stream:
            context.commit(page)
            if has_row("t", 1)([page]):
                break
        await each_mysql.rows(
            "set session sql_log_bin = 0",  # so that its rows come by a snapshot, or not at all
            "create table later (id int primary key)",
            "insert into later values (1), (2)",
            "create table keyless (id int)",
            "insert into keyless values (7)",
        )
        async for page in stream:
            found.append(page)
            context.commit(page)
            if any(value and value["op"] == "r" for _, _, value in rows_of([page])):
                break
        changed = {"snapshot.request.id": "1", "snapshot.request.tables": f"{name}\\.later"}
        assert connector.takes_over({"snapshot.request.id"})
        assert not connector.takes_over({"snapshot.request.id", "table.include.list"})
        await connector.apply_config(source(each_mysql, **KEYS, **changed).config)
        async for page in stream:
            found.append(page)
            context.commit(page)
            if page.offset.get("request") == "1" and len(page):
                break
    later = [(value["op"], key) for topic, key, value in rows_of(found) if topic.endswith(".later")]
    assert later[-4:] == [("r", '{"id":1}'), ("r", '{"id":2}')] * 2
    told = [(event.table, event.what) for event in context.events if isinstance(event, TableSnapshotMoved)]
    assert (f"{name}.keyless", "waits for a start of the task, because it has no key") in told
    assert (f"{name}.later", "begins") in told
    pages = await read(source(each_mysql, **KEYS), context, until=lambda pages: _is_of(pages, "keyless"))
    records = [(value["op"], value["after"]) for topic, _, value in rows_of(pages) if topic.endswith(".keyless")]
    assert ("r", {"id": 7}) in records


async def test_without_gtids_a_stretch_waits_for_who_is_committing(mysql: MySql) -> None:
    """Commits are stopped for the moment in which it begins, and go on while its rows are read."""
    await mysql.rows("create table t (id int primary key)", "insert into t values (1)")
    connector = source(mysql)
    connection = await connector._opened()
    stretches = connector._stretches(await tables_at(connection, connector.config), FakeContext())
    await mysql.rows("set global gtid_mode = ON_PERMISSIVE")
    try:
        (table,) = await stretches.tables()
        stretches.told = await log_end(connection)
        async with asyncio.timeout(SECONDS_MAX):
            seen = await stretches.stretch(table, ())
            await mysql.rows("insert into t values (2)")
            behind = await stretches.stretch(table, ("1",))
        assert seen is not None
        assert behind is not None
        assert (len(seen.page), len(behind.page), seen.waits_for, behind.waits_for) == (1, 1, "", "")
        assert seen.high < behind.high
    finally:
        await mysql.rows("set global gtid_mode = ON")
        stretches.close()
        connection.close()


async def test_a_stretch_that_lacks_what_the_log_has_told_is_waited_for(each_mysql: MySql) -> None:
    """A place or a GTID that is told, and that no session sees yet: the rows would be older than the log."""
    await each_mysql.rows("create table t (id int primary key)", "insert into t values (1)")
    connector, context = source(each_mysql), FakeContext()
    connection = await connector._opened()
    stretches = connector._stretches(await tables_at(connection, connector.config), context)
    try:
        (table,) = await stretches.tables()
        end = await log_end(connection)
        stretches.told = end
        seen = await stretches.stretch(table, ())
        assert seen is not None
        assert (len(seen.page), seen.last, seen.waits_for, seen.high) == (1, None, "", end.order)
        ahead = GtidSet(f"{uuid.uuid4()}:1" if each_mysql.scheme == "mysql" else "0-1-1")
        stretches.told = end.at(end.file, end.position + 1, ahead)
        unseen = await stretches.stretch(table, ())
        assert unseen is not None
        assert unseen.waits_for.startswith("transactions")
        await each_mysql.rows("drop table t")
        stretches.told = end
        assert await stretches.stretch(table, ()) is None
    finally:
        stretches.close()
        connection.close()
