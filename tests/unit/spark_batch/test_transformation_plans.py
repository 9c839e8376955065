"""Transformations of a plan before any record is read: tracks, shapes, findings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from spark_batch.convert_exactly import convert_exactly
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, UnknownFields
from spark_batch.plan_findings import plan_findings
from spark_batch.plan_transforms import key_schema, value_schema
from spark_batch.transforms.catalog import (
    ExtractField,
    FieldName,
    Filter,
    HasHeaderKey,
    HoistField,
    InsertField,
    RecordIsTombstone,
    RegexRouter,
    Side,
    Step,
    TimestampRouter,
    TopicNameMatches,
    Transformation,
    ValueToKey,
)
from spark_batch.transforms.extract_field import FieldPathError, field_path

JSON, STRING, BYTES, AVRO = (ConverterSpec(ConverterKind(kind)) for kind in ("json", "string", "bytes", "avro"))
VALUE, KEY = Side.VALUE, Side.KEY
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "namespace": "org.example",
    "fields": [
        {"name": "name", "json.name": "$name", "type": "string"},
        {
            "name": "home",
            "type": ["null", {"type": "record", "name": "Home", "fields": [{"name": "at", "type": "long"}]}],
        },
        {"name": "work", "type": "Home"},
        {"name": "level", "type": ["long", "null"], "default": 1},
        {"name": "trips", "type": {"type": "array", "items": "Home"}},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
    ],
}
HOME = {"type": "record", "name": "Home", "fields": [{"name": "at", "type": "long"}], "namespace": "org.example"}
LINES = ConversionPlan(PayloadFormat.TEXT, value_converter=JSON, key_converter=JSON, topic="t")
USERS = replace(LINES, payload_format=PayloadFormat.JSON, contract=Contract(json.dumps(SCHEMA)))
OBJECTS = replace(USERS, contract=None)
HOIST = HoistField(VALUE, "line")


def with_steps(plan: ConversionPlan, *transformations: Transformation, **changed: Any) -> ConversionPlan:
    """The plan with these transformations, named a, b and so on."""
    steps = tuple(Step(name, each) for name, each in zip("abcd", transformations, strict=False))
    return replace(plan, transformations=steps, **changed)


def test_predicates_are_settled_before_any_record() -> None:
    """By the topic as it is at that step, and by whether there is a value."""
    steps = (
        Step("a", RegexRouter("t", "u"), RecordIsTombstone()),
        Step("b", HOIST, TopicNameMatches("t")),
        Step("c", HoistField(KEY, "k"), TopicNameMatches("u"), is_negated=True),
        Step("d", RegexRouter("t", "v")),
    )
    plan = replace(LINES, transformations=steps)
    records, tombstones = plan.applied_steps(), plan.applied_steps(is_tombstone=True)
    assert (records.topic, tombstones.topic) == ("v", "u")
    assert [(step.name, step.topic) for step in records.steps] == [("b", "t"), ("c", "t")]
    assert tombstones.steps == ()


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (("name",), "string"),
        (("home",), ["null", HOME]),
        (("work",), HOME),
        (("home", "at"), ["null", "long"]),
        (("work", "at"), "long"),
        (("trips",), {"type": "array", "items": HOME}),
    ],
)
def test_the_avro_schema_of_a_field(path: tuple[str, ...], schema: object) -> None:
    """Stands alone, whatever it named; below something that may be null it may be null too."""
    plan = with_steps(USERS, ExtractField(VALUE, path), value_converter=AVRO)
    assert plan_findings(plan) == []
    assert json.loads(value_schema(plan) or "") == schema


def test_the_avro_schema_of_what_is_inserted_and_hoisted() -> None:
    """Fields behind those of the record; names without a namespace keep none inside Confluent's."""
    insert = InsertField(
        VALUE, FieldName("topic", is_optional=False), FieldName("at"), FieldName("s"), is_null_defaulted=False
    )
    plan = with_steps(USERS, insert, value_converter=AVRO)
    written = json.loads(value_schema(plan) or "")
    assert [field["name"] for field in written["fields"]][6:] == ["topic", "at", "s"]
    assert written["fields"][6] == {"name": "topic", "type": "string"}
    assert written["fields"][7]["type"][1]["logicalType"] == "timestamp-millis"
    assert written["fields"][8] == {"name": "s", "type": ["null", "string"], "default": None}

    contract = Contract('{"type":"record","name":"R","fields":[{"name":"x","type":"long"}]}')
    hoisted = with_steps(replace(USERS, contract=contract), HOIST, value_converter=AVRO)
    assert json.loads(value_schema(hoisted) or "") == {
        "type": "record",
        "name": "ConnectDefault",
        "namespace": "io.confluent.connect.avro",
        "fields": [
            {
                "name": "line",
                "type": {"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}], "namespace": ""},
            }
        ],
    }


def test_key_schemas() -> None:
    """Of text that comes with a page, and of fields."""
    hoist = HoistField(KEY, "id")
    plan = with_steps(USERS, hoist, key_converter=AVRO)
    assert json.loads(key_schema(plan) or "")["fields"] == [{"name": "id", "type": "string"}]
    fields = replace(plan, key_fields=("name", "work"))
    inner = json.loads(key_schema(fields) or "")["fields"][0]["type"]
    assert [field["name"] for field in inner["fields"]] == ["name", "work"]
    single = with_steps(USERS, hoist, key_converter=STRING, key_fields=("name",))
    assert plan_findings(single) == []


@pytest.mark.parametrize(
    ("plan", "key"),
    [
        (with_steps(LINES, ExtractField(VALUE, ("x",))), "transforms.a.type"),
        (with_steps(LINES, InsertField(VALUE, FieldName("x"))), "transforms.a.type"),
        (with_steps(LINES, InsertField(KEY, FieldName("x"))), "transforms.a.type"),
        (with_steps(LINES, HOIST, ExtractField(VALUE, ("x",))), "transforms.b.field"),
        (with_steps(LINES, HOIST, InsertField(VALUE, FieldName("line"))), "transforms.b.topic.field"),
        (with_steps(LINES, HOIST, InsertField(VALUE, FieldName("x"), FieldName("x"))), "transforms.b.timestamp.field"),
        (with_steps(LINES, HOIST, value_converter=BYTES), "value.converter"),
        (with_steps(LINES, HoistField(VALUE, "a-b"), value_converter=AVRO), "value.converter"),
        (with_steps(LINES, HoistField(KEY, "a"), key_converter=BYTES), "key.converter"),
        (with_steps(USERS, ExtractField(VALUE, ("name", "x"))), "transforms.a.field"),
        (with_steps(USERS, ExtractField(VALUE, ("level",))), "transforms.a.replace.null.with.default"),
        (with_steps(USERS, InsertField(VALUE, FieldName("x"))), "transforms.a.replace.null.with.default"),
        (with_steps(USERS, HOIST, value_converter=STRING), "value.converter"),
        (with_steps(OBJECTS, HOIST, value_converter=STRING), "value.converter"),
        (with_steps(OBJECTS, InsertField(VALUE, timestamp=FieldName("x"))), "transforms.a.timestamp.field"),
        (with_steps(OBJECTS, HoistField(KEY, "x"), key_fields=("y",)), "key.fields"),
        (with_steps(LINES, RegexRouter("(", "x")), "transforms.a.regex"),
        (with_steps(LINES, RegexRouter("t", "$1")), "transforms.a.regex"),
        (with_steps(LINES, RegexRouter("t", "a/b")), "transforms"),
        (with_steps(LINES, RegexRouter("t", "")), "transforms"),
        (replace(LINES, transformations=(Step("a", HOIST, TopicNameMatches("(")),)), "transforms.a.predicate"),
        (replace(LINES, transformations=(Step("a", HoistField(KEY, "k"), RecordIsTombstone()),)), "transforms"),
    ],
)
def test_what_does_not_fit_is_found(plan: ConversionPlan, key: str) -> None:
    """By the key that is to be mended."""
    assert [finding.key for finding in plan_findings(plan)] == [key]


def test_kept_unknown_fields_cannot_be_transformed() -> None:
    """They are in no column."""
    contract = Contract(json.dumps(SCHEMA), unknown_fields=UnknownFields.KEEP)
    plan = with_steps(replace(USERS, contract=contract), HOIST)
    assert [finding.key for finding in plan_findings(plan)] == ["contract.unknown.fields"]
    assert plan_findings(with_steps(plan, RegexRouter("t", "u"))) == []


@pytest.mark.parametrize(("spec", "is_refused"), [(AVRO, True), (JSON, False)])
def test_two_records_of_one_name_are_found_before_avro_refuses_every_record(
    spec: ConverterSpec,
    is_refused: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Each ``HoistField`` makes a record of the one name that Confluent's converter gives it; Spark would fail."""
    plan = with_steps(LINES, HOIST, HoistField(VALUE, "outer"), value_converter=spec)
    assert [finding.key for finding in plan_findings(plan)] == ["value.converter"] * is_refused


@pytest.mark.parametrize("kind", list(ConverterKind))
def test_a_router_alone_changes_no_schema(kind: ConverterKind) -> None:
    """Records are written as they would be without it."""
    plain = replace(USERS, value_converter=ConverterSpec(kind))
    assert value_schema(with_steps(plain, RegexRouter("t", "u"))) == value_schema(plain)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("a.`b.c`.d", ("a", "b.c", "d")),
        ("`a.b`", ("a.b",)),
        ("a`b.c", ("a`b", "c")),
    ],
)
def test_field_paths(text: str, names: tuple[str, ...]) -> None:
    """Dots lead into records; back-ticks go around names that have dots."""
    assert field_path(text) == names


@pytest.mark.parametrize("text", ["", ".a", "a.", "a..b", "`a"])
def test_texts_that_are_no_paths(text: str) -> None:
    """Empty names and back-ticks that are not closed."""
    with pytest.raises(FieldPathError):
        field_path(text)


def test_what_does_not_fit_records_with_a_header_rejects_them() -> None:
    """No more than those: the config is right for all others, and a source may have no headers at all."""
    hoisted = Step("a", HOIST, HasHeaderKey("h"), is_negated=True)
    plan = replace(LINES, transformations=(hoisted, Step("b", ExtractField(VALUE, ("line",)))))
    assert plan_findings(plan) == []
    columns = {"key": [None], "value": [b"x"], "timestamp": [None]}
    batch = pa.table(columns, schema=INPUT_SCHEMA)
    assert convert_exactly(plan, batch).column("value").to_pylist() == [b'"x"']
    (row,) = convert_exactly(replace(plan, headers=frozenset({"h"})), batch).to_pylist()
    assert (row["value"], row["stage"], row["reason"]) == (None, "TRANSFORMATION", "wrong_type")
    assert "transforms.b.type" in row["message"]


MARKED = HasHeaderKey("h")


@pytest.mark.parametrize(
    ("plan", "key"),
    [
        (with_steps(LINES, TimestampRouter(), value_converter=AVRO), "transforms.a.type"),
        (with_steps(LINES, HOIST, TimestampRouter(), InsertField(VALUE, FieldName("t"))), "transforms.c.topic.field"),
        (
            replace(LINES, transformations=(Step("a", TimestampRouter()), Step("b", HOIST, TopicNameMatches("t")))),
            "transforms.b.predicate",
        ),
        (replace(LINES, transformations=(Step("a", HOIST, MARKED),), key_converter=AVRO), "transforms.a.predicate"),
        (replace(LINES, transformations=(Step("a", RegexRouter("t", "/"), MARKED),)), "transforms"),
        (with_steps(USERS, ValueToKey(KEY, True, ("nothing",))), "transforms.a.fields"),  # noqa: FBT003 - a field
        (with_steps(USERS, ValueToKey(KEY, True, ("name",)), key_fields=("name",)), "key.fields"),  # noqa: FBT003
        (with_steps(OBJECTS, ValueToKey(KEY, True, ("name",))), "key.fields"),  # noqa: FBT003 - a field
        (
            replace(LINES, transformations=tuple(Step("f", Filter(), HasHeaderKey(name)) for name in "abcdefg")),
            "predicates",
        ),
    ],
)
def test_what_only_records_tell_is_not_asked_for_before(plan: ConversionPlan, key: str) -> None:
    """Topics made of times, schemas of records with a header, fields that nobody knows: each by its key."""
    assert [finding.key for finding in plan_findings(plan)] == [key]


def test_headers_may_decide_what_avro_records_are_dropped() -> None:
    """A filter changes no schema."""
    plan = replace(LINES, transformations=(Step("f", Filter(), MARKED), Step("h", HOIST)), value_converter=AVRO)
    assert plan_findings(plan) == []
    assert replace(plan, headers=frozenset("h")).applied_steps().is_dropped
