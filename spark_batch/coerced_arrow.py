"""Coercion of whole Arrow columns: texts as the values they are taken for, and where that is certain.

Says the same as `exact.coercing` wherever it is certain; where it is not, the row is only doubtful.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_batch.avro_types import (
    DAY_SECONDS,
    INTEGER_BITS,
    UUID,
    Decimal,
    Enum,
    Primitive,
    Slot,
    Temporal,
    Uuid,
    unit_range,
)
from spark_batch.coercion import folded_symbols
from spark_batch.exact.instants import ISO_FORMS
from spark_batch.prepass import pc

if TYPE_CHECKING:
    from spark_batch.coercion import Coercion
    from spark_batch.outcome import ArrowColumn

INTEGER_TEXT = r"\A-?(0|[1-9][0-9]{0,17})\z"
"""A JSON integer that surely fits 64 bits."""
REAL_TEXT = r"\A-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?\z"
"""A JSON number that is surely finite as a double."""


def decimal_text(kind: Decimal) -> str:
    """Expression of the numbers that the decimal holds as they are written."""
    whole = kind.precision - kind.scale
    digits = "0" if whole == 0 else f"(0|[1-9][0-9]{{0,{whole - 1}}})"
    fraction = f"(\\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    return rf"\A-?{digits}{fraction}\z"


@dataclass(frozen=True)
class CoercedColumn:
    """Typed values, where they may be wrong, and where a text was taken for one."""

    column: ArrowColumn
    is_doubtful: np.ndarray
    is_coerced: np.ndarray


def read_coerced_type(slot: Slot) -> Any | None:
    """How Arrow is to read the slot: as text, or None where it finds out by itself, chunk by chunk, what stands there.

    Dates and times are read as text always, since Arrow would read some of them as instants of its own.
    """
    return pa.string() if isinstance(slot.type, (Temporal, Enum, Uuid)) else None


def is_coercible(slot: Slot) -> bool:
    """Whether columns of the slot can be coerced here (floats would be rounded twice, bytes are not read)."""
    kind = slot.type
    return isinstance(kind, (Temporal, Enum, Uuid, Decimal)) or kind in _ARROW


def coerced_column(slot: Slot, coercion: Coercion, raw: ArrowColumn | None, rows: int) -> CoercedColumn:
    """The column as values of the slot's type; `raw` None: none of the payloads has the field."""
    kind = slot.type
    target = _target(kind)
    nowhere = np.zeros(rows, dtype=bool)
    if raw is None or pa.types.is_null(raw.type):
        return CoercedColumn(pa.nulls(rows, target), nowhere, nowhere)
    if not pa.types.is_string(raw.type):
        return _numbers_as_they_are(kind, raw, target)
    is_empty = nowhere
    if coercion.is_empty_null:
        is_empty = np.asarray(pc.fill_null(pc.equal(raw, ""), fill_value=False))
        raw = pc.if_else(pa.array(is_empty), pa.scalar(None, pa.string()), raw)
    is_there = np.asarray(raw.is_valid())
    if isinstance(kind, Enum):
        column, is_coerced = _symbols(kind, raw, is_taken=coercion.is_taken)
    elif isinstance(kind, Temporal):
        column, is_coerced = _instants(kind, coercion, raw)
        column = pa.array(column, target)
    elif isinstance(kind, Uuid):
        column = pc.if_else(pc.match_substring_regex(raw, rf"\A{UUID}\z"), raw, pa.scalar(None, pa.string()))
        is_coerced = nowhere
    else:
        column = _literals(kind, raw, target) if coercion.is_taken else pa.nulls(rows, target)
        is_coerced = is_there
    is_doubtful = is_there & np.asarray(column.is_null())
    return CoercedColumn(column, is_doubtful, (is_coerced & is_there) | is_empty)


def _target(kind: Any) -> Any:
    if isinstance(kind, Decimal):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, Temporal):
        return pa.int32() if kind.base is Primitive.INT else pa.int64()
    return pa.string() if isinstance(kind, (Enum, Uuid)) else _ARROW[kind]


def _numbers_as_they_are(kind: Any, raw: ArrowColumn, target: Any) -> CoercedColumn:
    """No texts: what Arrow read strictly is right where it has the type, or is a whole number for a wider one."""
    nowhere = np.zeros(len(raw), dtype=bool)
    is_int = pa.types.is_int64(raw.type)
    if raw.type == target:
        return CoercedColumn(raw, nowhere, nowhere)
    if kind is Primitive.DOUBLE and is_int:
        return CoercedColumn(pc.cast(raw, target, safe=False), nowhere, nowhere)
    if kind is Primitive.INT and is_int:
        half = 1 << (INTEGER_BITS[kind] - 1)
        is_in_range = pc.and_(pc.greater_equal(raw, -half), pc.less(raw, half))
        column = pc.cast(pc.if_else(is_in_range, raw, pa.scalar(None, raw.type)), target)
        return CoercedColumn(column, np.asarray(raw.is_valid()) & np.asarray(column.is_null()), nowhere)
    return CoercedColumn(pa.nulls(len(raw), target), np.asarray(raw.is_valid()), nowhere)


def _literals(kind: Any, raw: ArrowColumn, target: Any) -> ArrowColumn:
    """Numbers and booleans; null where the text is none, or not surely."""
    if kind is Primitive.BOOLEAN:
        text = pc.ascii_lower(raw)
        return pc.if_else(pc.is_in(text, pa.array(["true", "false"])), pc.equal(text, "true"), pa.scalar(None, target))
    expression = INTEGER_TEXT if kind in INTEGER_BITS else REAL_TEXT
    if isinstance(kind, Decimal):
        expression = decimal_text(kind)
    text = pc.if_else(pc.match_substring_regex(raw, expression), raw, pa.scalar(None, pa.string()))
    if kind is Primitive.INT:
        return _numbers_as_they_are(kind, pc.cast(text, pa.int64()), target).column
    column = pc.cast(text, target)
    if kind is not Primitive.DOUBLE:
        return column
    # An integer has no negative zero: "-0" is 0.0, and "-0.0" keeps its sign; Arrow reads both alike.
    values = column.fill_null(1.0).to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array((values == 0) & np.signbit(values)), pa.scalar(None, target), column)


def _symbols(kind: Enum, raw: ArrowColumn, *, is_taken: bool) -> tuple[ArrowColumn, np.ndarray]:
    is_exact = pc.is_in(raw, pa.array(kind.symbols))
    found = pc.if_else(is_exact, raw, pa.scalar(None, pa.string()))
    if not is_taken:
        return found, np.zeros(len(raw), dtype=bool)
    meant = folded_symbols(kind.symbols)
    places = pc.index_in(pc.ascii_lower(raw), pa.array(list(meant), pa.string()))
    column = pc.coalesce(found, pa.array(list(meant.values()), pa.string()).take(places))
    return column, ~np.asarray(pc.fill_null(is_exact, fill_value=True))


def _instants(kind: Temporal, coercion: Coercion, raw: ArrowColumn) -> tuple[np.ma.MaskedArray[Any, Any], np.ndarray]:
    """Numbers in the type's unit, masked where the text is none; and where it is other text than the type's own."""
    pattern = coercion.pattern
    low, high = unit_range(kind)
    numbers, is_read = _parsed(kind, raw, ISO_FORMS[kind] if pattern is None else pattern.expression, coercion)
    is_own = is_read if pattern is None else np.zeros(len(raw), dtype=bool)
    if pattern is None and coercion.is_taken:
        text = pc.if_else(pc.match_substring_regex(raw, INTEGER_TEXT), raw, pa.scalar(None, pa.string()))
        is_digits = np.asarray(text.is_valid())
        numbers = np.where(is_digits, pc.cast(text, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), numbers)
        is_read = is_read | is_digits
    is_read = is_read & (low <= numbers) & (numbers <= high)
    return np.ma.MaskedArray(np.where(is_read, numbers, 0), mask=~is_read), ~is_own


def _parsed(kind: Temporal, raw: ArrowColumn, expression: str, coercion: Coercion) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of texts that match, and which do: with a day of the calendar and no digits finer than the unit."""
    parts = pc.extract_regex(raw, rf"\A(?:{expression})\z")
    names = [field.name for field in parts.type]
    is_read = np.asarray(parts.is_valid())

    def whole(name: str) -> np.ndarray:
        if name not in names:
            return np.zeros(len(raw), dtype=np.int64)
        return np.asarray(pc.cast(pc.struct_field(parts, name), pa.int64()).fill_null(0))

    days = np.zeros(len(raw), dtype=np.int64)
    if "year" in names:
        months = ((whole("year") - 1970) * 12 + whole("month") - 1).astype("datetime64[M]")
        dates = months.astype("datetime64[D]") + (whole("day") - 1)
        is_read = is_read & (dates.astype("datetime64[M]") == months) & (whole("year") > 0)
        is_read = is_read & (whole("month") >= 1) & (whole("month") <= 12) & (whole("day") >= 1)  # noqa: PLR2004
        days = dates.astype(np.int64)
    if kind is Temporal.DATE:
        return days, is_read
    seconds = days * DAY_SECONDS + whole("hour") * 3600 + whole("minute") * 60 + whole("second")
    default = None if coercion.pattern is None else coercion.pattern.zone
    zone = pc.struct_field(parts, "zone") if "zone" in names else pa.array([default] * len(raw), pa.string())
    seconds -= _offsets(zone)
    digits = len(str(kind.units_per_second)) - 1
    units = np.zeros(len(raw), dtype=np.int64)
    if "fraction" in names:
        fraction = pc.utf8_rpad(pc.struct_field(parts, "fraction"), width=digits, padding="0")
        units = np.asarray(pc.cast(pc.utf8_slice_codeunits(fraction, 0, digits), pa.int64()).fill_null(0))
        is_finer = pc.match_substring_regex(fraction, rf"\A.{{{digits}}}.*[1-9]")
        is_read = is_read & ~np.asarray(pc.fill_null(is_finer, fill_value=False))
    return seconds * kind.units_per_second + units, is_read


def _offsets(zone: ArrowColumn) -> np.ndarray:
    """Seconds that the zones are ahead of UTC."""
    parts = pc.extract_regex(zone, r"\A(?P<sign>[+-])(?P<hour>..):?(?P<minute>..)\z")
    seconds = np.zeros(len(zone), dtype=np.int64)
    for name, unit in (("hour", 3600), ("minute", 60)):
        seconds = seconds + unit * np.asarray(pc.cast(pc.struct_field(parts, name), pa.int64()).fill_null(0))
    is_west = np.asarray(pc.fill_null(pc.equal(pc.struct_field(parts, "sign"), "-"), fill_value=False))
    return np.where(is_west, -seconds, seconds)


_ARROW: dict[Any, Any] = {
    Primitive.BOOLEAN: pa.bool_(),
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.DOUBLE: pa.float64(),
}
