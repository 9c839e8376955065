"""Avro records as typed Arrow columns: the type follows from the schema they were written with.

What Arrow cannot hold without changing it (unions of several types, recursive records) is refused by its schema.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import fastavro
import pyarrow as pa
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException
from fastavro.types import Schema

from service.sinks.avro_decoding import column_reader_of
from service.sinks.avro_items import Read
from service.sinks.readings import Column
from spark_batch.avro_schema import parse_schema
from spark_batch.avro_types import (
    Array,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Slot,
    Temporal,
    Uuid,
)

_PRIMITIVES: dict[AvroType, Any] = {
    Primitive.NULL: pa.null(),
    Primitive.BOOLEAN: pa.bool_(),
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.STRING: pa.string(),
    Primitive.BYTES: pa.binary(),
    Temporal.DATE: pa.date32(),
    Temporal.TIME_MILLIS: pa.time32("ms"),
    Temporal.TIME_MICROS: pa.time64("us"),
    Temporal.TIMESTAMP_MILLIS: pa.timestamp("ms", "UTC"),
    Temporal.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
    Temporal.LOCAL_TIMESTAMP_MILLIS: pa.timestamp("ms"),
    Temporal.LOCAL_TIMESTAMP_MICROS: pa.timestamp("us"),
}


_MISFITS = (
    ArithmeticError, EOFError, LookupError, MemoryError, RecursionError, TypeError, ValueError, struct.error,
)  # fmt: skip
"""What the reader raises for bytes that are not of the schema: it believes every length and index it finds."""


_DECIMAL_BYTES_MAX = 4096
_READ_DECIMAL = LOGICAL_READERS["bytes-decimal"]
_SIZED_DECIMAL = "headrace-sized-decimal"


class AvroShapeError(Exception):
    """A schema that no Arrow type stands for, or a body that is not of its schema."""


@dataclass(frozen=True)
class AvroShape:
    """How records of one schema are read, and what column they make."""

    schema: str
    reader: Schema
    type: Any
    read_at_once: Read | None
    """Reads many records, as `read` does; None for schemas whose records are read one by one."""

    def read(self, body: bytes) -> object:
        """One record's value; raises AvroShapeError for a body that is not of the schema, or has bytes left."""
        stream = io.BytesIO(body)
        try:
            value = fastavro.schemaless_reader(stream, self.reader, None)
        except _MISFITS as error:
            raise AvroShapeError(f"the body does not fit the schema: {type(error).__name__}") from error
        if stream.tell() != len(body):
            message = f"{len(body) - stream.tell()} bytes follow the record"
            raise AvroShapeError(message)
        return value

    def column(self, values: Sequence[object]) -> Column:
        """The values as one column; raises AvroShapeError for one that its type cannot hold."""
        try:
            return cast("Column", pa.array(values, self.type))
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
            raise AvroShapeError(f"a value does not fit its type: {type(error).__name__}") from error


def avro_shape(schema: str) -> AvroShape:
    """The shape of a schema; raises AvroShapeError with every finding."""
    slot = parsed_slot(schema)
    try:
        reader = fastavro.parse_schema(_as_read(json.loads(schema)))
    except (SchemaParseException, TypeError, ValueError) as error:
        # It takes no type within a type, {"type": {"type": "bytes"}}: records of such a schema are refused.
        raise AvroShapeError(f"cannot be read: {type(error).__name__}: {error}") from error
    kind = _type(slot)
    return AvroShape(schema, reader, kind, column_reader_of(reader, slot, kind))


def parsed_slot(schema: str) -> Slot:
    """What a schema of any type allows; raises AvroShapeError with every finding."""
    wrapped = {"type": "record", "name": "HeadraceValue", "fields": [{"name": "value", "type": json.loads(schema)}]}
    parsed = parse_schema(json.dumps(wrapped))
    if parsed.record is None:
        told = "; ".join(f"{finding.path or 'schema'}: {finding.seen}" for finding in parsed.findings)
        message = f"cannot be held in columns: {told}"
        raise AvroShapeError(message)
    return parsed.record.fields[0].slot


def _type(slot: Slot) -> Any:  # noqa: PLR0911 - one line a type
    kind = slot.type
    if isinstance(kind, Record):
        return pa.struct(
            [pa.field(field.name, _type(field.slot), nullable=field.slot.is_nullable) for field in kind.fields]
        )
    if isinstance(kind, Array):
        if _takes_no_bytes(kind.items):
            message = "items of an array take no bytes: a record of a few bytes could have any number of them"
            raise AvroShapeError(message)
        return pa.list_(_type(kind.items))
    if isinstance(kind, Map):
        return pa.map_(pa.string(), _type(kind.values))
    if isinstance(kind, Decimal):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, Fixed):
        return pa.binary(kind.size)
    if isinstance(kind, (Enum, Uuid)):
        return pa.string()
    return _PRIMITIVES[kind]


def _takes_no_bytes(slot: Slot) -> bool:
    if isinstance(slot.type, Record):
        return not slot.is_nullable and all(_takes_no_bytes(field.slot) for field in slot.type.fields)
    return slot.type is Primitive.NULL


def _decimal(data: bytes, writer_schema: Any = None, reader_schema: Any = None) -> object:
    """What fastavro makes of a decimal's bytes: the time for it grows with their square; raises ValueError."""
    if len(data) > _DECIMAL_BYTES_MAX:
        raise ValueError(len(data))
    return _READ_DECIMAL(data, writer_schema, reader_schema)


LOGICAL_READERS[f"bytes-{_SIZED_DECIMAL}"] = LOGICAL_READERS[f"fixed-{_SIZED_DECIMAL}"] = _decimal


def _as_read(document: Any) -> Any:
    """The schema with UUIDs as the text they are, which columns have no type for, and decimals read by `_decimal`."""
    if isinstance(document, list):
        return [_as_read(branch) for branch in document]
    if isinstance(document, dict):
        kept = {key: _as_read(value) for key, value in document.items()}
        if kept.get("logicalType") == "decimal":
            return kept | {"logicalType": _SIZED_DECIMAL}
        return {key: value for key, value in kept.items() if (key, value) != ("logicalType", "uuid")}
    return document
