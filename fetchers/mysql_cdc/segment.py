"""A stretch of the log with the rows of each table in it: what ``Segments`` makes of events, and pages are made of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.rows import RowBuffer
from fetchers.mysql_cdc.table_map import TableMap


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
