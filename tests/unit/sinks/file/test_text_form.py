"""The text of each value, as Kafka Connect's file sink prints it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.sinks.batch import Form, SinkBatch, ValueType
from service.sinks.file.text_form import lines, texts_of


def batch_of(values: Any, form: Form, schema: str | None = None) -> SinkBatch:
    """A batch of these values."""
    kind = ValueType(form, schema)
    return SinkBatch(pa.table({"value": values}), kind, kind, lambda _row, _reason, _message: None)


def written(values: Any, form: Form, schema: object = None) -> bytes:
    """Their lines."""
    text = None if schema is None else json.dumps(schema)
    texts, _ = texts_of(batch_of(values, form, text))
    return b"".join(lines(texts))


@given(st.lists(st.one_of(st.none(), st.text(max_size=20)), max_size=20), st.integers(0, 5))
def test_text_is_itself(texts: list[str | None], begin: int) -> None:
    """And a line feed; null is ``null``; slices and chunks make no difference."""
    column = pa.chunked_array([pa.array(texts, pa.string()), pa.array(texts[:3], pa.string())]).slice(begin)
    expected = [*texts, *texts[:3]][begin:]
    assert written(column, Form.TEXT) == "".join(f"{'null' if t is None else t}\n" for t in expected).encode()


def test_bytes_are_themselves() -> None:
    """Any of them."""
    assert written(pa.array([b"\xff\0", None, b""], pa.binary()), Form.BYTES) == b"\xff\0\nnull\n\n"


def test_json_without_schema_is_itself_and_strings_are_text() -> None:
    """An object keeps its order and digits."""
    texts = ['{"b": 1.10, "a": null}', '"caf\\u00e9\\n"', "[1]", None]
    assert written(pa.array(texts), Form.JSON).decode() == '{"b": 1.10, "a": null}\ncafé\n\n[1]\nnull\n'


DATA = "org.apache.kafka.connect.data"
DEFAULTED = {
    "type": "struct",
    "fields": [
        {"field": "a", "type": "double", "default": 1.5, "optional": True},
        {"field": "b", "type": "string", "default": "x", "optional": True},
    ],
}
PRICE: dict[str, object] = {"type": "bytes", "name": f"{DATA}.Decimal", "parameters": {"scale": "2"}}
DATE = {"type": "int32", "name": f"{DATA}.Date"}
NESTED: dict[str, object] = {"type": "int8"}
for _ in range(245):
    NESTED = {"type": "array", "items": NESTED, "optional": True}
STRUCT = {
    "type": "struct",
    "fields": [
        {"field": "a", "type": "int64"},
        {"field": "gone", "type": "string", "optional": True},
        {"field": "list", "type": "array", "items": {"type": "string"}},
        {"field": "map", "type": "map", "keys": {"type": "string"}, "values": {"type": "boolean"}},
        {"field": "inner", "type": "struct", "fields": [{"field": "d", "type": "double"}]},
    ],
}


@pytest.mark.parametrize(
    ("schema", "payload", "text"),
    [
        ({"type": "string"}, '"plain"', "plain"),
        ({"type": "int64"}, str(2**63 - 1), str(2**63 - 1)),
        ({"type": "int64"}, str(-(2**63)), str(-(2**63))),
        ({"type": "int8"}, "-128", "-128"),
        ({"type": "int16"}, "3.2767e4", "32767"),
        ({"type": "boolean"}, "true", "true"),
        (
            STRUCT,
            '{"list": ["x", "y"], "a": 1, "gone": null, "map": {"k": true}, "inner": {"d": 1.50}}',
            "Struct{a=1,list=[x, y],map={k=true},inner=Struct{d=1.5}}",
        ),
        ({"type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}}, '[[1, "a"]]', "{1=a}"),
        ({"type": "int64", "name": f"{DATA}.Timestamp"}, "1700000000001", "Tue Nov 14 22:13:20 UTC 2023"),
        ({"type": "int64", "name": f"{DATA}.Timestamp"}, "-1", "Wed Dec 31 23:59:59 UTC 1969"),
        ({"type": "int64", "name": f"{DATA}.Timestamp"}, str(2**62), str(2**62)),
        ({"type": "int32", "name": f"{DATA}.Date"}, "19675", "Tue Nov 14 00:00:00 UTC 2023"),
        ({"type": "int32", "name": f"{DATA}.Time"}, "3723000", "Thu Jan 01 01:02:03 UTC 1970"),
        (DEFAULTED, '{"b": null}', "Struct{a=1.5,b=x}"),
        (PRICE, '"BOI="', "12.50"),
        (PRICE, "12.50", "12.50"),
        (PRICE | {"parameters": {"scale": "8"}}, '"AQ=="', "1E-8"),
        ({"type": "array", "items": PRICE}, '["BOI=", "AA=="]', "[12.50, 0.00]"),
        ({"type": "map", "keys": {"type": "boolean"}, "values": PRICE}, '[[true, "BOI="]]', "{true=12.50}"),
        (
            {"type": "array", "items": {"type": "int32", "name": f"{DATA}.Date"}},
            "[0]",
            "[Thu Jan 01 00:00:00 UTC 1970]",
        ),
        ({"type": "double"}, "1e7", "1.0E7"),
        ({"type": "float"}, "0.1", "0.1"),
        ({"type": "int64"}, "1e3", "1000"),
        ({"type": "int64"}, "-0.0", "0"),
        ({"type": "int64", "name": f"{DATA}.Timestamp"}, "1e3", "Thu Jan 01 00:00:01 UTC 1970"),
        ({"type": "double"}, "1e999999999", "Infinity"),
        (PRICE, "1e999999999", "1E+999999999"),
        (NESTED, f"{'[' * 245}1{']' * 245}", f"{'[' * 245}1{']' * 245}"),
        (DEFAULTED | {"optional": True}, "null", "null"),
    ],
)
def test_a_payload_under_a_schema(schema: object, payload: str, text: str) -> None:
    """Structs in the order of their schema, without nulls; numbers as Java prints them."""
    assert written(pa.array([payload]), Form.JSON, schema).decode() == f"{text}\n"


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (STRUCT, "{}"),
        (STRUCT, "[1]"),
        ({"type": "array", "items": {"type": "string"}}, '"abc"'),
        ({"type": "array", "items": {"type": "string"}}, "[null]"),
        ({"type": "string"}, "1"),
        ({"type": "int32"}, '"1"'),
        ({"type": "int32"}, "1.5"),
        ({"type": "int64"}, "1e9999999"),
        ({"type": "int64"}, "-1e9999999"),
        ({"type": "int64"}, "1e-9999999"),
        ({"type": "int64"}, "1e99999999999999999999"),
        ({"type": "int64"}, "9" * 5000),
        ({"type": "int64"}, str(2**63)),
        ({"type": "int8"}, "128"),
        ({"type": "int16"}, "-32769"),
        ({"type": "int32"}, str(2**31)),
        ({"type": "int64", "default": 2**63}, "1"),
        ({"type": "int64", "name": f"{DATA}.Timestamp"}, "1e9999999"),
        ({"type": "int32", "name": f"{DATA}.Date"}, str(2**31)),
        (PRICE, f'"{"f" * 8192}"'),
        ({"type": "string"}, "null"),
        ({"type": "boolean"}, "1"),
        (PRICE, '"?"'),
        ({"type": "int64", "name": f"{DATA}.Timestamp"}, '"x"'),
        ({"type": "unknown"}, "1"),
    ],
)
def test_a_payload_that_is_not_of_its_schema_is_passed_over(schema: object, payload: str) -> None:
    """Its row is told, and the others are written."""
    batch = batch_of(pa.array([None, payload, None]), Form.JSON, json.dumps(schema))
    texts, misfits = texts_of(batch)
    assert list(misfits) == [1]
    assert b"".join(lines(texts)) == b"null\nnull\n"


DEEP = {
    "type": "struct",
    "fields": [
        {"field": "n", "type": "int32"},
        {"field": "price", "optional": True, **PRICE},
        {
            "field": "deep",
            "type": "struct",
            "optional": True,
            "fields": [
                {"field": "list", "type": "array", "optional": True, "items": {"type": "float"}},
                {"field": "map", "type": "map", "optional": True, "keys": {"type": "string"},
                 "values": {"type": "array", "items": {"type": "boolean"}}},
                {"field": "pairs", "type": "map", "optional": True, "keys": {"type": "int8"},
                 "values": {"type": "string"}},
            ],
        },
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "payload", "message"),
    [
        (DEEP, '{"n": "secret"}', "field 'n' is not of its schema, INT32"),
        (DEEP, "{}", "field 'n' is null or missing, and its schema says that it is not optional"),
        (DEEP, f'{{"n": {2**31}}}', "field 'n' is not of its schema, INT32"),
        (DEEP, '{"n": 1, "price": "?"}', f"field 'price' is not of its schema, {DATA}.Decimal"),
        (DEEP, '{"n": 1, "deep": 7}', "field 'deep' is not of its schema, STRUCT"),
        (DEEP, '{"n": 1, "deep": {"list": "secret"}}', "field 'deep.list' is not of its schema, ARRAY"),
        (DEEP, '{"n": 1, "deep": {"list": [1.5, "s"]}}', "field 'deep.list[1]' is not of its schema, FLOAT32"),
        (
            DEEP,
            '{"n": 1, "deep": {"map": {"a": [], "secret": [true, 0]}}}',
            "field 'deep.map{}[1]' is not of its schema, BOOLEAN",
        ),
        (DEEP, '{"n": 1, "deep": {"pairs": [["secret", "a"]]}}', "field 'deep.pairs' is not of its schema, MAP"),
        (DEEP, '{"n": 1, "deep": {"pairs": ["1a"]}}', "field 'deep.pairs' is not of its schema, MAP"),
        (DEEP, "[]", "the payload is not of its schema, STRUCT"),
        ({"type": "string"}, "1", "the payload is not of its schema, STRING"),
        ({"type": "array", "items": DATE}, '[0, "x"]', f"field '[1]' is not of its schema, {DATA}.Date"),
        ({"type": "unknown"}, "1", "the payload is not of its schema, which cannot be read"),
    ],
)
def test_which_field_of_a_payload_is_not_of_its_schema(schema: object, payload: str, message: str) -> None:
    """Its path is told, and never a value or the key of a map."""
    batch = batch_of(pa.array([payload]), Form.JSON, json.dumps(schema))
    assert texts_of(batch)[1] == {0: message}


def test_typed_numbers() -> None:
    """As Java prints them, in 32 bits and in 64; decimals with all their digits."""
    kind: Any = pa.struct(
        [("f", pa.float32()), ("d", pa.float64()), ("big", pa.float64()), ("tiny", pa.decimal128(9, 9))]
    )
    value = pa.array([{"f": 0.1, "d": float("nan"), "big": 1e16, "tiny": Decimal("1E-9")}], kind)
    assert written(value, Form.RECORD).decode() == "Struct{f=0.1,d=NaN,big=1.0E16,tiny=1E-9}\n"


def test_typed_instants() -> None:
    """Those that Connect has a class for are Java's dates."""
    at = datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC)
    kind: Any = pa.struct([("at", pa.timestamp("ms", "UTC")), ("on", pa.date32()), ("time", pa.time32("ms"))])
    value = pa.array([{"at": at, "on": at.date(), "time": at.time()}], kind)
    on = "Tue Nov 14 00:00:00 UTC 2023"
    expected = f"Struct{{at=Tue Nov 14 22:13:20 UTC 2023,on={on},time=Thu Jan 01 22:13:20 UTC 1970}}"
    assert written(value, Form.RECORD).decode() == f"{expected}\n"


def test_typed_records() -> None:
    """Those of Avro."""
    kind: Any = pa.struct(
        [
            pa.field("id", pa.int64()),
            pa.field("gone", pa.string()),
            pa.field("paid", pa.decimal128(6, 2)),
            pa.field("tags", pa.map_(pa.string(), pa.bool_())),
            pa.field("list", pa.list_(pa.float64())),
        ]
    )
    value = {"id": 1, "gone": None, "paid": Decimal("1.20"), "tags": [("a", True)], "list": [1.5, None]}
    assert (
        written(pa.array([value, None], kind), Form.RECORD).decode()
        == "Struct{id=1,paid=1.20,tags={a=true},list=[1.5, null]}\nnull\n"
    )


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")], ids=str)
def test_a_date_beyond_the_calendar_is_unfit_alone(kind: Any) -> None:
    """The others are printed; a batch is never refused whole for it."""
    greatest = 2**31 - 1 if kind == pa.date32() else 2**63 - 1
    days: Any = pa.array([0, greatest, 0], pa.int32() if kind == pa.date32() else pa.int64()).view(kind)
    texts, misfits = texts_of(batch_of(pa.StructArray.from_arrays([days], ["day"]), Form.RECORD, '"unused"'))
    assert misfits == {1: f"field 'day' is beyond the years 1 to 9999, {kind}"}
    assert [text is None for text in texts.to_pylist()] == [False, True, False]


def test_a_date_within_others_beyond_the_calendar_is_named() -> None:
    """By its path, in structs and lists; the keys of a map are content."""
    far: Any = pa.array([0, 2**31 - 1], pa.int32()).view(pa.date32())
    days = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), far)
    batch = batch_of(pa.StructArray.from_arrays([days], ["days"]), Form.RECORD, '"unused"')
    assert texts_of(batch)[1] == {0: "field 'days[1]' is beyond the years 1 to 9999, date32[day]"}
    near: Any = pa.array(["secret"])
    ends: Any = pa.array([0, 1], pa.int32())
    by_name: Any = pa.MapArray.from_arrays(ends, near, far.slice(1))
    batch = batch_of(pa.StructArray.from_arrays([by_name], ["by_name"]), Form.RECORD, '"unused"')
    assert texts_of(batch)[1] == {0: "field 'by_name{}' is beyond the years 1 to 9999, date32[day]"}
