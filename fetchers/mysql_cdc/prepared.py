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
from dataclasses import replace
from typing import NamedTuple

from fetchers.mysql_cdc.events import Event, MalformedError
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.standing import Standing
from fetchers.mysql_cdc.table_map import NotDescribed

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


class Committed(NamedTuple):
    """A prepared transaction whose commit the log has told just now."""

    xid: str
    at: Place
    """Where its events are in the log, and how many of them are delivered."""
    held: Sequence[Event] | None
    """Its events; None: they are to be read again."""
    before: Place
    """Where the log stands in front of the commit."""
    after: Place
    committed_us: int

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
        self._held: dict[str, list[Event]] = {}
        self._bytes_max = bytes_max
        self._bytes = 0
        self._now: list[Event] | None = None

    def placed(self, at: Standing) -> Place:
        """The place between two transactions, which knows of all that are prepared there."""
        at.fold()
        at.boundary = replace(at.boundary, prepared=tuple(self._places.items()))
        return at.boundary

    def begin(self, *events: Event) -> None:
        """The first events of one."""
        self.drop()
        self._now = []
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """The next event of it. When all would be more than the limit, this one is read again later."""
        if self._now is None:
            return
        self._bytes += _size(event)
        self._now.append(event._replace(data=event.data[event.start : event.end], start=0, end=event.end - event.start))
        if self._bytes > self._bytes_max:
            self.drop()

    def drop(self) -> None:
        """Forget the events of the one that is read now."""
        self._bytes -= sum(map(_size, self._now or ()))
        self._now = None

    def end(self, xid: str, at: Place) -> None:
        """It is prepared. One of the same xid before has ended without the log, as in a crash of the server."""
        known = self._places.get(xid)
        if known is None or (known.file, known.position) != (at.file, at.position):
            self._take(xid)
            self._places[xid] = Place(at.file, at.position)
        if len(self._places) > PREPARED_MAX:
            raise NotDescribed(
                f"more than {PREPARED_MAX} XA transactions are prepared and neither committed nor rolled back. "
                "XA RECOVER shows them: end them there; those that it does not show were lost in a crash of the "
                'server, and may be taken out of "prepared" in the offset (PATCH /connectors/NAME/offsets)'
            )
        self._bytes -= sum(map(_size, self._held.pop(xid, ())))
        if self._now is not None:
            self._held[xid] = self._now
            self._now = None

    def pop(self, xid: str) -> tuple[Place, Sequence[Event] | None] | None:
        """It has ended: its place and its events, if these are here; None where it is not known."""
        place = self._places.get(xid)
        held = self._take(xid)
        return None if place is None else (place, held)

    def _take(self, xid: str) -> Sequence[Event] | None:
        self._places.pop(xid, None)
        held = self._held.pop(xid, None)
        self._bytes -= sum(map(_size, held or ()))
        return held


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
