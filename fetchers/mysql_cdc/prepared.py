"""XA transactions: in the log when they are prepared, and theirs to deliver only when they are committed.

``XA PREPARE`` writes all rows of a transaction, under its xid; ``XA COMMIT`` or ``XA ROLLBACK`` is a statement of its
own, of any session, at any later time (MySQL's manual, "Restrictions on XA Transactions"; MariaDB since 10.5, knowledge
base, "XA Transactions"). ``XA COMMIT … ONE PHASE`` prepares and commits in one. Between the two only the place of the
transaction is kept, which is stored with the offset, and its events while they are small: a larger one, and one that
was prepared before a restart, is read from the log a second time when it is committed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fetchers.mysql_cdc.events import Event, MalformedError
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.table_map import NotDescribed, TableMap

PREPARED_MAX = 2_000
"""Transactions that are prepared at a time: each takes some 200 bytes of the stored offset."""
_XA = struct.Struct("<BiII")
"""Whether it is committed at once, the number of the format, and the lengths of the xid's two parts."""
_PART_BYTES_MAX = 64
_XID = re.compile(r"\bXA\s+(?:COMMIT|ROLLBACK)\s+X'([0-9a-f]*)',\s*X'([0-9a-f]*)',\s*(-?\d+)", re.IGNORECASE)


def read_xa(event: Event) -> tuple[str, bool]:
    """Of an ``XA_PREPARE``: the xid as statements have it, and whether it is committed by the same event."""
    body = event.data[event.start : event.end]
    if len(body) < _XA.size:
        raise MalformedError("the end of an XA transaction is cut short")
    is_one_phase, number, first, second = _XA.unpack_from(body)
    if first > _PART_BYTES_MAX or second > _PART_BYTES_MAX or len(body) < _XA.size + first + second:
        raise MalformedError("the xid of an XA transaction has a length that it cannot have")
    at = _XA.size
    return xid_text(body[at : at + first], body[at + first : at + first + second], number), bool(is_one_phase)


def xid_text(first: bytes, second: bytes, number: int) -> str:
    """As both servers log it."""
    return f"X'{first.hex()}',X'{second.hex()}',{number}"


def xid_in(statement: str) -> str:
    """Of ``XA COMMIT`` and ``XA ROLLBACK``; raises ``NotDescribed`` where it is written in another way."""
    found = _XID.search(statement)
    if found is None:
        raise NotDescribed(f"the log ends an XA transaction in words that are not known: {statement[:200]}")
    return f"X'{found[1].lower()}',X'{found[2].lower()}',{int(found[3])}"


@dataclass(slots=True)
class Held:
    """A prepared transaction whose events are at hand."""

    events: list[Event] = field(default_factory=list)
    rows: list[tuple[Event, TableMap]] = field(default_factory=list)
    """Those among them that have rows, each with its table."""
    gtid: str | None = None
    thread: int | None = None


class Committed(NamedTuple):
    """A prepared transaction whose commit the log has told just now, and that is to be read by itself."""

    xid: str
    at: Place
    """Where its events are in the log, and how many of them are delivered."""
    held: Sequence[Event] | None
    """Its events; None: they are to be read again."""
    before: Place
    """Where the log stands in front of the commit."""
    after: Place
    committed_us: int
    is_among: bool
    """Whether it was in the segment in whose middle the last run ended, and has to be in it again: no place could say
    that some tables are delivered up to the commit, and others up to the segment's end."""

    def place(self, at: Place, *, is_last: bool) -> Place:
        """Where to go on behind a page of it; ``at``: the place within the transaction."""
        if is_last:
            return self.after
        at = Place(at.file, at.position, delivered=at.delivered, until=at.until, tables=at.tables)
        return replace(self.before, prepared=tuple((dict(self.before.prepared) | {self.xid: at}).items()))


class PreparedTransactions:
    """Which ones are prepared and not ended, and their events up to a limit of bytes in all."""

    def __init__(self, places: Iterable[tuple[str, Place]], *, bytes_max: int) -> None:
        """``places``: of an earlier run."""
        self._places = dict(places)
        self._told: tuple[tuple[str, Place], ...] | None = None
        self._held: dict[str, Held] = {}
        self._bytes_max = bytes_max
        self._bytes = 0
        self._now: Held | None = None

    def places(self) -> tuple[tuple[str, Place], ...]:
        """Of those that are prepared now, by their xids: where each begins."""
        if self._told is None:
            self._told = tuple(self._places.items())
        return self._told

    def begin(self, *events: Event) -> None:
        """The first events of one."""
        self.drop()
        self._now = Held()
        for event in events:
            self.add(event)

    def add(self, event: Event, table: TableMap | None = None) -> None:
        """The next event of it. When all would be more than the limit, this one is read again later.

        ``table``: of an event with rows.
        """
        if self._now is None:
            return
        self._bytes += _size(event)
        kept = event._replace(data=event.data[event.start : event.end], start=0, end=event.end - event.start)
        self._now.events.append(kept)
        if table is not None:
            self._now.rows.append((kept, table))
        if self._bytes > self._bytes_max:
            self.drop()

    def drop(self) -> None:
        """Forget the events of the one that is read now."""
        self._bytes -= _bytes_of(self._now)
        self._now = None

    def end(self, xid: str, file: str, position: int, *, gtid: str | None = None, thread: int | None = None) -> None:
        """It is prepared. One of the same xid before has ended without the log, as in a crash of the server.

        ``file``, ``position``: where it begins.
        """
        known = self._places.get(xid)
        if known is None or (known.file, known.position) != (file, position):
            self.pop(xid)
            self._places[xid] = Place(file, position)
        if len(self._places) > PREPARED_MAX:
            raise NotDescribed(
                f"more than {PREPARED_MAX} XA transactions are prepared and neither committed nor rolled back. "
                "XA RECOVER shows them: end them there; those that it does not show were lost in a crash of the "
                'server, and may be taken out of "prepared" in the offset (PATCH /connectors/NAME/offsets)'
            )
        self._bytes -= _bytes_of(self._held.pop(xid, None))
        if self._now is not None:
            self._now.gtid, self._now.thread = gtid, thread
            self._held[xid] = self._now
            self._now = None

    def known(self, xid: str) -> tuple[Place | None, Held | None]:
        """Its place, None where it is not known; and its events, if these are here."""
        return self._places.get(xid), self._held.get(xid)

    def pop(self, xid: str) -> None:
        """It has ended."""
        self._told = None
        self._places.pop(xid, None)
        self._bytes -= _bytes_of(self._held.pop(xid, None))


def _bytes_of(held: Held | None) -> int:
    return 0 if held is None else sum(map(_size, held.events))


def _size(event: Event) -> int:
    return event.end - event.start + 200  # what an event costs besides


def unlisted(xid: str, place: Place) -> str:
    """What is told of the commit of one that was prepared before the log was begun."""
    return (
        f"the XA transaction {xid} was committed, and it was prepared before the log was begun: its rows are neither "
        "in the snapshot nor behind it. Set the offset behind the commit "
        f'("file": "{place.file}", "pos": {place.position}; PATCH /connectors/NAME/offsets), and read the tables that '
        "it changed again (snapshot.request.id). So that the next snapshot can wait for such transactions, run: "
        "GRANT XA_RECOVER_ADMIN ON *.* TO the user"
    )
