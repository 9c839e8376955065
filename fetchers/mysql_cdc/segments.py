"""From events to segments: a stretch of the log with the rows of each table in it, which becomes one page a table.

A segment ends between two transactions where it can. It ends earlier where it has grown too large, where a table's
columns have changed, or where a stored place says that the last run ended one there; such a segment's pages do not end
the transaction. So that any page's place can be gone on from, a place names what behind the beginning of a transaction
is delivered: all events up to one position, and some tables up to another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fetchers.mysql_cdc.events import (
    ANONYMOUS_GTID,
    ARTIFICIAL,
    GTID,
    HEARTBEAT,
    HEARTBEAT_V2,
    MARIADB_GTID,
    QUERY,
    REFUSED,
    ROTATE,
    ROWS,
    TABLE_MAP,
    XA_PREPARE,
    XID,
    Event,
    MalformedError,
    TransactionId,
    read_gtid,
    read_query,
    read_rotation,
)
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.rows import RowBuffer
from fetchers.mysql_cdc.table_map import NotDescribed, TableMap, read_table_map

KNOWN_MAX = 10_000
"""Descriptions of tables that are kept; a server with more pays for reading them anew."""
_NO_TABLE = b"\xff\xff\xff\0\0\0"
"""The table of an event that only ends a statement."""
_COMMENTS = re.compile(r"(?:\s+|/\*.*?\*/|--[^\n]*\n|#[^\n]*\n)*", re.DOTALL)
_CHANGING = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"}


class Mark(NamedTuple):
    """Of one event with rows: what its rows have in common."""

    operation: str
    images: int
    seconds: int
    position: int
    server_id: int
    gtid: str | None
    thread: int | None


@dataclass(slots=True)
class Run:
    """Rows of one table in one segment."""

    table: TableMap
    rows: RowBuffer
    marks: list[Mark] = field(default_factory=list)


@dataclass(slots=True)
class Segment:
    """What was read between two places of one file."""

    start: Place
    end: Place
    """Where to go on behind it."""
    position: int
    """The last event of it ends here."""
    runs: list[Run]
    ends_transaction: bool

    def place_after(self, count: int) -> Place:
        """Where to go on when the first ``count`` of the runs are delivered."""
        if count >= len(self.runs):
            return self.end
        done = tuple(run.table.name for run in self.runs[:count])
        return replace(self.start, until=self.position, tables=(*self.start.tables, *done), seconds=self.end.seconds)


class Segments:
    """Takes events in their order, and gives segments."""

    def __init__(self, place: Place, takes: Callable[[str], bool], *, is_mariadb: bool, bytes_max: int) -> None:
        """``takes``: whether a table, ``database.table``, is wanted."""
        self._is_mariadb = is_mariadb
        self._bytes_max = bytes_max
        self._takes = takes
        self._wanted: dict[str, bool] = {}
        self._known: dict[bytes, TableMap] = {}
        self._tables: dict[bytes, TableMap] = {}
        self._boundary = place
        """Where the transaction begins that is read now, or the next one."""
        self._start = place
        self._runs: dict[str, Run] = {}
        self._bytes = 0
        self._position = place.position
        self._ended: tuple[int, int] | None = None
        """Where the last transaction ended and when, which the boundary does not know yet."""
        self._done: list[tuple[str, int]] = []
        self._gtid: TransactionId | None = None
        self._thread: int | None = None
        self._is_open = self._is_xa = self._has_rows = False
        self.is_idle = False
        """Whether the last event was the server's word that there is nothing new."""

    @property
    def place(self) -> Place:
        """Where to go on behind all that is whole: between two transactions."""
        self._fold()
        return self._boundary

    @property
    def is_between(self) -> bool:
        """Whether no transaction is in the middle."""
        return not self._is_open and self._gtid is None

    @property
    def has_rows(self) -> bool:
        """Whether ``close`` would have pages."""
        return bool(self._runs)

    def take(self, event: Event) -> Segment | None:  # noqa: C901 - one line a type of event
        """One event, and what it has closed. Raises ``MalformedError``, ``NotDescribed``."""
        kind = event.kind
        self.is_idle = False
        closed = None
        if kind in ROWS:
            closed = self._rows(event)
        elif kind == TABLE_MAP:
            self._table(event)
        elif kind in (MARIADB_GTID, GTID, ANONYMOUS_GTID):
            self._begin(event)
        elif kind in (XID, XA_PREPARE):
            self._end(event)
        elif kind == QUERY:
            self._query(event)
        elif kind == ROTATE:
            return self._rotate(event)
        elif kind in (HEARTBEAT, HEARTBEAT_V2):
            self.is_idle = True
            return None
        elif kind in REFUSED:
            raise NotDescribed(REFUSED[kind])
        position = event.end_position
        if position and not event.flags & ARTIFICIAL:
            if position < self._position:
                raise NotDescribed(
                    f"{self._boundary.file} is larger than 4 GiB, behind which the log tells no positions. After the "
                    "transaction at its end, set the offset to the next file with position 4"
                )
            self._position = position
        if self._bytes >= self._bytes_max or (self._start.until and self._position >= self._start.until):
            return closed or self.close()
        return closed

    def close(self) -> Segment:
        """What was read since the last segment."""
        self._fold()
        end = self._boundary
        if not self.is_between:
            end = replace(end, delivered=max(self._position, self._start.delivered))
        made = Segment(self._start, end, self._position, list(self._runs.values()), self.is_between)
        self._runs, self._bytes, self._start = {}, 0, end
        return made

    def _fold(self) -> None:
        """Let the boundary know of all transactions that have ended: not with each of them, which would cost much."""
        if self._ended is not None:
            position, seconds = self._ended
            gtids = self._boundary.gtids.with_these(self._done) if self._done else self._boundary.gtids
            self._boundary = replace(
                self._boundary, position=position, gtids=gtids, delivered=0, until=0, tables=(), seconds=seconds
            )
            self._ended, self._done = None, []

    def _table(self, event: Event) -> None:
        body = event.data[event.start + 6 : event.end]
        table = self._known.get(body)
        if table is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
                self._tables.clear()
            table = self._known[body] = read_table_map(event, is_mariadb=self._is_mariadb)
        self._tables[event.data[event.start : event.start + 6]] = table

    def _rows(self, event: Event) -> Segment | None:
        number = event.data[event.start : event.start + 6]
        table = self._tables.get(number)
        if table is None:
            if number == _NO_TABLE:
                return None
            raise MalformedError("the log has rows of a table that it has not described")
        name = table.name
        wanted = self._wanted.get(name)
        if wanted is None:
            wanted = self._wanted[name] = self._takes(name)
        if not wanted or self._is_delivered(event, name):
            return None
        if self._is_xa:
            raise NotDescribed(
                f"{name} was changed in an XA transaction, which is logged before it is known whether it commits, and "
                "cannot be followed yet: leave the table out, or set the offset behind it"
            )
        run, closed = self._runs.get(name), None
        if run is not None and run.table is not table and run.table != table:
            closed, run = self.close(), None
        if run is None:
            self._fold()
            if not self._runs and self._boundary.position >= max(self._start.delivered, self._start.until):
                self._start = self._boundary
            run = self._runs[name] = Run(table, RowBuffer(table))
        rows, gtid = run.rows, self._gtid
        before = rows.bytes
        images = rows.add(event)
        text = gtid.text if gtid is not None else None
        run.marks.append(
            tuple.__new__(  # what Mark(…) does, in half the time
                Mark,
                (
                    ROWS[event.kind],
                    images,
                    event.timestamp,
                    event.begin_position,
                    event.server_id,
                    text,
                    self._thread,
                ),
            )
        )
        self._bytes += rows.bytes - before + 100  # what a mark costs
        self._has_rows = True
        return closed

    def _is_delivered(self, event: Event, name: str) -> bool:
        start = self._start
        if event.end_position <= start.delivered:
            return True
        return event.end_position <= start.until and name in start.tables

    def _begin(self, event: Event) -> None:
        self._gtid = read_gtid(event)
        if self._gtid is not None:
            self._is_open = self._is_mariadb and not self._gtid.is_standalone
            self._is_xa = self._gtid.is_prepared

    def _end(self, event: Event) -> None:
        """Behind this event nothing of its transaction comes."""
        if self._gtid is not None:
            self._done.append((self._gtid.source, self._gtid.number))
        self._is_open = self._is_xa = self._has_rows = False
        self._gtid = self._thread = None
        self._ended = event.end_position, event.timestamp

    def _query(self, event: Event) -> None:
        query = read_query(event)
        at = _COMMENTS.match(query.text)
        words = query.text[at.end() if at else 0 :].lstrip("(").upper().split(None, 2)[:2] or [""]
        word, second = words[0].rstrip(";"), words[1] if len(words) > 1 else ""
        if word == "BEGIN":
            self._is_open, self._thread = True, query.thread
        elif word == "XA" and second == "START":
            self._is_open = self._is_xa = True
        elif word == "ROLLBACK" and self._has_rows:
            raise NotDescribed(
                "a transaction has changed tables of engines that cannot take it back, and was then rolled back: the "
                "log does not say what remains of it. Set the offset behind it, and read its tables anew"
            )
        elif word == "COMMIT" or (word == "ROLLBACK" and second != "TO") or (word == "XA" and second != "END"):
            self._end(event)
        elif word in _CHANGING:
            raise NotDescribed(
                f"a change is logged as its statement ({word}), not as rows. Run: SET GLOBAL binlog_format = ROW, and "
                "end sessions that have set it otherwise; then set the offset behind it, and read its table anew"
            )
        elif not self._is_open:
            self._end(event)

    def _rotate(self, event: Event) -> Segment | None:
        rotation = read_rotation(event)
        if rotation.file == self._boundary.file:
            return None
        if self._is_open and self._has_rows:
            raise NotDescribed(
                f"{self._boundary.file} ends in the middle of a transaction, as after a crash of the server: see "
                f'whether it was committed, and set the offset to {{"file": "{rotation.file}", "pos": 4}}'
            )
        closed = self.close() if self._runs else None
        self._fold()
        self._is_open, self._gtid, self._position = False, None, rotation.position
        self._boundary = self._start = self._boundary.at(rotation.file, rotation.position, self._boundary.gtids)
        return closed
