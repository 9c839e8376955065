"""Records of whole numbers, booleans and texts to Connect's JSON by Arrow alone, as Spark's ``to_json`` writes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_batch.avro_types import AvroType, Enum, Field, Narrow, Primitive, Record, Slot, Temporal, Uuid
from spark_batch.connect_documents import document_text, slot_schema
from spark_batch.literals.writing import json_text
from spark_batch.outcome import ArrowColumn
from spark_batch.plan import ConverterSpec
from spark_batch.prepass import pc
from spark_batch.serialize.pieces import Pieces, joined, piece, where_present, written_once

_NULL = piece(b"null")
_CONTROLS_END = 0x20


def is_written_in_columns(kind: AvroType) -> bool:
    """Whether values of the type are written here: not bytes, decimals and numbers of floating point."""
    if isinstance(kind, Record):
        return all(is_written_in_columns(field.slot.type) for field in kind.fields)
    return isinstance(kind, (Temporal, Enum, Narrow, Uuid)) or kind in {
        Primitive.INT,
        Primitive.LONG,
        Primitive.BOOLEAN,
        Primitive.STRING,
    }


def json_bytes(kind: AvroType, values: ArrowColumn, *, spec: ConverterSpec) -> ArrowColumn:
    """Fitted values as JSON, with their schema where the converter wants it; null stays null."""
    return json_documents(Slot(kind), values, values.is_valid(), spec=spec)


def json_documents(
    slot: Slot, values: ArrowColumn, is_there: ArrowColumn, *, spec: ConverterSpec, origin: Field | None = None
) -> ArrowColumn:
    """Values as JSON, those that are null as `null`; null where ``is_there`` is not true.

    ``origin``: the field that a value was taken from, whose default and text go with the schema.
    Raises ArrowCapacityError where the documents have more than 2 GiB.
    """
    before, after = b"", b""
    if spec.is_schema_enveloped:
        schema = document_text(slot_schema(slot, origin), is_decimal_numeric=spec.is_decimal_numeric)
        before, after = f'{{"schema":{schema},"payload":'.encode(), b"}"

    def write(present: ArrowColumn) -> Pieces:
        [payloads] = present.flatten()
        return [joined([piece(before), *_slot(slot, payloads), piece(after)], len(present))]

    is_absent = pc.invert(pc.fill_null(is_there, False))  # noqa: FBT003 - a literal
    [written] = where_present(pa.StructArray.from_arrays([values], names=["payload"], mask=is_absent), write)
    return written


def _value(kind: AvroType, column: ArrowColumn) -> Pieces:
    if isinstance(kind, Record):
        return where_present(column, lambda present: _record(kind, present))
    return written_once(column, lambda values: _plain(kind, values))


def _record(kind: Record, column: ArrowColumn) -> Pieces:
    pieces: Pieces = [piece(b"{")]
    for at, (field, child) in enumerate(zip(kind.fields, column.flatten(), strict=True)):
        pieces += [piece(f"{',' if at else ''}{json_text(field.name)}:".encode()), *_slot(field.slot, child)]
    return [*pieces, piece(b"}")]


def _slot(slot: Slot, column: ArrowColumn) -> Pieces:
    if column.null_count == len(column):
        return [_NULL]
    nulls = [pc.if_else(column.is_valid(), piece(b""), _NULL)] if column.null_count else []
    return [*nulls, *_value(slot.type, column)]


def _plain(kind: AvroType, column: ArrowColumn) -> Pieces:
    if kind is Primitive.STRING or isinstance(kind, (Enum, Uuid)):
        return where_present(column, lambda present: [piece(b'"'), _escaped(present), piece(b'"')])
    return [column.cast("string").cast("binary")]


def _escaped(column: ArrowColumn) -> ArrowColumn:
    """As Jackson escapes texts; a pass for each letter that is there to be escaped, most often for none or for one."""
    column = column.cast(pa.string())
    for letter in _escaped_letters(column):
        column = pc.replace_substring(column, letter, json_text(letter)[1:-1])
    return column.cast("binary")


def _escaped_letters(column: ArrowColumn) -> str:
    """The backslash first: the others are escaped by it."""
    _, ends, data = column.buffers()
    if data is None or not len(column):
        return ""
    first, *_, last = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    codes = np.frombuffer(data, np.uint8)[first:last]
    controls = codes[codes < _CONTROLS_END]
    return "".join(letter for letter in '\\"' if (codes == ord(letter)).any()) + "".join(map(chr, np.unique(controls)))
