"""Which Avro records are decoded in columns: all that are right, but for those whose arrays are few and long."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from service.sinks.avro_columns import AvroShapeError, avro_shape
from service.sinks.avro_decoding import read_at_once
from service.sinks.avro_walk import NO_ID, Frames

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
PRICE = {"type": "fixed", "name": "Price", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 2}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}]}
NUMBERS, COUNTS = {"type": "array", "items": "long"}, {"type": "map", "values": "long"}
LINES = {"type": "array", "items": {**INNER, "fields": [*INNER["fields"], {"name": "tags", "type": ["null", NUMBERS]}]}}
NOON = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
GOOD: list[tuple[Any, list[Any]]] = [
    ("null", [None]),
    ("boolean", [True, False]),
    ("int", [0, -1, 2**31 - 1, -(2**31)]),
    ("long", [0, 63, 64, -65, 2**55, -(2**62), 2**63 - 1, -(2**63)]),
    ("float", [0.5, -1.0, float("inf")]),
    ("double", [0.1, -1e300]),
    ("string", ["", "Zürich", "x" * 1000]),
    (["null", "string"], [None, "a", None, ""]),
    (["long", "null"], [5, None]),
    ("bytes", [b"", b"\xff"]),
    ({"type": "string", "logicalType": "uuid"}, ["00000000-0000-4000-8000-000000000001"]),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["A", "B"]),
    ({"type": "fixed", "name": "F", "size": 3}, [b"abc", b"\0\0\0"]),
    (MONEY, [Decimal("0.00"), Decimal("-0.01"), Decimal("999999999999999999.99"), Decimal("-92233720368547758.09")]),
    (PRICE | {"precision": 19}, [Decimal("1.50"), Decimal("-1.50")]),
    ({"type": "int", "logicalType": "date"}, [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    ({"type": "int", "logicalType": "time-millis"}, [dt.time(23, 59, 59, 999_000)]),
    ({"type": "long", "logicalType": "timestamp-micros"}, [NOON, NOON.replace(year=1800)]),
    (INNER, [{"n": 1, "s": "a"}]),
    (["null", INNER], [None, {"n": 1, "s": "a"}, None]),
    (NUMBERS, [[], [1, -(2**63)], [5], [2**62] * 20]),
    (["null", NUMBERS], [None, [], [7, 8]]),
    ({"type": "array", "items": "double"}, [[0.5] * 1000, [], [1.5]]),
    ({"type": "array", "items": ["null", "string"]}, [["a", None], [None], [], ["Zürich"]]),
    ({"type": "array", "items": NUMBERS}, [[[1], [], [2, 3]], [], [[]], [[4, 5]]]),
    (
        LINES,
        [[{"n": 1, "s": "a", "tags": [1, 2]}, {"n": 2, "s": "", "tags": None}], [], [{"n": 3, "s": "b", "tags": []}]],
    ),
    (COUNTS, [[("a", 1), ("b", 2)], [], [("a", 3)]]),
    ({"type": "map", "values": NUMBERS}, [[("a", [1]), ("", [])], [("b", [2, 3])]]),
]


def bodies(schema: Any, values: list[Any]) -> list[bytes]:
    """As fastavro writes them, in Confluent's framing."""
    parsed, written = fastavro.parse_schema(schema), []
    for value in values:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, dict(value) if _is_map(schema) else value)
        written.append(b"\0\0\0\0\1" + body.getvalue())
    return written


def _is_map(schema: Any) -> bool:
    return isinstance(schema, dict) and schema["type"] == "map"


def at_once(schema: Any, records: list[bytes]) -> tuple[list[Any], list[bool]]:
    """What is read of these records in columns, and of which of them."""
    shape, frames = avro_shape(json.dumps(schema)), Frames(pa.array(records, pa.binary()))
    assert shape.read_at_once is not None
    column, is_read = read_at_once(shape.read_at_once, frames.bodies((frames.ids == 1).nonzero()[0]))
    assert column.type == shape.type
    return column.to_pylist(), is_read.tolist()


@pytest.mark.parametrize(("schema", "values"), GOOD, ids=str)
def test_what_is_right_is_read(schema: Any, values: list[Any]) -> None:
    """None of these records takes the way of single ones."""
    assert at_once(schema, bodies(schema, values)) == (values, [True] * len(values))


@pytest.mark.parametrize(
    ("schema", "value", "damage"),
    [
        *(
            ("string", "a", damage)
            for damage in (b"", b"\x04a", b"\x02ab", b"\x01a", b"\x02\xff", b"\xff" * 9 + b"\x01")
        ),
        ("boolean", True, b"\x02"),
        ("int", 1, b"\x80\x80\x80\x80\x10"),
        ("long", 1, b"\xff" * 9 + b"\x02"),
        ("long", 1, b"\xff" * 10 + b"\x01"),
        ("double", 0.5, bytes(7)),
        (["null", "int"], 1, b"\x04\x02"),
        (["null", "int"], 1, b"\x01\x02"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "A", b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "A", b"\x04"),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", b"ab"),
        ({"type": "int", "logicalType": "time-millis"}, dt.time(1), b"\x01"),
        (MONEY | {"precision": 2}, Decimal("0.99"), b"\x02\x64"),
        (MONEY | {"precision": 2}, Decimal("0.99"), b"\x02\x9c"),
        (MONEY, Decimal("0.99"), b"\x00"),
        (MONEY, Decimal("0.99"), b"\x22" + bytes(17)),
        (MONEY, Decimal("0.99"), b"\x20" + bytes([127] * 16)),
        (NUMBERS, [1], b"\x04\x02\x00"),
        (NUMBERS, [1], b"\x02\x02"),
        (NUMBERS, [1], b"\x80" * 8 + b"\x20\x02\x00"),
        (NUMBERS, [1], b"\xff" * 9 + b"\x01\x02\x02\x00"),
        ({"type": "array", "items": "double"}, [0.5], b"\x80" * 8 + b"\x20" + bytes(9)),
        ({"type": "array", "items": NUMBERS}, [[1]], b"\x02\x04\x02\x00\x00"),
        ({"type": "array", "items": "boolean"}, [True], b"\x04\x01\x02\x00"),
        ({"type": "array", "items": "string"}, ["a"], b"\x04\x02a\x02\xff\x00"),
        (COUNTS, [("a", 1)], b"\x04\x02a\x02\x02a\x04\x00"),
    ],
)
def test_what_is_not_right_is_left(schema: Any, value: object, damage: bytes) -> None:
    """Too short, too long, out of range, a negative length or index, no UTF-8: the records around it are read."""
    good, other = bodies(schema, [value, value])
    values, is_read = at_once(schema, [good, b"\0\0\0\0\1" + damage, other])
    assert is_read == [True, False, True]
    assert (values[0], values[2]) == (value, value)


@pytest.mark.parametrize(
    "schema",
    [
        PRICE | {"size": 17},
        {"type": "array", "items": PRICE | {"size": 17}},
        {"type": "map", "values": PRICE | {"size": 17}},
    ],
)
def test_schemas_that_are_read_record_by_record(schema: Any) -> None:
    """Wherever such a type stands in them."""
    record = {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", schema]}]}
    assert avro_shape(json.dumps(schema)).read_at_once is None
    assert avro_shape(json.dumps(record)).read_at_once is None


def test_blocks_of_an_array_follow_one_another() -> None:
    """Some tell of their size in bytes, which nobody needs."""
    blocks = [
        b"\x02\x02\x04\x04\x06\x00",
        b"\x01\x02\x02\x03\x04\x04\x06\x00",
        b"\x01\x7e\x02\x02\x04\x02\x06\x00",
        b"\x00",
    ]
    values, is_read = at_once(NUMBERS, [b"\0\0\0\0\1" + block for block in blocks])
    assert is_read == [True] * 4
    assert values == [[1, 2, 3], [1, 2, 3], [1, 2, 3], []]


def test_a_long_array_among_short_ones_is_left() -> None:
    """Its rounds would be for it alone: what a poll costs follows its items, not the longest array."""
    strings = {"type": "array", "items": "string"}
    short, long = bodies(strings, [["a", "b"], ["c"] * 100_000])
    records = [short] * 1000 + [long] + [short] * 1000
    values, is_read = at_once(strings, records)
    assert is_read == [True] * 1000 + [False] + [True] * 1000
    assert values[:1000] + values[1001:] == [["a", "b"]] * 2000


def test_long_arrays_side_by_side_are_read() -> None:
    """Those of items of one size are cut at once, whatever their number; many of others go on together."""
    (long,) = bodies({"type": "array", "items": "boolean"}, [[True, False] * 50_000])
    values, is_read = at_once({"type": "array", "items": "boolean"}, [long] * 12)
    assert is_read == [True] * 12
    assert values == [[True, False] * 50_000] * 12
    (long,) = bodies(NUMBERS, [list(range(100))])
    values, is_read = at_once(NUMBERS, [long] * 300)
    assert is_read == [True] * 300
    assert values == [list(range(100))] * 300


def test_rows_without_a_frame_have_no_id() -> None:
    """Also where the column is a part of another, and where it is empty or has nothing but nulls."""
    rows = [b"cut", b"\0\0\0\0", None, b"\1\0\0\0\1", b"\0\xff\xff\xff\xff", b"\0\x7f\xff\xff\xff", b"\0\0\0\0\7x"]
    frames = Frames(pa.array(rows, pa.binary()).slice(1))
    assert frames.ids.tolist() == [NO_ID, NO_ID, NO_ID, NO_ID, 2**31 - 1, 7]
    assert frames.numbered()[1] == [2**31 - 1, 7]
    assert frames.records((frames.ids == 7).nonzero()[0]) == [b"x"]
    for empty in (pa.array([], pa.binary()), pa.nulls(3, pa.binary())):
        assert Frames(empty).ids.tolist() == [NO_ID] * len(empty)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": {"type": "bytes"}},
        {
            "type": "record",
            "name": "a",
            "fields": [{"name": "b", "type": INNER}, {"name": "c", "type": {"type": "Inner"}}],
        },
    ],
)
def test_a_schema_that_the_reader_of_records_does_not_take_is_told(schema: Any) -> None:
    """Its records are refused, and the task goes on."""
    with pytest.raises(AvroShapeError, match="cannot be read"):
        avro_shape(json.dumps(schema))
