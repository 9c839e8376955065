"""Plans as values: findings all at once, schemas to register."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from fetchers.sdk import RowSchema
from fetchers.sdk.rows import INT64, optional
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule, UnknownFields
from spark_batch.plan_findings import plan_findings
from spark_batch.plan_transforms import key_schema, value_schema

UUID = {"type": "string", "logicalType": "uuid"}
ID = "123e4567-e89b-12d3-a456-426614174000"
AVRO, JSON = ConverterSpec(ConverterKind.AVRO), ConverterSpec(ConverterKind.JSON)


def _record(*fields: dict[str, Any], **more: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields), **more})


def _keys(plan: ConversionPlan) -> list[str]:
    return [finding.key for finding in plan_findings(plan)]


def test_good_plan_has_no_findings() -> None:
    """A plan that can run has nothing to mend."""
    schema = _record({"name": "a", "type": "string"}, {"name": "t", "type": "long"})
    plan = ConversionPlan(
        PayloadFormat.TEXT,
        Contract(schema),
        ("a",),
        "t",
        ("a", "unknown.path"),
        ConverterSpec(ConverterKind.STRING),
        AVRO,
    )
    assert plan_findings(plan) == []


@pytest.mark.parametrize(
    "kind",
    [
        ["string", "long"],
        ["null", "string", "long"],
        ["null"],
        [],
        "nothing",
        5,
        None,
        {"type": "map"},
        {"type": "enum", "name": "E", "symbols": []},
        {"type": "enum", "name": "E", "symbols": ["a", "a"]},
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "long", "logicalType": "date"},
        {"type": "string", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": ["date"]},
        {"type": "bytes", "logicalType": "big-decimal"},
        {"type": "bytes", "logicalType": "decimal", "precision": 39},
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5},
        {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
        {"type": "record", "name": "I", "fields": []},
        {"type": "array", "items": ["null", ["null", "long"]]},
        {"type": "record", "name": "I", "fields": [{"name": "next", "type": ["null", "I"]}]},
    ],
)
def test_types_that_cannot_be_kept_exactly_are_findings(kind: Any) -> None:
    """What the conversion cannot express without change is told before anything runs, naming the field."""
    findings = plan_findings(ConversionPlan(PayloadFormat.JSON, Contract(_record({"name": "f", "type": kind}))))
    assert findings
    assert {finding.key for finding in findings} == {"contract.schema"}
    assert findings[0].value.startswith("f")


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", 1.5),
        ("int", 2**31),
        ("string", None),
        (["null", "int"], 1),
        (["int", "null"], None),
        ("boolean", 0),
        ("double", "x"),
        ("bytes", "\u0100"),
        ({"type": "array", "items": "int"}, [1, "a"]),
        ({"type": "map", "values": "int"}, []),
        (UUID, ""),
        (UUID, f"{ID}\n"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**63 - 1),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, -(2**63)),
        ({"type": "int", "logicalType": "time-millis"}, -1),
        ({"type": "int", "logicalType": "time-millis"}, 86_400_000),
        ({"type": "int", "logicalType": "date"}, 2_932_897),
        ("float", 1e39),
        ("float", -3.4028235677973366e38),
        ("float", 10**39),
        ("double", 10**400),
        ("double", float("inf")),
        ("string", "\ud800"),
        ({"type": "map", "values": "int"}, {"\ud800": 1}),
        ({"type": "array", "items": UUID}, [ID, "x"]),
    ],
)
def test_default_that_is_no_value_of_its_type_is_a_finding(kind: Any, default: Any) -> None:
    """A default must be of the first type of its field, and what a payload with that value would be: valid."""
    schema = _record({"name": "f", "type": kind, "default": default})
    assert _keys(ConversionPlan(PayloadFormat.JSON, Contract(schema))) == ["contract.schema"]


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (UUID, ID.upper()),
        ({"type": "long", "logicalType": "timestamp-millis"}, 253_402_300_799_999),
        ({"type": "int", "logicalType": "time-millis"}, 86_399_999),
        ({"type": "int", "logicalType": "date"}, -719_162),
        ("float", 3.4028235e38),
        ("float", 7),
        ("double", 10**308),
        ("string", "\U0001f600"),
    ],
)
def test_default_at_the_bound_of_its_type_is_taken(kind: Any, default: Any) -> None:
    """As far as values go."""
    assert (
        _keys(ConversionPlan(PayloadFormat.JSON, Contract(_record({"name": "f", "type": kind, "default": default}))))
        == []
    )


ARRAYS = '{"type":"array","items":' * 900
DEEP = f'{{"type":"record","name":"R","fields":[{{"name":"f","type":{ARRAYS}"int"{"}" * 900}}}]}}'


@pytest.mark.parametrize("text", ["", "{", '"string"', "[]", '{"type":"record"}', "[" * 100_000, DEEP])
def test_schema_that_is_no_record(text: str) -> None:
    """Whatever the text, a finding and no exception."""
    assert _keys(ConversionPlan(PayloadFormat.JSON, Contract(text)))


def test_all_findings_at_once() -> None:
    """Every key that is wrong is named in one go."""
    schema = _record({"name": "a", "type": "string"})
    contract = Contract(schema, (Rule("r", "a = 'x'"), Rule("r", "true")), UnknownFields.KEEP)
    plan = ConversionPlan(PayloadFormat.JSON, contract, ("nope",), "a", ("a.b", ""), JSON, AVRO, 0)
    assert set(_keys(plan)) == {
        "contract.rules.r",
        "contract.unknown.fields",
        "key.fields",
        "timestamp.field",
        "dedupe.fields",
        "record.bytes.max",
    }


def test_plans_without_contract() -> None:
    """What needs a contract or JSON says so."""
    assert _keys(ConversionPlan(PayloadFormat.JSON, value_converter=AVRO)) == ["value.converter"]
    assert _keys(ConversionPlan(PayloadFormat.TEXT, dedupe_fields=("a",))) == ["dedupe.fields"]
    assert _keys(ConversionPlan(PayloadFormat.BYTES, value_converter=JSON)) == ["value.converter"]
    assert _keys(ConversionPlan(PayloadFormat.JSON, key_fields=("a", "b"))) == ["key.converter"]


def test_dedupe_path_that_no_payload_can_have() -> None:
    """Unknown paths are allowed where unknown fields are; a path through a text never is."""
    schema = _record({"name": "a", "type": "string"})
    for policy, expected in ((UnknownFields.IGNORE, []), (UnknownFields.REJECT, ["dedupe.fields"])):
        assert _keys(ConversionPlan(PayloadFormat.JSON, Contract(schema, (), policy), dedupe_fields=("z",))) == expected
    assert _keys(ConversionPlan(PayloadFormat.JSON, Contract(schema), dedupe_fields=("a.b",))) == ["dedupe.fields"]


def test_registered_schemas() -> None:
    """`json.name` is for input only; a key schema is complete by itself, named types written out where first used."""
    place: dict[str, Any] = {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "int"}]}
    fields: list[dict[str, Any]] = [
        {"name": "from", "type": place, "json.name": "$from"},
        {"name": "to", "type": ["null", "Place"], "default": None},
        {"name": "via", "type": {"type": "array", "items": "org.x.Place"}},
    ]
    schema = _record(*fields, namespace="org.x")
    plan = ConversionPlan(PayloadFormat.JSON, Contract(schema), ("to", "via"), key_converter=AVRO, value_converter=AVRO)
    assert plan_findings(plan) == []
    assert "json.name" not in (value_schema(plan) or "")
    key = json.loads(key_schema(plan) or "")
    assert (key["name"], key["namespace"]) == ("RKey", "org.x")
    parsed: Any = fastavro.parse_schema(key)
    assert [field["name"] for field in parsed["fields"]] == ["to", "via"]
    assert key_schema(ConversionPlan(PayloadFormat.TEXT, key_converter=AVRO, value_converter=AVRO)) == '"string"'
    assert value_schema(ConversionPlan(PayloadFormat.BYTES, value_converter=AVRO)) == '"bytes"'
    assert value_schema(ConversionPlan(PayloadFormat.JSON)) is None


def test_schema_ids_are_part_of_the_plan() -> None:
    """Equal plans are the same key; with other ids it is another."""
    plan = ConversionPlan(PayloadFormat.TEXT, value_converter=AVRO)
    ready = plan.with_schema_ids(value=7)
    assert ready.value_converter.schema_id == 7
    assert ready != plan
    assert ready == plan.with_schema_ids(value=7)
    assert hash(ready) == hash(plan.with_schema_ids(value=7))


def test_schemas_share_what_is_equal_in_them() -> None:
    """Envelopes of a thousand tables differ in the rows alone: the rest is held once."""
    block = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"], "default": None}]}
    first, second = (
        Contract(_record({"name": name, "type": "long"}, {"name": "source", "type": block})).parsed.record
        for name in ("a", "b")
    )
    assert first is not None
    assert second is not None
    assert first != second
    assert first.field("source") is second.field("source")


def test_parts_that_are_not_equal_are_not_shared() -> None:
    """Of two records with one name, each has its own fields."""
    kinds = ["int", "long", {"type": "long", "logicalType": "timestamp-millis"}, {"type": "int", "connect.version": 1}]
    records = [Contract(_record({"name": "a", "type": kind})).parsed.record for kind in kinds]
    assert len(set(records)) == len(kinds)
    assert [None if record is None else record.fields[0].slot.type for record in records[:2]] == ["int", "long"]


def test_the_schema_of_rows_is_held_once() -> None:
    """What is registered is the text that the rows came with, unless something is to be left out of it."""
    base = ConversionPlan(PayloadFormat.ROWS, value_converter=AVRO)
    schema, key_text = RowSchema.of("t", {"a": optional(INT64)}), RowSchema.of("k", {"a": INT64})
    plan = base.for_rows(schema=schema.avro, key_schema=key_text.avro, topic="t")
    assert plan.plain_value_schema() is schema.avro
    assert plan.plain_key_schema() is key_text.avro
    renamed = RowSchema.of("t", {"a-b": INT64})
    plan = base.for_rows(schema=renamed.avro, key_schema=None, topic="t")
    assert "json.name" in renamed.avro
    assert json.loads(plan.plain_value_schema())["fields"] == [{"name": "a_b", "type": "long"}]
