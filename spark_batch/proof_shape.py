"""A contract as Arrow reads it: the type its payloads are read as, and what is left to check of the columns read.

Arrow's JSON reader, given a type, is strict: text only from text, integers whole and in range, booleans only from
booleans. What it lets pass (infinities, minus zero, null for a required field) is found here, in whole columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal as ExactNumber
from typing import Any

import numpy as np
import pyarrow as pa

from spark_batch.avro_types import (
    DECIMAL_DIGITS_MAX,
    UUID,
    Array,
    AvroType,
    Decimal,
    Enum,
    Primitive,
    Record,
    Slot,
    Temporal,
    Uuid,
    unit_range,
)
from spark_batch.coerced_arrow import CoercedColumn, coerced_column, is_coercible, read_coerced_type
from spark_batch.outcome import ArrowColumn
from spark_batch.prepass import pc

ArrowType = Any
"""An Arrow type, as untyped as the columns are."""
_PRIMITIVES: dict[AvroType, ArrowType] = {
    Primitive.BOOLEAN: pa.bool_(),
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.STRING: pa.string(),
}


class Unproven(Exception):
    """Some payload of the chunk is not what the contract says; which one is not told."""


def read_type(kind: AvroType, *, is_listed: bool = False) -> ArrowType | None:
    """How Arrow is to read values of the type; None where it could not vouch for them.

    Bytes and maps are not here because Arrow reads none, defaults inside arrays because no row tells whether they are
    taken. Where a text may be taken for a value, Arrow may find out what stands there, except inside arrays
    (`is_listed`), where no row tells either. A decimal is read from a text as well, so that it has to have a key by
    which one is found (`decimal_names`); and Arrow brings it to its scale in 128 bits without looking whether they
    suffice, so that all its digits and those of the scale have to fit there together.
    """
    if isinstance(kind, Decimal):
        is_safe = kind.precision + kind.scale <= DECIMAL_DIGITS_MAX
        return pa.decimal128(kind.precision, kind.scale) if is_safe else None
    if isinstance(kind, Record):
        return _record_type(kind, is_listed=is_listed)
    if isinstance(kind, Array):
        items = None if isinstance(kind.items.type, Decimal) else read_type(kind.items.type, is_listed=True)
        return None if items is None or fields_with_default(kind.items.type) else pa.list_(items)
    if isinstance(kind, Temporal):
        return _PRIMITIVES[kind.base]
    return pa.string() if isinstance(kind, (Enum, Uuid)) else _PRIMITIVES.get(kind)


def _record_type(kind: Record, *, is_listed: bool) -> ArrowType | None:
    """Fields that the type does not name are read as they are found."""
    fields = []
    for field in kind.fields:
        is_coerced = field.slot.coercion is not None and not is_listed
        if is_coerced and not is_coercible(field.slot):
            return None
        found = read_coerced_type(field.slot) if is_coerced else read_type(field.slot.type, is_listed=is_listed)
        if found is not None:
            fields.append((field.json_name, found))
        elif not is_coerced:
            return None
    return pa.struct(fields)


def fields_with_default(kind: AvroType) -> list[tuple[tuple[str, ...], str]]:
    """Path of Avro names and payload name of every field that becomes something other than null when it is missing."""
    if isinstance(kind, Array):
        return fields_with_default(kind.items.type)
    found: list[tuple[tuple[str, ...], str]] = []
    for field in kind.fields if isinstance(kind, Record) else ():
        found += [((field.name,), field.json_name)] if field.has_value_default else []
        found += [((field.name, *path), name) for path, name in fields_with_default(field.slot.type)]
    return found


def decimal_names(kind: AvroType) -> Iterator[str]:
    """Payload names of the fields that are read as decimals."""
    if isinstance(kind, Array):
        yield from decimal_names(kind.items.type)
    for field in kind.fields if isinstance(kind, Record) else ():
        if isinstance(field.slot.type, Decimal) and field.slot.coercion is None:
            yield field.json_name
        yield from decimal_names(field.slot.type)


@dataclass(frozen=True)
class RecordCheck:
    """What is asked of columns that Arrow has read.

    `is_always_there`: no record around this one is null. Only then can a field be declared never to be null, since
    where a record is null its fields are too.
    """

    is_unknown_refused: bool
    is_always_there: bool = True
    is_listed: bool = False
    unknown: set[str] = dataclasses.field(default_factory=set)
    """Takes the payload names of fields that the contract does not know; where one is null, only the payload's text
    tells whether it is there."""

    def record(self, record: Record, column: ArrowColumn, coerced: np.ndarray) -> tuple[ArrowColumn, np.ndarray]:
        """The records under their Avro names without unknown fields, and where a record may not be valid.

        A missing field with a default is null. `coerced` (64-bit, one for each row) takes the bits of the fields in
        which a text was taken for their value. Raises Unproven where doubts have no row.
        """
        is_doubtful = np.zeros(len(column), dtype=bool)
        if self.is_unknown_refused:
            self._unknown(record, column, is_doubtful)
        is_there = np.asarray(column.is_valid())
        children, fields = [], []
        for field in record.fields:
            at = column.type.get_field_index(field.json_name)
            raw = None if at < 0 else column.field(at)
            # Null may mean that it is missing and takes its default; the caller finds that out.
            slot = replace(field.slot, is_nullable=field.slot.is_nullable or field.has_value_default)
            if slot.coercion is not None and not self.is_listed:
                found = coerced_column(slot, slot.coercion, raw, len(column))
                coerced[found.is_coerced & is_there] |= slot.coercion.mask
                child, is_child_doubtful = found.column, _is_coerced_doubtful(slot, found)
            else:
                child, is_child_doubtful = self._slot(slot, raw, coerced)
            is_doubtful |= is_child_doubtful & is_there
            children.append(child)
            fields.append(pa.field(field.name, child.type, nullable=slot.is_nullable or not self.is_always_there))
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask), is_doubtful

    def _unknown(self, record: Record, column: ArrowColumn, is_doubtful: np.ndarray) -> None:
        for name in _names(column) - {each.json_name for each in record.fields}:
            if self.is_listed:
                raise Unproven
            self.unknown.add(name)
            is_doubtful |= np.asarray(column.field(name).is_valid())

    def _slot(self, slot: Slot, raw: ArrowColumn, coerced: np.ndarray) -> tuple[ArrowColumn, np.ndarray]:
        column = raw
        if isinstance(slot.type, Record):
            inside = replace(self, is_always_there=self.is_always_there and not slot.is_nullable)
            column, is_doubtful = inside.record(slot.type, raw, coerced)
        elif isinstance(slot.type, Array):
            column = self._list(slot.type, raw)
            is_doubtful = np.zeros(len(raw), dtype=bool)
        else:
            is_doubtful = _is_doubtful(slot.type, raw)
        if raw.null_count and not slot.is_nullable:
            is_doubtful = is_doubtful | np.asarray(raw.is_null())
        return column, is_doubtful

    def _list(self, kind: Array, raw: ArrowColumn) -> ArrowColumn:
        inside, uncounted = replace(self, is_always_there=False, is_listed=True), np.zeros(0, dtype=np.int64)
        items, is_doubtful = inside._slot(kind.items, raw.values, uncounted)  # noqa: SLF001 - itself
        if is_doubtful.any():
            raise Unproven
        mask = raw.is_null() if raw.null_count else None
        return pa.ListArray.from_arrays(raw.offsets, items, mask=mask)


def _names(column: ArrowColumn) -> set[str]:
    return {column.type.field(at).name for at in range(column.type.num_fields)}


def _is_coerced_doubtful(slot: Slot, found: CoercedColumn) -> np.ndarray:
    is_doubtful: np.ndarray = found.is_doubtful | _is_doubtful(slot.type, found.column)
    if not slot.is_nullable:
        is_doubtful |= np.asarray(found.column.is_null())
    return is_doubtful


def _is_doubtful(kind: AvroType, column: ArrowColumn) -> np.ndarray:
    """Where a value that is there may not be allowed or not be what was written."""
    if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
        values = column.fill_null(1.0).to_numpy(zero_copy_only=False)
        # An integer has no negative zero: -0 is 0.0, and -0.0 keeps its sign; Arrow reads both alike.
        return np.asarray(~np.isfinite(values) | ((values == 0) & np.signbit(values)))
    if isinstance(kind, Temporal):
        low, high = unit_range(kind)
        is_in_range = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
    elif isinstance(kind, Decimal):
        largest = pa.scalar(ExactNumber((0, (9,) * kind.precision, -kind.scale)), column.type)
        is_in_range = pc.less_equal(pc.abs(column), largest)
    elif isinstance(kind, Enum):
        is_in_range = pc.or_kleene(pc.is_in(column, pa.array(kind.symbols)), column.is_null())
    elif isinstance(kind, Uuid):
        is_in_range = pc.match_substring_regex(column, rf"\A{UUID}\z")
    else:
        return np.zeros(len(column), dtype=bool)
    return ~np.asarray(pc.fill_null(is_in_range, fill_value=True))


def has_strange_number(column: ArrowColumn) -> bool:
    """Whether a number stands there that Arrow takes and JSON does not have: NaN, or an infinity.

    Floats of 32 bits are only in fields that are looked at by themselves, and become infinite there by being too large.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        return any(has_strange_number(column.field(index)) for index in range(kind.num_fields))
    if pa.types.is_list(kind):
        return has_strange_number(column.values)
    if not pa.types.is_float64(kind):
        return False
    return pc.all(pc.is_finite(column)).as_py() is False
