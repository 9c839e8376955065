"""The mapping of each type of Connect, against the table of Confluent's connector."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.sinks.batch import Form, ValueType
from service.sinks.elasticsearch.mapping import properties_of
from service.sinks.schemas import schema_of

CONNECT = "org.apache.kafka.connect.data"
TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
DECIMAL = {"type": "bytes", "name": f"{CONNECT}.Decimal", "version": 1, "parameters": {"scale": "2"}}
FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "int8"}, {"type": "byte"}),
    ({"type": "int8", "default": -7}, {"type": "byte", "null_value": -7}),
    ({"type": "int16"}, {"type": "short"}),
    ({"type": "int16", "default": 0}, {"type": "short", "null_value": 0}),
    ({"type": "int32"}, {"type": "integer"}),
    ({"type": "int32", "default": 7}, {"type": "integer", "null_value": 7}),
    ({"type": "int64"}, {"type": "long"}),
    ({"type": "int64", "default": 2**62}, {"type": "long", "null_value": 2**62}),
    ({"type": "float"}, {"type": "float"}),
    ({"type": "float", "default": 1.5}, {"type": "float", "null_value": 1.5}),
    ({"type": "double"}, {"type": "double"}),
    ({"type": "double", "default": -1.5}, {"type": "double", "null_value": -1.5}),
    ({"type": "boolean"}, {"type": "boolean"}),
    ({"type": "boolean", "default": False}, {"type": "boolean", "null_value": False}),
    ({"type": "string"}, TEXT),
    ({"type": "string", "default": "none"}, TEXT),
    ({"type": "bytes"}, {"type": "binary"}),
    ({"type": "bytes", "default": "AAE="}, {"type": "binary"}),
    ({"type": "int32", "name": f"{CONNECT}.Date"}, {"type": "date"}),
    ({"type": "int32", "name": f"{CONNECT}.Date", "default": 3}, {"type": "date", "null_value": 3 * 86_400_000}),
    ({"type": "int32", "name": f"{CONNECT}.Time"}, {"type": "date"}),
    ({"type": "int32", "name": f"{CONNECT}.Time", "default": 1000}, {"type": "date", "null_value": 1000}),
    ({"type": "int64", "name": f"{CONNECT}.Timestamp"}, {"type": "date"}),
    (
        {"type": "int64", "name": f"{CONNECT}.Timestamp", "default": 1_476_423_962_000},
        {"type": "date", "null_value": 1_476_423_962_000},
    ),
    (DECIMAL, {"type": "double"}),
    ({**DECIMAL, "default": "BOI="}, {"type": "double", "null_value": 12.5}),
    ({**DECIMAL, "default": 12.5}, {"type": "double", "null_value": 12.5}),
    ({**DECIMAL, "default": "/w=="}, {"type": "double", "null_value": -0.01}),
    ({"type": "string", "name": "io.debezium.data.Uuid"}, TEXT),
    ({"type": "array", "items": {"type": "int16"}}, {"type": "short"}),
    ({"type": "array", "items": {"type": "array", "items": DECIMAL}}, {"type": "double"}),
    (
        {"type": "struct", "fields": [{"field": "a", "type": "int8"}, {"field": "b", "type": "string"}]},
        {"properties": {"a": {"type": "byte"}, "b": TEXT}},
    ),
    (
        {"type": "array", "items": {"type": "struct", "fields": [{"field": "a", "type": "int8"}]}},
        {"properties": {"a": {"type": "byte"}}},
    ),
    ({"type": "struct", "fields": []}, {"type": "object"}),
    ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}}, {"type": "object"}),
    (
        {"type": "map", "keys": {"type": "int32"}, "values": DECIMAL},
        {"properties": {"key": {"type": "integer"}, "value": {"type": "double"}}},
    ),
]
"""Fields as JsonConverter writes their schemas, and their mapping."""


UNFIT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "float", "default": float("nan")}, {"type": "float"}),
    ({"type": "int32", "default": True}, {"type": "integer"}),
    ({"type": "int32", "name": f"{CONNECT}.Date", "default": "today"}, {"type": "date"}),
    ({**DECIMAL, "default": "?"}, {"type": "double"}),
    ({"type": "int8", "default": 128}, {"type": "byte"}),
    ({"type": "int16", "default": -32769}, {"type": "short"}),
    ({"type": "int32", "default": 1.5}, {"type": "integer"}),
    ({"type": "int64", "default": 2**63}, {"type": "long"}),
    ({"type": "float", "default": 1e39}, {"type": "float"}),
    ({"type": "int32", "name": f"{CONNECT}.Date", "default": 1.5}, {"type": "date"}),
    ({"type": "int64", "name": f"{CONNECT}.Timestamp", "default": 2**63}, {"type": "date"}),
]
"""With defaults for which the server would refuse the mapping."""


@pytest.mark.parametrize(("field", "mapping"), FIELDS + UNFIT)
def test_the_mapping_of_a_type(field: dict[str, Any], mapping: dict[str, Any]) -> None:
    """``io.confluent.connect.elasticsearch.Mapping``."""
    document = {"type": "struct", "fields": [{"field": "f", "optional": True, **field}]}
    schema = schema_of(ValueType(Form.JSON, json.dumps(document)))
    assert schema is not None
    assert properties_of(schema, Form.JSON) == {"f": mapping}


@pytest.mark.parametrize(
    ("field", "mapping"),
    [
        ({"type": {"type": "int", "connect.type": "int8"}}, {"type": "byte"}),
        ({"type": {"type": "int", "connect.type": "int16"}, "default": 7}, {"type": "short", "null_value": 7}),
        ({"type": "int", "default": 7}, {"type": "integer", "null_value": 7}),
        ({"type": ["null", "long"], "default": None}, {"type": "long"}),
        ({"type": "float"}, {"type": "float"}),
        ({"type": "double"}, {"type": "double"}),
        ({"type": "boolean", "default": True}, {"type": "boolean", "null_value": True}),
        ({"type": "string"}, TEXT),
        ({"type": {"type": "enum", "name": "E", "symbols": ["A"]}, "default": "A"}, TEXT),
        ({"type": "bytes", "default": "\u00ff"}, {"type": "binary"}),
        ({"type": {"type": "fixed", "name": "F", "size": 1}}, {"type": "binary"}),
        ({"type": {"type": "int", "logicalType": "date"}, "default": -1}, {"type": "date", "null_value": -86_400_000}),
        ({"type": {"type": "int", "logicalType": "time-millis"}}, {"type": "date"}),
        ({"type": {"type": "long", "logicalType": "timestamp-millis"}}, {"type": "date"}),
        ({"type": {"type": "long", "logicalType": "timestamp-micros"}}, {"type": "long"}),
        (
            {
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                "default": "\u0004\u00e2",
            },
            {"type": "double", "null_value": 12.5},
        ),
        ({"type": {"type": "array", "items": "double"}}, {"type": "double"}),
        ({"type": {"type": "map", "values": "long"}}, {"type": "object"}),
        (
            {"type": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "boolean"}]}},
            {"properties": {"a": {"type": "boolean"}}},
        ),
    ],
)
def test_the_mapping_of_an_avro_type(field: dict[str, Any], mapping: dict[str, Any]) -> None:
    """By the type that Confluent's AvroData makes of it; bytes of a default are a text of their code points."""
    document = {"type": "record", "name": "Order", "fields": [{"name": "f", **field}]}
    schema = schema_of(ValueType(Form.RECORD, json.dumps(document)))
    assert schema is not None
    assert properties_of(schema, Form.RECORD) == {"f": mapping}


@pytest.mark.parametrize("form", [Form.JSON, Form.RECORD])
def test_maps_that_are_lists_are_mapped_as_lists(form: Form) -> None:
    """With ``compact.map.entries=false``: each entry is an object of ``key`` and ``value``."""
    entries = {
        "type": "map",
        "keys": {"type": "string"},
        "values": "long" if form is Form.RECORD else {"type": "int64"},
    }
    field = {"type": entries, "name": "f"} if form is Form.RECORD else {"field": "f", **entries}
    kind = {"type": "record", "name": "R"} if form is Form.RECORD else {"type": "struct"}
    schema = schema_of(ValueType(form, json.dumps({**kind, "fields": [field]})))
    assert schema is not None
    mapped = {"properties": {"key": TEXT, "value": {"type": "long"}}}
    assert properties_of(schema, form, is_map_object=False) == {"f": mapped}
