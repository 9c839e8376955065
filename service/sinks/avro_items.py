"""Arrays and maps in Avro's binary encoding → list columns, for all records at once.

An array is a row of blocks, each a count and so many items; an item begins where the one before it ends. So the items
are found in rounds: the first of all records, then the second of those that have two. What has been found is then read
as one column, record after record. A round costs as much for few records as for dozens, so rounds are made while they
are worth it (`Effort`): a record with a million items among others of two is left to the reader of single records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.avro_walk import Longs, Walk
from service.sinks.readings import Column

ITEMS_AT_ONCE = 1_048_576
"""So many are read together: what a walk keeps of each is many times what most items take."""

Read: TypeAlias = Callable[[Walk], Column]
"""Reads one value of every record and moves the walk behind it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Values of one type in a body."""

    read: Read
    skip: Callable[[Walk], object]
    """Moves the walk behind one value of every record, as `read` does, without a look at it."""
    size: int | None = None
    """Bytes of every value, where they are the same."""


def read_lists(walk: Walk, *, item: Kind, kind: Any) -> Column:
    """One array of every record, as a column of the list type `kind`."""
    starts, offsets = _found(walk, item)
    return _list_column(kind, offsets, _items(walk, item, starts, offsets))


def read_maps(walk: Walk, *, entry: Kind, kind: Any) -> Column:
    """One map of every record; one that has a key twice is left: its last value counts, in its first place."""
    starts, offsets = _found(walk, entry)
    entries: Any = _items(walk, entry, starts, offsets)
    owners = np.repeat(np.arange(len(walk)), np.diff(offsets))
    keys: Any = pc.dictionary_encode(entries.field(0))
    places = owners * max(1, len(keys.dictionary)) + keys.indices.to_numpy(zero_copy_only=False)
    _, firsts = np.unique(places, return_index=True)
    if len(firsts) < len(places):
        is_again = np.ones(len(places), bool)
        is_again[firsts] = False
        walk.is_bad[owners[is_again]] = True
    return _list_column(kind, offsets, entries)


def skip_items(walk: Walk, *, item: Kind) -> None:
    """Go past one array, or map, of every record."""
    _found(walk, item)


def _found(walk: Walk, item: Kind) -> tuple[Longs, Longs]:
    """Go past one array of every record: where its items begin, record after record, and the bounds of each record."""
    counts = np.zeros(len(walk), np.int64)
    rounds: list[tuple[Longs, Longs, Longs, Longs]] = []
    rows, inside, left = np.arange(len(walk)), walk.among(np.arange(len(walk))), np.zeros(len(walk), np.int64)
    while True:
        ended = np.flatnonzero(left == 0)
        if len(ended):
            opening = inside.among(ended)
            left[ended] = _block_counts(opening, item_bytes_min=item.size or 1)
            inside.rejoin(opening, ended)
        goes_on = (left > 0) & ~inside.is_bad
        if not goes_on.all():
            walk.rejoin(inside, rows)
            rows, inside, left = rows[goes_on], inside.among(np.flatnonzero(goes_on)), left[goes_on]
        if not len(rows):
            break
        if not walk.effort.is_worth(len(rows)):
            walk.is_bad[rows] = True
            break
        began = inside.at.copy()
        if item.size is None:
            item.skip(inside)
            taken = np.ones(len(rows), np.int64)
        else:
            inside.move(left * item.size)
            taken = left
        rounds.append((rows, counts[rows], began, taken))
        counts[rows] += taken
        left = left - taken
    return _in_order(rounds, counts, item.size)


def _block_counts(walk: Walk, *, item_bytes_min: int) -> Longs:
    """How many items the blocks have that begin here; 0 ends an array. A negative count has a size in bytes behind it.

    A record that tells of more items than its bytes have room for is bad.
    """
    count = walk.longs()
    sized = np.flatnonzero(count < 0)
    if len(sized):
        among = walk.among(sized)
        among.longs()
        walk.rejoin(among, sized)
        # Of the least number there is no positive one, and it stays below 0.
        count = np.abs(count)
    walk.demand((count >= 0) & (count <= (walk.ends - walk.at) // item_bytes_min))
    return np.where(walk.is_bad, 0, count)


def _in_order(rounds: list[tuple[Longs, Longs, Longs, Longs]], counts: Longs, size: int | None) -> tuple[Longs, Longs]:
    """``rounds`` have for some records the number of the first item that was found, where it begins, and how many."""
    offsets = np.concatenate(([0], np.cumsum(counts)))
    starts = np.empty(offsets[-1], np.int64)
    for rows, number, began, taken in rounds:
        places = offsets[rows] + number
        if size is None:
            starts[places] = began
            continue
        within = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
        starts[np.repeat(places, taken) + within] = np.repeat(began, taken) + size * within
    return starts, offsets


def _items(walk: Walk, item: Kind, starts: Longs, offsets: Longs) -> Column:
    """The items that begin there, as one column; a record with a bad one is bad."""
    pieces: list[Column] = []
    for begin in range(0, max(1, len(starts)), ITEMS_AT_ONCE):
        at = starts[begin : begin + ITEMS_AT_ONCE]
        owners = np.searchsorted(offsets[1:], np.arange(begin, begin + len(at)), side="right")
        items = walk.among(owners)
        items.at = at
        pieces.append(item.read(items))
        walk.is_bad[owners[items.is_bad]] = True
    return pa.concat_arrays(pieces) if pieces[1:] else pieces[0]


def _list_column(kind: Any, offsets: Longs, items: Column) -> Column:
    bounds = pa.py_buffer(cast("Any", offsets.astype(np.int32)))
    children: Any = [items]
    return cast("Column", pa.Array.from_buffers(kind, len(offsets) - 1, [None, bounds], children=children))
