"""From events to segments: a stretch of the log with the rows of each table in it, which becomes one page a table.

A segment ends between two transactions where it can. It ends earlier where it has grown too large, where a table's
columns have changed, or where a stored place says that the last run ended one there; such a segment's pages do not end
the transaction. So that any page's place can be gone on from, a place names what behind the beginning of a transaction
is delivered: all events up to one position, and some tables up to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np

from fetchers.mysql_cdc.compressed import COMPRESSED, uncompressed
from fetchers.mysql_cdc.descriptions import Descriptions
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
    TRANSACTION_PAYLOAD,
    XA_PREPARE,
    XID,
    Event,
    MalformedError,
    Query,
    TransactionId,
    read_commit_us,
    read_gtid,
    read_query,
    read_rotation,
)
from fetchers.mysql_cdc.payload import JOINED, events_of
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.rows import RowBuffer
from fetchers.mysql_cdc.segment import Mark, Run, Segment
from fetchers.mysql_cdc.statements import Effect, effect_of, emptied_table
from fetchers.mysql_cdc.table_map import NotDescribed, TableMap
from fetchers.mysql_cdc.transactions import EVENTS, Transactions
from fetchers.mysql_cdc.underway import Underway
from fetchers.mysql_cdc.values import MICROS

_NO_TABLE = b"\xff\xff\xff\0\0\0"
"""The table of an event that only ends a statement."""


class Segments:
    """Takes events in their order, and gives segments."""

    def __init__(
        self,
        place: Place,
        takes: Callable[[str], bool],
        *,
        is_mariadb: bool,
        bytes_max: int,
        tells_emptied: bool = False,
        has_small_names: bool = False,
    ) -> None:
        """``takes``: whether a table, ``database.table``, is wanted; ``tells_emptied``: whether TRUNCATE is.

        ``has_small_names``: the server knows tables by small letters, whatever a statement has
        (``lower_case_table_names=1``).
        """
        self._tells_emptied = tells_emptied
        self._has_small_names = has_small_names
        self._is_mariadb = is_mariadb
        self._bytes_max = bytes_max
        self._takes = takes
        self._wanted: dict[str, bool] = {}
        self._described = Descriptions(is_mariadb=is_mariadb)
        self._boundary = place
        """Where the transaction begins that is read now, or the next one."""
        self._start = place
        self._runs: dict[str, Run] = {}
        self._bytes = 0
        # A log that is asked for by GTIDs is sent from its file's beginning.
        self._position = 4 if place.asks_by_gtids(is_mariadb=is_mariadb) else place.position
        is_inside = place.events or place.rows
        self._underway = Underway(place, is_mariadb=is_mariadb) if is_inside else None
        self._ended: tuple[int, int] | None = None
        """Where the last transaction ended and when, which the boundary does not know yet."""
        self._done: list[tuple[str, int]] = []
        self._gtid: TransactionId | None = None
        self._thread: int | None = None
        self._committed_us = 0
        self._is_open = self._is_xa = self._has_rows = False
        self.is_idle = False
        """Whether the last event was the server's word that there is nothing new."""

    @property
    def place(self) -> Place:
        """Where to go on behind all that is whole: between two transactions."""
        self._fold()
        return self._boundary

    @property
    def reached(self) -> tuple[int, int]:
        """Up to where the log was read, whatever it has there: comparable with ``Place.order``."""
        return self._boundary.order[0], self._position

    @property
    def is_between(self) -> bool:
        """Whether no transaction is in the middle, nor the segment in whose middle the last run ended."""
        return not self._is_open and self._gtid is None and self._position >= self._start.until

    @property
    def has_rows(self) -> bool:
        """Whether ``close`` would have pages."""
        return bool(self._runs)

    def each(self, found: Sequence[Event | Transactions]) -> Iterator[Event | Transactions]:
        """What is to be given to ``take``, one by one: transactions that cannot be taken together as their events."""
        for one in found:
            if isinstance(one, Transactions) and not self._takes_together(one):
                yield from one
            elif isinstance(one, Event) and one.kind == TRANSACTION_PAYLOAD:
                yield from events_of(one)
            else:
                yield one

    def take(self, event: Event | Transactions) -> Segment | None:  # noqa: C901, PLR0911, PLR0912 - one line a type of event
        """One event, and what it has closed. Raises ``MalformedError``, ``NotDescribed``."""
        if isinstance(event, Transactions):
            return self._together(event)
        kind = event.kind
        self.is_idle = False
        closed = None
        if self._underway is not None and kind not in COMPRESSED:
            self._underway.take(event)
        if kind in ROWS:
            closed = self._rows(event)
        elif kind == TABLE_MAP:
            self._described.take(event)
        elif kind in (MARIADB_GTID, GTID, ANONYMOUS_GTID):
            self._begin(event)
        elif kind in (XID, XA_PREPARE):
            self._end(event)
        elif kind == QUERY:
            closed = self._query(event)
        elif kind == ROTATE:
            return self._rotate(event)
        elif kind in (HEARTBEAT, HEARTBEAT_V2):
            self.is_idle = True
            return None
        elif kind in COMPRESSED:
            return self.take(uncompressed(event))
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
            if event.flags & JOINED:
                return closed
        until = self._start.until
        # While some tables are delivered further than others, one place could not say how far each of them is.
        if self._position >= until if until else self._bytes >= self._bytes_max:
            return closed or self.close()
        return closed

    def close(self) -> Segment:
        """What was read since the last segment."""
        self._fold()
        end = self._boundary
        if not self.is_between:
            end = replace(
                self._with_delivered(end, self._position), delivered=max(self._position, self._start.delivered)
            )
        if end.until and self._position >= end.until:
            end = replace(end, until=0, tables=())
        made = Segment(self._start, end, self._position, list(self._runs.values()), self.is_between)
        self._runs, self._bytes, self._start = {}, 0, end
        return made

    def _fold(self) -> None:
        """Let the boundary know of all transactions that have ended: not with each of them, which would cost much."""
        if self._ended is not None:
            position, seconds = self._ended
            gtids = self._boundary.gtids.with_these(self._done) if self._done else self._boundary.gtids
            moved = replace(self._boundary, position=position, gtids=gtids, seconds=seconds)
            self._boundary = self._with_delivered(moved, position)
            self._ended, self._done = None, []

    def _with_delivered(self, place: Place, position: int) -> Place:
        """The place, with what the stored one says of events behind the position."""
        start = self._start
        is_ahead = start.until > position
        return replace(
            place,
            delivered=start.delivered if start.delivered > position else 0,
            until=start.until if is_ahead else 0,
            tables=start.tables if is_ahead else (),
            events=0,
            rows=0,
        )

    def _rows(self, event: Event) -> Segment | None:
        number = event.data[event.start : event.start + 6]
        table = self._described.by_number.get(number)
        if table is None:
            if number == _NO_TABLE:
                return None
            raise MalformedError("the log has rows of a table that it has not described")
        name = table.name
        if not self._is_wanted(name) or self._is_delivered(event, name):
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
            run = self._begun(table)
        rows, gtid = run.rows, self._gtid
        before = rows.bytes
        images = rows.add(event)
        if self._underway is not None:
            run.delivered += self._underway.rows_of(images // (2 if ROWS[event.kind] == "u" else 1))
        text = gtid.text if gtid is not None else None
        run.marks.append(
            tuple.__new__(  # what Mark(…) does, in half the time
                Mark,
                (
                    ROWS[event.kind],
                    images,
                    self._committed_us or event.timestamp * MICROS,
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

    def _is_wanted(self, name: str) -> bool:
        wanted = self._wanted.get(name)
        if wanted is None:
            wanted = self._wanted[name] = self._takes(name)
        return wanted

    def _begun(self, table: TableMap) -> Run:
        """The first rows of a table in this segment."""
        self._fold()
        if not self._runs and self._boundary.position >= max(self._start.delivered, self._start.until):
            self._start = self._boundary
        run = self._runs[table.name] = Run(table, RowBuffer(table))
        return run

    def _takes_together(self, found: Transactions) -> bool:
        """Whether all of it is new, and every table in it as it is in what was read since the last segment."""
        self._fold()
        start, positions = self._start, found.positions
        is_new = self._underway is None and not start.until and start.delivered <= self._boundary.position
        is_in_order = int(positions[0]) >= self._position and bool((np.diff(positions) >= 0).all())
        if not (self.is_between and is_new and is_in_order):
            return False
        tables: dict[str, TableMap] = {}
        for at in found.by_table.values():
            event = found.event(int(at[0]) * EVENTS + 1)
            table = self._described.take(event)
            run = self._runs.get(table.name)
            if tables.setdefault(table.name, table) != table or (run is not None and run.table != table):
                return False
        return True

    def _together(self, found: Transactions) -> Segment | None:
        """What ``take`` does with each of the events."""
        self.is_idle = False
        texts = [f"{source}-{number}" for source, number in found.gtids]
        heads = found.heads[2::EVENTS]
        begins = (heads["position"].astype(np.int64) - heads["length"]).tolist()
        operations = [ROWS[kind] for kind in heads["kind"].tolist()]
        committed = (heads["timestamp"].astype(np.int64) * MICROS).tolist()
        columns: list[list[Any]] = [operations, committed, begins, heads["server_id"].tolist(), texts]
        for at in found.by_table.values():
            table = self._described.take(found.event(int(at[0]) * EVENTS + 1))
            if not self._is_wanted(table.name):
                continue
            run = self._runs.get(table.name) or self._begun(table)
            before = run.rows.bytes
            images = run.rows.add_together(found, at)
            own = columns if len(at) == len(found) else [[column[each] for each in at.tolist()] for column in columns]
            run.marks += map(Mark._make, zip(own[0], images, *own[1:], repeat(None)))
            self._bytes += run.rows.bytes - before + 100 * len(at)
        self._done += dict(found.gtids).items()
        last = found.event(len(found.heads) - 1)
        self._position = last.end_position
        self._ended = last.end_position, last.timestamp
        return self.close() if self._bytes >= self._bytes_max else None

    def _is_delivered(self, event: Event, name: str) -> bool:
        start = self._start
        if event.end_position <= start.delivered or (self._underway is not None and self._underway.is_delivered):
            return True
        return event.end_position <= start.until and name in start.tables

    def _begin(self, event: Event) -> None:
        self._gtid, self._committed_us = read_gtid(event), read_commit_us(event)
        if self._gtid is not None:
            self._is_open = self._is_mariadb and not self._gtid.is_standalone
            self._is_xa = self._gtid.is_prepared
        if self._underway is not None and event.end_position == self._boundary.position:
            self._boundary = self._start = replace(self._boundary, position=event.begin_position)

    def _end(self, event: Event) -> None:
        """Behind this event nothing of its transaction comes."""
        if self._underway is not None:
            self._underway.end()
            self._underway = None
        if self._gtid is not None:
            self._done.append((self._gtid.source, self._gtid.number))
        self._is_open = self._is_xa = self._has_rows = False
        self._gtid = self._thread = None
        self._ended = event.end_position, event.timestamp

    def _query(self, event: Event) -> Segment | None:
        query = read_query(event)
        effect = effect_of(query.text, has_rows=self._has_rows)
        if effect is Effect.BEGINS:
            self._is_open, self._thread = True, query.thread
        elif effect is Effect.BEGINS_XA:
            self._is_open = self._is_xa = True
        elif effect is Effect.ENDS:
            self._end(event)
        elif not self._is_open:
            closed = self._emptied(query, event)
            self._described.forget(query.text)
            self._end(event)
            return closed
        return None

    def _emptied(self, query: Query, event: Event) -> Segment | None:
        """A TRUNCATE is a run of its table without columns, which the log does not describe here."""
        names = emptied_table(query.text, query.database) if self._tells_emptied else None
        if names is None:
            return None
        if "\ufffd" in "".join(names):
            raise NotDescribed("a TRUNCATE was logged in a character set that is not read: its table is not known")
        database, table = (name.lower() for name in names) if self._has_small_names else names
        emptied = TableMap(database, table, ())
        if not self._takes(emptied.name) or self._is_delivered(event, emptied.name):
            return None
        run, closed = self._runs.get(emptied.name), None
        described = self._described.last.get(emptied.name)
        if run is not None and (run.table, run.described) != (emptied, described):
            run, closed = None, self.close()
        if run is None:
            run = self._begun(emptied)
            run.described = described
        gtid = self._gtid.text if self._gtid is not None else None
        committed_us = self._committed_us or event.timestamp * MICROS
        mark = Mark("t", 1, committed_us, event.begin_position, event.server_id, gtid, query.thread)
        run.marks.append(mark)
        self._bytes += 100
        return closed

    def _rotate(self, event: Event) -> Segment | None:
        rotation = read_rotation(event)
        if rotation.file == self._boundary.file:
            return None
        if self._is_open and self._has_rows:
            raise NotDescribed(
                f"{self._boundary.file} ends in the middle of a transaction, as after a crash of the server: see "
                f'whether it was committed, and set the offset to {{"file": "{rotation.file}", "pos": 4}}'
            )
        if self._underway is not None:
            raise self._underway.elsewhere(rotation.file)
        closed = self.close() if self._runs else None
        self._fold()
        self._is_open, self._gtid, self._position = False, None, rotation.position
        self._boundary = self._start = self._boundary.at(rotation.file, rotation.position, self._boundary.gtids)
        return closed
