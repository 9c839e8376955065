"""One model of schemas, whichever converter brought them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.sinks.batch import Form, ValueType
from service.sinks.schemas import DATE, DECIMAL, TIMESTAMP, Kind, Schema, SchemaUnreadable, schema_of
from service.sinks.shapes import ShapeError, shape_of

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": {"type": "int", "connect.type": "int16"}, "default": 3},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "line", "type": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}},
        {"name": "lines", "type": {"type": "array", "items": "Line"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}},
    ],
}


def avro(document: Any) -> Schema | None:
    """Of a typed column."""
    return schema_of(ValueType(Form.RECORD, json.dumps(document)))


def test_avro_as_connect_sees_it() -> None:
    """Logical types by Connect's names, narrow integers, named types by reference, optional ones."""
    found = avro(AVRO)
    assert found is not None
    assert (found.kind, found.name) == (Kind.STRUCT, "shop.Order")
    fields = found.fields
    assert [each.kind for each in fields.values()][:6] == [
        Kind.INT64, Kind.INT16, Kind.INT32, Kind.INT64, Kind.INT64, Kind.BYTES,
    ]  # fmt: skip
    assert [fields[name].name for name in ("day", "at", "micros", "price")] == [DATE, TIMESTAMP, None, DECIMAL]
    assert (fields["day"].is_optional, fields["id"].is_optional) == (True, False)
    assert (fields["small"].default, fields["price"].parameters) == (3, {"scale": "2"})
    assert fields["lines"].values == fields["line"]
    tags = fields["tags"]
    assert (tags.keys, tags.values) == (Schema(Kind.STRING), Schema(Kind.STRING, is_optional=True))


def test_the_envelopes_schema_is_the_same_model() -> None:
    """A struct of JsonConverter and one of AvroConverter with the same fields are equal but for the name's place."""
    document = {
        "type": "struct",
        "name": "shop.Order",
        "fields": [
            {"field": "id", "type": "int64"},
            {"field": "day", "type": "int32", "name": DATE, "version": 1, "optional": True},
            {
                "field": "tags",
                "type": "map",
                "keys": {"type": "string"},
                "values": {"type": "string", "optional": True},
            },
        ],
    }
    found = schema_of(ValueType(Form.JSON, json.dumps(document)))
    whole = avro(AVRO)
    assert found is not None
    assert whole is not None
    assert found.fields == {name: whole.fields[name] for name in ("id", "day", "tags")}
    assert found.name == whole.name


@pytest.mark.parametrize(
    "document", [["int", "string"], {"type": "record"}, {"type": "record", "name": "A", "fields": 3}]
)
def test_what_connect_has_no_word_for(document: Any) -> None:
    """It is said, and no bug."""
    with pytest.raises(SchemaUnreadable):
        avro(document)


def test_no_schema_and_none_that_is_readable() -> None:
    """JSON may come without one; texts and bytes have one of their own."""
    assert schema_of(ValueType(Form.JSON)) is None
    assert schema_of(ValueType(Form.TEXT)) == Schema(Kind.STRING, is_optional=True)
    with pytest.raises(SchemaUnreadable):
        schema_of(ValueType(Form.JSON, '{"type":"nothing"}'))


@pytest.mark.parametrize(
    "field",
    [
        {"type": "array"},
        {"type": "array", "items": None},
        {"type": "map", "values": {"type": "int64"}},
        {"type": "map", "keys": {"type": "string"}},
        {"type": "array", "items": {"type": "map", "keys": {"type": "string"}}},
    ],
)
def test_a_list_or_a_map_of_nothing_said_is_no_schema(field: dict[str, Any]) -> None:
    """``JsonConverter.asConnectSchema`` refuses its records: "Array schema did not specify the element type"."""
    document = {"type": "struct", "fields": [{"field": "f", "optional": True, **field}]}
    with pytest.raises(SchemaUnreadable, match="did not specify"):
        schema_of(ValueType(Form.JSON, json.dumps(document)))


@pytest.mark.parametrize("scale", [None, "", "two", "1e2", "9" * 11])
def test_a_decimal_whose_scale_is_no_number_is_no_schema(scale: str | None) -> None:
    """As ``Decimal.scale`` of Connect says."""
    field = {"field": "f", "type": "bytes", "name": DECIMAL, "parameters": {"scale": scale}}
    with pytest.raises(SchemaUnreadable, match="scale"):
        schema_of(ValueType(Form.JSON, json.dumps({"type": "struct", "fields": [field]})))


@pytest.mark.parametrize("parameters", [{}, {"scale": "2", "connect.decimal.precision": "many"}])
def test_a_decimal_that_has_no_type_in_files_is_told(parameters: dict[str, str]) -> None:
    """Its records are refused; the task goes on."""
    field = {"field": "f", "type": "bytes", "name": DECIMAL, "parameters": parameters}
    kind = ValueType(Form.JSON, json.dumps({"type": "struct", "fields": [field]}))
    with pytest.raises(ShapeError, match="a Decimal without a scale"):
        shape_of(kind, "parquet")
