"""Row events: where each value of each row lies, found once a row, and then read column by column.

A buffer collects the row images of many events of one table, whatever transactions they belong to. The one pass in
Python goes over images and only adds up lengths; everything after it is done by numpy and Arrow for whole columns.
Format: ``Rows_event`` in MySQL's ``libbinlogevents``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fetchers.mysql_cdc.events import ROWS, SECOND_VERSION, UPDATE_V1, Event, MalformedError
from fetchers.mysql_cdc.table_map import (
    BIT,
    BLOB,
    DATE,
    DATETIME2,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    GEOMETRY,
    INT24,
    JSON,
    LONG,
    LONGLONG,
    SET,
    SHORT,
    STRING,
    TIME2,
    TIMESTAMP2,
    TINY,
    VARCHAR,
    YEAR,
    Column,
    NotDescribed,
    TableMap,
)
from fetchers.mysql_cdc.transactions import EVENTS, Transactions

Numbers = np.ndarray[Any, Any]
_FIXED = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8, FLOAT: 4, DOUBLE: 8, DATE: 3, YEAR: 1}
_WITH_FRACTION = {TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}
_WITH_LENGTH = {VARCHAR, STRING, BLOB, JSON, GEOMETRY}
IMAGES_TOGETHER_MAX = 16
"""Images of one event up to which rows of many events are gone over together."""
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of so many digits of a DECIMAL; nine are a group of four bytes."""


def width_of(column: Column) -> int | None:
    """Bytes of every value of a column; None where each value begins with its own length."""
    if column.type in _FIXED:
        return _FIXED[column.type]
    if column.type in _WITH_FRACTION:
        return _WITH_FRACTION[column.type] + (column.scale + 1) // 2
    if column.type in (ENUM, SET, BIT):
        return column.size
    if column.type == DECIMAL:
        whole = column.size - column.scale
        return sum(digits // 9 * 4 + DIGIT_BYTES[digits % 9] for digits in (whole, column.scale))
    return None


def _packed(number: int) -> bytes:
    return bytes([number]) if number < 0xFB else b"\xfc" + number.to_bytes(2, "little")  # noqa: PLR2004


class _Layout:
    """What the images of one table have in common."""

    def __init__(self, table: TableMap) -> None:
        self.columns = table.columns
        count = len(table.columns)
        self.bitmap_bytes = (count + 7) // 8
        self.widths = [width_of(column) for column in table.columns]
        wholes = [((1 << bits) - 1).to_bytes(self.bitmap_bytes, "little") for bits in (count, 8 * self.bitmap_bytes)]
        self.count = _packed(count)
        self.heads = frozenset(self.count + whole for whole in wholes)
        """How the rows of an event begin that has all columns: MySQL sets the bits behind the last column as well."""
        self.update_heads = frozenset(head + whole for head in self.heads for whole in wholes)
        self._steps: dict[bytes, tuple[tuple[tuple[int, int], ...], int]] = {}

    def walk(self, data: bytes, at: int, end: int) -> list[int]:
        """Where each image begins; the pass over a row that cannot be saved."""
        starts: list[int] = []
        add, known, size = starts.append, self._steps, self.bitmap_bytes
        one, two = 1, 2
        while at < end:
            add(at)
            bitmap = data[at : at + size]
            steps = known.get(bitmap)
            if steps is None:
                steps = self._steps_of(bitmap)
            at += size
            try:
                for skip, prefix in steps[0]:
                    at += skip
                    if prefix == one:
                        at += data[at] + one
                    elif prefix == two:
                        at += (data[at] | data[at + one] << 8) + two
                    else:
                        at += int.from_bytes(data[at : at + prefix], "little") + prefix
            except IndexError:
                raise MalformedError("a row of the log runs past its event") from None
            at += steps[1]
        if at != end:
            raise MalformedError("a row of the log runs past its event")
        return starts

    def images(self, octets: Numbers, begins: Numbers, ends: Numbers) -> tuple[list[Numbers], Numbers | None]:
        """Where the images of many events begin, and how many each event has; None where they must be walked."""
        starts: list[Numbers] = []
        counts = np.zeros(len(begins), np.int64)
        left, at = np.arange(len(begins)), begins
        while len(left):
            if len(starts) == IMAGES_TOGETHER_MAX:
                return starts, None
            starts.append(at)
            counts[left] += 1
            behind = self._behind(octets, at, ends[left])
            if behind is None:
                return starts, None
            is_left = behind < ends[left]
            left, at = left[is_left], behind[is_left]
        return starts, counts

    def _behind(self, octets: Numbers, starts: Numbers, ends: Numbers) -> Numbers | None:
        """Where images that begin at ``starts`` end; None where one runs past its event's end."""
        at = starts + self.bitmap_bytes
        if (at > ends).any():
            return None
        for number, width in enumerate(self.widths):
            is_there = octets[starts + (number >> 3)] >> (number & 7) & 1 == 0
            if width is not None:
                at = at + width * is_there
                continue
            prefix = self.columns[number].size
            if (at + prefix * is_there > ends).any():
                return None
            length = np.zeros(len(at), np.int64)
            for place in range(prefix):
                length |= octets[np.minimum(at + place, len(octets) - 1)].astype(np.int64) << (8 * place)
            at = at + (prefix + length) * is_there
        return None if (at > ends).any() else at

    def _steps_of(self, bitmap: bytes) -> tuple[tuple[tuple[int, int], ...], int]:
        """For rows in which just these columns are null: bytes to pass and length to read, again and again."""
        if len(bitmap) < self.bitmap_bytes:
            raise MalformedError("a row of the log runs past its event")
        found, skip = [], 0
        for at, width in enumerate(self.widths):
            if bitmap[at >> 3] >> (at & 7) & 1:
                continue
            if width is not None:
                skip += width
            else:
                found.append((skip, self.columns[at].size))
                skip = 0
        if len(self._steps) < 4096:  # noqa: PLR2004 - patterns of nulls that are worth keeping
            self._steps[bitmap] = (tuple(found), skip)
        return tuple(found), skip


@dataclass
class Images:
    """Row images of one table: their bytes, and for one column after the other where the values are."""

    layout: _Layout
    data: bytes
    octets: Numbers
    starts: Numbers
    _at: Numbers = field(init=False)
    _column: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._at = self.starts + self.layout.bitmap_bytes

    def next_values(self) -> tuple[Numbers, Numbers, Numbers]:
        """Of the next column: where values begin, how long they are, and which are not null (where they are is 0)."""
        at, column = self._column, self.layout.columns[self._column]
        bits = self.octets[self.starts + (at >> 3)] >> (at & 7) & 1
        is_valid = bits == 0
        width = self.layout.widths[at]
        where = np.where(is_valid, self._at, 0)
        if width is not None:
            lengths = np.where(is_valid, width, 0)
            begins = where
        else:
            lengths = np.zeros(len(where), np.int64)
            for place in range(column.size):
                lengths |= self.octets[where + place].astype(np.int64) << (8 * place)
            begins = np.where(is_valid, where + column.size, 0)
            lengths = np.where(is_valid, lengths, 0)
        self._at = np.where(is_valid, begins + lengths, self._at)
        self._column += 1
        return begins, lengths, is_valid


class RowBuffer:
    """Row images of one table in one state of its columns, in the order of the log."""

    def __init__(self, table: TableMap) -> None:
        """``table``: raises ``NotDescribed`` where its rows cannot be read."""
        if table.trouble is not None:
            raise NotDescribed(f"{table.name}: {table.trouble}")
        self.table = table
        self._layout = _Layout(table)
        self._parts: list[bytes] = []
        self._starts: list[int] = []
        self.bytes = 0

    def add(self, event: Event) -> int:
        """Take the rows of one event; how many images these are. Raises ``MalformedError``, ``NotDescribed``."""
        data, at = event.data, event.start + 8
        if event.kind in SECOND_VERSION:
            extra = int.from_bytes(data[at : at + 2], "little")
            at += max(extra, 2)
        layout = self._layout
        is_update = ROWS[event.kind] == "u"
        size = len(layout.count) + layout.bitmap_bytes * (2 if is_update else 1)
        if data[at : at + size] not in (layout.update_heads if is_update else layout.heads):
            if data[at : at + len(layout.count)] == layout.count:
                raise NotDescribed(
                    f"{self.table.name}: rows are logged without all of their columns. "
                    "Run: SET GLOBAL binlog_row_image = FULL; changes that were logged before cannot be read"
                )
            raise MalformedError(f"rows of {self.table.name} have another number of columns than the table")
        at += size
        if at > event.end:
            raise MalformedError("a row of the log runs past its event")
        starts = layout.walk(data, at, event.end)
        shift = self.bytes - at
        self._starts += [start + shift for start in starts] if shift else starts
        self._parts.append(data[at : event.end])
        self.bytes += event.end - at
        return len(starts)

    def add_all(self, other: RowBuffer) -> None:
        """Take all rows of another one, of the same table in the same state."""
        self._starts += [start + self.bytes for start in other._starts]
        self._parts += other._parts
        self.bytes += other.bytes

    def add_together(self, found: Transactions, which: Numbers) -> list[int]:
        """Take the rows of many transactions, as ``add`` each of them: how many images each has."""
        events = which * EVENTS + 2
        begins, ends = self._rows_of(found, events)
        starts, counts = self._layout.images(found.octets, begins, ends) if begins is not None else ([], None)
        if begins is None or counts is None:
            return [self.add(found.event(event)) for event in events.tolist()]
        data, sizes = found.data, ends - begins
        self._parts += [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        shifts = self.bytes + np.cumsum(sizes) - sizes - begins
        self._starts += (np.sort(np.concatenate(starts)) + np.repeat(shifts, counts)).tolist()
        self.bytes += int(sizes.sum())
        made: list[int] = counts.tolist()
        return made

    def _rows_of(self, found: Transactions, events: Numbers) -> tuple[Numbers | None, Numbers]:
        """Where the rows of events begin and end; None where one of them does not begin as it should."""
        layout, begins, ends = self._layout, found.starts[events] + 8, found.ends[events]
        is_update = found.heads["kind"][events] == UPDATE_V1
        is_right = np.zeros(len(events), bool)
        for is_kind, heads in ((~is_update, layout.heads), (is_update, layout.update_heads)):
            for head in heads if is_kind.any() else ():
                at = np.minimum(begins[:, None] + np.arange(len(head)), len(found.octets) - 1)
                is_right |= is_kind & (found.octets[at] == np.frombuffer(head, np.uint8)).all(axis=1)
        begins = begins + len(layout.count) + layout.bitmap_bytes * np.where(is_update, 2, 1)
        return begins if is_right.all() and (begins < ends).all() else None, ends

    def images(self) -> Images:
        """All that were added."""
        data = b"".join(self._parts) + bytes(
            64
        )  # where a value is null, the numbers at the beginning are read in its place
        octets = np.frombuffer(data, np.uint8)
        return Images(self._layout, data, octets, np.asarray(self._starts, np.int64))
