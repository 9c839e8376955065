"""Rows as a driver's Arrow has them, fitted into a contract's record: each value exactly, or its row is rejected.

Whole columns at a time. What comes out has the record's Avro names and one Arrow type for each Avro type, in which
dates, times and timestamps are the numbers that Avro carries, and decimals of more digits than Spark has are bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from spark_batch.avro_types import (
    INTEGER_BITS,
    UUID,
    Array,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Slot,
    Temporal,
    Uuid,
)
from spark_batch.outcome import ArrowColumn, Reason, Rejection
from spark_batch.prepass import pc, read_utf8

ArrowType: TypeAlias = Any
_MICROS_MAX = 2**63 - 1
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_PRIMITIVES: dict[AvroType, ArrowType] = {
    Primitive.NULL: pa.string(),
    Primitive.BOOLEAN: pa.bool_(),
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.BYTES: pa.binary(),
}


class RowsMisfit(Exception):
    """Columns whose Arrow types can never hold what the schema says; the message names the column."""


@dataclass(frozen=True)
class FittedRows:
    """`records`: as many as there were rows, null for tombstones; those of rejected rows are of no meaning."""

    records: ArrowColumn
    rejected: dict[int, Rejection]


def fitted_rows(record: Record, rows: ArrowColumn, *, is_finite: bool) -> FittedRows:
    """A struct column fitted into a record; raises RowsMisfit.

    `is_finite`: whether NaN and the infinities are rejected, for want of a form in JSON. A field that has no column is
    its default, or null; a column that is no field is left out.
    """
    fit = _Fit(is_finite)
    records = fit.record(record, rows, _Place("", None, np.asarray(rows.is_valid())))
    return FittedRows(records, fit.rejected)


def arrow_type(kind: AvroType) -> ArrowType:
    """What values of the type are fitted into."""
    if isinstance(kind, Record):
        return pa.struct([pa.field(each.name, arrow_type(each.slot.type)) for each in kind.fields])
    if isinstance(kind, Array):
        return pa.list_(arrow_type(kind.items.type))
    if isinstance(kind, Map):
        return pa.map_(pa.string(), arrow_type(kind.values.type))
    if isinstance(kind, Decimal):
        return pa.binary() if kind.is_wide else pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, Fixed):
        return pa.binary()
    return _PRIMITIVES.get(kind.base if isinstance(kind, Temporal) else kind, pa.string())


@dataclass(frozen=True)
class _Place:
    """Where a column stands: its name for messages, the row of each value (None: its own), where its parent there."""

    path: str
    rows: np.ndarray | None
    is_there: np.ndarray

    def child(self, name: str, *, is_there: np.ndarray) -> _Place:
        """A field."""
        return replace(self, path=f"{self.path}.{name}" if self.path else name, is_there=is_there)

    def items(self, column: ArrowColumn, count: int) -> _Place:
        """The items of a list column."""
        # Not ``list_parent_indices``: that counts what lies in memory below a null too, which is no item.
        parents = np.repeat(np.arange(len(column)), _lengths(column))
        rows = parents if self.rows is None else self.rows[parents]
        return _Place(f"{self.path}[]", rows, np.ones(count, dtype=bool))


@dataclass
class _Fit:
    """Walks the type and its column together; keeps the first rejection of each row."""

    is_finite: bool
    rejected: dict[int, Rejection] = field(default_factory=dict)

    def record(self, record: Record, column: ArrowColumn, place: _Place) -> ArrowColumn:
        if not pa.types.is_struct(column.type):
            raise _misfit(place, column, "a struct")
        names = [column.type.field(at).name for at in range(column.type.num_fields)]
        inner = column.flatten()
        is_there = np.asarray(column.is_valid())
        children = []
        for each in record.fields:
            own = place.child(each.json_name, is_there=is_there)
            if each.json_name in names:
                children.append(self.slot(each.slot, inner[names.index(each.json_name)], own))
            else:
                children.append(_missing(each, len(column), own))
        fields = [pa.field(each.name, child.type) for each, child in zip(record.fields, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null() if column.null_count else None)

    def slot(self, slot: Slot, column: ArrowColumn, place: _Place) -> ArrowColumn:
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count and not slot.is_nullable:
            is_bad = np.asarray(column.is_null()) & place.is_there
            self.reject(is_bad, Reason.NULL_NOT_ALLOWED, "a value other than null", place)
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), arrow_type(slot.type))
        fitted = self.value(slot.type, column, place)
        if slot.connect is not None and slot.connect.type is not None:
            half = 1 << (int(slot.connect.type.removeprefix("int")) - 1)
            is_right = pc.and_(pc.greater_equal(fitted, -half), pc.less(fitted, half))
            is_wrong = ~np.asarray(pc.fill_null(is_right, fill_value=True))
            self.reject(
                is_wrong, Reason.OUT_OF_RANGE, f"an integer of {slot.connect.type.removeprefix('int')} bits", place
            )
        return fitted

    def value(self, kind: AvroType, column: ArrowColumn, place: _Place) -> ArrowColumn:  # noqa: PLR0911 - one line a type
        if isinstance(kind, Record):
            return self.record(kind, column, place)
        if isinstance(kind, Array):
            return self.list(kind, column, place)
        if isinstance(kind, Map):
            return self.map(kind, column, place)
        if isinstance(kind, Temporal):
            return self.instant(kind, column, place)
        if isinstance(kind, Decimal):
            return self.decimal(kind, column, place)
        if kind in INTEGER_BITS:
            _demand(pa.types.is_integer(column.type), place, column, "whole numbers")
            told = f"an integer of {INTEGER_BITS[kind]} bits"
            return self.checked(column, lambda part: part.cast(_PRIMITIVES[kind]), told, place)
        if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
            return self.floating(kind, column, place)
        if isinstance(kind, Fixed) or kind is Primitive.BYTES:
            return self.bytes(kind, column, place)
        if kind is Primitive.BOOLEAN:
            _demand(pa.types.is_boolean(column.type), place, column, "booleans")
            return column
        return self.text(kind, column, place)

    def text(self, kind: AvroType, column: ArrowColumn, place: _Place) -> ArrowColumn:
        _demand(_is_text(column.type), place, column, "text")
        read = read_utf8(column.cast(pa.string()).cast(pa.binary()))
        self.reject(read.is_invalid, Reason.INVALID_UTF8, "UTF-8", place)
        column = read.column
        if isinstance(kind, Enum):
            is_known = pc.is_in(column, pa.array(kind.symbols, pa.string()))
            self.reject(~np.asarray(pc.or_(is_known, column.is_null())), Reason.UNKNOWN_SYMBOL, "a symbol", place)
        elif isinstance(kind, Uuid):
            is_uuid = pc.fill_null(pc.match_substring_regex(column, rf"\A{UUID}\z"), fill_value=True)
            self.reject(~np.asarray(is_uuid), Reason.WRONG_TYPE, "a UUID", place)
        return column

    def bytes(self, kind: AvroType, column: ArrowColumn, place: _Place) -> ArrowColumn:
        found = column.type
        is_binary = pa.types.is_binary(found) or pa.types.is_large_binary(found) or pa.types.is_fixed_size_binary(found)
        _demand(is_binary, place, column, "bytes")
        column = column.cast(pa.binary())
        if isinstance(kind, Fixed):
            is_wrong = pc.fill_null(pc.not_equal(pc.binary_length(column), kind.size), fill_value=False)
            self.reject(np.asarray(is_wrong), Reason.OUT_OF_RANGE, f"{kind.size} bytes", place)
        return column

    def floating(self, kind: AvroType, column: ArrowColumn, place: _Place) -> ArrowColumn:
        is_exact = pa.types.is_floating(column.type) and (kind is Primitive.DOUBLE or column.type != pa.float64())
        _demand(is_exact, place, column, f"numbers of floating point of {kind}'s width at most")
        if self.is_finite:
            is_strange = ~np.asarray(pc.fill_null(pc.is_finite(column), fill_value=True))
            self.reject(is_strange, Reason.UNREPRESENTABLE, "a number, which NaN and infinity in JSON are not", place)
        return column.cast(_PRIMITIVES[kind])

    def decimal(self, kind: Decimal, column: ArrowColumn, place: _Place) -> ArrowColumn:
        if pa.types.is_integer(column.type):
            column = column.cast(pa.decimal128(20, 0))
        _demand(pa.types.is_decimal(column.type), place, column, "decimals or whole numbers")
        told = f"at most {kind.precision} digits, {kind.scale} of them after the point"
        make = pa.decimal256 if kind.is_wide else pa.decimal128
        column = self.checked(column, lambda part: part.cast(make(kind.precision, kind.scale)), told, place)
        return unscaled_bytes(column) if kind.is_wide else column

    def instant(self, kind: Temporal, column: ArrowColumn, place: _Place) -> ArrowColumn:
        told = f"a {kind.value} in the range and precision of its type"
        _, units = _numbers(kind, column.slice(0, 0), place)
        numbers = self.checked(column, lambda part: _numbers(kind, part, place)[0], told, place)
        if kind is not Temporal.DATE and units != kind.units_per_second:
            numbers = self.rescaled(numbers, (units, kind.units_per_second), told, place)
        is_wrong = _is_out_of_range(kind, numbers)
        if is_wrong is not None:
            self.reject(is_wrong, Reason.OUT_OF_RANGE, told, place)
            if is_wrong.any():
                numbers = pc.if_else(pa.array(is_wrong), pa.scalar(None, numbers.type), numbers)
        return numbers.cast(_PRIMITIVES[kind.base])

    def rescaled(self, numbers: ArrowColumn, units: tuple[int, int], told: str, place: _Place) -> ArrowColumn:
        """Numbers of so many `units` in a second (there are, wanted); a fraction that would be cut is rejected."""
        found, wanted = units
        if found < wanted:
            factor = wanted // found
            return self.checked(numbers, lambda part: pc.multiply_checked(part, factor), told, place)
        factor = found // wanted
        whole = pc.divide(numbers, factor)  # towards zero, so that what is left has the sign of the number
        is_cut = np.asarray(pc.fill_null(pc.not_equal(pc.multiply(whole, factor), numbers), fill_value=False))
        self.reject(is_cut, Reason.OUT_OF_RANGE, told, place)
        return whole

    def list(self, kind: Array, column: ArrowColumn, place: _Place) -> ArrowColumn:
        _demand(_is_list(column.type), place, column, "a list")
        if not pa.types.is_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        inner = column.flatten()
        items = self.slot(kind.items, inner, place.items(column, len(inner)))
        return pa.ListArray.from_arrays(_offsets(column), items, mask=column.is_null() if column.null_count else None)

    def map(self, kind: Map, column: ArrowColumn, place: _Place) -> ArrowColumn:
        _demand(pa.types.is_map(column.type), place, column, "a map with texts as keys")
        pairs = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
        listed = column.cast(pa.list_(pairs))
        inner = listed.flatten()
        own = place.items(listed, len(inner))
        keys = self.slot(Slot(Primitive.STRING), inner.field("key"), own)
        values = self.slot(kind.values, inner.field("value"), own)
        mask = listed.is_null() if listed.null_count else None
        return pa.MapArray.from_arrays(_offsets(listed), keys, values, mask=mask)

    def checked(
        self, column: ArrowColumn, make: Callable[[ArrowColumn], ArrowColumn], told: str, place: _Place
    ) -> ArrowColumn:
        """The column made into another where Arrow can do so exactly; the others are found in halves, and rejected."""
        try:
            return make(column)
        except pa.ArrowInvalid:
            pass
        is_bad = np.zeros(len(column), dtype=bool)
        waiting = [(0, len(column))]
        while waiting:
            start, length = waiting.pop()
            try:
                make(column.slice(start, length))
            except pa.ArrowInvalid:
                if length == 1:
                    is_bad[start] = True
                else:
                    waiting += [(start, length // 2), (start + length // 2, length - length // 2)]
        self.reject(is_bad, Reason.OUT_OF_RANGE, told, place)
        return make(pc.if_else(pa.array(is_bad), pa.scalar(None, column.type), column))

    def reject(self, is_bad: np.ndarray, reason: Reason, told: str, place: _Place) -> None:
        found = np.flatnonzero(is_bad)
        for row in found if place.rows is None else np.unique(place.rows[found]):
            self.rejected.setdefault(int(row), Rejection(reason, f"{place.path}: expected {told}"))


def _demand(is_right: bool, place: _Place, column: ArrowColumn, expected: str) -> None:  # noqa: FBT001 - a condition
    """Raise RowsMisfit unless the column is of a right type."""
    if not is_right:
        raise _misfit(place, column, expected)


def _misfit(place: _Place, column: ArrowColumn, expected: str) -> RowsMisfit:
    return RowsMisfit(f"column {place.path}: expected {expected}, not Arrow's {column.type}")


def _missing(each: Field, count: int, place: _Place) -> ArrowColumn:
    """A field that the rows have no column for."""
    if not each.slot.is_nullable or each.has_value_default:
        expected = "a column, since it may not be null" if not each.has_value_default else "a column"
        raise RowsMisfit(f"field {place.path}: expected {expected}")
    return pa.nulls(count, arrow_type(each.slot.type))


def _is_text(kind: ArrowType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_list(kind: ArrowType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _lengths(column: ArrowColumn) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.list_value_length(column), 0))


def _offsets(column: ArrowColumn) -> ArrowColumn:
    return pa.array(np.concatenate(([0], np.cumsum(_lengths(column)))), pa.int32())


def _numbers(kind: Temporal, column: ArrowColumn, place: _Place) -> tuple[ArrowColumn, int]:
    """What the column counts, and its units in a second (those of the type where the column has none)."""
    found = column.type
    if pa.types.is_integer(found):
        return column.cast(pa.int64()), kind.units_per_second
    if kind is Temporal.DATE:
        _demand(pa.types.is_date(found), place, column, "dates")
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 0
    if kind in {Temporal.TIME_MILLIS, Temporal.TIME_MICROS}:
        _demand(pa.types.is_time(found), place, column, "times of day")
        return column.cast(pa.int32() if pa.types.is_time32(found) else pa.int64()).cast(pa.int64()), _UNITS[found.unit]
    is_local = kind in {Temporal.LOCAL_TIMESTAMP_MILLIS, Temporal.LOCAL_TIMESTAMP_MICROS}
    is_right = pa.types.is_timestamp(found) and not (is_local and found.tz)
    _demand(is_right, place, column, "timestamps without a zone" if is_local else "timestamps")
    return column.cast(pa.int64()), _UNITS[found.unit]


def _is_out_of_range(kind: Temporal, numbers: ArrowColumn) -> np.ndarray | None:
    """Where a number is none of the type: wider than in JSON, whose texts know four digits of a year. None: nowhere."""
    if kind is Temporal.DATE:
        low, high = -(2**31), 2**31 - 1
    elif kind in {Temporal.TIME_MILLIS, Temporal.TIME_MICROS}:
        low, high = 0, 86_400 * kind.units_per_second - 1
    elif kind.units_per_second == _UNITS["ms"]:
        low, high = -(_MICROS_MAX // 1_000), _MICROS_MAX // 1_000
    else:
        return None
    is_right = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return ~np.asarray(pc.fill_null(is_right, fill_value=True))


def unscaled_bytes(column: ArrowColumn) -> ArrowColumn:
    """Unscaled values of a `decimal256` column, two's complement, big-endian, shortest form: as Avro has decimals."""
    count, is_there = len(column), None
    if column.null_count:
        is_there = column.is_valid()
        column = pc.fill_null(column, pa.scalar(0, column.type))
    raw = np.frombuffer(column.buffers()[1], dtype=np.uint8).reshape(-1, 32)[
        column.offset : column.offset + count, ::-1
    ]
    sign = np.where(raw[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
    # A leading byte says nothing where it repeats the sign and the next one begins with the sign's bit.
    is_idle = (raw[:, :-1] == sign) & ((raw[:, 1:] & 0x80) == (sign & 0x80))
    skipped = np.cumprod(is_idle, axis=1).sum(axis=1)
    kept = np.arange(32) >= skipped[:, np.newaxis]
    offsets = np.concatenate(([0], np.cumsum(32 - skipped))).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(raw[kept].tobytes())]
    made = pa.Array.from_buffers(pa.binary(), count, buffers)
    return made if is_there is None else pc.if_else(is_there, made, pa.scalar(None, pa.binary()))
