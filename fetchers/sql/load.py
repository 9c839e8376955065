"""The first load of a large table, split into parts by ranges of its ids (ADR 67).

The ends of the parts are found when the work is split, and go to every task with its config. What is done, and what was
begun, is in the offsets alone: each part has a source partition of its own, and the table's offset says, while the load
goes on, up to which id the parts reach. A part that was begun stays as it is, whatever ends a later split finds; only
what no part has covered yet is cut anew. So all tasks of one generation see the same parts, however far the others are
when each of them reads its offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fetchers.sdk import Offset, Partition
from fetchers.sql.database import Table
from fetchers.sql.places import table_partition

LOADING = "load"
"""In the offset of a table: ids up to this one are read in parts."""
_IDS = "ids"
_RANGE = re.compile(r"(-?[0-9]+)?\.\.(-?[0-9]+)")


@dataclass(frozen=True, slots=True)
class Part:
    """Rows with ids greater than ``after`` (None: any) and up to ``to``."""

    after: int | None
    to: int

    @property
    def ids(self) -> str:
        """As its source partition has it: ``..1000``, ``1000..2000``."""
        return f"{'' if self.after is None else self.after}..{self.to}"

    def partition(self, table: Table) -> Partition:
        """Where its offsets are; no other connector knows such a partition."""
        return {**table_partition(table.full_name), _IDS: self.ids}

    def is_read(self, offset: Offset) -> bool:
        """Whether nothing of it is left behind this offset."""
        number = offset.get("incrementing")
        return number is not None and int(str(number)) >= self.to


@dataclass(frozen=True, slots=True)
class Load:
    """A first load that was begun, or is to be."""

    to: int
    """The last id of the last part; what comes after it is read as ever."""
    parts: tuple[Part, ...]
    """In the order of their ids, without gaps."""
    unread: tuple[Part, ...]
    """Those of which the offsets do not say that they were read."""


def load_of(
    table: Table, offset: Offset, offsets: Mapping[tuple[tuple[str, Any], ...], Offset], ends: Sequence[int]
) -> Load | None:
    """``offset``: the table's, ``offsets``: all of the connector, ``ends``: where a new load would be cut.

    None where the table was read without parts, where all parts were read and done with, and where there is nothing to
    be cut.
    """
    if offset and offset.get(LOADING) is None:
        return None
    begun = dict(_begun(table, offsets))
    tops = [int(str(offset[LOADING]))] if offset else [*ends, *(part.to for part in begun)]
    if not tops:
        return None
    parts = parts_of(max(tops), begun, ends)
    return Load(max(tops), parts, tuple(part for part in parts if not part.is_read(begun.get(part, {}))))


def parts_of(to: int, begun: Iterable[Part], ends: Iterable[int]) -> tuple[Part, ...]:
    """All ids up to ``to``: the parts that were begun as they are, and the room between them cut at ``ends``."""
    found: list[Part] = []
    after: int | None = None
    for part in sorted(begun, key=lambda part: part.to):
        if part.after is not None:
            found += _cut(after, part.after, ends)
        found.append(part)
        after = part.to
    return (*found, *_cut(after, to, ends))


def _cut(after: int | None, to: int, ends: Iterable[int]) -> list[Part]:
    if after is not None and after >= to:
        return []
    within = sorted({end for end in ends if end < to and (after is None or end > after)})
    return [Part(one, other) for one, other in pairwise([after, *within, to]) if other is not None]


def _begun(table: Table, offsets: Mapping[tuple[tuple[str, Any], ...], Offset]) -> Iterable[tuple[Part, Offset]]:
    """Of an empty offset nothing is left: it is how a part is forgotten."""
    own = table_partition(table.full_name)
    for key, offset in offsets.items():
        partition = dict(key)
        match = _RANGE.fullmatch(str(partition.pop(_IDS, "")))
        if match is not None and partition == own and offset:
            yield Part(None if match[1] is None else int(match[1]), int(match[2])), offset


def even_ends(lowest: int, highest: int, count: int) -> tuple[int, ...]:
    """Where ``count`` ranges of about as many ids end; fewer where there are not so many ids."""
    size = highest - lowest + 1
    return tuple(sorted({lowest + size * at // count - 1 for at in range(1, count + 1) if size * at // count}))
