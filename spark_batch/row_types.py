"""Records of a contract as rows of a DataFrame: the Arrow types that Spark takes, and columns brought into them.

A value is *carried* as what JSON has for it (an instant as its number, in Avro's unit), and *shown* as the type that a
person expects in a DataFrame: dates and instants as such. Times of day stay numbers, because Spark 4.1 has no type for
them that its sinks write.
"""

from __future__ import annotations

import base64
from decimal import Decimal as ExactNumber
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from spark_batch.avro_types import (
    Array,
    AvroType,
    Decimal,
    Field,
    Fixed,
    JsonValue,
    Map,
    Primitive,
    Record,
    Temporal,
)
from spark_batch.exact.writing import typed_value
from spark_batch.literals.floating import floating
from spark_batch.literals.reading import Number
from spark_batch.outcome import ArrowColumn

ArrowType = Any
_PRIMITIVES: dict[AvroType, ArrowType] = {
    Primitive.NULL: pa.string(),
    Primitive.BOOLEAN: pa.bool_(),
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.BYTES: pa.binary(),
}
_INSTANTS: dict[Temporal, ArrowType] = {
    Temporal.DATE: pa.date32(),
    Temporal.TIME_MILLIS: pa.int32(),
    Temporal.TIME_MICROS: pa.int64(),
    Temporal.TIMESTAMP_MILLIS: pa.timestamp("ms", "UTC"),
    Temporal.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
    Temporal.LOCAL_TIMESTAMP_MILLIS: pa.timestamp("ms"),
    Temporal.LOCAL_TIMESTAMP_MICROS: pa.timestamp("us"),
}
_SPARKS = {pa.timestamp("ms", "UTC"): pa.timestamp("us", "UTC"), pa.timestamp("ms"): pa.timestamp("us")}
"""Spark's instants count microseconds."""


@lru_cache(maxsize=64)
def row_type(record: Record) -> ArrowType:
    """The struct of a record's fields, by their Avro names, as a DataFrame shows it; every field may be null."""
    return _type(record, lambda kind: _SPARKS.get(_INSTANTS[kind], _INSTANTS[kind]))


def shown_records(record: Record, carried: ArrowColumn) -> ArrowColumn:
    """Carried records as `row_type`; nothing is copied that is shown as it is carried."""
    # In two steps: Arrow makes instants of numbers in their own unit only.
    return carried.cast(_type(record, _INSTANTS.__getitem__)).cast(row_type(record))


def carried_records(record: Record, values: list[JsonValue]) -> ArrowColumn:
    """Records that the exact path has judged, as it writes them canonically, in a column; for the few."""
    kind = _type(record, lambda temporal: _PRIMITIVES[temporal.base])
    return pa.array([_plain(record, value) for value in values], kind)


def with_defaults(record: Record, proven: ArrowColumn) -> ArrowColumn:
    """Proven records with the defaults of their missing fields, which are null there (see `proof`)."""
    if not _has_defaults(record):
        return proven
    children = []
    for at, field in enumerate(record.fields):
        child = proven.field(at)
        if isinstance(field.slot.type, Record):
            child = with_defaults(field.slot.type, child)
        if field.has_value_default and child.null_count:
            places = np.arange(len(child), dtype=np.int64)
            places[np.asarray(child.is_null())] = len(child)
            child = pa.concat_arrays([child, _default(field, child.type)]).take(pa.array(places))
        children.append(child)
    names = [field.name for field in record.fields]
    mask = proven.is_null() if proven.null_count else None
    fields = [pa.field(name, child.type) for name, child in zip(names, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _has_defaults(record: Record) -> bool:
    kinds = [field.slot.type for field in record.fields]
    return any(field.has_value_default for field in record.fields) or any(
        _has_defaults(kind) for kind in kinds if isinstance(kind, Record)
    )


def _default(field: Field, kind: ArrowType) -> ArrowColumn:
    text = typed_value(f'{{"default":{field.default}}}')["default"]
    return pa.array([_plain(field.slot.type, text)], kind)


def _type(kind: AvroType, instant: Any) -> ArrowType:
    if isinstance(kind, Record):
        return pa.struct([(field.name, _type(field.slot.type, instant)) for field in kind.fields])
    if isinstance(kind, Array):
        return pa.list_(_type(kind.items.type, instant))
    if isinstance(kind, Map):
        return pa.map_(pa.string(), _type(kind.values.type, instant))
    if isinstance(kind, Decimal):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, Temporal):
        return instant(kind)
    return pa.binary() if isinstance(kind, Fixed) else _PRIMITIVES.get(kind, pa.string())


def _plain(kind: AvroType, value: JsonValue) -> Any:  # noqa: PLR0911 - one line a type
    """What PyArrow makes a value of the carried type from."""
    if value is None:
        return None
    if isinstance(kind, Record):
        return {field.name: _plain(field.slot.type, value[field.name]) for field in kind.fields}
    if isinstance(kind, Array):
        return [_plain(kind.items.type, item) for item in value]
    if isinstance(kind, Map):
        return [(key, _plain(kind.values.type, item)) for key, item in value.items()]
    if isinstance(kind, Decimal):
        return ExactNumber(value)
    if isinstance(kind, Fixed) or kind is Primitive.BYTES:
        return base64.b64decode(value)
    if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
        return floating(kind, value)
    return int(value) if isinstance(value, Number) else value
