"""Events that MariaDB logs compressed (``log_bin_compress``), as the events that they stand for.

What identifies the table or the statement is plain; behind it come a byte with the algorithm and the count of the bytes
of a length, that length from its highest byte on, and zlib's bytes (MariaDB's ``binlog_buf_compress``).
"""

from __future__ import annotations

import zlib
from typing import Final

from fetchers.mysql_cdc.events import (
    DELETE_V1,
    DELETE_V2,
    INFLATED_BYTES_MAX,
    QUERY,
    UPDATE_V1,
    UPDATE_V2,
    WRITE_V1,
    WRITE_V2,
    Event,
    MalformedError,
)
from fetchers.mysql_cdc.table_map import NotDescribed

COMPRESSED: Final = {
    165: QUERY, 166: WRITE_V1, 167: UPDATE_V1, 168: DELETE_V1, 169: WRITE_V2, 170: UPDATE_V2, 171: DELETE_V2,
}  # fmt: skip
"""Types of events by what they stand for."""
_FIRST_OF_V2 = 169
_MARK = 0x80
_WIDTHS: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}


def uncompressed(event: Event) -> Event:
    """The plain event; raises ``MalformedError``, ``NotDescribed`` where it is too large once inflated."""
    kind, body = COMPRESSED[event.kind], event.data[event.start : event.end]
    try:
        at = _plain_bytes(event.kind, body)
        head, size = body[at], body[at] & 7
        if not head & _MARK or head >> 4 & 7:
            raise MalformedError("an event is compressed in a way that is not known")
        length = int.from_bytes(body[at + 1 : at + 1 + size], "big")
        if length > INFLATED_BYTES_MAX:
            raise too_large(length, "SET GLOBAL log_bin_compress = OFF")
        inflater = zlib.decompressobj()
        inflated = inflater.decompress(body[at + 1 + size :], length + 1)
    except (IndexError, zlib.error) as error:
        raise MalformedError("a compressed event is damaged") from error
    if len(inflated) != length or not inflater.eof:
        raise MalformedError("a compressed event has not the length that it says")
    data = body[:at] + inflated
    return event._replace(kind=kind, data=data, start=0, end=len(data))


def too_large(length: int, setting: str) -> NotDescribed:
    """For an event that says that it has so many bytes; ``setting``: SQL by which such events are logged plainly."""
    return NotDescribed(
        f"a compressed event says that it has {length} bytes, and {INFLATED_BYTES_MAX} is the most that is inflated at "
        f"once. Run: {setting}, so that rows so large are logged as they are; then set the offset behind it, and read "
        "its table anew (snapshot.request.id)"
    )


def _plain_bytes(kind: int, body: bytes) -> int:
    """How many bytes come before what is compressed."""
    if COMPRESSED[kind] == QUERY:
        return 13 + int.from_bytes(body[11:13], "little") + body[8] + 1  # as in ``read_query``
    at = 8 + (int.from_bytes(body[8:10], "little") if kind >= _FIRST_OF_V2 else 0)
    width = body[at]
    at += 1
    if width in _WIDTHS:
        width, at = int.from_bytes(body[at : at + _WIDTHS[width]], "little"), at + _WIDTHS[width]
    return at + (width + 7) // 8 * (2 if COMPRESSED[kind] in (UPDATE_V1, UPDATE_V2) else 1)
