# ruff: noqa: S608 - tables and rows are this test's own
"""The real Debezium for MySQL and for MariaDB and ``MySqlCdcSource`` on one workload: what differs is declared."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing
from typing import Any
from uuid import UUID

import pytest

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.fetcher import MySqlCdcSource
from fetchers.sdk import SystemClock
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MySql
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
    "tinyint": ("-128", "127"),
    "tinyint unsigned": ("255", "0"),
    "smallint": ("-32768", "32767"),
    "smallint unsigned": ("65535", "0"),
    "mediumint": ("-8388608", "8388607"),
    "mediumint unsigned": ("16777215", "0"),
    "int": ("-2147483648", "2147483647"),
    "int unsigned": ("4294967295", "0"),
    "int(6) zerofill": ("42", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("9223372036854775807", "0"),
    "decimal(10,2)": ("-0.05", "99999999.99"),
    "decimal(65,30)": ("-12345678901234567890123456789012345.000000000000000000000000000001", "0"),
    "decimal(5)": ("-99999", "0"),
    "float": ("1.1", "-3.4e38"),
    "double": ("1.1e300", "-0.5"),
    "bit(1)": ("b'1'", "b'0'"),
    "bit(9)": ("b'100000001'", "b'000000000'"),
    "bit(64)": ("b'" + "1" * 64 + "'", "b'1'"),
    "enum('a','ü','it''s','b,c')": ("'ü'", "'it''s'"),
    "set('x','y','z')": ("'x,z'", "''"),
    "char(5)": ("'ab '", "''"),
    "varchar(300)": ("'ü€😀'", "' x '"),
    "varchar(9) character set latin1": ("'é€'", "''"),
    "text": ("'a\"b\\\\c'", "''"),
    "longtext": ("repeat('lang ', 20000)", "''"),
    "binary(4)": ("x'6162'", "x'00'"),
    "varbinary(4)": ("x'ff00'", "''"),
    "blob": ("x'00ff'", "''"),
    "json": ('\'{"a": 1.5, "b": [null, "x"]}\'', "'[]'"),
    "date": ("'2024-02-29'", "'1000-01-01'"),
    "datetime": ("'9999-12-31 23:59:59'", "'1969-12-31 23:59:59'"),
    "datetime(3)": ("'2024-02-29 12:00:00.001'", "'1969-12-31 23:59:59.999'"),
    "datetime(6)": ("'1000-01-01 00:00:00.000001'", "'2024-03-31 02:30:00.5'"),
    "timestamp null": ("'1970-01-01 00:00:01'", "'2024-03-31 02:30:00'"),
    "timestamp(2) null": ("'2038-01-19 03:14:07.99'", "'2024-01-01 00:00:00.5'"),
    "timestamp(6) null": ("'2024-02-29 01:02:03.000004'", "'2024-01-01 00:00:00'"),
    "time": ("'-838:59:59'", "'838:59:59'"),
    "time(3)": ("'-00:00:00.001'", "'23:59:59.999'"),
    "time(6)": ("'-00:00:01.500000'", "'12:34:56.789'"),
    "year": ("2024", "1901"),
    "time(5)": ("'12:34:56.78912'", "'23:59:59'"),
    "point": ("st_geomfromtext('POINT(1.5 -2)')", "st_geomfromtext('POINT(0 0)', 4326)"),
    "geometry": ("st_geomfromtext('LINESTRING(0 0,1 1)')", "st_geomfromtext('POINT(1 2)', 4326)"),
    "polygon": ("st_geomfromtext('POLYGON((0 0,0 1,1 1,0 0))')", "st_geomfromtext('POLYGON((0 0,0 1,1 1,0 0))', 4326)"),
    "geometrycollection": ("st_geomfromtext('GEOMETRYCOLLECTION(POINT(1 1))')",) * 2,
}
"""Two values of each type, which the two connectors read as rows and as changes."""
ONLY_MARIADB: Mapping[str, tuple[str, ...]] = {
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-1000-8000-000000000000'"),
}
"""``INET4`` and ``INET6`` are not here: Debezium 3.5 cannot read the statement of such a column and fails."""
CASES: Mapping[str, Mapping[str, str]] = {
    "usual": {},
    "texts": {
        "decimal.handling.mode": "string",
        "binary.handling.mode": "hex",
        "tombstones.on.delete": "false",
        "skipped.operations": "none",
        "schema.name.adjustment.mode": "avro",
        "snapshot.mode": "no_data",
    },
    "doubles": {
        "decimal.handling.mode": "double",
        "bigint.unsigned.handling.mode": "precise",
        "binary.handling.mode": "base64",
        "skipped.operations": "d",
        "field.name.adjustment.mode": "avro",
    },
    "connect": {
        "time.precision.mode": "connect",
        "binary.handling.mode": "base64-url-safe",
        "column.exclude.list": r"[^.]*\.kinds\.c(38|39|40)",  # times that Connect's Time cannot be
    },
}
_SIDE = r"value\.(before|after)\."
_COLUMN = r"(key-schema\.fields|schema\.fields\.(before|after)\.fields)\.[^.]*"
DECLARED: tuple[Declared, ...] = (
    Declared("clocks", r"value\.ts_(ms|us|ns)"),
    Declared("version", r"value\.source\.version"),
    Declared("snapshot-times", r"value\.source\.ts_(ms|us|ns)", operations="r"),
    Declared("snapshot-flag", r"value\.source\.snapshot", lambda _, own: own == "true", "r"),
    Declared("snapshot-flag", r"schema\.fields\.source\.fields\.snapshot\.default"),
    Declared("no-defaults", rf"{_COLUMN}\.default", lambda _, own: own == ABSENT),
    Declared("nulls-stay-null", f"{_SIDE}note", lambda theirs, own: (theirs, own) == ("none", None)),
    Declared("avro-names", rf"({_SIDE}|schema\.fields\.(before|after)\.fields\.)neu( €|__)",
             lambda theirs, own: ABSENT in (theirs, own)),
    Declared("digits-of-instants", _SIDE + "(c35|c36|c37)",
             lambda theirs, own: theirs == re.sub(r"\.?0*Z$", "Z", own), "r"),
    Declared("json-text", _SIDE + "c30", lambda theirs, own: theirs == own.replace(" ", ""), "cud"),
    Declared("uuid-zeros", _SIDE + "c47",
             lambda theirs, own: UUID(theirs).int == int.from_bytes(UUID(own).bytes.rstrip(b"\0")), "cud"),
    Declared("truncate-session", r"value\.source\.(thread|row|ts_us|ts_ns)", operations="t"),
    Declared("zero-days", r"schema\.fields\.(before|after)\.fields\.[dm]\.optional",
             lambda theirs, own: (theirs, own) == (False, True)),
    Declared("zero-days", _SIDE + "[dm]", lambda theirs, own: (theirs, own) == (0, None)),
)  # fmt: skip
_NOT_WITH = {"mariadb": {"json-text"}, "mysql": {"uuid-zeros"}}
Events = dict[str, list[Change]]


def values_of(database: MySql) -> Mapping[str, tuple[str, ...]]:
    """Of all types that the server has."""
    return {**VALUES, **(ONLY_MARIADB if database.scheme == "mariadb" else {})}


def config_of(database: MySql, name: str, *, number: int, **changed: str) -> dict[str, str]:
    """For ours; Debezium's has more."""
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(database.server.port),
        "database.user": database.name,
        "database.server.id": str(number),
        "database.include.list": database.name,
        "topic.prefix": f"{database.name}-{name}",
        **changed,
    }


def debeziums(database: MySql, config: Mapping[str, str], bootstrap: str) -> dict[str, str]:
    """What Debezium needs besides."""
    kind = "mariadb.MariaDb" if database.scheme == "mariadb" else "mysql.MySql"
    return {
        **config,
        "connector.class": f"io.debezium.connector.{kind}Connector",
        "database.password": "",
        "database.ssl.mode": "disable" if database.scheme == "mariadb" else "disabled",
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"{config['topic.prefix']}-history",
    }


async def followed(config: Mapping[str, str], begun: asyncio.Event) -> Events:
    """What ours delivers, by topic, up to the first record of the marker table."""
    parsed = MySqlCdcConfig.parse(config)
    assert parsed.config is not None, parsed.findings
    connector = MySqlCdcSource(parsed.config)
    context = FakeContext(partition=connector.partition(), clock=SystemClock())  # type: ignore[arg-type]
    found: Events = {}
    async with asyncio.timeout(SECONDS_MAX), aclosing(connector.fetch(context)) as pages:
        async for page in pages:
            if page.partition == connector.partition() and "snapshot" not in page.offset:
                begun.set()
            assert not page.rejections
            found.setdefault(str(page.topic), []).extend(ours(page))
            if str(page.topic).endswith(".marker"):
                break
    found.pop("None", None)
    return found


async def prepare(database: MySql) -> None:
    """Tables with keys and without one, and rows in them; the readers' own user."""
    known = values_of(database)
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(known))
    rows = [", ".join(f"{pair[at]}" for pair in known.values()) for at in (0, 1)]
    nulls = ", ".join("null" for _ in known)
    numbers = ", ".join(f"({number}, {number}, 'first')" for number in range(1, 41))
    await database.rows(
        f"alter database {database.name} character set utf8mb4",
        f"create user {database.name}",
        f"grant all on *.* to {database.name}",
        "create table marker (id int primary key)",
        "create table plain (id int primary key, n int not null default 7, note varchar(200) default 'none')",
        "create table whole (id int, part char(1) default 'a', n bigint not null, note varchar(100), "
        "primary key (part, id))",
        "create table keyless (id int not null, n int, note text)",
        "create table emptied (id int primary key)",
        "create table zeros (id int primary key, d date not null, m datetime(6) not null)",
        f"create table kinds (id int primary key, {columns})",
        *(f"insert into {table} (id, n, note) values {numbers}" for table in ("plain", "whole", "keyless")),
        "insert into emptied values (1)",
        *(f"insert into kinds values ({at + 1}, {row})" for at, row in enumerate((*rows, nulls))),
    )


def change(drawn: random.Random, number: int) -> str:
    """One statement."""
    table = drawn.choice(("plain", "whole", "keyless"))
    row, other = drawn.randint(1, 30), drawn.randint(31, 90)
    kind = drawn.random()
    if kind < 0.4:
        note = drawn.choice(("null", "''", f"'ü{number}'"))
        return f"insert ignore into {table} (id, n, note) values ({other}, {number}, {note})"
    if kind < 0.65:
        return f"update {table} set n = {number} where id between {row} and {row + 3}"
    if kind < 0.8 and table != "keyless":
        return f"update ignore {table} set id = {other} where id = {row}"
    return f"delete from {table} where id = {row}"


async def work(database: MySql, seed: int) -> None:
    """Transactions with savepoints and rollbacks, a schema that changes, every type, a truncate; then the marker."""
    drawn = random.Random(seed)
    connection = await database.connect(autocommit=False)
    columns = ", ".join(f"c{at}" for at in range(len(values_of(database))))
    async with connection.cursor() as cursor:

        async def run(*statements: str) -> None:
            for statement in statements:
                await cursor.execute(statement)

        for number in range(30):
            for _ in range(drawn.randint(1, 4)):
                await run("savepoint before_it", change(drawn, number))
                if drawn.random() < 0.25:
                    await run("rollback to savepoint before_it")
            await run("rollback" if drawn.random() < 0.15 else "commit")
            if number == 15:
                await run(
                    "alter table plain add column extra int first",
                    "alter table whole modify column note varchar(300), add column `neu €` int default 5 after id",
                    "alter table keyless drop column note",
                    "alter table keyless add column note text",
                )
        await run(
            "update plain set extra = id where id < 5",
            f"insert into kinds (id, {columns}) select id + 10, {columns} from kinds order by id",
            "delete from kinds where id = 11",
            "insert into zeros values (1, '0000-00-00', '0000-00-00'), (2, '2024-02-29', '2024-02-29 01:02:03.4')",
            "commit",
            "truncate table emptied",
            "insert into marker values (1)",
            "commit",
        )
    await connection.ensure_closed()


@pytest.fixture
async def database(each_mysql: MySql) -> AsyncIterator[MySql]:
    """Whose readers have a user of their own, by which they are known."""
    yield each_mysql
    await each_mysql.rows(f"drop user if exists {each_mysql.name}")


async def wait_until_read(database: MySql, readers: int, debezium: Debezium, names: Collection[str]) -> None:
    """Return when so many readers of the log are there; fails with the trace of a task of Debezium that has ended."""
    asked = "select count(*) from information_schema.processlist where command like 'Binlog Dump%' "
    async with asyncio.timeout(SECONDS_MAX):
        while int((await database.rows(f"{asked} and user = '{database.name}'"))[0][0]) < readers:
            for name in names:
                await debezium.demand_running(name)
            await asyncio.sleep(LOOK_SECONDS)


async def test_what_differs_from_debezium_is_declared(debezium: Debezium, database: MySql) -> None:
    """Keys, values, schemas, tombstones, topics, headers and order of all events of three configs."""
    await prepare(database)
    configs = {name: config_of(database, name, number=0, **changed) for name, changed in CASES.items()}
    begun = {name: asyncio.Event() for name in CASES}
    for at, config in enumerate(configs.values()):
        config["database.server.id"] = str(6101 + at)
        await debezium.start(config["topic.prefix"], debeziums(database, config, debezium.bootstrap))
    async with asyncio.TaskGroup() as group:
        reading = {
            name: group.create_task(followed({**config, "database.server.id": str(6201 + at)}, begun[name]), name=name)
            for at, (name, config) in enumerate(configs.items())
        }
        for event in begun.values():
            await event.wait()
        prefixes = [config["topic.prefix"] for config in configs.values()]
        await wait_until_read(database, 2 * len(CASES), debezium, prefixes)
        await work(database, 1)
    seen: set[str] = set()
    found: dict[str, list[Any]] = {}
    for name, task in reading.items():
        prefix = configs[name]["topic.prefix"]
        await debezium.wait_for(prefix, f"{prefix}.{database.name}.marker")
        await debezium.stop(prefix)
        for topic, changes in task.result().items():
            found[topic] = undeclared(await debezium.changes(topic), changes, DECLARED, seen)
        await debezium.delete(prefix)
    assert {topic: rows for topic, rows in found.items() if rows} == {}
    assert seen == declared_in_guide("mysql-changes.md") - _NOT_WITH[database.scheme]
