"""Transactions that MySQL logs compressed (``binlog_transaction_compression``), as the events that they hold.

A ``Transaction_payload`` is all events of one transaction behind its GTID. Its body has fields of a type, a length and
a value, each number packed as in the protocol: the algorithm (0 zstd, 255 none) and how many bytes the events are. Type
0 ends them, and the events follow, with headers and without checksums (``Transaction_payload_event`` in
``libbinlogevents``). Events are inflated one by one, so that a small payload cannot fill the memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from typing import IO, Any

import pyarrow as pa

from fetchers.mysql_cdc.compressed import too_large
from fetchers.mysql_cdc.events import HEADER_BYTES, INFLATED_BYTES_MAX, TRANSACTION_PAYLOAD, Event, MalformedError
from fetchers.mysql_cdc.table_map import Cursor

_END, _ALGORITHM, _INFLATED_BYTES = 0, 2, 3
_ZSTD, _PLAIN = 0, 255
_HEADER = struct.Struct("<IBIIIH")
JOINED = 1 << 15
"""A flag of ours: the next event ends at the same position, which therefore is no place to go on from."""


def events_of(payload: Event) -> Iterator[Event]:
    """The events, whose positions divide that of the payload by their bytes.

    Raises ``MalformedError``, and ``NotDescribed`` where one is too large once inflated.

    They have no positions of their own in the file. What is delivered up to such a position is again after a restart,
    because the server sends the same payload.
    """
    body = Cursor(payload.data[payload.start : payload.end], "a compressed transaction is cut short")
    fields = dict(_fields(body))
    rest = body.data[body.at :]
    algorithm = fields.get(_ALGORITHM, _PLAIN)
    if algorithm not in (_ZSTD, _PLAIN):
        raise MalformedError(f"a transaction is compressed in a way that is not known ({algorithm})")
    size = fields.get(_INFLATED_BYTES, len(rest)) if algorithm == _ZSTD else len(rest)
    opened: Any = BytesIO(rest) if algorithm == _PLAIN else pa.CompressedInputStream(pa.BufferReader(rest), "zstd")
    span = payload.end_position - payload.begin_position
    held: Event | None = None
    for event, end in _read(opened, size):
        position = payload.begin_position + max(1, span * end // max(1, size))
        made = event._replace(begin_position=payload.begin_position, end_position=position)
        if held is not None:
            yield held._replace(flags=held.flags | JOINED) if held.end_position == position else held
        held = made
    if held is not None:
        yield held


def _fields(body: Cursor) -> Iterator[tuple[int, int]]:
    """Types and values up to the end of the fields; values of types that are not known are passed over."""
    while (kind := body.packed()) != _END:
        value = Cursor(body.take(body.packed()), "a compressed transaction is cut short")
        yield kind, value.packed() if kind in (_ALGORITHM, _INFLATED_BYTES) else 0


def _read(opened: IO[bytes], size: int) -> Iterator[tuple[Event, int]]:
    """Each event, and how many bytes all are up to its end."""
    done = 0
    try:
        while done < size:
            head = opened.read(HEADER_BYTES)
            if len(head) < HEADER_BYTES:
                raise MalformedError("a compressed transaction is cut short")
            timestamp, kind, server_id, length, _, flags = _HEADER.unpack(head)
            done += length
            if length > INFLATED_BYTES_MAX:
                raise too_large(length, "SET GLOBAL binlog_transaction_compression = OFF")
            if length < HEADER_BYTES or done > size or kind == TRANSACTION_PAYLOAD:
                raise MalformedError(f"an event in a compressed transaction says that it has {length} bytes")
            data = opened.read(length - HEADER_BYTES)
            if len(data) < length - HEADER_BYTES:
                raise MalformedError("a compressed transaction is cut short")
            yield Event(kind, timestamp, server_id, 0, 0, flags & ~JOINED, data, 0, len(data)), done
        if opened.read(1):
            raise MalformedError("a compressed transaction has more bytes than it says")
    except (OSError, pa.ArrowInvalid) as error:
        raise MalformedError("a compressed transaction is damaged") from error
