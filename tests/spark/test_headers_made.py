"""Headers that `HeaderFrom` makes of a source's records: the same texts in columns and on the exact path."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from spark_batch.convert_exactly import convert_exactly
from spark_batch.outcome import Reason, Stage
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from spark_batch.transforms.catalog import HeaderFrom, HoistField, RecordIsTombstone, ReplaceField, Side, Step
from tests.spark.engines import Engine, table

JSON = ConverterSpec(ConverterKind.JSON)
SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "text", "type": ["null", "string"], "default": None},
        {"name": "number", "type": "long"},
        {"name": "real", "type": "double"},
        {"name": "small", "type": "float"},
        {"name": "flag", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "exact", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
NAMES = tuple(field["name"] for field in SCHEMA["fields"])  # type: ignore[index]
RECORD = {
    "text": "é", "number": 1 << 60, "real": 1.5, "small": 0.25, "flag": True, "raw": "AQI=", "exact": 3.10,
    "day": "2024-02-29", "at": "2024-02-29T12:00:00.500Z",
}  # fmt: skip


def record(**changes: object) -> bytes:
    """A payload."""
    return json.dumps({**RECORD, **changes}).encode()


def made(side: Side, *fields: str, is_moved: bool = False) -> HeaderFrom:
    """Headers of the names of their fields."""
    return HeaderFrom(side, fields, fields, is_moved, is_null_defaulted=False)


def plan_of(*steps: Step, payloads: PayloadFormat = PayloadFormat.JSON, **keys: Any) -> ConversionPlan:
    """A plan without findings."""
    contract = Contract(json.dumps(SCHEMA)) if payloads is PayloadFormat.JSON else None
    plan = ConversionPlan(
        payloads, contract, value_converter=JSON, key_converter=JSON, transformations=steps, topic="t", **keys
    )
    assert plan_findings(plan) == []
    return plan


def test_the_texts_of_every_type(engine: Engine) -> None:
    """As SimpleHeaderConverter writes them; what is only sure record by record is the same there; nulls have none."""
    plan = plan_of(Step("made", made(Side.VALUE, *NAMES)))
    outcome = engine.convert(plan, table([record(), record(text=None, real=1e22, day="0001-01-01"), None]))
    first, second, tombstone = cast("Any", outcome.column("headers").to_pylist())
    assert dict(zip(NAMES, first, strict=True)) == {
        "text": "é".encode(), "number": b"1152921504606846976", "real": b"1.5", "small": b"0.25", "flag": b"true",
        "raw": b"AQI=", "exact": b"3.10", "day": b"2024-02-29", "at": b"2024-02-29T12:00:00.500Z",
    }  # fmt: skip
    assert (second[0], second[2]) == (None, b"1.0E22")
    assert not any(tombstone or ())
    assert outcome.column("reason").to_pylist() == [None] * 3


def test_moved_fields_are_gone(engine: Engine) -> None:
    """The header sees what the steps before have made, those behind see what is left."""
    steps = (
        Step("renamed", ReplaceField(Side.VALUE, renames=(("number", "n"),))),
        Step("made", made(Side.VALUE, "n", "flag", is_moved=True)),
        Step("kept", ReplaceField(Side.VALUE, include=frozenset({"real", "n"}))),
    )
    outcome = engine.convert(plan_of(*steps), table([record(number=7)]))
    assert outcome.column("value").to_pylist() == [b'{"real":1.5}']
    assert outcome.column("headers").to_pylist() == [[b"7", b"true"]]


def test_headers_of_keys(engine: Engine) -> None:
    """Of fields of the record's key; those of the value stand in the order of the steps."""
    steps = (
        Step("of-key", made(Side.KEY, "number")),
        Step("of-value", made(Side.VALUE, "flag"), RecordIsTombstone(), is_negated=True),
        Step("of-key-too", made(Side.KEY, "text", is_moved=True)),
    )
    outcome = engine.convert(plan_of(*steps, key_fields=("number", "text")), table([record(number=1, text="a")]))
    assert outcome.column("headers").to_pylist() == [[b"1", b"true", b"a"]]
    assert outcome.column("key").to_pylist() == [b'{"number":1}']


def test_keys_of_pages(engine: Engine) -> None:
    """Of tombstones too; a record without a key is rejected, as in Connect."""
    steps = (Step("hoisted", HoistField(Side.KEY, "k")), Step("made", made(Side.KEY, "k")))
    plan = plan_of(*steps, payloads=PayloadFormat.TEXT)
    outcome = engine.convert(plan, table([b"a", None, b"c"], keys=[b"x", b"y", None]))
    assert outcome.column("headers").to_pylist() == [[b"x"], [b"y"], None]
    assert outcome.column("reason").to_pylist() == [None, None, Reason.NULL_NOT_ALLOWED]
    assert outcome.column("stage").to_pylist()[2] == Stage.TRANSFORMATION


PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [
        {"name": "text", "type": ["null", "string"], "default": None},
        {"name": "real", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "own", "type": ["string", "null"], "default": "x"},
        {"name": "flags", "type": {"type": "map", "values": ["null", "boolean"]}},
    ],
}
TIMES = {
    "type": "record",
    "name": "Times",
    "fields": [
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "all", "type": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}}},
        {"name": "exact", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": "bytes"},
    ],
}
NESTED: list[dict[str, Any]] = [
    {"name": "place", "type": PLACE},
    {
        "name": "none",
        "type": [
            "null",
            {"type": "record", "name": "Empty", "fields": [{"name": "a", "type": ["null", "int"], "default": None}]},
        ],
        "default": None,
    },
    {"name": "grid", "type": {"type": "array", "items": {"type": "array", "items": ["null", "int"]}}},
    {"name": "by_name", "type": {"type": "map", "values": ["null", "Place"]}},
    {"name": "times", "type": ["null", TIMES], "default": None},
    {"name": "several", "type": {"type": "map", "values": {"type": "array", "items": "Times"}}},
]
PLACES: list[dict[str, Any]] = [
    {
        "text": 'é "x" \\',
        "real": 1e10,
        "tags": ['"', "\\", None, "a,b"],
        "own": None,
        "flags": {'k"\\': True, "n": None},
    },
    {"text": None, "real": -0.5, "tags": [], "own": "y", "flags": {}},
]


def times(day: str | None, *instants: str) -> dict[str, Any]:
    """A value of that record."""
    return {"day": day, "all": instants, "exact": 3.1, "raw": "AQI="}


def nested(**changes: Any) -> bytes:
    """A payload of the nested fields."""
    first = {"place": PLACES[0], "grid": [[], [1, None]], "by_name": {"a": PLACES[1], 'b"': None}, "several": {}}
    return json.dumps(
        {**first, "none": {"a": None}, "times": times("2024-02-29", "2024-02-29T12:00:00.500Z"), **changes}
    ).encode()


SIMPLE_TEXTS = (
    (
        '{"text":"é \\"x\\" \\\\","real":1.0E10,"tags":["\\"","\\\\",null,"a,b"],"own":"x",'
        '"flags":{"k\\"\\\\":true,"n":null}}'
    ),
    '{"a":null}',
    "[[],[1,null]]",
    '{"a":{"text":null,"real":-0.5,"tags":[],"own":"y","flags":{}},"b\\"":null}',
    '{"day":2024-02-29,"all":[2024-02-29T12:00:00.500Z],"exact":3.10,"raw":"AQI="}',
    "{}",
)
JAVA_TEXTS = (
    'Struct{text=é "x" \\,real=1.0E10,tags=[", \\, null, a,b],flags={k"\\=true, n=null}}',
    "Struct{}",
    "[[], [1, null]]",
    '{a=Struct{real=-0.5,tags=[],own=y,flags={}}, b"=null}',
)
OF_CONVERTERS: dict[str, tuple[ConverterSpec | None, tuple[str, ...]]] = {
    "simple": (None, SIMPLE_TEXTS),
    "string": (ConverterSpec(ConverterKind.STRING), JAVA_TEXTS),
    "json": (ConverterSpec(ConverterKind.JSON), ()),
    "json-enveloped": (ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True), ()),
}


def nested_plan(form: ConverterSpec | None, *names: str) -> ConversionPlan:
    """Headers of the nested fields."""
    contract = Contract(json.dumps({**SCHEMA, "fields": NESTED}))
    step = Step("made", HeaderFrom(Side.VALUE, names, names, is_moved=False, is_null_defaulted=False, form=form))
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=JSON, transformations=(step,), topic="t")
    assert plan_findings(plan) == []
    return plan


@pytest.mark.parametrize("converter", OF_CONVERTERS)
def test_nested_fields(engine: Engine, converter: str) -> None:
    """In columns as on the exact path; a date that is only sure there is the same as well."""
    form, texts = OF_CONVERTERS[converter]
    names = [field["name"] for field in NESTED][: len(texts) or None]
    plan = nested_plan(form, *names)
    payloads: list[bytes | None] = [
        nested(),
        nested(place=PLACES[1], none=None, grid=[], by_name={}, times=None),
        nested(times=times("0001-01-01", "2024-02-29T00:00:00Z", "0001-01-01T00:00:00Z")),
        nested(several={"a": [], "b": [times(None), times("9999-12-31", "1970-01-01T00:00:00.001Z")]}),
    ]
    found = engine.convert(plan, table(payloads))
    assert found.column("reason").to_pylist() == [None] * len(payloads)
    assert found.column("headers").to_pylist() == convert_exactly(plan, table(payloads)).column("headers").to_pylist()
    if texts:
        assert found.column("headers").to_pylist()[0] == [text.encode() for text in texts]


@pytest.mark.parametrize(
    ("field", "form", "word"),
    [
        ("none-such", None, "a field of the value"),
        ("times", ConverterSpec(ConverterKind.STRING), "of which StringConverter writes what people read"),
        ("several", ConverterSpec(ConverterKind.STRING), "of which StringConverter writes what people read"),
        ("grid", ConverterSpec(ConverterKind.BYTES), "a field of bytes"),
        ("place", ConverterSpec(ConverterKind.LONG), "a field of int64"),
    ],
)
def test_what_has_no_form(field: str, form: ConverterSpec | None, word: str) -> None:
    """A field that is not there, and one that its converter does not write, are told when the config is."""
    contract = Contract(json.dumps({**SCHEMA, "fields": NESTED}))
    step = Step("made", HeaderFrom(Side.VALUE, (field,), (field,), is_moved=False, is_null_defaulted=False, form=form))
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=JSON, transformations=(step,), topic="t")
    (finding,) = plan_findings(plan)
    assert finding.key == "transforms.made.fields"
    assert word in finding.expected
