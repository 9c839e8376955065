"""Headers that `HeaderFrom` makes of a source's records: the same texts in columns and on the exact path."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

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


@pytest.mark.parametrize(("field", "word"), [("none", "a field of the value"), ("home", "a field of numbers")])
def test_what_has_no_text(field: str, word: str) -> None:
    """A field that is not there, or a record, is told when the config is."""
    home = {"name": "home", "type": {"type": "record", "name": "H", "fields": [{"name": "a", "type": "int"}]}}
    contract = Contract(json.dumps({**SCHEMA, "fields": [*SCHEMA["fields"], home]}))
    steps = (Step("made", made(Side.VALUE, field)),)
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=JSON, transformations=steps, topic="t")
    (finding,) = plan_findings(plan)
    assert finding.key == "transforms.made.fields"
    assert word in finding.expected
