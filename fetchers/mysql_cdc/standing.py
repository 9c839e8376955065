"""How far the log is read: where the transaction begins that is read now, and what behind that is delivered already."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from fetchers.mysql_cdc.places import Place


class Standing:
    """Moved on by ``Segments`` with each event and each transaction."""

    def __init__(
        self, place: Place, position: int, prepared: Callable[[], tuple[tuple[str, Place], ...]] = tuple
    ) -> None:
        """``position``: from which on events are sent; ``prepared``: see ``PreparedTransactions.places``."""
        self._prepared = prepared
        self.start = place
        """Where the rows begin that are collected now."""
        self.boundary = place
        """Where the transaction begins that is read now, or the next one; see ``fold``."""
        self.position = position
        """Up to where the file was read, whatever it has there."""
        self._ended: tuple[int, int] | None = None
        """Where the last transaction ended and when, which the boundary does not know yet."""
        self._done: list[tuple[str, int]] = []

    def fold(self) -> None:
        """Let the boundary know of all transactions that have ended: not with each of them, which would cost much."""
        if self._ended is not None:
            position, seconds = self._ended
            gtids = self.boundary.gtids.with_these(self._done) if self._done else self.boundary.gtids
            at, prepared = self.boundary, self._prepared()
            moved = replace(at, position=position, gtids=gtids, seconds=seconds, prepared=prepared)
            self.boundary = self.with_delivered(moved, position)
            self._ended, self._done = None, []

    @property
    def edge(self) -> int:
        """The boundary's position, also where that does not know of it yet."""
        return self.boundary.position if self._ended is None else self._ended[0]

    def end(self, position: int, seconds: int, gtids: Iterable[tuple[str, int]]) -> None:
        """Transactions with these GTIDs have ended, the last one at the position."""
        self._done += gtids
        self._ended = position, seconds

    def with_delivered(self, place: Place, position: int) -> Place:
        """The place, with what the stored one says of events behind the position."""
        start = self.start
        is_ahead = start.until > position
        return replace(
            place,
            delivered=start.delivered if start.delivered > position else 0,
            until=start.until if is_ahead else 0,
            tables=start.tables if is_ahead else (),
            events=0,
            rows=0,
        )

    def begin(self) -> None:
        """The first rows are collected behind ``close``."""
        self.fold()
        if self.boundary.position >= max(self.start.delivered, self.start.until):
            self.start = self.boundary

    def turn(self, file: str, position: int) -> None:
        """The log goes on in another file."""
        self.fold()
        self.position = position
        self.boundary = self.start = self.boundary.at(file, position, self.boundary.gtids)

    def close(self, *, is_between: bool) -> tuple[Place, Place]:
        """Where the collected rows begin, and where to go on behind them."""
        self.fold()
        start, end = self.start, self.boundary
        if not is_between:
            end = replace(self.with_delivered(end, self.position), delivered=max(self.position, start.delivered))
        if end.until and self.position >= end.until:
            end = replace(end, until=0, tables=())
        self.start = end
        return start, end

    def is_delivered(self, position: int, table: str) -> bool:
        """Whether an event that ends at the position was delivered by an earlier run."""
        return position <= self.start.delivered or (position <= self.start.until and table in self.start.tables)
