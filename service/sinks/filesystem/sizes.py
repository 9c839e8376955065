"""How many bytes values count for ``flush.size.bytes``, by columns.

The number follows from a value and its schema alone, never from a codec or from what else is in the file: so records
that come again end their files where they did. Values with fields count as Arrow lays them out, without the bits that
say which are null (https://arrow.apache.org/docs/format/Columnar.html): numbers, dates, times and decimals by the width
of their type, null or not; texts and bytes, lists and maps with four bytes for their end; a boolean, which is a bit
there, is a byte here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Sizes = npt.NDArray[np.int64]
_END_BYTES = 4
_BITS = 8
_FIRST_ROWS = 4096
"""Looked at before all others: of a batch that makes many files, each look would otherwise be at all that is left."""


def sizes_of(values: Any, file_format: str) -> Sizes:
    """Bytes of each value of a column, as a file of the format is given it; at least one."""
    if file_format in {"json", "string"}:
        return _lengths(values) + len(b"\n")
    return np.maximum(_sizes(values), 1)


def _sizes(values: Any) -> Sizes:
    kind = values.type
    if pa.types.is_struct(kind):
        made = np.zeros(len(values), np.int64)
        for child in values.flatten():  # with the nulls of the struct
            made += _sizes(child)
        return made
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        items = [values.keys, values.items] if pa.types.is_map(kind) else [values.values]
        ends = np.append(0, np.cumsum(sum(map(_sizes, items), np.zeros(len(items[0]), np.int64))))
        bounds = ends[values.offsets.to_numpy()]
        return np.where(_is_null(values), 0, np.diff(bounds)) + _END_BYTES
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _lengths(values) + _END_BYTES
    is_bit = pa.types.is_boolean(kind)
    width = 0 if pa.types.is_null(kind) else 1 if is_bit else kind.bit_width // _BITS
    return np.full(len(values), width, np.int64)


def _lengths(texts: Any) -> Sizes:
    lengths: Any = pc.fill_null(pc.binary_length(texts), 0)
    return lengths.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _is_null(values: Any) -> npt.NDArray[np.bool_]:
    return values.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def rows_within(bytes_max: int, sizes: Sizes, *, folders: npt.NDArray[np.int64], held: Sizes) -> int:
    """How many of the rows go to the open files, before one of these is full.

    ``folders``: the number of each row's folder; ``held``: for each folder what its file has already. A row that would
    make its file larger than ``bytes_max`` is left for the next files, unless it is the only one of its file.
    """
    if int(held.max()) + int(sizes.sum()) < bytes_max:
        return len(sizes)
    if len(sizes) > _FIRST_ROWS:
        first = rows_within(bytes_max, sizes[:_FIRST_ROWS], folders=folders[:_FIRST_ROWS], held=held)
        if first < _FIRST_ROWS:
            return first
    order = np.argsort(folders, kind="stable")
    folders, sizes = folders[order], sizes[order]
    ends = np.cumsum(sizes)
    is_first = np.append(True, np.diff(folders) > 0)
    before = np.maximum.accumulate(np.where(is_first, ends - sizes, 0))
    totals = ends - before + held[folders]
    is_alone = is_first & (held[folders] == 0)
    is_left = (totals > bytes_max) & ~is_alone
    is_last = (totals >= bytes_max) & ~is_left
    return int(min(order[is_left].min(initial=len(order)), (order[is_last] + 1).min(initial=len(order))))
