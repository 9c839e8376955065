"""Connect's schemas of Avro types, as JsonConverter writes them.

Source of the forms: Connect's data model and JsonConverter, key order as written there (`type`, then `items` or
`keys`/`values` or `fields`, `optional`, `name`, `version`, `doc`, `parameters`, `default`, `field`).
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from decimal import Context
from decimal import Decimal as ExactNumber
from functools import partial

from spark_batch.avro_types import (
    Array,
    AvroType,
    ConnectMark,
    Decimal,
    Field,
    Fixed,
    JsonValue,
    Map,
    Narrow,
    Primitive,
    Record,
    Slot,
    Temporal,
)
from spark_batch.literals.numbers import unscaled_bytes

_TYPES: dict[AvroType, str] = {
    Primitive.BOOLEAN: "boolean",
    Primitive.INT: "int32",
    Primitive.LONG: "int64",
    Primitive.FLOAT: "float",
    Primitive.DOUBLE: "double",
    Primitive.BYTES: "bytes",
}
_LOGICAL_NAMES = {
    Temporal.DATE: "org.apache.kafka.connect.data.Date",
    Temporal.TIME_MILLIS: "org.apache.kafka.connect.data.Time",
    Temporal.TIMESTAMP_MILLIS: "org.apache.kafka.connect.data.Timestamp",
}
_DECIMAL_NAME = "org.apache.kafka.connect.data.Decimal"


def connect_schema(record: Record) -> JsonValue:
    """The Connect schema of a contract."""
    return _schema(Slot(record), default=None)


def slot_schema(slot: Slot, origin: Field | None = None) -> JsonValue:
    """The Connect schema of a value that need be no record; that of the field it was taken from goes with it."""
    if origin is None:
        return _schema(slot, default=None)
    schema = _field_schema(replace(origin, slot=slot))
    return {key: item for key, item in schema.items() if key != "field"}


def _schema(slot: Slot, *, default: JsonValue) -> dict[str, JsonValue]:
    schema = _structure(slot.type)
    mark = slot.type.connect if isinstance(slot.type, Record) else slot.connect
    if mark is not None and mark.type is not None:
        schema["type"] = mark.type
    schema["optional"] = slot.is_nullable
    attributes = _attributes(slot.type) | ({} if mark is None else _marked(mark))
    schema |= {key: attributes[key] for key in ("name", "version", "doc", "parameters") if key in attributes}
    if default is not None:
        schema["default"] = default
    return schema


def _marked(mark: ConnectMark) -> dict[str, JsonValue]:
    """What the schema itself says of Connect's schema goes before what its types say."""
    told = {"name": mark.name, "version": mark.version, "doc": mark.doc, "parameters": dict(mark.parameters) or None}
    return {key: value for key, value in told.items() if value is not None}


def _structure(kind: AvroType) -> dict[str, JsonValue]:
    if isinstance(kind, Record):
        return {"type": "struct", "fields": [_field_schema(field) for field in kind.fields]}
    if isinstance(kind, Array):
        items = _schema(kind.items, default=None)
        return {"type": "array", "items": items}
    if isinstance(kind, Map):
        values = _schema(kind.values, default=None)
        return {"type": "map", "keys": {"type": "string", "optional": False}, "values": values}
    if isinstance(kind, (Decimal, Fixed)):
        return {"type": "bytes"}
    if isinstance(kind, Narrow):
        return {"type": f"int{kind.bits}"}
    return {
        "type": _TYPES[kind.base if isinstance(kind, Temporal) else kind]
        if kind in _TYPES or isinstance(kind, Temporal)
        else "string"
    }


def _attributes(kind: AvroType) -> dict[str, JsonValue]:
    if isinstance(kind, Record):
        name = {"name": kind.name} if kind.name else {}
        return {**name, **({"doc": kind.doc} if kind.doc else {})}
    if isinstance(kind, Decimal):
        parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
        return {"name": _DECIMAL_NAME, "version": 1, "parameters": parameters}
    if isinstance(kind, Temporal) and kind in _LOGICAL_NAMES:
        return {"name": _LOGICAL_NAMES[kind], "version": 1}
    return {"name": kind.name} if isinstance(kind, Fixed) else {}


def _field_schema(field: Field) -> dict[str, JsonValue]:
    default = None
    if field.has_value_default and field.default is not None:
        default = _connect_default(field.slot.type, json.loads(field.default, parse_float=str))
    schema = _schema(field.slot, default=default)
    if field.doc and "doc" not in schema:
        schema = _with_doc(schema, field.doc)
    return {**schema, "field": field.name}


def _with_doc(schema: dict[str, JsonValue], doc: str) -> dict[str, JsonValue]:
    """`doc` stands before `parameters` and `default`."""
    late = {"parameters", "default"}
    early = {key: value for key, value in schema.items() if key not in late}
    return {**early, "doc": doc, **{key: value for key, value in schema.items() if key in late}}


def _connect_default(kind: AvroType, value: JsonValue) -> JsonValue:
    """A canonical default (floats as their text) in Connect's JSON form, decimals as decimals of their scale."""
    if isinstance(kind, Decimal):
        exact = Context(prec=kind.precision + 1)
        return ExactNumber(str(value)).quantize(ExactNumber(1).scaleb(-kind.scale), context=exact)
    if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
        return float(value)
    if isinstance(kind, Record) and isinstance(value, dict):
        return {f.name: _connect_default(f.slot.type, value[f.name]) for f in kind.fields}
    if isinstance(kind, Array) and isinstance(value, list):
        return [_connect_default(kind.items.type, item) for item in value]
    if isinstance(kind, Map) and isinstance(value, dict):
        return {key: _connect_default(kind.values.type, item) for key, item in value.items()}
    return value


def document_text(value: JsonValue, *, is_decimal_numeric: bool) -> str:
    """JSON; decimals among the defaults with all their digits, for which Python's own writer has no form."""
    inner = partial(document_text, is_decimal_numeric=is_decimal_numeric)
    if isinstance(value, dict):
        return f"{{{','.join(f'{inner(name)}:{inner(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(inner, value))}]"
    if isinstance(value, ExactNumber):
        return str(value) if is_decimal_numeric else f'"{base64.b64encode(unscaled_bytes(value)).decode()}"'
    return json.dumps(value, ensure_ascii=False)
