"""Records in Avro's binary encoding that stand side by side, and the walk through all of them at once.

The walk reads the same part of every record, at the place at which each stands, and moves the places behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.sinks.readings import UNKNOWN, Column, filled

Longs: TypeAlias = "npt.NDArray[np.int64]"
Words: TypeAlias = "npt.NDArray[np.uint64]"
Flags: TypeAlias = "npt.NDArray[np.bool_]"

_PAD_BYTES = 16
"""Before and after the data, so that two words can be read at, or before, every place."""
_WORD_BITS = 64
_HEADER_BYTES = 5
NO_ID = -1
"""In place of a schema id, of rows that are none of Confluent's framing."""
_DATA_BYTES_MAX = 2**31 - 2 * _PAD_BYTES - 1
_BEYOND = 2**40
"""A size that no record has."""
_LEAST = np.uint64(0xFF)
_ENDS = np.uint64(0x8080808080808080)
_SEVENS = np.uint64(0x7F7F7F7F7F7F7F7F)
_PACKING = tuple(
    (np.uint64(kept), np.uint64(moved), np.uint64(bits))
    for kept, moved, bits in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
"""Which bits stay and which move down by how many, to close the gaps between groups of 7, then 14, then 28 bits."""


class Frames:
    """A column of records in Confluent's framing: a zero byte, four bytes of schema id, a body."""

    def __init__(self, column: Column) -> None:
        """Take a column of the type binary."""
        count = len(column)
        self.column = column
        self.is_there = cast("Flags", cast("Any", column.is_valid()).to_numpy(zero_copy_only=False))
        self.ids: Longs = np.full(count, NO_ID, np.int64)
        _, offsets, data = column.buffers()
        bounds = np.zeros(count + 1, np.int64)
        if column.null_count < count:
            bounds[:] = np.frombuffer(cast("Any", offsets), np.int32, count + 1, column.offset * 4)
        size, first = int(bounds[-1] - bounds[0]), int(bounds[0])
        self._padded = np.zeros(size + 2 * _PAD_BYTES, np.uint8)
        if size:
            self._padded[_PAD_BYTES:-_PAD_BYTES] = np.frombuffer(cast("Any", data), np.uint8, size, first)
        bounds += _PAD_BYTES - first
        self._starts, self._ends = bounds[:-1], bounds[1:]
        is_framed = self.is_there & (self._ends - self._starts >= _HEADER_BYTES) & (self._padded[self._starts] == 0)
        rows = np.flatnonzero(is_framed)
        # Registries count in Java's ints, and answer to a greater number, negative here, as to a wrong address.
        self.ids[rows] = np.maximum(self._words(">i4")[self._starts[rows] + 1], NO_ID)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.ids)

    def numbered(self) -> tuple[npt.NDArray[np.int32], list[int]]:
        """Number the ids as they come first; for each row the number of its own, or of its neighbour's."""
        ids, firsts, inverse = np.unique(self.ids, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        order = order[ids[order] != NO_ID]
        numbers = np.full(len(ids), UNKNOWN, np.int32)
        numbers[order] = np.arange(len(order))
        return filled(numbers[inverse]), ids[order].tolist()

    def bodies(self, rows: Longs) -> Walk:
        """Stand at the beginning of the bodies of these rows, which are framed."""
        starts, ends = self._starts[rows] + _HEADER_BYTES, self._ends[rows]
        is_bad = np.full(len(rows), len(self._padded) > _DATA_BYTES_MAX)
        return Walk(self._padded, self._words("<u8"), self._words(">u8"), starts, ends, is_bad)

    def records(self, rows: Longs) -> list[bytes]:
        """These records' bodies, one by one."""
        records = cast("list[bytes]", self.column.take(rows).to_pylist())
        return [record[_HEADER_BYTES:] for record in records]

    def _words(self, kind: str) -> Any:
        """A number of this type at every byte."""
        dtype = np.dtype(kind)
        return np.ndarray((len(self._padded) - dtype.itemsize + 1,), dtype, self._padded, strides=(1,))


_ROUND_RECORDS = 256
"""For fewer records a round through their arrays costs more than reading an item of each alone."""
_ROUNDS_FREE = 64


@dataclass(slots=True)
class Effort:
    """Rounds through arrays that are still to be made: their number follows that of the items, not the longest array.

    Each round earns as much as it has records.
    """

    rounds_left: float = _ROUNDS_FREE

    def is_worth(self, records: int) -> bool:
        """Whether a round for so many records is made; it counts as made then."""
        self.rounds_left = max(0.0, self.rounds_left + records / _ROUND_RECORDS - 1)
        return self.rounds_left > 0


@dataclass(slots=True)
class Walk:
    """Where records stand, in order, while their schema is walked.

    A record that turns out bad goes on somewhere before its end: what is read for it means nothing.
    """

    data: npt.NDArray[np.uint8]
    little: Words
    """At every byte the word that begins there, its first byte the least."""
    big: Any
    """The same, its first byte the greatest."""
    at: Longs
    ends: Longs
    is_bad: Flags
    effort: Effort = field(default_factory=Effort)
    """Of all parts of this walk together."""

    def __len__(self) -> int:
        return len(self.at)

    def move(self, sizes: Longs | int) -> Longs:
        """Go on by so many bytes, and give where that began; records that have fewer are bad, and stay."""
        began = self.at
        is_wrong = (sizes > self.ends - began) | (np.asarray(sizes) < 0)
        self.is_bad |= is_wrong
        self.at = began + np.where(is_wrong, 0, sizes)
        return began

    def demand(self, is_right: Flags) -> None:
        """Records for which something is not right are bad."""
        self.is_bad |= ~is_right

    def longs(self) -> Longs:
        """Read numbers as zigzag varints."""
        word = self.little[self.at]
        if not (word & np.uint64(0x80)).any():
            self.move(1)
            value = word & np.uint64(0x7F)
        else:
            value, sizes = self._varints(word)
            self.move(sizes)
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)

    def _varints(self, word: Words) -> tuple[Words, Longs]:
        """Varints and their sizes, of which these are the first eight bytes."""
        ends = ~word & _ENDS
        below = (ends & (~ends + np.uint64(1))) - np.uint64(1)  # all bits below the first end; all where there is none
        sizes = (np.bitwise_count(below) >> 3).astype(np.int64) + 1
        value = word & (below | (below + np.uint64(1))) & _SEVENS
        for kept, moved, bits in _PACKING:
            value = (value & kept) | ((value & moved) >> bits)
        longer = np.flatnonzero(ends == 0)
        if len(longer):
            more = self.little[self.at[longer] + 8]
            ninth, tenth = more & _LEAST, (more >> np.uint64(8)) & _LEAST
            is_tenth = ninth > np.uint64(0x7F)
            value[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
            value[longer] |= np.where(is_tenth, tenth << np.uint64(63), np.uint64(0))
            sizes[longer] = np.where(is_tenth, np.where(tenth > 1, _BEYOND, 10), 9)
        return value, sizes

    def slices(self, sizes: Longs) -> tuple[Longs, Longs]:
        """Go past slices of these sizes: where each begins, and its size, 0 for bad records."""
        began = self.move(sizes)
        return began, np.where(self.is_bad, 0, self.at - began)

    def among(self, rows: Longs) -> Walk:
        """The walk of these records alone; `rejoin` brings it back."""
        return Walk(self.data, self.little, self.big, self.at[rows], self.ends[rows], self.is_bad[rows], self.effort)

    def rejoin(self, walk: Walk, rows: Longs) -> None:
        """Take over where the records of these rows stand now."""
        self.at[rows], self.is_bad[rows] = walk.at, walk.is_bad

    def cut(self, at: Longs, sizes: Longs) -> Column:
        """The bytes at these ascending places as a binary column, in one copy and no step a record.

        The data is read as a column of gaps and slices in turn, of which the slices are taken.
        """
        bounds = np.zeros(2 * len(at) + 1, np.int32)
        bounds[1::2] = at
        bounds[2::2] = at + sizes
        in_turn: Any = pa.Array.from_buffers(
            pa.binary(), 2 * len(at), [None, pa.py_buffer(cast("Any", bounds)), pa.py_buffer(cast("Any", self.data))]
        )
        return cast("Column", in_turn.take(pa.array(np.arange(1, 2 * len(at), 2))))
