"""A stretch of the log with the rows of each table in it: what ``Segments`` makes of events, and pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from fetchers.mysql_cdc.events import ROWS, Event
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.prepared import Committed
from fetchers.mysql_cdc.rows import Numbers, RowBuffer
from fetchers.mysql_cdc.table_map import TableMap
from fetchers.mysql_cdc.transactions import EVENTS, Transactions
from fetchers.mysql_cdc.values import MICROS


class Mark(NamedTuple):
    """Of one event with rows: what its rows have in common."""

    operation: str
    images: int
    committed_us: int
    """Microseconds since the epoch: to a second, but for MySQL."""
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
    delivered: int = 0
    """So many of its first changes are delivered already."""
    described: TableMap | None = None
    """Of a TRUNCATE: the table as the log described it last; None: it has not, or has altered it since."""

    def add(self, event: Event, committed_us: int, gtid: str | None, thread: int | None) -> tuple[int, int]:
        """Rows of one event: how many images these are, and how many bytes they take."""
        before, images = self.rows.bytes, self.rows.add(event)
        mark = (ROWS[event.kind], images, committed_us, event.begin_position, event.server_id, gtid, thread)
        self.marks.append(tuple.__new__(Mark, mark))  # what Mark(…) does, in half the time
        return images, self.rows.bytes - before + 100  # what a mark costs

    def add_together(self, found: Transactions, at: Numbers, columns: Sequence[Sequence[Any]]) -> int:
        """Rows of many transactions, by their numbers: how many bytes they take; ``columns``: `mark_columns` of all."""
        before, images = self.rows.bytes, self.rows.add_together(found, at)
        own = columns if len(at) == len(found) else [[column[each] for each in at.tolist()] for column in columns]
        self.marks += map(Mark._make, zip(own[0], images, *own[1:], repeat(None)))
        return self.rows.bytes - before + 100 * len(at)

    def add_all(self, other: Run) -> None:
        """Rows of the same table that come behind these."""
        assert self.table == other.table, self.table.name  # noqa: S101 - they were in one run when they were read first
        self.rows.add_all(other.rows)
        self.marks += other.marks


def fit(runs: Mapping[str, Run], rows: Iterable[tuple[Event, TableMap]]) -> bool:
    """Whether events with rows, each with its table, can be added to runs by table: no table was altered between."""
    own = dict[str, TableMap]()
    for _, table in rows:
        run = runs.get(table.name)
        if (own.setdefault(table.name, table) if run is None else run.table).is_apart(table):
            return False
    return True


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
    committed: Committed | None = None
    """The prepared transaction that this is part of; the places are those within it."""

    def place_after(self, count: int) -> Place:
        """Where to go on when the first ``count`` of the runs are delivered."""
        is_all = count >= len(self.runs)
        place = self.end
        if not is_all:
            done = tuple(run.table.name for run in self.runs[:count])
            tables = (*self.start.tables, *done)
            place = replace(self.start, until=self.position, tables=tables, seconds=self.end.seconds)
        if self.committed is None:
            return place
        return self.committed.place(place, is_last=is_all and self.ends_transaction)


def mark_columns(found: Transactions) -> list[list[Any]]:
    """What their marks have, but for the counts of images: operations, times, positions, servers, GTIDs."""
    heads = found.heads[2::EVENTS]
    begins = (heads["position"].astype(np.int64) - heads["length"]).tolist()
    operations = [ROWS[kind] for kind in heads["kind"].tolist()]
    committed = (heads["timestamp"].astype(np.int64) * MICROS).tolist()
    texts = [f"{source}-{number}" for source, number in found.gtids]
    return [operations, committed, begins, heads["server_id"].tolist(), texts]
