# ruff: noqa: S608 - statements of tests
"""``MySqlCdcSource`` on a real MariaDB and a real MySQL: values, snapshot and log without gap or repeat, DDL."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import asyncmy.errors
import pytest

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.fetcher import MySqlCdcSource
from fetchers.sdk import Fatal, Page
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MariaDb, MySql

pytestmark = pytest.mark.integration
SECONDS_MAX = 300.0
CLIENTS, TRANSACTIONS = 4, 60
BUSY = {1020, 1062, 1205, 1213}
"""Errors of clients that are in each other's way."""
VALUES: Mapping[str, Sequence[str]] = {
    "tinyint unsigned": ("255", "0"),
    "year": ("2024", "0"),
    "mediumint": ("-8388608", "8388607"),
    "int unsigned": ("4294967295", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("18446744073709551615", "0"),
    "decimal(65,30)": ("-12345678901234567890123456789012345.000000000000000000000000000001", "0"),
    "decimal(10,2)": ("-0.05", "99999999.99"),
    "float": ("1.1", "-3.4e38"),
    "double": ("1.1e300", "-0.5"),
    "bit(1)": ("b'1'", "b'0'"),
    "bit(9)": ("b'100000001'", "0"),
    "bit(64)": ("b'" + "1" * 64 + "'", "0"),
    "enum('a','ü','it''s')": ("'ü'", "'it''s'"),
    "set('x','y','z')": ("'x,z'", "''"),
    "char(5)": ("'x '", "''"),
    "varchar(300)": ("'ü€😀'", "''"),
    "varchar(9) character set latin1": ("'é€'", "''"),
    "longtext": ("repeat('lang ', 20000)", "''"),
    "binary(4)": ("'ab'", "x'00'"),
    "varbinary(4)": ("x'ff00'", "''"),
    "blob": ("x'00ff'", "''"),
    "json": ("'{\"a\": 1.0}'", "'[]'"),
    "date": ("'2024-02-29'", "'0000-00-00'"),
    "datetime": ("'9999-12-31 23:59:59'", "'2024-00-15 01:02:03'"),
    "datetime(6)": ("'1000-01-01 00:00:00.000001'", "'0000-00-00'"),
    "timestamp(2) null": ("'2038-01-19 03:14:07.99'", "'0000-00-00'"),
    "timestamp null": ("'1970-01-01 00:00:01'", "'2024-03-31 02:30:00'"),
    "time": ("'-838:59:59'", "'838:59:59'"),
    "time(6)": ("'-00:00:01.500000'", "'-12:34:56.789'"),
    "time(3)": ("'-00:00:00.001'", "'23:59:59.999'"),
}


def source(database: MySql, **keys: str) -> MySqlCdcSource:
    """A connector for the test's database."""
    config = MySqlCdcConfig.parse(
        {
            "database.hostname": "127.0.0.1",
            "database.port": str(database.server.port),
            "database.user": "root",
            "database.server.id": str(random.randrange(1_000, 2**31)),
            "database.include.list": database.name,
            "topic.prefix": "shop",
            **{key.replace("_", "."): value for key, value in keys.items()},
        }
    )
    assert config.config is not None, config.findings
    return MySqlCdcSource(config.config)


async def read(connector: MySqlCdcSource, context: FakeContext, *, until: Callable[[list[Page]], bool]) -> list[Page]:
    """Pages, with their offsets committed, up to one behind which the condition holds."""
    pages: list[Page] = []
    async with asyncio.timeout(SECONDS_MAX), aclosing(connector.fetch(context)) as stream:
        if until(pages):
            return pages
        async for page in stream:
            pages.append(page)
            context.commit(page)
            if until(pages):
                break
    return pages


def rows_of(pages: Sequence[Page]) -> list[tuple[str, Any, Any]]:
    """Topic, key and value of each record."""
    found = []
    for page in pages:
        for at in range(len(page)):
            key, value = page.original(at)
            told = None if value is None else json.loads(value)
            found.append((str(page.topic), None if key is None else key.decode(), told))
    return found


def state_of(records: Sequence[tuple[str, Any, Any]]) -> dict[tuple[str, Any], Any]:
    """What a consumer of flattened rows holds in the end."""
    state: dict[tuple[str, Any], Any] = {}
    for topic, key, value in records:
        if value is None or value["__deleted"] == "true":
            state.pop((topic, key), None)
        else:
            state[topic, key] = {name: one for name, one in value.items() if name != "__deleted"}
    return state


def has_row(table: str, number: int) -> Callable[[list[Page]], bool]:
    """Whether the last page has a row of the table with this id."""

    def found(pages: list[Page]) -> bool:
        last = rows_of(pages[-1:])
        return any(topic.endswith(f".{table}") and key == f'{{"id":{number}}}' for topic, key, _ in last)

    return found


async def test_snapshot_and_log_say_the_same_of_every_type(each_mysql: MySql) -> None:
    """Edge values of each type, read as rows and as changes, are equal; so are their schemas."""
    columns = ", ".join(f"c{at} {kind}{'' if 'null' in kind else ' null'}" for at, kind in enumerate(VALUES))
    rows = [", ".join(pair[at] for pair in VALUES.values()) for at in (0, 1)]
    nulls = ", ".join("null" for _ in VALUES)
    inserts = [f"insert into t values ({at}, {row})" for at, row in enumerate([*rows, nulls])]
    mode = {"bigint.unsigned.handling.mode": "precise", "event.form": "row"}
    create = f"create table t (id int primary key, {columns}) default charset utf8mb4"
    await each_mysql.rows("set sql_mode=''", create, *inserts)
    connector, context = source(each_mysql, **mode), FakeContext()
    pages = await read(connector, context, until=has_row("t", 2))
    snapshot = rows_of(pages)
    assert [key for _, key, _ in snapshot] == ['{"id":0}', '{"id":1}', '{"id":2}']
    await each_mysql.rows("set sql_mode=''", "create table x like t", "insert into x select * from t")
    logged = await read(source(each_mysql, **mode), context, until=has_row("x", 2))
    assert [value for _, _, value in rows_of(logged)] == [value for _, _, value in snapshot]
    schemas = [page.schema.document["fields"] for page in (pages[0], logged[-1]) if page.schema is not None]
    assert schemas[0] == schemas[1]
    first, second, _ = (value for _, _, value in snapshot)
    names = {kind: f"c{at}" for at, kind in enumerate(VALUES)}
    assert first[names["bigint unsigned"]] == 18446744073709551615
    assert first[names["time(6)"]] == -1_500_000
    assert second[names["time(6)"]] == -45_296_789_000
    assert second[names["date"]] is None
    assert first[names["timestamp(2) null"]] == "2038-01-19T03:14:07.99Z"
    assert first[names["varchar(9) character set latin1"]] == "é€"


async def _client(database: MySql, seed: int) -> None:
    """Transactions of inserts, updates, deletes, changed keys and savepoints; some are rolled back."""
    chance = random.Random(seed)
    connection = await database.connect()
    for number in range(TRANSACTIONS):
        key = chance.randrange(400)
        choices = [
            f"insert into a values ({key}, 'i{seed}', {number}) on duplicate key update n = n + 1",
            f"update a set n = n + 1 where id between {key} and {key + 5}",
            f"update a set id = id + 1000 where id = {key}",
            f"delete from a where id = {key}",
            f"replace into b values ({key % 50}, 'k{seed}', 'v{number}')",
            f"delete from b where k = 'k{seed}' and id = {key % 50}",
        ]
        statements = ["begin", *chance.choices(choices, k=3), "savepoint s", chance.choice(choices)]
        statements += [chance.choice(["rollback to savepoint s", "select 1"])]
        statements += [chance.choice(["commit", "commit", "commit", "rollback"])]
        async with connection.cursor() as cursor:
            try:
                for statement in statements:
                    await cursor.execute(statement)
            except asyncmy.errors.Error as error:
                if error.args[0] not in BUSY:
                    raise
                await cursor.execute("rollback")
    await connection.ensure_closed()


async def test_the_state_rebuilt_is_the_tables(each_mysql: MySql) -> None:
    """Several clients write while the snapshot is read, and a column is added; from any place the rest comes once."""
    await each_mysql.rows(
        "create table a (id int primary key, v varchar(20), n int)",
        "create table b (id int, k varchar(9), v varchar(9), primary key (k, id))",
        f"insert into a values {', '.join(f'({at}, {chr(39)}old{chr(39)}, 0)' for at in range(1, 401))}",
    )
    keys = {"event.form": "row", "snapshot.fetch.size": "50", "max.batch.bytes": "3000"}
    # A client that waits for another one's row keeps MySQL's global lock waiting, which keeps that other one waiting:
    # the row's own limit of 50 s ends it.
    keys["snapshot.lock.timeout.ms"] = "120000"
    context = FakeContext()
    async with asyncio.TaskGroup() as group:
        for seed in range(CLIENTS):
            group.create_task(_client(each_mysql, seed))
        first = await read(source(each_mysql, **keys), context, until=_is_snapshot_over)
    await each_mysql.rows("alter table a add column w int default 5", "insert into a values (9999, 'end', 0, 6)")
    rest = await read(source(each_mysql, **keys), context, until=has_row("a", 9999))
    records = rows_of([*first, *rest])
    state = state_of(records)
    for table, columns in (("a", "id, v, n"), ("b", "id, k, v")):
        told = await each_mysql.rows(f"select {columns} from {table}")
        mine = [
            tuple(str(value[name]) for name in columns.split(", "))
            for (topic, _), value in state.items()
            if topic == f"shop.{each_mysql.name}.{table}"
        ]
        assert sorted(mine) == sorted(tuple(map(str, row)) for row in told)
    assert state[f"shop.{each_mysql.name}.a", '{"id":9999}']["w"] == 6
    cuts = random.Random(1).sample(range(len(rest)), min(8, len(rest)))
    for cut in cuts:
        again = FakeContext()
        again.commit(rest[cut])
        behind = [] if cut + 1 == len(rest) else await read(source(each_mysql, **keys), again, until=has_row("a", 9999))
        assert _by_topic(rows_of([*rest[: cut + 1], *behind])) == _by_topic(rows_of(rest)), rest[cut].offset


def _is_snapshot_over(pages: list[Page]) -> bool:
    return bool(pages) and not pages[-1].offset.get("snapshot")


def _by_topic(records: Sequence[tuple[str, Any, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for topic, key, value in records:
        found.setdefault(topic, []).append((key, value))
    return found


async def test_envelopes_are_debeziums(each_mysql: MySql) -> None:
    """Operations, both images, tombstones, a changed key, and where an event is in the log."""
    await each_mysql.rows("create table t (id int primary key, v varchar(9) not null)")
    connector, context = source(each_mysql, **{"snapshot.mode": "no_data"}), FakeContext()
    await read(connector, context, until=bool)
    changes = ("insert into t values (1, 'a')", "update t set v = 'b'", "update t set id = 2", "delete from t")
    await each_mysql.rows(*changes, "insert into t values (9, 'end')")
    records = rows_of(await read(source(each_mysql), context, until=has_row("t", 9)))
    found = [(key, value and (value["op"], value["before"], value["after"])) for _, key, value in records]
    one, two = '{"id":1}', '{"id":2}'
    assert found[:-1] == [
        (one, ("c", None, {"id": 1, "v": "a"})),
        (one, ("u", {"id": 1, "v": "a"}, {"id": 1, "v": "b"})),
        (one, ("d", {"id": 1, "v": "b"}, None)),
        (one, None),
        (two, ("c", None, {"id": 2, "v": "b"})),
        (two, ("d", {"id": 2, "v": "b"}, None)),
        (two, None),
    ]
    place = records[0][2]["source"]
    assert (place["connector"], place["name"], place["db"], place["table"]) == (
        each_mysql.scheme,
        "shop",
        each_mysql.name,
        "t",
    )
    assert re.match("0-1-" if each_mysql.scheme == "mariadb" else "[0-9a-f-]{36}:[0-9]+$", place["gtid"])
    assert place["file"].startswith("binlog.")


async def test_what_a_person_must_mend_is_told(mariadb: MariaDb) -> None:
    """Settings, rights, a purged log, a statement in the log: each with what mends it."""
    await mariadb.rows("create table t (id int primary key)")
    await mariadb.rows("create or replace user poor identified by ''", f"grant select on {mariadb.name}.* to poor")
    found = await source(mariadb, **{"database.user": "poor"}).check(FakeContext())
    assert any("GRANT REPLICATION SLAVE, BINLOG MONITOR" in finding.message for finding in found)
    assert not [finding for finding in await source(mariadb).check(FakeContext()) if finding.is_error]
    await mariadb.rows("set global binlog_row_metadata = NO_LOG")
    try:
        found = await source(mariadb).check(FakeContext())
    finally:
        await mariadb.rows("set global binlog_row_metadata = FULL")
    assert any("SET GLOBAL binlog_row_metadata = FULL" in finding.message for finding in found)
    lost = FakeContext(offset={"file": "binlog.999999", "pos": 4}, partition={"server": "shop"})
    with pytest.raises(Fatal, match="forget the offset"):
        await read(source(mariadb), lost, until=lambda _: False)
    context = FakeContext()
    await read(source(mariadb, **{"snapshot.mode": "no_data"}), context, until=bool)
    await mariadb.rows("set session binlog_format = STATEMENT", "insert into t values (1)")
    with pytest.raises(Fatal, match="SET GLOBAL binlog_format = ROW"):
        await read(source(mariadb), context, until=lambda _: False)


async def test_an_interrupted_snapshot_loses_nothing_and_leaves_nothing_stale(mariadb: MariaDb) -> None:
    """What is deleted and changed between two attempts is so for a consumer too; whole tables are not read again."""
    await mariadb.rows(
        "create table a (id int primary key, v varchar(9))",
        "create table b (id int primary key, v varchar(9))",
        "insert into a select seq, 'old' from seq_1_to_10",
        "insert into b select seq, 'old' from seq_1_to_100",
    )
    keys = {"event.form": "row", "snapshot.fetch.size": "10"}
    context = FakeContext()
    first = await read(source(mariadb, **keys), context, until=has_row("b", 20))
    await mariadb.rows("delete from a where id = 1", "delete from b where id in (1, 90)", "update b set v = 'new'")
    await mariadb.rows("insert into b values (999, 'end')")
    stop = f"shop.{mariadb.name}.b", '{"id":999}'
    rest = await read(source(mariadb, **keys), context, until=lambda pages: _is_logged(pages[-1:], stop))
    records = rows_of([*first, *rest])
    state = state_of(records)
    assert {key for topic, key in state if topic.endswith(".b")} == {
        f'{{"id":{number}}}' for number in (*range(2, 90), *range(91, 101), 999)
    }
    assert {value["v"] for (topic, _), value in state.items() if topic.endswith(".b")} == {"new", "end"}
    assert len([key for topic, key, _ in records if topic.endswith(".a")]) == 12  # ten rows, a delete, its tombstone


def _is_logged(pages: list[Page], stop: tuple[str, str]) -> bool:
    """Whether the row came by the log, behind the snapshot."""
    return _is_snapshot_over(pages) and stop in {(topic, key) for topic, key, _ in rows_of(pages)}


async def test_a_truncate_is_told_as_debezium_tells_it(each_mysql: MySql) -> None:
    """In its place among the rows, without a key, also of a table that was not told of before; skipped by default."""
    name = each_mysql.name
    tables = ("a", "b")
    await each_mysql.rows(*(f"create table {table} (id int primary key, v varchar(9) not null)" for table in tables))
    context = FakeContext()
    await read(source(each_mysql, **{"snapshot.mode": "no_data"}), context, until=bool)
    stored = dict(context.offsets)
    await each_mysql.rows(
        "insert into a values (1, 'x')",
        f"/* ours */ TRUNCATE TABLE `{name}`.`a`",
        "insert into a values (2, 'y')",
        "truncate a",
        "truncate -- of b\n b",
        "insert into a values (9, 'end')",
    )
    keys = {"skipped.operations": "none"}
    pages = await read(source(each_mysql, **keys), context, until=has_row("a", 9))
    records = rows_of(pages)
    found = [(topic[-1], key, value["op"], value["before"], value["after"]) for topic, key, value in records]
    assert [one for one in found if one[0] == "a"] == [
        ("a", '{"id":1}', "c", None, {"id": 1, "v": "x"}),
        ("a", None, "t", None, None),
        ("a", '{"id":2}', "c", None, {"id": 2, "v": "y"}),
        ("a", None, "t", None, None),
        ("a", '{"id":9}', "c", None, {"id": 9, "v": "end"}),
    ]
    assert [one for one in found if one[0] == "b"] == [("b", None, "t", None, None)]
    emptied = next(value["source"] for topic, key, value in records if key is None)
    assert (emptied["db"], emptied["table"]) == (name, "a")
    assert emptied["pos"] > 0
    for cut in range(len(pages) - 1):
        again = FakeContext(offsets=stored)
        for page in pages[: cut + 1]:
            again.commit(page)
        rest = await read(source(each_mysql, **keys), again, until=has_row("a", 9))
        assert _by_topic(_outlines([*pages[: cut + 1], *rest])) == _by_topic(_outlines(pages))
    skipped = await read(source(each_mysql), FakeContext(offsets=stored), until=has_row("a", 9))
    assert {value["op"] for _, _, value in rows_of(skipped)} == {"c"}


def _outlines(pages: Sequence[Page]) -> list[tuple[str, Any, Any]]:
    return [(topic, key, value and value["op"]) for topic, key, value in rows_of(pages)]


async def test_compressed_events_are_read(mariadb: MariaDb) -> None:
    """Rows and statements, with both images and with more columns than a byte counts in bits."""
    wide = ", ".join(f"c{at} int" for at in range(300))
    await mariadb.rows(
        "create table t (id int primary key, v longtext)", f"create table w (id int primary key, {wide})"
    )
    context = FakeContext()
    await read(source(mariadb, **{"snapshot.mode": "no_data"}), context, until=bool)
    [(log, *_)] = await mariadb.rows("show master status")
    await mariadb.rows("set global log_bin_compress_min_len = 10", "set global log_bin_compress = ON")
    try:
        await mariadb.rows(
            "insert into t values (1, repeat('a', 70000)), (2, 'b')",
            "update t set v = repeat('c', 300)",
            "delete from t where id = 1",
            "insert into w (id, c299) values (1, 7)",
            f"truncate /* {'long ' * 20} */ w",
            "insert into t values (9, 'end')",
        )
    finally:
        await mariadb.rows("set global log_bin_compress = OFF")
    # The server is shared: another test may have begun a new log before this one, or in the middle of it.
    logs = [name for name, *_ in await mariadb.rows("show binary logs") if name >= log]
    events = [row for name in logs for row in await mariadb.rows(f"show binlog events in '{name}'")]
    assert {"Write_rows_compressed_v1", "Update_rows_compressed_v1", "Query_compressed"} <= {row[2] for row in events}
    pages = await read(source(mariadb, **{"skipped.operations": "none"}), context, until=has_row("t", 9))
    found = [(value["op"], value["before"], value["after"]) for topic, _, value in rows_of(pages) if value]
    one, two = {"id": 1, "v": "c" * 300}, {"id": 2, "v": "c" * 300}
    assert [row for row in found if "c299" not in str(row) and row[0] != "t"] == [
        ("c", None, {"id": 1, "v": "a" * 70000}),
        ("c", None, {"id": 2, "v": "b"}),
        ("u", {"id": 1, "v": "a" * 70000}, one),
        ("u", {"id": 2, "v": "b"}, two),
        ("d", one, None),
        ("c", None, {"id": 9, "v": "end"}),
    ]
    assert [row[2]["c299"] for row in found if row[2] and "c299" in row[2]] == [7]
    assert [row for row in found if row[0] == "t"] == [("t", None, None)]
