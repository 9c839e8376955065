"""Kafka's converters of single numbers and booleans, at sinks: columns, verdicts, headers."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
import pytest

from service.config.converters import read_converter, read_header_converter
from service.sinks.converters import column_reader
from service.sinks.headers import HeaderReader
from service.sinks.schemas import Kind, schema_of
from tests.unit.sinks.test_sink_decoding import HEADERS

PACKAGE = "org.apache.kafka.connect.converters."
KINDS: dict[str, tuple[str, list[Any], Kind]] = {
    "Integer": (">i", [0, -1, 2**31 - 1, -(2**31)], Kind.INT32),
    "Long": (">q", [0, -1, 2**63 - 1, -(2**63)], Kind.INT64),
    "Short": (">h", [0, -1, 2**15 - 1, -(2**15)], Kind.INT16),
    "Float": (">f", [0.5, -0.0, math.inf, 3.4028234663852886e38], Kind.FLOAT32),
    "Double": (">d", [0.1, -0.0, -math.inf, 5e-324], Kind.FLOAT64),
    "Boolean": (">?", [True, False, False, True], Kind.BOOLEAN),
}


async def read(name: str, values: list[bytes | None]) -> Any:
    """What the converter of that name makes of a column."""
    found = read_converter("value", {"value.converter": PACKAGE + name + "Converter"}, {})
    assert found.findings == ()
    assert found.converter is not None
    return await column_reader(found.converter, None).read(pa.array(values, pa.binary()))


@pytest.mark.parametrize("name", KINDS)
async def test_numbers_become_one_typed_column(name: str) -> None:
    """Big-endian, null is null, and what has another length is refused with Connect's reason and nothing else."""
    layout, values, kind = KINDS[name]
    size = struct.calcsize(layout)
    given = [*(struct.pack(layout, value) for value in values), None, b"", b"\x00" * (size + 1)]
    reading = await read(name, given)
    assert [repr(item) for item in reading.columns[0].to_pylist()] == [repr(each) for each in [*values, *[None] * 3]]
    # Kafka's own classes of floating point leave their name out.
    deserializer = "Deserializer" if name in {"Float", "Double"} else f"{name}Deserializer"
    message = f"Size of data received by {deserializer} is not {size}"
    assert reading.refused == dict.fromkeys((5, 6), ("wrong_type", message))
    schema = schema_of(reading.types[0])
    assert schema is not None
    assert (schema.kind, schema.is_optional) == (kind, True)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("values", [[], [None], [b"123"]])
async def test_a_column_without_numbers(name: str, values: list[bytes | None]) -> None:
    """Nothing, tombstones, and nothing that is right."""
    reading = await read(name, values)
    assert reading.columns[0].to_pylist() == [None] * len(values)
    assert list(reading.refused) == [row for row, value in enumerate(values) if value is not None]


async def test_a_slice_of_a_column_is_read_as_itself() -> None:
    """Columns of a poll may lie within greater ones."""
    whole: Any = pa.array([b"\x00\x01", None, b"\x00\x02", b"\x7f\xff", b"x"], pa.binary())
    found = read_converter("value", {"value.converter": "short"}, {}).converter
    assert found is not None
    reading = await column_reader(found, None).read(whole.slice(1, 3))
    assert (reading.columns[0].to_pylist(), reading.refused) == ([None, 2, 32767], {})


async def test_a_boolean_is_zero_or_one() -> None:
    """Other bytes are refused as Kafka's deserializer does."""
    reading = await read("Boolean", [b"\x01", b"\x02", b"\xff", b"\x00"])
    assert reading.columns[0].to_pylist() == [True, None, None, False]
    assert reading.refused == {
        1: ("wrong_type", "Unexpected byte received by BooleanDeserializer: 2"),
        2: ("wrong_type", "Unexpected byte received by BooleanDeserializer: -1"),
    }


@pytest.mark.parametrize(
    ("name", "header", "kind", "text"),
    [
        ("Integer", b"\x00\x00\x00\x07", "int32", "7"),
        ("Long", b"\xff" * 8, "int64", "-1"),
        ("Short", b"\x80\x00", "int16", "-32768"),
        ("Float", struct.pack(">f", 0.1), "float", "0.1"),
        ("Double", struct.pack(">d", math.nan), "double", '"NaN"'),
        ("Boolean", b"\x01", "boolean", "true"),
    ],
)
def test_headers_are_numbers_too(name: str, header: bytes, kind: str, text: str) -> None:
    """With their schema, and null with it."""
    form = read_header_converter({"header.converter": f"{PACKAGE}{name}Converter"}, {})
    assert form.findings == ()
    column: Any = pa.chunked_array([pa.array([[("h", header), ("n", None)]], HEADERS)])
    schema = f'{{"type":"{kind}","optional":true}}'
    assert HeaderReader(form.form).read(column).to_pylist() == [
        [{"name": "h", "schema": schema, "value": text}, {"name": "n", "schema": schema, "value": None}]
    ]
