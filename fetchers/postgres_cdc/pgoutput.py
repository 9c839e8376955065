"""``pgoutput``'s messages, read column by column over all messages of a relation at once.

Source: the chapter "Logical Replication Message Formats" of PostgreSQL's manual, version 1 of the protocol. What a
message is costs a few lines of Python each, in ``Framing``; its values cost none.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fetchers.sdk import Fatal
from fetchers.toolkit.change_form import CREATE, DELETE, TRUNCATE, UPDATE

POSTGRES_EPOCH_MICROS = 946_684_800_000_000
"""2000-01-01, from which the server counts."""
_HEAD = 8
"""Bytes before the first column of a message with one row: its letter, relation, kind of row, count of columns."""
_PAD = b"\0" * 8
"""So that looking past a message that is cut short finds something."""
NULL, UNCHANGED, TEXT = b"nut"
_OPERATIONS = np.zeros(256, np.uint8)
_OPERATIONS[list(b"IUDT")] = [CREATE, UPDATE, DELETE, TRUNCATE]


@dataclass(frozen=True)
class RelationColumn:
    """A column as a Relation message tells it."""

    name: str
    type_oid: int
    modifier: int
    is_identity: bool
    """Whether it is part of the replica identity."""


@dataclass(frozen=True)
class LogRelation:
    """A table in one state of its columns."""

    oid: int
    schema: str
    name: str
    identity: str
    """``d`` primary key, ``n`` nothing, ``f`` full rows, ``i`` an index."""
    columns: tuple[RelationColumn, ...]

    @property
    def tells_key(self) -> bool:
        """Whether another primary key would be another message.

        The order of its columns is in none, and of rows that are logged whole every column is marked.
        """
        return self.identity == "n" or (self.identity != "f" and sum(one.is_identity for one in self.columns) <= 1)


@dataclass(frozen=True)
class RowTexts:
    """Texts of the rows of one side: ``columns[at]`` is a binary array, null for null and for unchanged values."""

    columns: list[Any]
    unchanged: list[np.ndarray | None]
    """Where a value of the column is not sent because it is large and has not changed; None: nowhere."""


def read_relation(message: bytes) -> LogRelation:
    """A Relation message; raises ``Fatal`` where it is none."""
    try:
        (oid,) = struct.unpack_from(">I", message, 1)
        schema, at = _word(message, 5)
        name, at = _word(message, at)
        identity, count = chr(message[at]), int.from_bytes(message[at + 1 : at + 3], "big")
        at += 3
        columns = []
        for _ in range(count):
            flags = message[at]
            column, at = _word(message, at + 1)
            type_oid, modifier = struct.unpack_from(">Ii", message, at)
            columns.append(RelationColumn(column, type_oid, modifier, bool(flags & 1)))
            at += 8
    except (struct.error, IndexError, ValueError) as error:
        raise broken("a Relation message") from error
    return LogRelation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _word(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


def broken(what: str) -> Fatal:
    """For bytes that are none of the protocol's."""
    return Fatal(f"the server sent {what} that cannot be read: is a proxy between, or another plugin than pgoutput?")


@dataclass(frozen=True)
class RowMessages:
    """Row messages of one relation in their order, and the two sides of their rows as texts."""

    operations: np.ndarray
    """Codes ``c``, ``u``, ``d``, ``t``."""
    old: RowTexts | None
    """Rows before, of the messages ``has_old`` alone."""
    has_old: np.ndarray
    is_old_whole: np.ndarray
    """Of each message, whether its old row has all columns, not only those of the replica identity."""
    new: RowTexts | None
    """Rows after, of the messages ``has_new`` alone."""
    has_new: np.ndarray


def read_rows(messages: list[bytes], column_count: int) -> RowMessages:
    """Insert, update, delete and truncate messages of one relation; raises ``Fatal`` for bytes that are none."""
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    ends = np.cumsum(lengths)
    joined = b"".join([*messages, _PAD])
    data = np.frombuffer(joined, np.uint8)
    starts = ends - lengths
    operations = _OPERATIONS[data[starts]]
    if (operations == 0).any():
        raise broken("a message")
    kinds = data[np.minimum(starts + 5, len(data) - 1)]
    is_row = operations != TRUNCATE
    has_old = is_row & ((kinds == ord("K")) | (kinds == ord("O")))
    has_new = is_row & (operations != DELETE)
    is_plain = kinds == ord("N")
    is_right = np.where(operations == CREATE, is_plain, np.where(operations == DELETE, has_old, has_old | is_plain))
    if (is_row & ((lengths < _HEAD) | ~is_right)).any():
        raise broken("a row")
    places = starts + _HEAD
    old = None
    if has_old.any():
        old, places[has_old] = _columns(joined, places[has_old], ends[has_old], column_count)
        is_pair = has_old & has_new
        if (data[np.minimum(places[is_pair], len(data) - 1)] != ord("N")).any():
            raise broken("an updated row")
        places[is_pair] += 3
    new = None
    if has_new.any():
        new, places[has_new] = _columns(joined, places[has_new], ends[has_new], column_count)
    if (places[is_row] != ends[is_row]).any():
        raise broken("a row")
    return RowMessages(operations, old, has_old, has_old & (kinds == ord("O")), new, has_new)


def _columns(joined: bytes, places: np.ndarray, ends: np.ndarray, count: int) -> tuple[RowTexts, np.ndarray]:
    """Walk all rows together, column by column; ``places``: of each row, where its first column begins."""
    _within(places, ends)
    data = np.frombuffer(joined, np.uint8)
    counts = (data[places - 2].astype(np.int64) << 8) | data[places - 1]
    if (counts != count).any():
        raise broken("a row with another number of columns than its relation")
    buffer = pa.py_buffer(joined)
    columns, unchanged = [], []
    for _ in range(count):
        _within(places + 1, ends)
        kinds = data[places]
        is_text = kinds == TEXT
        if not (is_text | (kinds == NULL) | (kinds == UNCHANGED)).all():
            raise broken("a value")
        starts = places + 1 + 4 * is_text
        _within(starts, ends)
        sizes = np.zeros(len(places), np.int64)
        at = places[is_text]
        sizes[is_text] = (
            (data[at + 1].astype(np.int64) << 24)
            | (data[at + 2].astype(np.int64) << 16)
            | (data[at + 3].astype(np.int64) << 8)
            | data[at + 4]
        )
        places = starts + sizes
        _within(places, ends)
        columns.append(_slices(buffer, starts, places, is_text))
        is_unchanged = kinds == UNCHANGED
        unchanged.append(is_unchanged if is_unchanged.any() else None)
    return RowTexts(columns, unchanged), places


def _within(places: np.ndarray, ends: np.ndarray) -> None:
    if (places > ends).any():
        raise broken("a message that is cut short")


def _slices(buffer: Any, starts: np.ndarray, ends: np.ndarray, is_text: np.ndarray) -> Any:
    """Pieces of a buffer as a binary array: every second one of an array of values and what lies between them."""
    offsets = np.empty(2 * len(starts) + 1, np.int32)
    offsets[0::2][:-1] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if len(ends) else 0
    pieces = pa.Array.from_buffers(pa.binary(), 2 * len(starts), [None, pa.py_buffer(offsets.data), buffer])
    wanted: Any = np.arange(0, 2 * len(starts), 2)
    return pieces.take(pa.array(wanted, pa.int64(), mask=None if is_text.all() else ~is_text))
