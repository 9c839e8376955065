"""Events of a binary log as the server sends them: packets, headers, checksums, and the bodies that carry no rows.

Formats: MySQL's source documentation, "Replication Protocol" and ``libbinlogevents``; MariaDB's knowledge base,
"Replication Protocol". Row events are read by ``rows``, their tables by ``table_map``.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from typing import Final, NamedTuple

QUERY, STOP, ROTATE, FORMAT_DESCRIPTION, XID, TABLE_MAP = 2, 3, 4, 15, 16, 19
WRITE_V1, UPDATE_V1, DELETE_V1, HEARTBEAT, WRITE_V2, UPDATE_V2, DELETE_V2 = 23, 24, 25, 27, 30, 31, 32
GTID, ANONYMOUS_GTID, XA_PREPARE, PARTIAL_UPDATE, TRANSACTION_PAYLOAD, HEARTBEAT_V2, TAGGED_GTID = (
    33, 34, 38, 39, 40, 41, 42,
)  # fmt: skip
MARIADB_GTID = 162
AS_ROWS = (
    "Run: SET GLOBAL binlog_format = ROW, and end sessions that have set it otherwise; then set the offset behind it, "
    "and read its table anew"
)
"""What is to be done about a change of which the log has no rows."""
_LOADED = f"a change is logged as its statement (LOAD DATA), not as rows. {AS_ROWS}"
ROWS: Final = {WRITE_V1: "c", WRITE_V2: "c", UPDATE_V1: "u", UPDATE_V2: "u", DELETE_V1: "d", DELETE_V2: "d"}
SECOND_VERSION: Final = frozenset({WRITE_V2, UPDATE_V2, DELETE_V2})
REFUSED: Final = {
    PARTIAL_UPDATE: "JSON columns are logged in part. Run: SET GLOBAL binlog_row_value_options = ''",
    TRANSACTION_PAYLOAD: "a compressed transaction is where none can be",
    TAGGED_GTID: "transactions have tagged GTIDs (MySQL 8.3 and newer), which cannot be followed yet: "
    "leave gtid_next at AUTOMATIC without a tag",
    6: _LOADED,
    10: _LOADED,
    12: _LOADED,
    18: _LOADED,
    26: "the server has lost changes before it could log them (an incident): set the offset behind it, and read the "
    "tables anew",
    20: "rows are logged in the form of MySQL 5.1.15 and older",
    21: "rows are logged in the form of MySQL 5.1.15 and older",
    22: "rows are logged in the form of MySQL 5.1.15 and older",
}
"""Types of events that cannot be passed over without losing changes, with what mends it."""
PASSED: Final = frozenset({
    STOP, 5, 7, 8, 9, 11, 13, 14, FORMAT_DESCRIPTION, 17, 28, 29, 35, 36, 37, 160, 161, 163, 164,
})  # fmt: skip
"""Types of events that change no rows by themselves: variables and files of statements, notes, lists of GTIDs, keys."""
HEADER_BYTES = 19
CHECKSUM_BYTES = 4
PACKET_BYTES_MAX = 0xFFFFFF
EVENT_BYTES_MAX = 1 << 30
"""``max_allowed_packet`` of a server is 1 GiB at most, and no event is larger."""
INFLATED_BYTES_MAX = 1 << 28
"""Of one event that is compressed: it is held whole, and few bytes of a log may claim to be so many."""
_PACKET = struct.Struct("<IBIBIIIH")
"""Length and number of the packet, its status, then the event's header."""
_HEADER = struct.Struct("<IBIIIH")
_MARIADB_GTID = struct.Struct("<QIB")
"""Number, domain and flags."""
_COMMITTED_AT, _COMMITTED_BYTES = 42, 7
"""In MySQL's GTID: behind flags 1, server 16, number 8, kind of what follows 1, and two numbers of 8 for replicas."""
_HAS_ORIGINAL = 1 << 55
"""The highest bit of that time says that the one of the first server follows."""
ARTIFICIAL = 0x20
_IGNORABLE = 0x80
_STATUS_EVENT, _STATUS_END, _STATUS_ERROR = 0, 0xFE, 0xFF


def refusal(event: Event) -> str | None:
    """Why changes would be lost if this event of no known use were passed over; None: they would not."""
    if event.kind in PASSED or (event.kind not in REFUSED and event.flags & _IGNORABLE):
        return None
    return REFUSED.get(event.kind) or (
        f"the log has an event of the unknown type {event.kind}, which the server does not say may be passed over: "
        "it may be of a newer server than can be read here"
    )


class MalformedError(ValueError):
    """Bytes that are no event as the formats have it; the text says which and where, and nothing of the values."""


class ServerRefused(Exception):
    """The server has ended the log with an error packet."""

    def __init__(self, code: int, message: str) -> None:
        """``code``: as in the server's error reference."""
        super().__init__(message)
        self.code = code


class Event(NamedTuple):
    """One event; ``data[start:end]`` is its body, without header and checksum."""

    kind: int
    timestamp: int
    server_id: int
    begin_position: int
    """Where the event itself begins there."""
    end_position: int
    """Where the next event begins in the log's file; 0 for an event that the server has made up."""
    flags: int
    data: bytes
    start: int
    end: int

    @property
    def is_artificial(self) -> bool:
        """Whether it is in no log: the server tells by it where it begins to send."""
        return bool(self.flags & ARTIFICIAL) or self.end_position == 0


class EventReader:
    """Makes events of the bytes of a connection, however these are cut; checks the checksums that the log has."""

    def __init__(self) -> None:
        """The first bytes are those of a packet."""
        self._rest = b""
        self._left = 0
        """Bytes from the packet on that is looked at apart."""
        self.is_ended = False
        """Whether the server's last word is here: ``feed`` raises it when it is called again."""
        self._has_checksums: bool | None = None
        """None until the log has said it; what comes before is tried."""

    @property
    def has_checksums(self) -> bool | None:
        """Whether events have them; None until the log has said it."""
        return self._has_checksums

    def take_rest(self) -> bytes:
        """Bytes that are no whole event yet, which are to be fed again."""
        rest, self._rest = self._rest, b""
        return rest

    def feed(self, data: bytes) -> list[Event]:
        """All events that are whole now; raises ``MalformedError``, ``ServerRefused``, ``EOFError``.

        The last two only where no event comes before them.
        """
        data = self._rest + data if self._rest else data
        events: list[Event] = []
        try:
            at = self._feed(data, events)
        except (EOFError, ServerRefused):
            self.is_ended = True
            if not events:
                self._rest = data
                raise
            at = len(data) - self._left
        self._rest = data[at:]
        return events

    def _feed(self, data: bytes, events: list[Event]) -> int:
        """Where the bytes begin that are no whole event yet."""
        at, size = 0, len(data)
        unpack = _PACKET.unpack_from
        crc32, made, add = zlib.crc32, tuple.__new__, events.append
        view = memoryview(data)
        while at + 4 + HEADER_BYTES < size:
            word, status, timestamp, kind, server_id, length, position, flags = unpack(data, at)
            packet = word & PACKET_BYTES_MAX
            end = at + 4 + packet
            if status != _STATUS_EVENT or packet == PACKET_BYTES_MAX or packet != length + 1:
                self._left = size - at
                joined = self._odd(data, at)
                if joined is None:
                    break
                event, at = joined
                events.append(event)
                continue
            if end > size:
                break
            start = at + 5 + HEADER_BYTES
            at = end
            if self._has_checksums and kind != FORMAT_DESCRIPTION:
                end -= CHECKSUM_BYTES
                if crc32(view[start - HEADER_BYTES : end]) != int.from_bytes(data[end : end + 4], "little"):
                    raise MalformedError(f"the checksum of the event before position {position} is wrong")
            elif kind in (FORMAT_DESCRIPTION, ROTATE):
                end = self._checked(kind, data, start, end)
            # what Event(…) does, in half the time
            add(made(Event, (kind, timestamp, server_id, position - length, position, flags, data, start, end)))
        if at + 4 < size and at + 4 + HEADER_BYTES >= size:  # an error or the end may be shorter than any event
            packet = int.from_bytes(data[at : at + 3], "little")
            if at + 4 + packet <= size:
                self._left = size - at
                self._odd(data, at)
        return at

    def _odd(self, data: bytes, at: int) -> tuple[Event, int] | None:  # noqa: C901 - one line a kind of packet
        """An error, the end, or an event of several packets; None where more bytes are needed."""
        parts = []
        packet = PACKET_BYTES_MAX
        while packet == PACKET_BYTES_MAX:
            if at + 4 > len(data):
                return None
            packet = int.from_bytes(data[at : at + 3], "little")
            at += 4
            if at + packet > len(data):
                return None
            parts.append(data[at : at + packet])
            at += packet
            if sum(map(len, parts)) > EVENT_BYTES_MAX:
                raise MalformedError("an event is larger than 1 GiB")
        whole = b"".join(parts)
        if whole[:1] == b"\xff":
            code = int.from_bytes(whole[1:3], "little")
            raise ServerRefused(code, whole[9 if whole[3:4] == b"#" else 3 :].decode("utf-8", "replace"))
        if whole[:1] == b"\xfe":
            raise EOFError("the server has ended the log")
        if whole[:1] != b"\0" or len(whole) <= HEADER_BYTES:
            raise MalformedError("a packet of the log holds no event")
        timestamp, kind, server_id, length, position, flags = _HEADER.unpack_from(whole, 1)
        if length != len(whole) - 1:
            raise MalformedError(
                f"an event of type {kind} says that it has {length} bytes, its packet {len(whole) - 1}"
            )
        end = len(whole)
        if self._has_checksums and kind != FORMAT_DESCRIPTION:
            end -= CHECKSUM_BYTES
            if zlib.crc32(memoryview(whole)[1:end]) != int.from_bytes(whole[end:], "little"):
                raise MalformedError(f"the checksum of the event before position {position} is wrong")
        return Event(kind, timestamp, server_id, position - length, position, flags, whole, 1 + HEADER_BYTES, end), at

    def _checked(self, kind: int, data: bytes, start: int, end: int) -> int:
        """Where the body ends. The format says whether events have checksums; a rotation may come before it."""
        found = zlib.crc32(memoryview(data)[start - HEADER_BYTES : end - CHECKSUM_BYTES])
        is_right = end - CHECKSUM_BYTES >= start and found == int.from_bytes(data[end - 4 : end], "little")
        if kind == ROTATE:
            return end - CHECKSUM_BYTES if is_right and self._has_checksums is None else end
        algorithm = data[end - CHECKSUM_BYTES - 1] if end - start > CHECKSUM_BYTES else 0
        if algorithm not in (0, 1, 255):
            raise MalformedError(f"the log has checksums of an unknown kind ({algorithm})")
        self._has_checksums = algorithm == 1
        if self._has_checksums and not is_right:
            raise MalformedError("the checksum of the log's format description is wrong")
        return end - CHECKSUM_BYTES


class Rotation(NamedTuple):
    """Where the log goes on."""

    file: str
    position: int


def read_rotation(event: Event) -> Rotation:
    """The next file of the log, or the one that is sent now."""
    if event.end - event.start <= 8:  # noqa: PLR2004 - the position's bytes
        raise MalformedError("a rotation names no file")
    name = event.data[event.start + 8 : event.end]
    return Rotation(
        name.decode("utf-8", "replace"), int.from_bytes(event.data[event.start : event.start + 8], "little")
    )


class Query(NamedTuple):
    """A statement that is logged as text: where a transaction begins or ends, and every change of a schema."""

    database: str
    text: str
    thread: int


def read_query(event: Event) -> Query:
    """Thread 4, seconds 4, length of the database's name 1, error 2, length of the variables 2, then all of them."""
    body = event.data[event.start : event.end]
    if len(body) < 13:  # noqa: PLR2004 - as above
        raise MalformedError("a statement of the log is cut short")
    thread, _, name_bytes, _, variables = struct.unpack_from("<IIBHH", body)
    at = 13 + variables
    if len(body) < at + name_bytes + 1:
        raise MalformedError("a statement of the log is cut short")
    name = body[at : at + name_bytes].decode("utf-8", "replace")
    return Query(name, body[at + name_bytes + 1 :].decode("utf-8", "replace"), thread)


class TransactionId(NamedTuple):
    """A global transaction identifier, and what comes with it."""

    source: str
    """UUID of the server in MySQL, ``domain-server`` in MariaDB."""
    number: int
    is_standalone: bool = False
    """MariaDB: one statement, such as DDL, without a commit behind it."""
    is_prepared: bool = False
    """MariaDB: the first half of an XA transaction."""

    @property
    def text(self) -> str:
        """As the server writes it."""
        return f"{self.source}:{self.number}" if len(self.source) == 36 else f"{self.source}-{self.number}"  # noqa: PLR2004


def read_commit_us(event: Event) -> int:
    """When the transaction behind a GTID of MySQL was first committed, microseconds since the epoch; 0: it is not told.

    On the server that it comes from, which a replica's log tells beside the time of its own commit.
    """
    at = event.start + _COMMITTED_AT
    if event.kind == MARIADB_GTID or event.end < at + _COMMITTED_BYTES:
        return 0
    own = int.from_bytes(event.data[at : at + _COMMITTED_BYTES], "little")
    if own < _HAS_ORIGINAL:
        return own
    at += _COMMITTED_BYTES
    return int.from_bytes(event.data[at : min(at + _COMMITTED_BYTES, event.end)], "little")


def read_gtid(event: Event) -> TransactionId | None:
    """None for MySQL's anonymous transactions."""
    if event.kind == MARIADB_GTID:
        if event.end - event.start < _MARIADB_GTID.size:
            raise MalformedError("a GTID of the log is cut short")
        number, domain, flags = _MARIADB_GTID.unpack_from(event.data, event.start)
        return TransactionId(f"{domain}-{event.server_id}", number, bool(flags & 1), bool(flags & 64))
    body = event.data[event.start : event.end]
    if len(body) < 25:  # noqa: PLR2004 - flags 1, server 16, number 8
        raise MalformedError("a GTID of the log is cut short")
    if event.kind == ANONYMOUS_GTID:
        return None
    return TransactionId(str(uuid.UUID(bytes=body[1:17])), int.from_bytes(body[17:25], "little"))
