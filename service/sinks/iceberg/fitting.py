"""Columns of records as the columns of a table, with a verdict on each row that has no place there.

Only what loses nothing is done: numbers get wider, milliseconds become microseconds, a text becomes a UUID, or a time
where it is one of ISO 8601, and a whole number the time of so many milliseconds. A number
that the column cannot hold is refused by itself; a type that has no way to the column's refuses all of its records.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import RefusalReason
from service.sinks.calendar import FOUR_DIGITS
from service.sinks.shapes import ShapeError

Rows = npt.NDArray[np.int64]
_UUID_PATTERN = r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"
_UUID_BYTES = 16
_ZONES = re.compile(r"UTC|Etc/UTC|Z|\+00:00")


class Fitting:
    """One pass over a batch of values; ``unfit`` says which rows have no place, and ``reasons`` why."""

    def __init__(self, count: int, *, is_case_insensitive: bool = False, is_widened: bool = False) -> None:
        """``count``: rows of the batch; ``is_widened``: columns become as wide as their records need before."""
        self.unfit = np.zeros(count, dtype=bool)
        self.reasons: dict[str, npt.NDArray[np.bool_]] = {}
        self._is_folded, self._is_widened = is_case_insensitive, is_widened

    def table(self, column: Any, goal: Any) -> Any:
        """A struct column as a table of the Arrow schema ``goal``. Raises ShapeError where no row fits."""
        rows = np.arange(len(column), dtype=np.int64)
        made = self._struct(column, pa.struct(list(goal)), rows, "")
        return pa.Table.from_arrays(made.flatten(), schema=goal)

    def _struct(self, column: Any, goal: Any, rows: Rows, path: str) -> Any:
        by_name = {self._key(field.name): index for index, field in enumerate(column.type)}
        parts = column.flatten()
        is_there = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
        children = []
        for field in goal:
            index, here = by_name.get(self._key(field.name)), f"{path}{field.name}"
            if index is not None:
                child = self._fitted(parts[index], field.type, rows, here)
            elif field.nullable:
                child = pa.nulls(len(column), field.type)
            else:
                message = f"the record has no field '{here}', which the table needs"
                raise ShapeError(RefusalReason.MISSING_FIELD, message)
            if not field.nullable and child.null_count:
                is_null = np.asarray(child.is_null().to_numpy(zero_copy_only=False), dtype=bool) & is_there
                self._refuse(is_null, rows, f"field '{here}' is null, and the table's column is required")
                child = _filled(child)
            children.append(child)
        mask = None if is_there.all() else pa.array(~is_there)
        return pa.StructArray.from_arrays(children, fields=list(goal), mask=mask)

    def _fitted(self, column: Any, goal: Any, rows: Rows, path: str) -> Any:  # noqa: PLR0911 - one line a type
        kind = column.type
        if kind == goal and not pa.types.is_nested(goal):
            return self._dated(column, rows, path)
        if pa.types.is_struct(goal) and pa.types.is_struct(kind):
            return self._struct(column, goal, rows, f"{path}.")
        if pa.types.is_large_list(goal) and pa.types.is_list(kind):
            return self._list(column, goal, rows, path)
        if pa.types.is_map(goal) and pa.types.is_map(kind):
            return self._map(column, goal, rows, path)
        if goal == pa.uuid() and (pa.types.is_string(kind) or kind == pa.binary(_UUID_BYTES)):
            return self._uuid(column, rows, path)
        is_widened = self._is_widened and pa.types.is_floating(kind) and pa.types.is_floating(goal)
        if not is_widened and not _has_way(kind, goal):
            message = f"field '{path}' is {kind}, and the table's column {goal}"
            raise ShapeError(RefusalReason.WRONG_TYPE, message)
        if pa.types.is_integer(kind) and pa.types.is_decimal(goal):
            column = column.cast(pa.decimal256(76, goal.scale))  # Arrow asks for room for any number of its type
        if pa.types.is_integer(kind) and pa.types.is_timestamp(goal):
            column = column.cast(pa.int64()).cast(pa.timestamp("ms", goal.tz))
        try:
            return self._dated(column.cast(goal), rows, path)
        except pa.ArrowInvalid:
            return self._dated(self._cast_singly(column, goal, rows, path), rows, path)

    def _dated(self, column: Any, rows: Rows, path: str) -> Any:
        """PyIceberg notes the first and the last date of a file as Python has them, or writes no file at all."""
        is_outside = FOUR_DIGITS.outside(column)
        if is_outside is not None:
            self._refuse(is_outside, rows, f"field '{path}' lies beyond the years 1 to 9999, or is no time of a day")
        return column

    def _cast_singly(self, column: Any, goal: Any, rows: Rows, path: str) -> Any:
        """One of the values has no place: find them all. It is rare, and each value is cast by itself."""
        made = []
        is_bad = np.zeros(len(column), dtype=bool)
        for index in range(len(column)):
            try:
                made.append(_one_cast(column[index : index + 1], goal))
            except pa.ArrowInvalid:
                made.append(pa.nulls(1, goal))
                is_bad[index] = True
        self._refuse(is_bad, rows, misfit(path, goal))
        return pa.concat_arrays(made)

    def _list(self, column: Any, goal: Any, rows: Rows, path: str) -> Any:
        offsets, inner = spread(column, rows)
        values = self._fitted(column.flatten(), goal.value_type, inner, f"{path}.element")
        mask = column.is_null() if column.null_count else None
        made = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values, mask=mask)
        return made.cast(goal)

    def _map(self, column: Any, goal: Any, rows: Rows, path: str) -> Any:
        places: Rows = np.asarray(column.offsets.to_numpy(), dtype=np.int64)
        keys, items = (each[places[0] : places[-1]] for each in (column.keys, column.items))
        inner = np.repeat(rows, places[1:] - places[:-1])
        keys = self._fitted(keys, goal.key_type, inner, f"{path}.key")
        items = self._fitted(items, goal.item_type, inner, f"{path}.value")
        mask = column.is_null() if column.null_count else None
        offsets: Any = pa.array(places - places[0], pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, mask=mask).cast(goal)

    def _uuid(self, column: Any, rows: Rows, path: str) -> Any:
        if pa.types.is_string(column.type):
            is_bad = pc.fill_null(pc.invert(pc.match_substring_regex(column, _UUID_PATTERN)), False)  # noqa: FBT003
            bad = np.asarray(is_bad.to_numpy(zero_copy_only=False), dtype=bool)
            self._refuse(bad, rows, f"field '{path}' is no UUID")
            nil = pa.scalar("0" * 2 * _UUID_BYTES)
            is_there = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool) & ~bad
            texts = pc.if_else(pa.array(is_there), pc.replace_substring(column, "-", ""), nil)
            raw = bytes.fromhex("".join(texts.to_pylist()))
            valid = pa.py_buffer(np.packbits(is_there, bitorder="little").tobytes())
            column = pa.Array.from_buffers(pa.binary(_UUID_BYTES), len(column), [valid, pa.py_buffer(raw)])
        return pa.ExtensionArray.from_storage(pa.uuid(), column)

    def _refuse(self, is_bad: npt.NDArray[np.bool_], rows: Rows, reason: str) -> None:
        if is_bad.any():
            found = np.zeros(len(self.unfit), dtype=bool)
            found[rows[is_bad]] = True
            self.unfit |= found
            self.reasons[reason] = self.reasons.get(reason, np.zeros(len(found), dtype=bool)) | found

    def _key(self, name: str) -> str:
        return name.lower() if self._is_folded else name


def has_way(records: Any, goal: Any, is_case_insensitive: bool, is_widened: bool) -> bool:  # noqa: FBT001 - of a config
    """Whether records of an Arrow type are rows of the Arrow schema ``goal``, as far as types tell it."""
    fitting = Fitting(0, is_case_insensitive=is_case_insensitive, is_widened=is_widened)
    try:
        fitting.table(pa.array([], records), goal)
    except ShapeError:
        return False
    return True


def misfit(path: str, goal: Any) -> str:
    """Why a record is refused of which one value is not taken by its column of the Arrow type ``goal``."""
    return f"field '{path}' does not fit the table's column, {goal}"


def _one_cast(column: Any, goal: Any) -> Any:
    """A single value; Arrow takes no whole number above 2 ** 53 for a double, also where one holds it."""
    if pa.types.is_integer(column.type) and pa.types.is_floating(goal):
        made = column.cast(goal, safe=False)
        if made[0].as_py() == column[0].as_py():
            return made
    return column.cast(goal)


def spread(column: Any, rows: Rows) -> tuple[npt.NDArray[np.int64], Rows]:
    """Offsets of the lists' items as they are flattened, and the row of each item."""
    places: Rows = np.asarray(column.offsets.to_numpy(), dtype=np.int64)
    lengths: Rows = places[1:] - places[:-1]
    lengths[np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)] = 0
    return np.concatenate(([0], np.cumsum(lengths))), np.repeat(rows, lengths)


def _filled(column: Any) -> Any:
    """A required column without nulls: its rows are those of a parent that is null, or are refused.

    Parquet's writer looks at the column alone.
    """
    places = pc.if_else(column.is_null(), len(column), pa.array(np.arange(len(column))))
    return pa.concat_arrays([column, pa.array([_any_value(column.type)], column.type)]).take(places)


def _any_value(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: None if field.nullable else _any_value(field.type) for field in kind}
    if pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return []
    if pa.types.is_large_string(kind):
        return ""
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or kind == pa.uuid():
        return bytes(kind.byte_width if pa.types.is_fixed_size_binary(kind) else _UUID_BYTES)
    if pa.types.is_temporal(kind):
        return pa.scalar(0, pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind).as_py()
    return pa.scalar(0).cast(kind).as_py()


def _has_way(kind: Any, goal: Any) -> bool:  # noqa: PLR0911 - one line a type
    """Whether values of a type can be those of another one without being others."""
    if pa.types.is_null(kind):
        return True
    if pa.types.is_integer(kind):
        return any(
            is_of(goal)
            for is_of in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_timestamp)
        )
    if pa.types.is_floating(kind):
        return bool(goal == pa.float64()) or kind == goal
    if pa.types.is_decimal(kind):
        return pa.types.is_decimal(goal)
    if pa.types.is_timestamp(kind):
        zones = [each.tz or "UTC" for each in (kind, goal) if pa.types.is_timestamp(each)]
        return len(zones) == len((kind, goal)) and all(map(_ZONES.fullmatch, zones))
    if pa.types.is_time(kind):
        return pa.types.is_time(goal)
    if pa.types.is_string(kind):
        return pa.types.is_large_string(goal) or pa.types.is_timestamp(goal) or pa.types.is_date32(goal)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind):
        return pa.types.is_large_binary(goal) or pa.types.is_fixed_size_binary(goal)
    return False
