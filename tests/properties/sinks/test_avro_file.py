"""Avro files that are encoded by columns hold what fastavro would have written, whatever the values are."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.sinks.avro_columns import avro_shape
from service.sinks.filesystem.avro_file import AvroFile

LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=80)
MONEY = st.integers(-(10**15), 10**15).map(lambda units: Decimal(units).scaleb(-2))
TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)).map(  # noqa: DTZ001 - the zone is given below
    lambda at: at.replace(tzinfo=dt.UTC, microsecond=at.microsecond // 1000 * 1000)
)
SYMBOL = {"type": "enum", "name": "Symbol", "symbols": ["A", "B"]}
FIELDS = {
    "whole": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": (["null", "long"], st.none() | LONGS),
    "text": (["string", "null"], st.none() | TEXTS),
    "double": ("double", st.floats(allow_nan=False)),
    "float": (["null", "float"], st.none() | st.floats(width=32, allow_nan=False)),
    "truth": (["null", "boolean"], st.none() | st.booleans()),
    "bytes": ("bytes", st.binary(max_size=20)),
    "symbol": (SYMBOL, st.sampled_from("AB")),
    "again": (["null", "Symbol"], st.none() | st.sampled_from("AB")),
    "fixed": ({"type": "fixed", "name": "Three", "size": 3}, st.binary(min_size=3, max_size=3)),
    "money": (["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}], st.none() | MONEY),
    "price": (
        {"type": "fixed", "name": "Price", "size": 20, "logicalType": "decimal", "precision": 20, "scale": 2},
        MONEY,
    ),
    "day": ({"type": "int", "logicalType": "date"}, st.dates(dt.date(1900, 1, 1))),
    "at": (["null", {"type": "long", "logicalType": "timestamp-millis"}], st.none() | TIMES),
    "list": (
        ["null", {"type": "array", "items": ["null", "long"]}],
        st.none() | st.lists(st.none() | LONGS, max_size=5),
    ),
    "map": ({"type": "map", "values": "string"}, st.dictionaries(TEXTS, TEXTS, max_size=3)),
    "inner": (
        ["null", {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": ["null", "Symbol"]}]}],
        st.none() | st.fixed_dictionaries({"n": st.none() | st.sampled_from("AB")}),
    ),
}
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Row",
        "namespace": "a.b",
        "fields": [{"name": name, "type": kind} for name, (kind, _) in FIELDS.items()],
    }
)
ROWS = st.lists(st.fixed_dictionaries({name: values for name, (_, values) in FIELDS.items()}), max_size=8)


@given(rows=ROWS, codec=st.sampled_from(["null", "deflate", "snappy", "bzip2"]), cut=st.integers(0, 8))
def test_fastavro_reads_back_what_was_written(rows: list[dict[str, object]], codec: str, cut: int) -> None:
    """Every type, null and not, under every codec, from columns that are slices too."""
    column = pa.array(rows, avro_shape(SCHEMA).type)
    file = io.BytesIO()
    written = AvroFile(file, SCHEMA, codec)
    for piece in (column.slice(0, cut), column.slice(cut)):
        written.write(piece)
    file.seek(0)
    assert list(fastavro.reader(file)) == rows


@pytest.mark.parametrize(("schema", "values"), [('"string"', ["a", ""]), ('["null","long"]', [None, 5])])
def test_values_need_not_be_records(schema: str, values: list[object]) -> None:
    """A topic of texts makes a file of texts."""
    file = io.BytesIO()
    AvroFile(file, schema, "null").write(pa.array(values))
    file.seek(0)
    assert list(fastavro.reader(file)) == values
