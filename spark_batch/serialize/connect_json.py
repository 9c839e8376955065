"""JSON as Kafka Connect's JsonConverter writes it, with and without the schema envelope.

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
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.avro.functions import to_avro

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
from spark_batch.instant_columns import instant_number

if TYPE_CHECKING:
    from pyspark.sql import Column

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


def json_text(text: Column) -> Column:
    """Text as a JSON string; `null` where it is null."""
    return _unlisted(F.to_json(F.array(text)))


def _unlisted(listed: Column) -> Column:
    """The one item of a JSON array, none of whose ends is a bracket: a string, a number or a word.

    To cut by the length would name the array twice, and Spark would write it twice: within a condition it does not
    share what two branches have in common.
    """
    return F.btrim(listed, F.lit("[]"))


def any_json_text(kind: AvroType, value: Column, *, is_decimal_numeric: bool) -> Column:
    """A typed value as JSON; `null` where it is null."""
    payload = json_payload(kind, value, is_decimal_numeric=is_decimal_numeric)
    if isinstance(kind, (Record, Array, Map)):
        return F.coalesce(F.to_json(payload, {"ignoreNullFields": "false"}), F.lit("null"))
    return _unlisted(F.to_json(F.array(payload)))


def enveloped(document: JsonValue, payload: Column, *, is_decimal_numeric: bool) -> Column:
    """The payload's JSON text with this Connect schema."""
    schema = document_text(document, is_decimal_numeric=is_decimal_numeric)
    return F.concat(F.lit(f'{{"schema":{schema},"payload":'), payload, F.lit("}"))


def json_payload(kind: AvroType, value: Column, *, is_decimal_numeric: bool) -> Column:
    """A typed value in the form whose `to_json` is what Connect writes.

    Spark and Connect both write a decimal's number as Java's BigDecimal says it, with every digit of its scale.
    """
    inner = partial(json_payload, is_decimal_numeric=is_decimal_numeric)
    if isinstance(kind, Record):
        fields = [inner(f.slot.type, value.getField(f.name)).alias(f.name) for f in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, Array):
        return F.transform(value, lambda item: inner(kind.items.type, item))
    if isinstance(kind, Map):
        return F.transform_values(value, lambda _, item: inner(kind.values.type, item))
    if isinstance(kind, Decimal):
        return value if is_decimal_numeric else F.base64(value) if kind.is_wide else _unscaled_base64(kind, value)
    return instant_number(kind, value) if isinstance(kind, Temporal) else value


def _unscaled_base64(kind: Decimal, value: Column) -> Column:
    """Base64 of the unscaled value, two's complement, shortest form: taken from Avro's own encoding of it.

    Avro writes bytes as a length (one byte here, as 38 digits need at most 16) and the bytes.
    """
    schema = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    encoded = to_avro(value, json.dumps(schema))
    return F.base64(F.substring(encoded, 2, 1 << 10))


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
        return str(value) if is_decimal_numeric else f'"{_base64_of(value)}"'
    return json.dumps(value, ensure_ascii=False)


def _base64_of(number: ExactNumber) -> str:
    """Base64 of the unscaled value, two's complement, shortest form."""
    sign, digits, _ = number.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
