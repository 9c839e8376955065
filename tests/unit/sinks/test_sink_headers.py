"""Headers as a sink is told of them, if it asks: by the header converter, or as a transformation has made them."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from service.sinks.batch import Form, SinkBatch, ValueType
from service.sinks.converters import EnvelopeReader, TextReader
from service.sinks.decoding import KEY_STAGE, VALUE_STAGE, Decoding, SideReader
from service.sinks.headers import HeaderReader
from spark_batch.avro_types import Decimal
from spark_batch.plan import ConverterKind, ConverterSpec
from spark_batch.transforms.catalog import FieldName, HeaderFrom, HoistField, InsertField, InsertHeader, Side, Step
from spark_batch.transforms.change import canonical_of_connect
from spark_batch.transforms.records import HEADERS
from tests.unit.sinks.fake_library import polled

Told = list[tuple[str, Any, Any]]
SIMPLE = HeaderReader()
PLAIN = HeaderReader(ConverterSpec(ConverterKind.JSON))
STRING = {"type": "string", "optional": False}


def headed(lists: list[list[tuple[str, bytes | None]] | None]) -> pa.Table:
    """Records with these headers."""
    table = polled([b"%d" % number for number in range(len(lists))])
    headers: Any = pa.array(lists, HEADERS)
    return table.set_column(table.schema.get_field_index("headers"), "headers", headers)


def told(batch: SinkBatch) -> list[Told]:
    """Name, schema and value of each header."""

    def read(text: str | None) -> Any:
        return None if text is None else json.loads(text)

    return [
        [(each["name"], read(each["schema"]), read(each["value"])) for each in own or ()]
        for own in batch.connect_headers().to_pylist()
    ]


def batch_of(table: pa.Table, reader: HeaderReader) -> SinkBatch:
    """As a sink is handed it."""
    kind = ValueType(Form.BYTES)
    return SinkBatch(table, kind, kind, lambda *_: None, reader)


def test_headers_are_read_as_what_they_look_like() -> None:
    """A record without headers has none; a slice of a batch, and rows of it, have their own."""
    batch = batch_of(headed([None, [("a", b"7"), ("a", None)], [], [("b", b"")]]), SIMPLE)
    expected: list[Told] = [
        [],
        [("a", {"type": "int8", "optional": False}, 7), ("a", None, None)],
        [],
        [("b", STRING, "")],
    ]
    assert told(batch) == expected
    assert told(batch.slice(1, 2)) == expected[1:3]
    assert told(batch.take(np.array([0, 3]))) == [expected[0], expected[3]]


@pytest.mark.parametrize("header", [b"\xff\x00", b"[" * 10_000], ids=["no-text", "too-deep"])
def test_what_cannot_be_read_is_bytes(header: bytes) -> None:
    """As SimpleHeaderConverter does where it fails; nothing is put in the place of what is no text."""
    ((only,),) = told(batch_of(headed([[("a", header)]]), SIMPLE))
    assert only[1] == {"type": "bytes", "optional": False}


async def test_what_transformations_make_keeps_its_type() -> None:
    """Whatever the converter; a text of digits stays a text, an instant an instant, long ago as well."""
    steps = (
        Step("w", HoistField(Side.VALUE, "line")),
        Step("i", InsertField(Side.VALUE, static=FieldName("text"), static_value="7", timestamp=FieldName("at"))),
        Step("h", HeaderFrom(Side.VALUE, ("text", "at"), ("t", "m"), is_moved=False)),
        Step("n", InsertHeader("n", "[1.5]")),
    )
    key, value = (SideReader(TextReader(), name, stage) for name, stage in (("K", KEY_STAGE), ("V", VALUE_STAGE)))
    decoding = Decoding(key, value, "Sink", steps, header_reader=PLAIN)
    decoded = await decoding.decode(headed([[("own", b'{"a": 1}')], None]), refuse=lambda _: None)
    (batch,) = decoded.batches
    made = [
        ("t", {"type": "string", "optional": True}, "7"),
        (
            "m",
            {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1, "optional": True},
            1_000,
        ),
        ("n", {"type": "array", "items": {"type": "float", "optional": False}, "optional": False}, [1.5]),
    ]
    first, second = told(batch)
    assert first == [("own", None, {"a": 1}), *made]
    assert [each[2] for each in second] == ["7", 1_001, [1.5]]
    texts = [header["value"] for header in batch.records["headers"].to_pylist()[1] or ()]
    assert texts == [b"7", b"00:00:01.001Z", b"[1.5]"]


NESTED: dict[str, Any] = {
    "type": "struct",
    "optional": False,
    "fields": [
        {
            "field": "home",
            "type": "struct",
            "optional": True,
            "fields": [
                {"field": "a", "type": "array", "items": {"type": "int32", "optional": False}, "optional": False},
                {"field": "b", "type": "string", "optional": True, "default": "x"},
            ],
        }
    ],
}


async def test_nested_fields_that_are_not_as_their_schema_says() -> None:
    """Each of them is refused by itself, and the others of its batch are handed over."""
    payloads: list[Any] = [
        {"home": {"a": [1], "b": None}},
        {"home": 7},
        {"home": {"a": {"b": 1}}},
        {"home": {"a": ["1"]}},
        {"home": {"a": [1.5], "b": 'y"'}},
        {"home": None},
    ]
    step = Step("h", HeaderFrom(Side.VALUE, ("home",), ("h",), is_moved=False))
    key = SideReader(TextReader(), "K", KEY_STAGE)
    value = SideReader(EnvelopeReader(), "V", VALUE_STAGE)
    table = polled([json.dumps({"schema": NESTED, "payload": payload}).encode() for payload in payloads])
    decoded = await Decoding(key, value, "Sink", (step,), header_reader=SIMPLE).decode(table, refuse=lambda _: None)
    assert [(refusal.row, refusal.reason) for refusal in decoded.refusals] == [
        (1, "wrong_type"),
        (2, "wrong_type"),
        (3, "wrong_type"),
    ]
    (batch,) = decoded.batches
    schema = {key: item for key, item in NESTED["fields"][0].items() if key != "field"}
    assert told(batch) == [
        [("h", schema, {"a": [1], "b": "x"})],
        [("h", schema, {"a": [1], "b": 'y"'})],
        [("h", schema, None)],
    ]
    texts = [header["value"] for own in batch.records["headers"].to_pylist() for header in own or ()]
    assert texts == [b'{"a":[1],"b":"x"}', b'{"a":[1],"b":"y\\""}', None]


def test_decimals_keep_all_of_their_digits() -> None:
    """Of JSON, where Python's own decimals would keep 28."""
    unscaled = 10**37 + 1
    written = base64.b64encode(unscaled.to_bytes(16, "big", signed=True))
    found = canonical_of_connect(Decimal(38, 2), b'"%s"' % written)
    assert found == "100000000000000000000000000000000000.01"
