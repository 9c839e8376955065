"""From events to segments: a stretch of the log with the rows of each table in it, which becomes one page a table.

A segment ends between two transactions where it can. It ends earlier where it has grown too large, where a table's
columns have changed, or where a stored place says that the last run ended one there; such a segment's pages do not end
the transaction. So that any page's place can be gone on from, a place names what behind the beginning of a transaction
is delivered: all events up to one position, and some tables up to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from fetchers.mysql_cdc.compressed import COMPRESSED, uncompressed
from fetchers.mysql_cdc.descriptions import KNOWN_MAX, Descriptions, emptied_by
from fetchers.mysql_cdc.events import (
    ANONYMOUS_GTID,
    ARTIFICIAL,
    GTID,
    HEARTBEAT,
    HEARTBEAT_V2,
    MARIADB_GTID,
    QUERY,
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
    refusal,
)
from fetchers.mysql_cdc.payload import JOINED, events_of
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.prepared import Committed, Held, PreparedTransactions, read_xa, unlisted, xid_in
from fetchers.mysql_cdc.rows import RowBuffer
from fetchers.mysql_cdc.segment import Mark, Run, Segment, fit, mark_columns
from fetchers.mysql_cdc.standing import Standing
from fetchers.mysql_cdc.statements import Effect, effect_of
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
        replayed_us: int = 0,
    ) -> None:
        """``takes``: whether a table, ``database.table``, is wanted; ``tells_emptied``: whether TRUNCATE is.

        ``has_small_names``: the server knows tables by small letters, whatever a statement has
        (``lower_case_table_names=1``). ``replayed_us``: the place is that of a prepared transaction that was committed
        then, which is read as an ordinary one.
        """
        self._replayed_us = replayed_us
        self._prepared = PreparedTransactions(place.prepared, bytes_max=bytes_max)
        self._opening: Event | None = None  # the GTID of the transaction that is read now
        self.committed: Committed | None = None
        """A prepared transaction that the last event has committed, and that is to be delivered before the next one."""
        self._tells_emptied, self._has_small_names = tells_emptied, has_small_names
        self._is_mariadb, self._bytes_max = is_mariadb, bytes_max
        self._takes = lru_cache(KNOWN_MAX)(takes)  # names come with each event, and go with tables that are dropped
        self._described = Descriptions(is_mariadb=is_mariadb)
        self._runs: dict[str, Run] = {}
        self._bytes = 0
        # A log that is asked for by GTIDs is sent from its file's beginning.
        position = 4 if place.asks_by_gtids(is_mariadb=is_mariadb) else place.position
        self._at = Standing(place, position, self._prepared.places)
        self._underway = Underway(place, is_mariadb=is_mariadb) if place.events or place.rows else None
        self._gtid: TransactionId | None = None
        self._thread: int | None = None
        self._committed_us = 0
        self._is_open = self._is_xa = self._has_rows = False
        self.is_idle = False
        """Whether the last event was the server's word that there is nothing new."""

    @property
    def place(self) -> Place:
        """Where to go on behind all that is whole: between two transactions."""
        self._at.fold()
        return self._at.boundary

    @property
    def reached(self) -> tuple[int, int]:
        """Up to where the log was read, whatever it has there: comparable with ``Place.order``."""
        return self._at.boundary.order[0], self._at.position

    @property
    def is_between(self) -> bool:
        """Whether no transaction is in the middle, nor the segment in whose middle the last run ended."""
        return not self._is_open and self._gtid is None and self._at.position >= self._at.start.until

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
        self.is_idle, self.committed, closed = False, None, None
        if isinstance(event, Transactions):
            return self._together(event)
        kind = event.kind
        if self._underway is not None and kind not in COMPRESSED:
            self._underway.take(event)
        if kind in ROWS:
            closed = self._rows(event)
        elif kind == TABLE_MAP:
            self._described.take(event)
            if self._is_xa:
                self._prepared.add(event)
        elif kind in (MARIADB_GTID, GTID, ANONYMOUS_GTID):
            self._begin(event)
        elif kind == XID:
            self._end(event)
        elif kind == XA_PREPARE:
            closed = self._end_xa(event)
        elif kind == QUERY:
            closed = self._query(event)
        elif kind == ROTATE:
            return self._rotate(event)
        elif kind in (HEARTBEAT, HEARTBEAT_V2):
            self.is_idle = True
            return None
        elif kind in COMPRESSED:
            return self.take(uncompressed(event))
        elif (told := refusal(event)) is not None:
            raise NotDescribed(told)
        position = event.end_position
        if position and not event.flags & ARTIFICIAL:
            if position < self._at.position:
                raise NotDescribed(
                    f"{self._at.boundary.file} is larger than 4 GiB, behind which the log tells no positions. Set the "
                    "offset to the next file with position 4 after the transaction at its end"
                )
            self._at.position = position
            if event.flags & JOINED or self.committed is not None:
                return closed
        until = self._at.start.until
        # While some tables are delivered further than others, one place could not say how far each of them is.
        if self._at.position >= until if until else self._bytes >= self._bytes_max:
            return closed or self.close()
        return closed

    def close(self) -> Segment:
        """What was read since the last segment."""
        return self._closed(is_between=self.is_between)

    def _closed(self, *, is_between: bool) -> Segment:
        runs, self._runs, self._bytes = list(self._runs.values()), {}, 0
        return Segment(*self._at.close(is_between=is_between), self._at.position, runs, is_between)

    def _rows(self, event: Event) -> Segment | None:
        number = event.data[event.start : event.start + 6]
        table = self._described.by_number.get(number)
        if table is None:
            if number == _NO_TABLE:
                return None
            raise MalformedError("the log has rows of a table that it has not described")
        name = table.name
        if not self._takes(name):
            return None
        if self._is_xa:
            self._has_rows = True
            self._prepared.add(event, table)
            return None
        if self._is_delivered(event, name):
            return None
        run, closed = self._runs.get(name), None
        if run is not None and run.table.is_apart(table):
            closed, run = self.close(), None
        if run is None:
            run = self._begun(table)
        gtid = None if self._gtid is None else self._gtid.text
        images, size = run.add(event, self._committed_us or event.timestamp * MICROS, gtid, self._thread)
        self._bytes += size
        if self._underway is not None:
            run.delivered += self._underway.rows_of(images // (2 if ROWS[event.kind] == "u" else 1))
        self._has_rows = True
        return closed

    def _begun(self, table: TableMap) -> Run:
        """The first rows of a table in this segment."""
        if not self._runs:
            self._at.begin()
        run = self._runs[table.name] = Run(table, RowBuffer(table))
        return run

    def _takes_together(self, found: Transactions) -> bool:
        """Whether all of it is new, and every table in it as it is in what was read since the last segment."""
        self._at.fold()
        start, positions = self._at.start, found.positions
        is_new = self._underway is None and not start.until and start.delivered <= self._at.boundary.position
        is_in_order = int(positions[0]) >= self._at.position and bool((np.diff(positions) >= 0).all())
        if not (self.is_between and is_new and is_in_order):
            return False
        tables = [self._described.take(found.event(int(at[0]) * EVENTS + 1)) for at in found.by_table.values()]
        # Opened again a table has another number: rows would come by the numbers, and not in the order of the log.
        is_told_once = len({table.name for table in tables}) == len(tables)
        return is_told_once and not any(
            self._runs[one.name].table.is_apart(one) for one in tables if one.name in self._runs
        )

    def _together(self, found: Transactions) -> Segment | None:
        """What ``take`` does with each of the events."""
        columns = mark_columns(found)
        for at in found.by_table.values():
            table = self._described.take(found.event(int(at[0]) * EVENTS + 1))
            if not self._takes(table.name):
                continue
            run = self._runs.get(table.name) or self._begun(table)
            self._bytes += run.add_together(found, at, columns)
        last = found.event(len(found.heads) - 1)
        self._at.position = last.end_position
        by_domain = {gtid[0].partition("-")[0]: gtid for gtid in found.gtids}.values()
        self._at.end(last.end_position, last.timestamp, by_domain)
        return self.close() if self._bytes >= self._bytes_max else None

    def _is_delivered(self, event: Event, name: str) -> bool:
        is_counted = self._underway is not None and self._underway.is_delivered
        return is_counted or self._at.is_delivered(event.end_position, name)

    def _begin(self, event: Event) -> None:
        self._gtid, self._committed_us = read_gtid(event), self._replayed_us or read_commit_us(event)
        self._opening = event
        if self._gtid is not None:
            self._is_open = self._is_mariadb and not self._gtid.is_standalone
            if self._gtid.is_prepared:
                self._begin_xa()
        if self._underway is not None and event.end_position == self._at.boundary.position:
            self._at.boundary = self._at.start = replace(self._at.boundary, position=event.begin_position)

    def _end(self, event: Event) -> None:
        """Behind this event nothing of its transaction comes."""
        if self._underway is not None:
            self._underway.end()
            self._underway = None
        gtids = [] if self._gtid is None else [(self._gtid.source, self._gtid.number)]
        self._at.end(event.end_position, event.timestamp, gtids)
        self._is_open = self._is_xa = self._has_rows = False
        self._gtid = self._thread = None

    def _begin_xa(self, *events: Event) -> None:
        """Rows are kept aside from here on; ``events``: behind the GTID."""
        if self._underway is not None:
            raise self._underway.elsewhere("the same XA transaction, of which Debezium has delivered rows")
        self._is_open, self._is_xa = True, not self._replayed_us
        if self._is_xa:
            self._prepared.begin(*([] if self._opening is None else [self._opening]), *events)

    def _end_xa(self, event: Event) -> Segment | None:
        if self._replayed_us:
            self._end(event)
            return None
        xid, is_one_phase = read_xa(event)
        self._prepared.add(event)
        gtid = None if self._gtid is None else self._gtid.text
        self._prepared.end(xid, self._at.boundary.file, self._at.edge, gtid=gtid, thread=self._thread)
        if is_one_phase:
            return self._commit_xa(xid, event)
        self._end(event)
        return None

    def _commit_xa(self, xid: str, event: Event) -> Segment | None:
        """Its rows come behind what was read before; else that comes by itself, and ``committed`` behind it."""
        committed_us = self._committed_us or event.timestamp * MICROS
        at, held = self._prepared.known(xid)
        is_here = at is not None and at.file == self._at.boundary.file and not at.is_inside
        if is_here and held is not None and fit(self._runs, held.rows):
            self._join(held, event, committed_us)
            self._prepared.pop(xid)  # not before: where its rows begin a segment, that begins with it prepared
            self._end(event)
            return None
        before, closed, is_among = self.place, None, event.end_position <= self._at.start.until
        if self._runs and not is_among:
            position, self._at.position = self._at.position, before.position
            closed = self._closed(is_between=before.position >= before.until)
            self._at.position = position
        self._prepared.pop(xid)
        self._end(event)
        after = self.place
        if at is not None:
            events = held.events if held is not None else None
            self.committed = Committed(xid, at, events, before, after, committed_us, is_among)
        elif before.is_unlisted:
            raise NotDescribed(unlisted(xid, after))
        return closed

    def _join(self, held: Held, event: Event, committed_us: int) -> None:
        """What ``_rows`` does for an ordinary transaction, of one that is committed by ``event``."""
        for one, table in held.rows:
            if not self._at.is_delivered(event.end_position, table.name):
                run = self._runs.get(table.name) or self._begun(table)
                self._bytes += run.add(one, committed_us, held.gtid, held.thread)[1]

    def replaying(self, committed: Committed) -> Segments:
        """Of one such transaction alone."""
        kind, size, us = self._is_mariadb, self._bytes_max, committed.committed_us
        made = Segments(committed.at, self._takes, is_mariadb=kind, bytes_max=size, replayed_us=us)
        if committed.is_among:
            made._described = self._described  # so that no table of it is apart from those around the commit
        return made

    def join(self, part: Segment) -> None:
        """Rows of ``committed``, which are among those that are collected now."""
        for run in part.runs:
            name = run.table.name  # the segment has begun before the commit, whether or not it has other rows
            if name not in self._at.start.tables and (mine := self._runs.setdefault(name, run)) is not run:
                mine.add_all(run)

    def _query(self, event: Event) -> Segment | None:
        query = read_query(event)
        effect = effect_of(query.text, has_rows=self._has_rows, is_open=self._is_open)
        if effect is Effect.BEGINS:
            self._is_open, self._thread = True, query.thread
        elif effect is Effect.BEGINS_XA:
            self._thread = query.thread
            self._begin_xa(event)
        elif effect is Effect.COMMITS_XA:
            return self._commit_xa(xid_in(query.text), event)
        elif effect is Effect.ROLLS_BACK_XA:
            self._prepared.pop(xid_in(query.text))
            self._end(event)
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
        emptied = emptied_by(query, has_small_names=self._has_small_names) if self._tells_emptied else None
        if emptied is None or not self._takes(emptied.name) or self._is_delivered(event, emptied.name):
            return None
        run, closed, described = self._runs.get(emptied.name), None, self._described.last.get(emptied.name)
        if run is not None and (run.table, run.described) != (emptied, described):
            run, closed = None, self.close()
        if run is None:
            run = self._begun(emptied)
            run.described = described
        gtid = None if self._gtid is None else self._gtid.text
        committed_us = self._committed_us or event.timestamp * MICROS
        run.marks.append(Mark("t", 1, committed_us, event.begin_position, event.server_id, gtid, query.thread))
        self._bytes += 100
        return closed

    def _rotate(self, event: Event) -> Segment | None:
        rotation = read_rotation(event)
        if rotation.file == self._at.boundary.file:
            return None
        if self._is_open and self._has_rows:
            raise NotDescribed(
                f"{self._at.boundary.file} ends in the middle of a transaction, as after a crash of the server: see "
                f'whether it was committed, and set the offset to {{"file": "{rotation.file}", "pos": 4}}'
            )
        if self._underway is not None:
            raise self._underway.elsewhere(rotation.file)
        closed = self.close() if self._runs else None
        self._prepared.drop()
        self._is_open = self._is_xa = False
        self._gtid = None
        self._at.turn(rotation.file, rotation.position)
        return closed
