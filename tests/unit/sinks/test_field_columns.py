"""Transformations of fields over a sink's typed columns: what the exact path makes of the same records, read again."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from service.config.transformations import read_transformations
from service.sinks.avro_columns import avro_shape, parsed_slot
from spark_batch.convert_exactly import convert_exactly
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_transforms import value_schema
from spark_batch.transforms.catalog import ReshapingForm
from spark_batch.transforms.halves import Origins, TypedHalf
from spark_batch.transforms.shape import Shape

AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=1)
TYPES: dict[str, Any] = {
    "n": "long",
    "x": "double",
    "s": "string",
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
    "day": {"type": "int", "logicalType": "date"},
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "list": {"type": "array", "items": "int"},
    "home": {"type": "record", "name": "Home", "fields": [{"name": "city", "type": "string"}]},
}
FIELDS = [{"name": name, "type": ["null", kind], "default": None} for name, kind in TYPES.items()]
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": FIELDS})
FULL = {"n": 300, "x": -1.5, "s": "7", "price": 12.34, "day": 19_000, "at": 1_700_000_000_123, "list": [1]}
PAYLOADS = [json.dumps({**FULL, "home": {"city": "K"}}).encode(), b"{}", b'{"s":"no"}', b'{"home":null,"x":3e9}']
CONFIGS: dict[str, dict[str, str]] = {
    "cast": {"type": "Cast$Value", "spec": "n:int8,x:int32,price:string,day:string,at:boolean"},
    "cast-text": {"type": "Cast$Value", "spec": "s:int16"},
    "mask": {"type": "MaskField$Value", "fields": "n,x,s,price,day,at,list"},
    "mask-number": {"type": "MaskField$Value", "fields": "n,s,price", "replacement": "5.25"},
    "replace": {"type": "ReplaceField$Value", "exclude": "n,list", "renames": "s:t"},
    "flatten": {"type": "Flatten$Value", "delimiter": "_"},
    "time": {"type": "TimestampConverter$Value", "field": "at", "target.type": "Date"},
    "time-text": {"type": "TimestampConverter$Value", "field": "at", "target.type": "string", "format": "HH:mm"},
    "metadata": {"type": "SetSchemaMetadata$Value", "schema.name": "a.B", "schema.version": "2"},
}


def written(plan: ConversionPlan) -> list[bytes | None]:
    """The bodies of the values, without what stands before them."""
    columns = {name: pa.nulls(len(PAYLOADS), INPUT_SCHEMA.field(name).type) for name in INPUT_SCHEMA.names}
    batch = pa.table({**columns, "value": pa.array(PAYLOADS, pa.binary())}, schema=INPUT_SCHEMA)
    return [value and value[5:] for value in convert_exactly(plan, batch).column("value").to_pylist()]


@pytest.mark.parametrize("name", CONFIGS)
def test_columns_hold_what_the_exact_path_writes(name: str) -> None:
    """Value by value; a record that the one rejects is a fault of the other."""
    config = CONFIGS[name]
    properties = {"transforms": "a"} | {f"transforms.a.{key}": text for key, text in config.items()}
    properties["transforms.a.type"] = f"org.apache.kafka.connect.transforms.{config['type']}"
    steps = read_transformations(properties, is_sink=True).steps
    plan = ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA), value_converter=AVRO, topic="t")
    after = ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA), value_converter=AVRO, transformations=steps, topic="t")
    before = avro_shape(SCHEMA)
    column = before.column([before.read(body or b"") for body in written(plan)])
    half = TypedHalf(column, Shape(parsed_slot(SCHEMA), SCHEMA), is_record=True)
    form = steps[0].transformation
    assert isinstance(form, ReshapingForm)
    nothing = pa.nulls(len(PAYLOADS), pa.int64())
    made, faults = form.of_columns(half, Origins("t", nothing, nothing, nothing))
    schema = value_schema(after) or ""
    assert json.loads(made.shape.avro) == json.loads(schema)
    bodies, shape = written(after), avro_shape(schema)
    assert set(faults) == {row for row, body in enumerate(bodies) if body is None}
    read = [None if body is None else shape.read(body) for body in bodies]
    found = [None if row in faults else value for row, value in enumerate(made.column.to_pylist())]
    assert found == shape.column(read).to_pylist()
    assert made.column.type == shape.type
