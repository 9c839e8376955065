# ruff: noqa: S608 - tables and rows are this test's own
"""The real Debezium for PostgreSQL and ``PostgresCdcSource`` on one workload: what differs is declared, or a defect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from typing import Any

import psycopg
import pytest

from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.fetcher import PostgresCdcSource
from fetchers.sdk import Offset, SystemClock
from fetchers.sdk.testing.context import FakeContext
from tests.databases import Postgres
from tests.debezium import (
    ABSENT,
    LOOK_SECONDS,
    SECONDS_MAX,
    Change,
    Debezium,
    Declared,
    declared_in_guide,
    ours,
    undeclared,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
VALUES: Mapping[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "smallint": ("-32768", "32767"),
    "integer": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "real": ("'-3.4e38'", "1.1"),
    "double precision": ("'1.7e308'", "'-0'"),
    "numeric(10,2)": ("-0.05", "99999999.99"),
    "numeric(38,10)": ("-1234567890123456789012345678.0000000001", "0"),
    "numeric": ("12345678901234567890.123", "-0.00010"),
    "text": ("'ü€😀'", "''"),
    "varchar(20)": ("'a\"b\\c'", "' x '"),
    "char(5)": ("'ab'", "''"),
    "bytea": ("'\\x00ff'", "''"),
    "date": ("'0001-01-01'", "'9999-12-31'"),
    "time": ("'00:00:00'", "'23:59:59.999999'"),
    "time(3)": ("'12:34:56.789'", "'00:00:00.001'"),
    "timetz": ("'12:34:56.5+02'", "'23:59:59-08'"),
    "timestamp": ("'1969-12-31 23:59:59.999999'", "'2262-04-11 00:00:00.000001'"),
    "timestamp(3)": ("'1969-12-31 23:59:59.999'", "'2024-02-29 12:00:00.001'"),
    "timestamptz(0)": ("'2024-01-01 00:00:00+00'", "'1969-12-31 23:59:59+00'"),
    "timestamptz(3)": ("'2024-01-01 00:00:00.5+00'", "'1969-12-31 23:59:59+00'"),
    "timestamptz": ("'1969-12-31 23:59:59.999999+00'", "'2024-03-31 02:30:00.5+02'"),
    "interval": ("'1 year 2 months 3 days 4 hours 5.5 seconds'", "'-1 day'"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'"),
    "json": ("'{\"a\": 1.0}'", "'[]'"),
    "jsonb": ("'{\"b\": [1, null]}'", "'\"x\"'"),
    "xml": ("'<a>1</a>'", "'<b/>'"),
    "bit(1)": ("b'1'", "b'0'"),
    "bit(9)": ("b'100000001'", "b'000000000'"),
    "bit varying(9)": ("b'101'", "b'1'"),
    "mood": ("'sad'", "'ok'"),
    "inet": ("'192.168.0.1/24'", "'::1'"),
    "cidr": ("'10.0.0.0/8'", "'::/0'"),
    "macaddr": ("'08:00:2b:01:02:03'", "'00:00:00:00:00:00'"),
    "oid": ("4294967295", "0"),
    "money": ("12.34", "-0.5"),
    "integer[]": ("'{1,null,-3}'", "'{}'"),
    "text[]": ("'{a,\"b,c\",null}'", "'{}'"),
    "numeric(6,2)[]": ("'{1.5,null}'", "'{}'"),
    "int4range": ("'[1,5)'", "'empty'"),
    "tstzrange": ("'[2024-01-01 00:00+00,)'", "'empty'"),
    "citext": ("'Ab'", "''"),
    "hstore": ("'a=>1,b=>null'", "''"),
    "ltree": ("'a.b'", "''"),
    "point": ("'(1.5,-2)'", "'(0,0)'"),
    "tsvector": ("'a b'", "''"),
    "box": ("'(1,1),(0,0)'", "'(0,0),(0,0)'"),
    "line": ("'{1,-1,0}'", "'{0,1,2}'"),
    "lseg": ("'[(0,0),(1,1)]'", "'[(0,0),(0,0)]'"),
    "path": ("'[(0,0),(1,1)]'", "'((0,0),(1,1),(2,0))'"),
    "polygon": ("'((0,0),(1,1),(2,0))'", "'((0,0))'"),
    "circle": ("'<(1,2),3.5>'", "'<(0,0),0>'"),
}
"""Two values of each type, which the two connectors read as rows and as changes."""


CASES: Mapping[str, Mapping[str, str]] = {
    "usual": {},
    "texts": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "connect",
        "interval.handling.mode": "string",
        "binary.handling.mode": "hex",
        "tombstones.on.delete": "false",
        "skipped.operations": "none",
        "schema.name.adjustment.mode": "avro",
        "snapshot.mode": "no_data",
    },
    "doubles": {
        "decimal.handling.mode": "double",
        "time.precision.mode": "adaptive_time_microseconds",
        "binary.handling.mode": "base64",
        "skipped.operations": "d",
        "field.name.adjustment.mode": "avro",
    },
    "connect": {"time.precision.mode": "connect", "binary.handling.mode": "base64-url-safe"},
}
_SIDE = r"value\.(before|after)\."
_COLUMN = r"(key-schema\.fields|schema\.fields\.(before|after)\.fields)\.[^.]*"
_KINDS = list(VALUES)
_POINT = f"c{_KINDS.index('point')}"
_SHAPES = (
    "(" + "|".join(f"c{_KINDS.index(kind)}" for kind in ("box", "line", "lseg", "path", "polygon", "circle")) + ")"
)
_MONEY = f"c{_KINDS.index('money')}"
DECLARED = (
    Declared("clocks", r"value\.ts_(ms|us|ns)"),
    Declared("version", r"value\.source\.version"),
    Declared("snapshot-place", r"value\.source\.(lsn|txId|ts_ms|ts_us|ts_ns)", operations="r"),
    Declared("snapshot-place", r"value\.source\.sequence", lambda _, own: str(own).startswith("[null"), "r"),
    Declared("last-commit", r"value\.source\.sequence",
             lambda theirs, own: str(theirs).split(",")[1] == str(own).split(",")[1], "cudt"),
    Declared("snapshot-flag", r"value\.source\.snapshot", lambda _, own: own == "true", "r"),
    Declared("snapshot-flag", r"schema\.fields\.source\.fields\.snapshot\.default"),
    Declared("nullable-columns", rf"{_COLUMN}\.optional", lambda theirs, own: (theirs, own) == (False, True)),
    Declared("no-defaults", rf"{_COLUMN}\.default", lambda _, own: own == ABSENT),
    Declared("nulls-stay-null", rf"{_SIDE}(n|note|id)", lambda theirs, own: own is None and theirs in (7, 0, "none")),
    Declared("bits-keep-zeros", _SIDE + ".*",
             lambda theirs, own: isinstance(own, bytes) and own.rstrip(b"\0") == theirs),
    Declared("digits-stay", _SIDE + ".*", lambda theirs, own: isinstance(own, str) and theirs == own.rstrip("0")),
    Declared("money-digits", rf"{_COLUMN}\.parameters\.connect\.decimal\.precision"),
    Declared("points-are-texts", rf"{_SIDE}{_POINT}|schema\.fields\.(before|after)\.fields\.{_POINT}.*"),
    Declared("no-column-is-left-out", rf"{_SIDE}{_SHAPES}|schema\.fields\.(before|after)\.fields\.{_SHAPES}",
             lambda theirs, _: theirs == ABSENT),
)  # fmt: skip
Events = dict[str, list[Change]]


def config_of(database: Postgres, name: str, *, slot: str, **changed: str) -> dict[str, str]:
    """For both, but for the slot."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.server.port),
        "database.user": "postgres",
        "database.dbname": database.name,
        "topic.prefix": f"{database.name}-{name}",
        "slot.name": f"{database.name}_{slot}",
        "publication.name": "everything",
        "publication.autocreate.mode": "disabled",
        "table.include.list": r"public\..*",
        **changed,
    }


async def followed(
    config: Mapping[str, str], rejected: list[str], *, begun: asyncio.Event | None = None, offset: Offset | None = None
) -> Events:
    """What ours delivers, by topic, up to the first record of the marker table."""
    parsed = PostgresCdcConfig.parse({key: value for key, value in config.items() if key != "connector.class"})
    assert parsed.config is not None, parsed.findings
    connector = PostgresCdcSource(parsed.config)
    partition = connector.partition()
    context = FakeContext(partition=partition, offset=offset, clock=SystemClock())  # type: ignore[arg-type]
    found: Events = {}
    async with asyncio.timeout(SECONDS_MAX), aclosing(connector.fetch(context)) as pages:
        async for page in pages:
            if begun is not None and "lsn_commit" in page.offset:
                begun.set()
            rejected += [rejection.message for rejection in page.rejections]
            found.setdefault(str(page.topic), []).extend(ours(page))
            if str(page.topic).endswith(".marker"):
                break
    found.pop("None", None)
    return found


def work(database: Postgres, seed: int) -> None:
    """Transactions with savepoints and rollbacks, a schema that changes, every type, a truncate; then the marker."""
    drawn = random.Random(seed)
    session = psycopg.connect(host="127.0.0.1", port=database.server.port, user="postgres", dbname=database.name)
    with session.cursor() as cursor:
        for number in range(30):
            for _ in range(drawn.randint(1, 4)):
                cursor.execute("savepoint before")
                change(cursor, drawn, number)
                if drawn.random() < 0.25:
                    cursor.execute("rollback to savepoint before")
            (session.rollback if drawn.random() < 0.15 else session.commit)()
            if number == 15:
                cursor.execute("alter table plain add column extra int")
                cursor.execute("alter table whole alter column note type varchar(200)")
                session.commit()
        cursor.execute("insert into far values (1, 'infinity', 'infinity'), (2, '2024-01-01', '294246-12-31 00:00:00')")
        cursor.execute("update plain set extra = id where id < 5")
        columns = ", ".join(f"c{at}" for at in range(len(VALUES)))
        cursor.execute(f"insert into kinds (id, {columns}) select id + 10, {columns} from kinds order by id")
        cursor.execute("delete from kinds where id = 11")
        cursor.execute("truncate emptied")
        session.commit()
        cursor.execute("insert into marker values (1)")
        session.commit()
    session.close()


def change(cursor: Any, drawn: random.Random, number: int) -> None:
    """One statement."""
    table = drawn.choice(("plain", "whole", "keyless"))
    row, other = drawn.randint(1, 30), drawn.randint(31, 90)
    kind = drawn.random()
    if kind < 0.4:
        cursor.execute(f"insert into {table} (id, n, note) values (%s, %s, %s) on conflict do nothing",
                       (other, number, drawn.choice((None, "", f"ü{number}"))))  # fmt: skip
    elif kind < 0.65:
        cursor.execute(f"update {table} set n = %s where id between %s and %s", (number, row, row + 3))
    elif kind < 0.8 and table != "keyless":
        cursor.execute(f"update {table} set id = %s where id = %s and not exists (select 1 from {table} where id = %s)",
                       (other, row, other))  # fmt: skip
    else:
        cursor.execute(f"delete from {table} where id = %s", (row,))


def prepare(database: Postgres) -> None:
    """Tables with keys, without one, with each replica identity, and rows in them."""
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(VALUES))
    rows = [", ".join(f"{pair[at]}" for pair in VALUES.values()) for at in (0, 1)]
    nulls = ", ".join("null" for _ in VALUES)
    fill = "select g, g, 'first' from generate_series(1, 40) g"
    database.run(
        "create extension if not exists hstore", "create extension if not exists citext",
        "create extension if not exists ltree",
        "create type mood as enum ('sad', 'ok')",
        "create table marker (id int primary key)",
        "create table plain (id int primary key, n int not null default 7, note text not null default 'none' )",
        "alter table plain alter column note drop not null",
        "create table whole (id int, part char(1) default 'a', n bigint not null, note varchar(100), "
        "primary key (part, id))",
        "alter table whole replica identity full",
        "create table keyless (id int not null, n int, note text)",
        "alter table keyless replica identity full",
        "create table far (id int primary key, d date, t timestamp)",
        "create table emptied (id int primary key)",
        f"create table kinds (id int primary key, {columns})",
        f"insert into plain {fill}", f"insert into whole (id, n, note) {fill}", f"insert into keyless {fill}",
        "insert into emptied values (1)",
        *(f"insert into kinds values ({at + 1}, {row})" for at, row in enumerate((*rows, nulls))),
        "create publication everything for all tables",
    )  # fmt: skip


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Postgres]:
    """Whose slots are gone in the end, whoever still reads them."""
    yield postgres
    postgres.drop_slots()


async def wait_until_read(database: Postgres, readers: int) -> None:
    """Return when so many slots have a reader."""
    active = f"select count(*) from pg_replication_slots where slot_name like '{database.name}%' and active"
    async with asyncio.timeout(SECONDS_MAX):
        while database.rows(active)[0][0] < readers:
            await asyncio.sleep(LOOK_SECONDS)


async def test_what_differs_from_debezium_is_declared(debezium: Debezium, database: Postgres) -> None:
    """Keys, values, schemas, tombstones, topics, headers and order of all events of three configs."""
    await asyncio.to_thread(prepare, database)
    theirs = {name: config_of(database, name, slot=f"d_{name}", **changed) for name, changed in CASES.items()}
    own = {name: config_of(database, name, slot=f"o_{name}", **changed) for name, changed in CASES.items()}
    for config in theirs.values():
        await debezium.start(config["topic.prefix"], config)
    begun, rejected = {name: asyncio.Event() for name in CASES}, list[str]()
    async with asyncio.TaskGroup() as group:
        reading = {
            name: group.create_task(followed(own[name], rejected, begun=begun[name]), name=name) for name in CASES
        }
        for name, changed in CASES.items():
            if "snapshot.mode" not in changed:  # whose snapshot has no rows
                prefix = theirs[name]["topic.prefix"]
                await debezium.wait_for(prefix, f"{prefix}.public.whole", 40)
                await begun[name].wait()
        await wait_until_read(database, 2 * len(CASES))
        await asyncio.to_thread(work, database, 1)
    seen: set[str] = set()
    found = {}
    for name, task in reading.items():
        prefix = theirs[name]["topic.prefix"]
        await debezium.wait_for(prefix, f"{prefix}.public.marker")
        await debezium.stop(prefix)
        for topic, changes in task.result().items():
            other = await debezium.changes(topic)
            if topic.endswith(".far"):  # values that Debezium alters
                altered = [change.value["after"] for change in other]
                assert [row["id"] for row in altered] == [1, 2]
                assert [change.value["after"]["id"] for change in changes] == [2]
                seen.add("infinite-days")
                continue
            found[topic] = undeclared(other, changes, DECLARED, seen)
        await debezium.delete(prefix)
    assert {topic: rows for topic, rows in found.items() if rows} == {}
    assert len(rejected) == len(CASES)
    assert seen == declared_in_guide("postgresql-changes.md")


def _insert(database: Postgres, numbers: range) -> None:
    """Ten rows a transaction."""
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for first in numbers[::10]:
            cursor.execute(f"insert into t select g, 'row ' || g from generate_series({first}, {first + 9}) g")
            connection.commit()


async def test_a_stopped_debezium_is_gone_on_from(debezium: Debezium, database: Postgres) -> None:
    """Its slot and its offset, as REST tells it, in the middle of a stream: nothing lost, nothing twice."""
    database.run(
        "create table t (id int primary key, s text)",
        "create table marker (id int primary key)",
        "insert into t select g, 'first' from generate_series(1, 50) g",
        "create publication everything for all tables",
    )
    config = config_of(database, "taken", slot="taken", **{"max.batch.size": "16", "max.queue.size": "32"})
    prefix = config["topic.prefix"]
    await debezium.start(prefix, config)
    await debezium.wait_for(prefix, f"{prefix}.public.t", 50)
    await wait_until_read(database, 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(_insert, database, range(51, 3051)), name="inserts")
        await debezium.wait_for(prefix, f"{prefix}.public.t", 60)
        await debezium.stop(prefix)
    _insert(database, range(3051, 4051))  # it may have read all of the others before it heard of its end
    stored = await debezium.offset(prefix)
    before = await debezium.changes(f"{prefix}.public.t")
    await debezium.delete(prefix)
    await asyncio.to_thread(_insert, database, range(4051, 4101))  # Debezium may have been the quicker one before
    database.run("insert into marker values (1)")
    after = await followed({key: value for key, value in config.items() if key != "max.queue.size"}, [], offset=stored)
    told = [(change.value["op"], change.key["id"]) for change in (*before, *after.get(f"{prefix}.public.t", []))]
    assert len(before) < len(told)
    assert told == [*(("r", at) for at in range(1, 51)), *(("c", at) for at in range(51, 4101))]
