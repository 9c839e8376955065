"""Messages as they were received, and where among them are transactions of one change each, which are read together.

A row that is inserted alone comes as Begin, Insert, Commit. Of hundreds of these in a row, ids, times and positions are
columns of numbers; one by one they would cost more than the values of the rows.
Source: the chapters "Streaming Replication Protocol" and "Logical Replication Message Formats" of PostgreSQL's manual.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fetchers.postgres_cdc.pgoutput import POSTGRES_EPOCH_MICROS, broken

_HEAD_BYTES = 25
"""Of an XLogData message before what the plugin wrote: its letter, where that is in the log, two more numbers."""
_LOG_DATA, _KEEPALIVE = b"wk"
_KEEPALIVE_FORM = struct.Struct(">xQqB")
"""Where the server's log stands, its clock, whether it asks for an answer."""
SIZE = 3
"""Messages of such a transaction."""
TOGETHER_MIN = 8
"""Transactions in a row from which on they are read together."""
_BEGIN, _COMMIT = b"BC"
_ROW = np.zeros(256, bool)
_ROW[list(b"IUD")] = True
_BEGIN_BYTES, _ROW_BYTES, _COMMIT_BYTES = 21, 5, 26


@dataclass(frozen=True)
class Singles:
    """Transactions of one change each, as columns."""

    rows: list[bytes]
    """Their changes."""
    positions: np.ndarray
    """Where these are in the log."""
    sizes: np.ndarray
    """Bytes of the changes."""
    relations: np.ndarray
    """The relations of the changes, as numbers."""
    finals: np.ndarray
    """Where they commit."""
    ends: np.ndarray
    """Where they have ended."""
    ids: np.ndarray
    committed: np.ndarray
    """When each committed, in microseconds since the epoch."""


class Messages:
    """Messages in their order, of which the first ``at`` are taken."""

    def __init__(self, data: bytes = b"", lengths: Sequence[int] = ()) -> None:
        """``data``: messages of the stream one behind the other, XLogData and keepalives; raises ``Fatal``."""
        self.at = 0
        self.keepalives: list[tuple[int, bool]] = []
        """Of each where the server's log stands, and whether it asks for an answer."""
        self._bytes = data
        self._each: list[tuple[int, int, int]] = []
        """Of each message where it begins and ends in ``data``, and where it is in the log; made when first asked."""
        self._left: list[int] = []
        """From each message on, how many such transactions come one behind the other."""
        if data:
            self._find(np.fromiter(lengths, np.int64, len(lengths)))

    def _find(self, lengths: np.ndarray) -> None:
        self._data = np.frombuffer(self._bytes, np.uint8)
        heads = np.cumsum(lengths) - lengths
        codes = self._data[heads]
        is_keepalive = (codes == _KEEPALIVE) & (lengths == _KEEPALIVE_FORM.size)
        is_log = (codes == _LOG_DATA) & (lengths > _HEAD_BYTES)
        if not (is_keepalive | is_log).all():
            raise broken("a message")
        for head in heads[is_keepalive].tolist():
            position, _, asks = _KEEPALIVE_FORM.unpack_from(self._bytes, head)
            self.keepalives.append((position, bool(asks)))
        heads, self._ends = heads[is_log], (heads + lengths)[is_log]
        self._positions = self._numbers(heads + 1, ">u8")
        self._starts = heads + _HEAD_BYTES
        self._left = [0] * len(heads)
        if len(heads) < SIZE * TOGETHER_MIN:
            return
        sizes, codes = self._ends - self._starts, self._data[self._starts]
        is_single = (codes[:-2] == _BEGIN) & _ROW[codes[1:-1]] & (codes[2:] == _COMMIT)
        is_single &= (sizes[:-2] >= _BEGIN_BYTES) & (sizes[1:-1] >= _ROW_BYTES) & (sizes[2:] >= _COMMIT_BYTES)
        first = np.flatnonzero(is_single)
        bounds = np.concatenate(([0], np.flatnonzero(np.diff(first) != SIZE) + 1, [len(first)]))
        left = np.zeros(len(sizes), np.int64)
        left[first] = np.repeat(bounds[1:], np.diff(bounds)) - np.arange(len(first))
        self._left = left.tolist()

    @property
    def is_over(self) -> bool:
        """Whether all are taken."""
        return self.at >= len(self._left)

    def next(self) -> tuple[bytes, int]:
        """Take one message, with its position."""
        at = self.at
        self.at += 1
        if not self._each:
            self._each = list(zip(self._starts.tolist(), self._ends.tolist(), self._positions.tolist(), strict=True))
        start, end, position = self._each[at]
        return self._bytes[start:end], position

    def singles(self) -> Singles | None:
        """What comes next, where that is many transactions of one change each; nothing is taken by it."""
        count = self._left[self.at] if not self.is_over else 0
        if count < TOGETHER_MIN:
            return None
        begins = self._starts[self.at : self.at + SIZE * count : SIZE]
        rows = slice(self.at + 1, self.at + SIZE * count, SIZE)
        commits = self._starts[self.at + 2 : self.at + SIZE * count : SIZE]
        starts, ends = self._starts[rows], self._ends[rows]
        return Singles(
            [self._bytes[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)],
            self._positions[rows],
            ends - starts,
            self._numbers(starts + 1, ">u4"),
            self._numbers(begins + 1, ">u8"),
            self._numbers(commits + 10, ">u8"),
            self._numbers(begins + 17, ">u4"),
            self._numbers(begins + 9, ">i8") + POSTGRES_EPOCH_MICROS,
        )

    def _numbers(self, places: np.ndarray, form: str) -> np.ndarray:
        """Numbers that begin at any bytes."""
        size = np.dtype(form).itemsize
        everywhere: np.ndarray = np.ndarray((max(len(self._bytes) - size + 1, 0),), form, self._bytes, strides=(1,))
        found: np.ndarray = everywhere[places].astype(np.int64)
        return found
