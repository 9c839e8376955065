# ruff: noqa: S608 - statements of tests
"""Spatial columns, and the forms of times and bytes that a config chooses, on a real MariaDB and a real MySQL."""

from __future__ import annotations

import asyncio
import base64
import random
import struct
from contextlib import aclosing
from uuid import UUID

import pytest

from fetchers.sdk.testing.context import FakeContext
from tests.databases import MariaDb, MySql
from tests.integration.mysql_cdc.test_binlog import SECONDS_MAX, has_row, read, rows_of, source

pytestmark = pytest.mark.integration
MODES = {"event.form": "row", "time.precision.mode": "connect", "binary.handling.mode": "base64"}
SHAPES = {
    "g geometry": ("point(1, 2)", "st_geomfromtext('linestring(0 0, 1 1)', 4326)"),
    "p point": ("point(-0.5, 1e300)", "st_geomfromtext('point(3 4)', 4326)"),
    "a polygon": ("st_geomfromtext('polygon((0 0, 0 1, 1 1, 0 0))')", "null"),
    "m multipoint": ("st_geomfromtext('multipoint(0 0, 1 1)')", "null"),
    "c geometrycollection": ("st_geomfromtext('geometrycollection(point(1 1), linestring(0 0, 2 2))')", "null"),
}


async def test_shapes_are_debeziums_structs_in_snapshot_and_log(each_mysql: MySql) -> None:
    """Well-Known Binary and the reference system, and of a column of points the numbers as well."""
    rows = [", ".join(pair[at] for pair in SHAPES.values()) for at in (0, 1)]
    rows.append(", ".join("null" for _ in SHAPES))
    await each_mysql.rows(f"create table t (id int primary key, {', '.join(SHAPES)}, w int)")
    await each_mysql.rows(*(f"insert into t values ({at}, {row}, 7)" for at, row in enumerate(rows)))
    keys, context = {"event.form": "row"}, FakeContext()
    snapshot = await read(source(each_mysql, **keys), context, until=has_row("t", 2))
    await each_mysql.rows("create table x like t", "insert into x select * from t")
    logged = await read(source(each_mysql, **keys), context, until=has_row("x", 2))
    told = [value for _, _, value in rows_of(snapshot)]
    assert [value for topic, _, value in rows_of(logged) if topic.endswith(".x")] == told
    schemas = [page.schema.document["fields"] for page in (snapshot[0], logged[-1]) if page.schema is not None]
    assert schemas[0] == schemas[1]
    first, second, nulls = told
    assert (first["p"]["x"], first["p"]["y"], first["p"]["srid"]) == (-0.5, 1e300, None)
    assert _octets(first["p"]["wkb"]) == struct.pack("<BIdd", 1, 1, -0.5, 1e300)
    assert _octets(first["g"]["wkb"]) == struct.pack("<BIdd", 1, 1, 1, 2)
    assert set(first["g"]) == {"wkb", "srid"}
    assert (second["g"]["srid"], second["p"]["srid"], second["w"]) == (4326, 4326, 7)
    assert {nulls[name.split()[0]] for name in SHAPES} == {None}


def _octets(told: str) -> bytes:
    """Of a value of bytes in JSON."""
    return base64.b64decode(told)


async def test_times_and_bytes_as_the_config_wants_them(each_mysql: MySql) -> None:
    """Connect's own types, and base64, are the same in snapshot and log; a time that is none of theirs is rejected."""
    columns = "d date, dt datetime(6), ts timestamp(6) null, t time(6), b binary(4), v varbinary(9), l longblob"
    row = "'2024-02-29', '1969-12-31 23:59:59.999999', '2024-01-02 03:04:05.5', '23:59:59.999999', x'ff', x'fbff', ''"
    await each_mysql.rows(f"create table t (id int primary key, {columns})", f"insert into t values (1, {row})")
    context = FakeContext()
    snapshot = await read(source(each_mysql, **MODES), context, until=has_row("t", 1))
    await each_mysql.rows("create table x like t", "insert into x select * from t")
    logged = await read(source(each_mysql, **MODES), context, until=has_row("x", 1))
    ((_, _, told),) = rows_of(snapshot)
    assert rows_of(logged)[-1][2] == told
    assert {name: told[name] for name in ("d", "dt", "ts", "t", "b", "v", "l")} == {
        "d": 19782,
        "dt": -1,
        "ts": "2024-01-02T03:04:05.500000Z",
        "t": 86_399_999,
        "b": "/wAAAA==",
        "v": "+/8=",
        "l": "",
    }
    schemas = [page.schema for page in (snapshot[0], logged[-1])]
    assert schemas[0] is not None
    assert schemas[1] is not None
    assert schemas[0].document["fields"] == schemas[1].document["fields"]
    assert "org.apache.kafka.connect.data.Time" in str(schemas[0].document["fields"])
    await each_mysql.rows(f"insert into x values (2, {row.replace('23:59:59', '-00:00:01')})")
    pages = await read(source(each_mysql, **MODES), context, until=has_row("x", 2))
    ((page, rejection),) = [(page, rejection) for page in pages for rejection in page.rejections]
    assert page.original(rejection.index)[0] == b'{"id":2}'
    assert "adaptive_time_microseconds" in rejection.message


_NAMED = "u uuid, a inet4, b inet6, x binary(16), y binary(4)"
_ADDRESSES = (
    "::", "::1", "::5:0", "::1:0:0", "1::", "1:0:0:2::", "1:0:2:3:4:5:6:7", "0:1:2:3:4:5:6:7", "1:2:3:4:5:6:7:0",
    "::1.2.3.4", "::ffff:1.2.3.4", "::ffff:0.0.0.0", "::ffff:0:0:0", "1:0:0:0:2:0:0:0", "0:0:0:1:0:0:0:0",
    "0:0:1:0:0:1::", "2001:db8::ff00:42:8329", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "0:0:0:0:0:ffff:1:0", "0:0:0:0:1:ffff:1:2",
)  # fmt: skip
_UUIDS = (
    "00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "12345678-1234-1abc-9def-fedcba987600", "018f4e3a-7b2c-7d3e-8f4a-5b6c7d8e9f00",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
)  # fmt: skip


def _named_row(at: int, drawn: random.Random) -> str:
    """Values with zeros at their ends, which the log leaves out, and random ones."""
    if at == 0:
        return "null, null, null, null, null"
    uuid = _UUIDS[at % len(_UUIDS)] if at < 40 else str(UUID(int=drawn.getrandbits(128)))
    words = [drawn.choice((0, 0, 0, 0xFFFF, drawn.getrandbits(16))) for _ in range(8)]
    long = _ADDRESSES[at % len(_ADDRESSES)] if at < 40 else ":".join(f"{word:x}" for word in words)
    short = ".".join(str(drawn.choice((0, 255, drawn.getrandbits(8)))) for _ in range(4))
    return f"'{uuid}', '{short}', '{long}', x'{UUID(uuid).hex}', x'00ff'"


async def test_uuids_and_addresses_are_the_servers_texts_in_snapshot_and_log(mariadb: MariaDb) -> None:
    """The log has their bytes and not their types; ``BINARY`` of the same length stays bytes."""
    drawn = random.Random(14)
    await mariadb.rows(
        f"create table t (id int primary key, {_NAMED})",
        *(f"insert into t values ({at}, {_named_row(at, drawn)})" for at in range(300)),
    )
    keys, context = {"event.form": "row"}, FakeContext()
    assert await source(mariadb, **keys).check(FakeContext()) == []
    snapshot = await read(source(mariadb, **keys), context, until=has_row("t", 299))
    await mariadb.rows("create table x like t", "insert into x select * from t order by id")
    logged = await read(source(mariadb, **keys), context, until=has_row("x", 299))
    own = await mariadb.rows("select u, a, b from t order by id")
    told = [value for _, _, value in rows_of(snapshot)]
    assert [(value["u"], value["a"], value["b"]) for value in told] == own
    assert told[1]["y"] == base64.b64encode(b"\0\xff\0\0").decode()
    assert [value for topic, _, value in rows_of(logged) if topic.endswith(".x")] == told
    schemas = [page.schema.document["fields"] for page in (snapshot[0], logged[-1]) if page.schema is not None]
    assert schemas[0] == schemas[1]


@pytest.mark.parametrize("kind", ["uuid", "inet4", "inet6"])
async def test_a_key_has_the_same_bytes_from_snapshot_log_and_stretch(mariadb: MariaDb, kind: str) -> None:
    """Rows behind a key are those that the server has behind it, whatever its order is."""
    drawn = random.Random(kind)
    values = {_named_row(at, drawn).split(", ")[("uuid", "inet4", "inet6").index(kind)] for at in range(1, 90)}
    await mariadb.rows(
        f"create table t (id {kind} primary key, n int)",
        *(f"insert ignore into t values ({value}, 1)" for value in values),
    )
    own = await mariadb.rows("select id from t")
    keys, context = {"event.form": "row", "snapshot.fetch.size": "7"}, FakeContext()
    first = await read(source(mariadb, **keys), context, until=bool)  # and the rest in stretches
    await mariadb.rows("create table last (id int primary key)")
    rest = await read(source(mariadb, **keys), context, until=lambda pages: len(rows_of([*first, *pages])) >= len(own))
    read_keys = [key for _, key, _ in rows_of([*first, *rest])]
    assert sorted(read_keys) == sorted(f'{{"id":"{one[0]}"}}' for one in own)
    await mariadb.rows("update t set n = 2", "insert into last values (1)")
    logged = rows_of(await read(source(mariadb, **keys), context, until=has_row("last", 1)))
    assert sorted(key for topic, key, _ in logged if topic.endswith(".t")) == sorted(read_keys)


async def test_a_column_that_becomes_a_uuid_is_one_from_there_on(mariadb: MariaDb) -> None:
    """The log has the same description before and behind the change."""
    await mariadb.rows("create table t (id int primary key, u binary(16))")
    keys, context = {"event.form": "row", "snapshot.mode": "no_data"}, FakeContext()
    await read(source(mariadb, **keys), context, until=bool)
    octets = UUID(_UUIDS[1]).bytes
    found = []
    async with asyncio.timeout(SECONDS_MAX), aclosing(source(mariadb, **keys).fetch(context)) as pages:
        for statements in (
            [f"insert into t values (1, x'{octets.hex()}')"],
            ["alter table t modify u uuid", f"insert into t values (2, '{_UUIDS[1]}')"],
            ["drop table t", "create table other (id int)", "insert into other values (1)"],
        ):
            await mariadb.rows(*statements)
            while not (page := rows_of([await anext(pages)])):
                pass
            found += page
    assert [value.get("u") for _, _, value in found] == [base64.b64encode(octets).decode(), _UUIDS[1], None]
