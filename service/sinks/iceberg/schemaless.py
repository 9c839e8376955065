"""JSON objects without a schema as columns: types are what the values of a batch are.

As in Apache's sink, whole numbers are ``long``, others ``double``, and texts stay texts whatever they look like. Where
both stand in one field, it is ``double``. Java would round a whole number that no double holds there (or cut off the
bits that a ``long`` has no room for); here its record is refused.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj

from service.sinks.batch import RefusalReason
from service.sinks.iceberg.fitting import Rows, spread
from service.sinks.shapes import ShapeError

_EXACT_IN_DOUBLE = 2.0**53
"""Doubles below it are the whole numbers that they were read from."""
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def column_of_texts(
    texts: Any, has_place: Callable[[Any], bool] = lambda _: True
) -> tuple[Any, npt.NDArray[np.bool_], dict[int, str]]:
    """A struct column, which texts are no objects that fit in with the others, and which have a number that changed.

    What the column holds for these two is of no use; the numbers are told by row, with the place of the first one.

    ``has_place``: whether an Arrow type has one in a table. A text whose own type has none is odd by itself, so that it
    does not give a type to all the others.
    """
    lines = ["{}" if text is None else text.replace("\n", " ") for text in texts.to_pylist()]
    unfit = np.array([not line.lstrip().startswith("{") for line in lines], dtype=bool)
    lines = ["{}" if is_bad else line for line, is_bad in zip(lines, unfit, strict=True)]
    try:
        column = _read(lines)
    except pa.ArrowInvalid:
        column = None
    if column is None or not has_place(column.type):
        odd = _odd(lines, lru_cache(has_place))
        if not odd.all():
            lines = ["{}" if is_odd else line for line, is_odd in zip(lines, odd, strict=True)]
            column, unfit = _read(lines), unfit | odd
        elif column is None:
            return pa.nulls(len(lines), pa.struct([])), odd, {}
    # Where none has a place, all are told why by their common type.
    changed: dict[int, str] = {}
    while found := _changed(column, lines):
        # Beside a number that is too large for a long, Arrow makes doubles of whole numbers; without it they are long.
        bad = {row for row, (_, number) in found.items() if not _LONG_MIN <= number <= _LONG_MAX} or set(found)
        changed |= {row: found[row][0] for row in sorted(bad)}
        lines = ["{}" if row in bad else line for row, line in enumerate(lines)]
        with suppress(ShapeError):  # no other has a field
            column = _read(lines)
    return column, unfit, changed


def _changed(column: Any, lines: list[str]) -> dict[int, tuple[str, Decimal]]:
    """The rows in which a whole number is not the double that was made of it: the first one's place, and itself.

    Only rows with a double beyond those that hold every whole number are looked at.
    """
    found = {}
    for row in sorted({row for rows in _great(column, np.arange(len(lines))) for row in rows.tolist()}):
        first = next(_places(json.loads(lines[row], parse_int=Decimal), column.type, ""), None)
        if first is not None:
            found[row] = first
    return found


def _great(column: Any, rows: Rows) -> Iterator[Rows]:
    """Rows with doubles that may not be what they were read from; ``rows``: that of each value."""
    if pa.types.is_struct(column.type):
        for child in column.flatten():
            yield from _great(child, rows)
    elif pa.types.is_list(column.type):
        yield from _great(column.flatten(), spread(column, rows)[1])
    elif pa.types.is_floating(column.type):
        yield rows[np.abs(column.to_numpy(zero_copy_only=False)) >= _EXACT_IN_DOUBLE]


def _places(value: Any, kind: Any, path: str) -> Iterator[tuple[str, Decimal]]:
    """Whole numbers in columns of doubles that do not hold them, and where they stand."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        for field in kind:
            yield from _places(value.get(field.name), field.type, f"{path}.{field.name}" if path else field.name)
    elif pa.types.is_list(kind) and isinstance(value, list):
        for item in value:
            yield from _places(item, kind.value_type, f"{path}.element")
    elif pa.types.is_floating(kind) and isinstance(value, Decimal) and Decimal(float(value)) != value:
        yield path, value


def _odd(lines: list[str], has_place: Callable[[Any], bool]) -> npt.NDArray[np.bool_]:
    """Which have no place, or do not fit in with those before them; each is read alone, which is rare."""
    odd = np.zeros(len(lines), dtype=bool)
    kind: Any = None
    for row, line in enumerate(lines):
        try:
            own = _read([line]).type
            both = own if kind is None else _union(kind, own)
        except (pa.ArrowException, ShapeError):
            odd[row] = True
            continue
        odd[row] = not has_place(own)
        kind = kind if odd[row] else both
    return odd


def _union(first: Any, second: Any) -> Any:
    schemas = [pa.schema(list(each)) for each in (first, second)]
    return pa.struct(list(pa.unify_schemas(schemas, promote_options="permissive")))


def _read(lines: list[str]) -> Any:
    joined = "\n".join(lines).encode()
    options = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1024)
    found = pj.read_json(io.BytesIO(joined), read_options=options)
    if not found.num_columns:
        raise ShapeError(RefusalReason.MISSING_FIELD, "objects without fields make no rows")
    if any(_has_time(field.type) for field in found.schema):
        explicit = pa.schema([pa.field(field.name, _as_text(field.type)) for field in found.schema])
        parse = pj.ParseOptions(explicit_schema=explicit)
        found = pj.read_json(io.BytesIO(joined), read_options=options, parse_options=parse)
    if found.num_rows != len(lines):
        raise pa.ArrowInvalid("a text has several values")
    column: Any = found.to_struct_array()
    return column.combine_chunks()


def _has_time(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_time(field.type) for field in kind)
    return _has_time(kind.value_type) if pa.types.is_list(kind) else bool(pa.types.is_timestamp(kind))


def _as_text(kind: Any) -> Any:
    """Arrow takes texts that look like times for times."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_text(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind
