"""Records of whole numbers, booleans and texts to Connect's JSON by Arrow alone, as Spark's ``to_json`` writes them."""

from __future__ import annotations

from spark_batch.avro_types import AvroType, Enum, Primitive, Record, Slot, Temporal, Uuid
from spark_batch.literals.writing import json_text
from spark_batch.outcome import ArrowColumn
from spark_batch.plan import ConverterSpec
from spark_batch.prepass import pc
from spark_batch.serialize.connect_json import document_text, slot_schema
from spark_batch.serialize.pieces import Pieces, joined, piece, where_present, written_once

_NULL = piece(b"null")
_ESCAPED = '\\"' + "".join(map(chr, range(0x20)))
"""The backslash first: the others are escaped by it."""
_ANY_ESCAPED = r'[\\"\x00-\x1f]'


def is_written_in_columns(kind: AvroType) -> bool:
    """Whether ``json_bytes`` writes values of the type: not bytes, decimals and numbers of floating point."""
    if isinstance(kind, Record):
        return all(is_written_in_columns(field.slot.type) for field in kind.fields)
    return isinstance(kind, (Temporal, Enum, Uuid)) or kind in {
        Primitive.INT,
        Primitive.LONG,
        Primitive.BOOLEAN,
        Primitive.STRING,
    }


def json_bytes(kind: AvroType, values: ArrowColumn, *, spec: ConverterSpec) -> ArrowColumn:
    """Fitted values as JSON, with their schema where the converter wants it; null stays null."""
    before, after = b"", b""
    if spec.is_schema_enveloped:
        schema = document_text(slot_schema(Slot(kind)), is_decimal_numeric=spec.is_decimal_numeric)
        before, after = f'{{"schema":{schema},"payload":'.encode(), b"}"

    def write(present: ArrowColumn) -> Pieces:
        return [joined([piece(before), *_value(kind, present), piece(after)], len(present))]

    [written] = where_present(values, write)
    return written


def _value(kind: AvroType, column: ArrowColumn) -> Pieces:
    if isinstance(kind, Record):
        return where_present(column, lambda present: _record(kind, present))
    return written_once(column, lambda values: _plain(kind, values))


def _record(kind: Record, column: ArrowColumn) -> Pieces:
    pieces: Pieces = []
    for at, (field, child) in enumerate(zip(kind.fields, column.flatten(), strict=True)):
        pieces += [piece(f"{',' if at else '{'}{json_text(field.name)}:".encode()), *_slot(field.slot, child)]
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
    """As Jackson escapes texts."""
    if pc.any(pc.match_substring_regex(column, _ANY_ESCAPED)).as_py():
        for letter in _ESCAPED:
            column = pc.replace_substring(column, letter, json_text(letter)[1:-1])
    return column.cast("binary")
