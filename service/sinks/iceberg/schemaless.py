"""JSON objects without a schema as columns: types are what the values of a batch are.

As in Apache's sink, whole numbers are ``long``, others ``double``, and texts stay texts whatever they look like.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj

from service.sinks.batch import RefusalReason
from service.sinks.shapes import ShapeError


def column_of_texts(texts: Any, has_place: Callable[[Any], bool] = lambda _: True) -> tuple[Any, npt.NDArray[np.bool_]]:
    """A struct column, and which texts are no objects that fit in with the others (null there).

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
            return _read(["{}" if is_odd else line for line, is_odd in zip(lines, odd, strict=True)]), unfit | odd
        if column is None:
            return pa.nulls(len(lines), pa.struct([])), odd
    return column, unfit  # where none has a place, all are told why by their common type


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
