"""Bytes of records put together from pieces, whole columns at a time: what Avro and JSON have in common.

Both write a record as its fields one behind the other. So each field is written as one or two pieces, an Arrow binary
column each, or one scalar where all records have the same; and one kernel of Arrow joins what belongs to each record.
A piece is null where its record has no such field, which adds nothing to that record.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from spark_batch.outcome import ArrowColumn
from spark_batch.prepass import pc

Piece: TypeAlias = Any
"""A ``pa.BinaryArray``, or a ``pa.BinaryScalar`` that every record has."""
Pieces: TypeAlias = "list[Piece]"
BYTES_MAX = 2**31 - 2
"""Of all values of a binary column, whose offsets have 32 bits."""
_BINARY = pa.binary()


def piece(value: bytes) -> Piece:
    """What every record has."""
    return pa.scalar(value, _BINARY)


def joined(pieces: Pieces, count: int) -> ArrowColumn:
    """One binary column of the pieces of so many records, which is null nowhere."""
    merged: Pieces = []
    for is_same, group in groupby(pieces, key=lambda each: isinstance(each, pa.Scalar)):
        found = list(group)
        merged += [piece(b"".join(each.as_py() for each in found))] if is_same else found
    if all(isinstance(each, pa.Scalar) for each in merged):
        same = merged[0].as_py() if merged else b""
        if len(same) * count > BYTES_MAX:
            # As the join says it: ``repeat`` would let its offsets run over.
            raise pa.ArrowCapacityError(f"array cannot contain more than {BYTES_MAX} bytes")
        return pa.repeat(piece(same), count)
    return pc.binary_join_element_wise(*merged, piece(b""), null_handling="replace", null_replacement=b"")


def where_present(column: ArrowColumn, write: Callable[[ArrowColumn], Pieces]) -> Pieces:
    """The pieces of a column, which ``write`` is given without its nulls; one that is null there where it has some."""
    if not column.null_count:
        return write(column)
    if column.null_count == len(column):
        return [pa.nulls(len(column), _BINARY)]
    is_there = np.asarray(column.is_valid())
    present = column.filter(pa.array(is_there))
    written = joined(write(present), len(present))
    return [written.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))]


def written_once(column: ArrowColumn, write: Callable[[ArrowColumn], Pieces]) -> Pieces:
    """The pieces of a column of plain values, each a scalar where all values are the same."""
    if not _is_constant(column):
        return write(column)
    return [each[0] if isinstance(each, pa.Array) else each for each in write(column.slice(0, 1))]


def _is_constant(column: ArrowColumn) -> bool:
    """To the bit; first and last are looked at before the whole column is."""
    if len(column) < 2 or column.null_count or column[0] != column[-1]:  # noqa: PLR2004 - of fewer nothing is saved
        return False
    if pa.types.is_floating(column.type):
        # Zero has two signs, and a NaN is equal to none.
        column = column.view(pa.int32() if column.type == pa.float32() else pa.int64())
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def numbers_of(column: ArrowColumn) -> np.ndarray:
    """The values of a column of fixed width, whatever they are where it is null; not copied."""
    kind = np.dtype(column.type.to_pandas_dtype())
    if not len(column):
        return np.empty(0, kind)
    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]


def of_width(data: np.ndarray, width: int, column: ArrowColumn) -> Piece:
    """Bytes of which each value has so many; null where ``column`` is."""
    return sliced(data, np.arange(0, (len(column) + 1) * width, width, dtype=np.int32), column)


def cut(raw: np.ndarray, sizes: np.ndarray, column: ArrowColumn, *, is_of_end: bool = False) -> Piece:
    """The first, or the last, bytes of each row of a matrix, as many as ``sizes`` says; null where ``column`` is."""
    width = raw.shape[1]
    if int(sizes.min(initial=width)) == width:
        return of_width(np.ascontiguousarray(raw), width, column)
    places = np.arange(width)
    is_kept = places >= width - sizes[:, np.newaxis] if is_of_end else places < sizes[:, np.newaxis]
    return sliced(raw[is_kept], np.concatenate(([0], np.cumsum(sizes))), column)


def sliced(data: Any, offsets: np.ndarray, column: ArrowColumn) -> Piece:
    """Bytes cut at offsets; null where ``column`` is."""
    validity = pa.array(np.asarray(column.is_valid())).buffers()[1] if column.null_count else None
    ends: Any = offsets.astype(np.int32, copy=False)
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(_BINARY, len(column), buffers)
