"""Row events: where each value of each row lies, found once a row, and then read column by column.

A buffer collects the row images of many events of one table, whatever transactions they belong to. The one pass in
Python goes over images and only adds up lengths; everything after it is done by numpy and Arrow for whole columns.
Format: ``Rows_event`` in MySQL's ``libbinlogevents``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fetchers.mysql_cdc.events import ROWS, SECOND_VERSION, Event, MalformedError
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

Numbers = np.ndarray[Any, Any]
_FIXED = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8, FLOAT: 4, DOUBLE: 8, DATE: 3, YEAR: 1}
_WITH_FRACTION = {TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}
_WITH_LENGTH = {VARCHAR, STRING, BLOB, JSON, GEOMETRY}
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

    def images(self) -> Images:
        """All that were added."""
        data = b"".join(self._parts) + bytes(
            64
        )  # where a value is null, the numbers at the beginning are read in its place
        octets = np.frombuffer(data, np.uint8)
        return Images(self._layout, data, octets, np.asarray(self._starts, np.int64))
