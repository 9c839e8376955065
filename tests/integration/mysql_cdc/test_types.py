# ruff: noqa: S608 - statements of tests
"""Spatial columns, and the forms of times and bytes that a config chooses, on a real MariaDB and a real MySQL."""

from __future__ import annotations

import base64
import struct

import pytest

from fetchers.sdk import Fatal
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MySql
from tests.integration.mysql_cdc.test_binlog import has_row, read, rows_of, source

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
    """Connect's own types, and base64, are the same in snapshot and log; a time that none of them can be is told."""
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
    with pytest.raises(Fatal, match="adaptive_time_microseconds"):
        await read(source(each_mysql, **MODES), context, until=has_row("x", 2))
