"""`ExtractNewRecordState`: what its config may say, and change events in a sink's typed columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from service.config.transformations import read_transformations
from service.sinks.avro_columns import parsed_slot
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from spark_batch.plan_transforms import value_shape
from spark_batch.transforms.catalog import ByLogicalTableRouter, ExtractNewRecordState
from spark_batch.transforms.envelope import Reference
from spark_batch.transforms.form import Side
from spark_batch.transforms.halves import JsonHalf, Origins, TypedHalf, Unfit
from spark_batch.transforms.records import HEADERS, Records
from spark_batch.transforms.shape import Shape

NAME = "io.debezium.transforms.ExtractNewRecordState"
PACKAGE = "org.apache.kafka.connect.transforms"
JSON = ConverterSpec(ConverterKind.JSON)
ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "shop.orders",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "place", "type": ["string", "null"], "default": "home"},
    ],
}
SOURCE = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"], "default": None}]}
EVENT: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.orders",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
    ],
}
ARROW = pa.struct([("id", pa.int64()), ("place", pa.string())])
EVENTS: list[dict[str, Any] | None] = [
    {"before": None, "after": {"id": 1, "place": "a"}, "source": {"lsn": 5}, "op": "c"},
    {"before": {"id": 1, "place": "a"}, "after": {"id": 1, "place": None}, "source": {"lsn": None}, "op": "u"},
    {"before": {"id": 1, "place": None}, "after": None, "source": {"lsn": 7}, "op": "d"},
    None,
    {"before": None, "after": None, "source": {"lsn": 8}, "op": "t"},
]


def events(document: Mapping[str, Any] = EVENT) -> Records:
    """As a sink has them that reads Avro."""
    kind: Any = pa.struct(
        [("before", ARROW), ("after", ARROW), ("source", pa.struct([("lsn", pa.int64())])), ("op", pa.string())]
    )
    schema, count = json.dumps(document), len(EVENTS)
    half = TypedHalf(pa.array(EVENTS, kind), Shape(parsed_slot(schema), schema), is_record=True)
    keys = JsonHalf(pa.array(["1"] * count, pa.string()))
    return Records(np.arange(count), "t", {Side.KEY: keys, Side.VALUE: half}, pa.nulls(count, HEADERS))


def unwrapped(form: ExtractNewRecordState, records: Records) -> dict[int, tuple[str, Any, list[Any]]]:
    """Topic, value and headers of each record that is left, by its row."""
    nothing = pa.nulls(len(records.rows), pa.int64())
    parts, faults = form.of_records(records, Origins("t", nothing, nothing, nothing))
    assert not faults
    return {
        int(row): (part.topic, value, [tuple(each.values()) for each in headers or ()])
        for part in parts
        for row, value, headers in zip(
            part.rows, part.halves[Side.VALUE].column.to_pylist(), part.headers.to_pylist(), strict=True
        )
    }


def test_typed_events_by_mode() -> None:
    """Rows, deletes and tombstones; truncations are dropped in every mode."""
    rows: dict[int, Any] = {0: ("t", {"id": 1, "place": "a"}, []), 1: ("t", {"id": 1, "place": None}, [])}
    kept = ExtractNewRecordState(Side.VALUE, is_null_defaulted=False)
    assert unwrapped(kept, events()) == rows | {2: ("t", None, [])}
    drop = ExtractNewRecordState(Side.VALUE, is_null_defaulted=False, mode="drop")
    assert unwrapped(drop, events()) == rows
    rewrite = ExtractNewRecordState(Side.VALUE, mode="rewrite-with-tombstone")
    assert unwrapped(rewrite, events()) == {
        0: ("t", {"id": 1, "place": "a", "__deleted": "false"}, []),
        1: ("t", {"id": 1, "place": "home", "__deleted": "false"}, []),
        2: ("t", {"id": 1, "place": "home", "__deleted": "true"}, []),
        3: ("t", None, []),
    }


def test_typed_events_with_headers_and_topics() -> None:
    """What is null in an event is a header without a value; a blank topic is the first one."""
    form = ExtractNewRecordState(
        Side.VALUE,
        is_null_defaulted=False,
        headers=(Reference.read("op", "__"), Reference.read("lsn:at", ""), Reference.read("none", "__")),
        topic_field="place",
    )
    found = unwrapped(form, events())
    assert found[0] == ("a", {"id": 1, "place": "a"}, [("__op", b"c"), ("at", b"5")])
    assert found[1] == ("t", {"id": 1, "place": None}, [("__op", b"u"), ("at", None)])
    assert found[2] == ("t", None, [("__op", b"d"), ("at", b"7")])


def test_the_row_keeps_its_own_schema() -> None:
    """Its name, its nullable fields and their defaults; what is added has none."""
    form = ExtractNewRecordState(Side.VALUE, added=(Reference.read("source.lsn", "__"),), is_null_defaulted=False)
    text = json.dumps(EVENT)
    after = json.loads(form.reshaped("x", Shape(parsed_slot(text), text)).avro)
    assert after["name"] == "shop.orders.Value"
    assert after["fields"] == [*ROW["fields"], {"name": "__source_lsn", "type": ["null", "long"]}]


def test_what_is_no_event_stays_and_what_is_half_of_one_is_refused() -> None:
    """By the name of the schema alone, as Debezium does."""
    other = {**EVENT, "name": "Other"}
    form = ExtractNewRecordState(Side.VALUE)
    assert {row: value for row, (_, value, _) in unwrapped(form, events(other)).items()} == {
        row: value for row, value in enumerate(EVENTS) if value is not None
    }
    records = events({**EVENT, "fields": [{**field, "name": f"{field['name']}_"} for field in EVENT["fields"]]})
    nothing = pa.nulls(len(EVENTS), pa.int64())
    with pytest.raises(Unfit):
        form.of_records(records, Origins("t", nothing, nothing, nothing))


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"drop.tombstones": "true"}, "drop.tombstones"),
        ({"delete.handling.mode": "none"}, "delete.handling.mode"),
        ({"drop.fields.header.name": "h"}, "drop.fields.header.name"),
        ({"add.fields": "op:a:b"}, "add.fields"),
        ({"add.headers": "source.a.b"}, "add.headers"),
        ({"delete.tombstone.handling.mode": "none"}, "delete.tombstone.handling.mode"),
        ({"route.by.field": ""}, "route.by.field"),
    ],
)
def test_keys_that_are_refused(config: Mapping[str, str], key: str) -> None:
    """By their names; they would change what comes out."""
    properties = {"transforms": "x", "transforms.x.type": NAME}
    properties |= {f"transforms.x.{name}": text for name, text in config.items()}
    assert [finding.key for finding in read_transformations(properties, is_sink=True).findings] == [
        f"transforms.x.{key}"
    ]


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"x.route.by.field": "place"}, "x.route.by.field"),
        ({"x.add.headers": "op", "y.type": f"{PACKAGE}.DropHeaders", "y.headers": "a"}, "y.type"),
        ({"x.add.headers": "op", "y.type": f"{PACKAGE}.Filter", "y.predicate": "h"}, "y.predicate"),
        ({"x.predicate": "p"}, "x.type"),
        ({"y.type": f"{PACKAGE}.ValueToKey", "y.fields": "id"}, "y.type"),
        ({"y.type": f"{PACKAGE}.Filter", "y.predicate": "p"}, "y.predicate"),
        ({"w.type": f"{PACKAGE}.ReplaceField$Value", "w.exclude": "op"}, "x.type"),
    ],
)
def test_what_a_source_cannot_do(config: Mapping[str, str], key: str) -> None:
    """Told before the first event, whose schema is not known yet."""
    names = [name for name in ("w", "x", "y") if name == "x" or f"{name}.type" in config]
    properties = {"transforms": ",".join(names), "transforms.x.type": NAME}
    properties |= {f"transforms.{name}": text for name, text in config.items()}
    properties |= {"predicates": "p,h", "predicates.p.type": f"{PACKAGE}.predicates.RecordIsTombstone"}
    properties |= {"predicates.h.type": f"{PACKAGE}.predicates.HasHeaderKey", "predicates.h.name": "__op"}
    reading = read_transformations(properties)
    assert reading.findings == ()
    plan = ConversionPlan(PayloadFormat.ROWS, value_converter=JSON, transformations=reading.steps, topic="t")
    assert [finding.key for finding in plan_findings(plan)] == [f"transforms.{key}"]


@pytest.mark.parametrize(
    ("name", "is_fit"), [("op", True), ("lsn", True), ("none", True), ("source", False), ("id", False)]
)
def test_headers_of_events_have_texts(name: str, *, is_fit: bool) -> None:
    """A struct, or a struct that the event does not have, is told before the first row is converted."""
    steps = read_transformations({"transforms": "x", "transforms.x.type": NAME, "transforms.x.add.headers": name}).steps
    rows = ConversionPlan(PayloadFormat.ROWS, value_converter=JSON, transformations=steps)
    plan = rows.for_rows(schema=json.dumps(EVENT), key_schema=None, topic="t")
    expected = [] if is_fit else ["transforms.x.add.headers"]
    assert [finding.key for finding in plan_findings(plan)] == expected


def test_payloads_are_no_events() -> None:
    """A source whose payloads are JSON is told so, whatever its contract is called."""
    steps = read_transformations({"transforms": "x", "transforms.x.type": NAME}).steps
    plan = ConversionPlan(
        PayloadFormat.JSON, Contract(json.dumps(EVENT)), value_converter=JSON, transformations=steps, topic="t"
    )
    assert "transforms.x.type" in [finding.key for finding in plan_findings(plan)]


ROUTE = {
    "transforms": "x",
    "transforms.x.type": "io.debezium.transforms.ByLogicalTableRouter",
    "transforms.x.topic.regex": "(.*)[.]shard(.)",
    "transforms.x.topic.replacement": "$1-all",
}


@pytest.mark.parametrize("mode", ["none", "avro"])
def test_avro_schemas_of_logical_tables(mode: str) -> None:
    """Events and rows are named after the topic, and only such as Avro allows are registered."""
    reading = read_transformations({**ROUTE, "transforms.x.schema.name.adjustment.mode": mode})
    avro = ConverterSpec(ConverterKind.AVRO)
    rows = ConversionPlan(PayloadFormat.ROWS, value_converter=avro, key_converter=avro, transformations=reading.steps)
    plan = rows.for_rows(schema=json.dumps(EVENT), key_schema=None, topic="shop.shard7")
    found = [(finding.key, finding.value) for finding in plan_findings(plan)]
    assert plan.applied_steps().topic == "shop-all"
    if mode == "none":
        assert found == [("value.converter", "avro")]
        return
    assert found == []
    shape = value_shape(plan)
    assert shape is not None
    event = json.loads(shape.avro)
    assert parsed_slot(shape.avro).type == shape.slot.type
    assert (event["name"], event["fields"][0]["type"][1]["name"]) == ("Envelope", "Value")
    assert (event["namespace"], event["fields"][1]["type"][1]) == ("shop_all", "shop_all.Value")


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"topic.regex": "("}, "topic.regex"),
        ({"topic.replacement": "$3"}, "topic.regex"),
        ({"topic.replacement": ""}, "topic.replacement"),
        ({"key.field.regex": "(.*)"}, "key.field.replacement"),
        ({"key.field.regex": "(", "key.field.replacement": "x"}, "key.field.regex"),
        ({"key.field.name": ""}, "key.field.name"),
    ],
)
def test_logical_tables_that_are_refused(config: Mapping[str, str], key: str) -> None:
    """Expressions that are none, and halves of a pair."""
    properties = ROUTE | {f"transforms.x.{name}": text for name, text in config.items()}
    assert [finding.key for finding in read_transformations(properties).findings] == [f"transforms.x.{key}"]


def test_keys_of_a_logical_table_must_be_records() -> None:
    """A sink's key that is a text is refused, as by Debezium; a record without a key is not."""
    form = read_transformations(ROUTE).steps[0].transformation
    assert isinstance(form, ByLogicalTableRouter)
    nothing = pa.nulls(len(EVENTS), pa.int64())
    records = replace(events(), topic="a.shard1")
    with pytest.raises(Unfit):
        form.of_records(records, Origins("a.shard1", nothing, nothing, nothing))
    keyless = records.with_half(Side.KEY, JsonHalf(pa.nulls(len(EVENTS), pa.string()), has_type=False))
    parts, faults = form.of_records(keyless, Origins("a.shard1", nothing, nothing, nothing))
    assert ([part.topic for part in parts], faults) == (["a-all"], {})
