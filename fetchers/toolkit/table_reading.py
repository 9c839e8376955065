"""Rows of tables, read in stretches of their keys while the log of changes is followed beside: DBLog's algorithm.

A stretch is read between two moments of the log, its watermarks (https://arxiv.org/abs/2010.12597). It is held back
until the log was followed to the high one; of its rows those are left out whose keys the log has told meanwhile: its
events bring these to a newer state. So no row is shown behind a newer event, none is lost, and no table of watermarks
is needed. How a server's watermarks are found is its ``StretchReader``'s.

How far the tables are read is the offset of a source partition of its own, so that it is stored in the one Kafka
transaction that has the rows. The log's place is stored before it, or with it, never after it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.sdk import FetchContext, Offset, Page, Partition, Retriable
from fetchers.toolkit.name_lists import NameFilter
from metrics.events import LateCommitsAwaited, TableSnapshotMoved

TOLD_SECONDS = 60.0
"""After so long a table that waits for other transactions is told of."""
pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
_ORDER = "order:"
"""How the text begins that stands for a key's order: with its digits behind it, it is told from a key's own texts."""
_ORDER_DIGITS = 16
Position = tuple[int, ...]
"""A place between two transactions of a log; later ones are greater."""


def order_digest(key: Sequence[object]) -> str:
    """Digits that stand for the order of a key: what decides it, column by column, as values whose ``repr`` tells all.

    ``ALTER TABLE`` may give a key another order, in which other rows are behind a place than were left to read.
    """
    return sha256(repr(key).encode()).hexdigest()[:_ORDER_DIGITS]


def order_text(key: Sequence[object]) -> str:
    """``order_digest`` as it stands in a place, behind the texts of the key."""
    return f"{_ORDER}{order_digest(key)}"


def texts_behind(place: Sequence[str], order: str, *, columns: int) -> Sequence[str]:
    """The texts of a place's key; none where that is of another key, or of another order of it.

    ``order``, ``columns``: of the key as it is now. An earlier release has said no order: such a place is gone on from.
    """
    if place and place[-1].startswith(_ORDER) and len(place[-1]) == len(order):
        # Never a key's own text, however many columns it has now.
        place = place[:-1] if place[-1] == order else ()
    return place if len(place) == columns else ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the tables are read. Names are those of the lists, such as ``schema.table``."""

    done: frozenset[str] = frozenset()
    """Tables that need not be read any more."""
    waiting: tuple[str, ...] = ()
    """Tables to be read in this order; those that are in ``done`` too were asked for."""
    keys: tuple[str, ...] = ()
    """Texts of the key of the last row that was read of the first of them, and ``order_text`` of the key; empty: none
    was read yet."""
    request: str = ""
    """The last ``snapshot.request.id`` that was heard."""
    made: Mapping[str, str] = field(default_factory=dict)
    """What told the tables at the last look from others of their names (``StretchReader.made``)."""

    @classmethod
    def read(cls, offset: Offset) -> Progress | None:
        """Of a stored offset; None where there is none. Raises ``ValueError``."""
        if not offset:
            return None
        try:
            done, waiting, keys = (
                [str(one) for one in json.loads(str(offset.get(name) or "[]"))]
                for name in ("tables_read", "tables_waiting", "key")
            )
            made = {
                str(name): str(one) for name, one in dict(json.loads(str(offset.get("tables_made") or "{}"))).items()
            }
        except (TypeError, ValueError) as error:
            message = 'expected lists of names as texts, such as {"tables_read": "[\\"public.orders\\"]"}'
            raise ValueError(message) from error
        return cls(frozenset(done), tuple(waiting), tuple(keys), str(offset.get("request") or ""), made)

    def offset(self) -> Offset:
        """To be stored."""
        found = {"tables_read": json.dumps(sorted(self.done)), "tables_waiting": json.dumps(self.waiting)}
        if self.keys:
            found["key"] = json.dumps(self.keys)
        if self.request:
            found["request"] = self.request
        if self.made:
            found["tables_made"] = json.dumps(self.made, sort_keys=True)
        return found

    def of(self, tables: Collection[str], made: Mapping[str, str]) -> Progress:
        """Of the tables that are there: what is another one than at the last look is neither read nor begun.

        The log has not told all of one that was not there for a while, as it has not of one that took its name.
        """
        same = {name for name in tables if self.made.get(name, made.get(name)) == made.get(name)}
        keys = self.keys if same.issuperset(self.waiting[:1]) else ()
        found = replace(self, done=self.done & same, keys=keys, made=made)
        return self if found == self else found

    def with_found(self, tables: Collection[str]) -> Progress:
        """And the tables among these that nobody has read, nor is about to read."""
        new = set(tables) - self.done - set(self.waiting)
        return replace(self, waiting=(*self.waiting, *sorted(new))) if new else self

    def with_request(self, request: str, tables: Collection[str]) -> Progress:
        """And these tables, which are read again; an earlier request that is not over yet ends.

        The same request is heard once. An empty one only ends the earlier one.
        """
        if request == self.request:
            return self
        kept = tuple(table for table in self.waiting if table not in self.done)
        keys = self.keys if kept[:1] == self.waiting[:1] else ()
        asked = sorted(set(tables) - set(kept)) if request else []
        return replace(self, waiting=(*kept, *asked), keys=keys, request=request)

    def after(self, table: str, keys: Sequence[str] | None) -> Progress:
        """When the rows of ``table`` are read up to ``keys``; None: all of them."""
        others = tuple(one for one in self.waiting if one != table)
        if keys is None:
            begun = self.keys if self.waiting[:1] != (table,) else ()
            return replace(self, done=self.done | {table}, waiting=others, keys=begun)
        return replace(self, waiting=(table, *others), keys=tuple(keys))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of a table behind one key, as they were at one moment."""

    page: Page
    """Operations ``r``; the offset is of no account."""
    last: tuple[str, ...] | None
    """Texts of the last row's key, and ``order_text``; None: the table ends here."""
    high: Position
    """Where the log has told all that the rows show."""
    waits_for: str = ""
    """Transactions of which the log may have told before, and which the rows do not show: the stretch is to be read
    again. Empty: there are none, and this is the low watermark."""


class UnseenTableError(Retriable):
    """Which tables there are cannot be known while one of them is being altered."""


class ReadingKeys(Protocol):
    """What a config says of it."""

    @property
    def snapshot_request_id(self) -> str:
        """Another one than before: the tables of the request are read again."""
        ...

    @property
    def snapshot_request_tables(self) -> Sequence[str]:
        """Expressions for their names; none: all tables."""
        ...

    @property
    def table_poll_interval_ms(self) -> int:
        """Between two looks for tables that were added."""
        ...


class StretchReader(Protocol):
    """One server's tables. What it raises ends the fetch."""

    async def tables(self) -> Mapping[str, bool]:
        """All that the lists mean, and whether each has a key by which it can be read in stretches.

        Raises `UnseenTableError`, which does not end the fetch.
        """
        ...

    @property
    def made(self) -> Mapping[str, str]:
        """Of each of ``tables`` a text that another one of its name does not have; empty where that is not known."""
        ...

    async def stretch(self, table: str, after: Sequence[str]) -> Stretch | None:
        """Rows behind a key (empty: the first ones); None: there is no such table any more."""
        ...


class TableReading:
    """Reads the tables that wait, beside the log."""

    def __init__(self, reader: StretchReader, progress: Progress, context: FetchContext, partition: Partition) -> None:
        """``partition``: where the progress is stored."""
        self.progress = progress
        self._reader = reader
        self._context = context
        self._partition = partition
        self._looked: float | None = None
        self._saw_all = True
        """Whether the last look told which tables there are."""
        self._table = ""
        self._held: Stretch | None = None
        self._is_shown = np.zeros(0, bool)
        self.aside: set[str] = set()
        """Tables that wait, and have no key: they are not read beside the log."""
        self._waits_since: float | None = None
        self._is_told = False

    @property
    def is_waiting(self) -> bool:
        """Whether there is a table to be read beside the log."""
        return self._next() is not None

    @property
    def is_ready(self) -> bool:
        """Whether ``advance`` would read a stretch now."""
        return self._held is None and self._waits_since is None and self.is_waiting

    def is_due(self, reached: Position) -> bool:
        """Whether ``advance`` would hand over a stretch, or read one, now."""
        return self.is_ready if self._held is None else self._held.high <= reached

    def _next(self) -> str | None:
        return next((table for table in self.progress.waiting if table not in self.aside), None)

    def page(self) -> Page:
        """One that only stores the progress."""
        return Page([], offset=self.progress.offset(), partition=self._partition)

    def pass_over(self, table: str) -> Page:
        """Hear that a whole table was read otherwise, or is not there any more."""
        self.progress = self.progress.after(table, None)
        self.aside.discard(table)
        self._tell(table, "is read")
        return self.page()

    async def look(self, keys: ReadingKeys, *, takes_new: bool) -> AsyncGenerator[Page, None]:
        """Look which tables there are, where it is time for it; a page where that changes what is to be read.

        ``takes_new``: whether tables are read that are there for the first time.
        """
        now, request = self._context.clock.monotonic(), keys.snapshot_request_id
        is_due = self._looked is None or now - self._looked >= keys.table_poll_interval_ms / 1000
        if not is_due and (request == self.progress.request or not self._saw_all):
            return
        self._looked = now
        self._saw_all = False
        try:
            found = await self._reader.tables()
        except UnseenTableError:
            return
        self._saw_all = True
        before = self.progress
        made = before.of(found, self._reader.made)
        made = made.with_found(found) if takes_new else made
        made = made.with_request(request, list(filter(NameFilter(keys.snapshot_request_tables).takes, found)))
        self.aside = {table for table in made.waiting if not found.get(table, True)}
        if made != before:
            self.progress = made
            is_same = made.made.get(self._table) == before.made.get(self._table)
            if not is_same or made.waiting[:1] != before.waiting[:1] or made.keys != before.keys:
                self._held = None
            for table in made.waiting:
                if table not in before.waiting:
                    what = "waits for a start of the task, because it has no key" if table in self.aside else "waits"
                    self._tell(table, what)
            yield self.page()

    def heed(self, page: Page) -> Page:
        """A page of the log, on its way to be handed over."""
        held = self._held
        if held is None or page.topic != held.page.topic or not len(page):
            return page
        if page.schema != held.page.schema:
            self._held = None  # the table was altered: pages of a topic come in the order of their schemas
        elif held.page.keys is not None and page.keys is not None:
            self._is_shown &= ~is_among(held.page.keys, page.keys)
        return page

    async def advance(self, reached: Position) -> AsyncGenerator[Page, None]:
        """Hand over the stretch that is held once the log is followed so far, and read the next one.

        Called between two transactions of the log, all pages of which are handed over. Nothing of the log may be read
        in the meantime that is not handed over behind it.
        """
        held, table = self._held, self._table
        if held is not None:
            if held.high > reached:
                return
            self._held = None
            self.progress = self.progress.after(table, held.last)
            yield self._shown(held)
            if held.last is None:
                self._tell(table, "is read")
        found = self._next()
        if found is not None:
            await self._read(found)
            if found not in self.progress.waiting:
                yield self.page()

    async def _read(self, table: str) -> None:
        after = self.progress.keys if self.progress.waiting[0] == table else ()
        stretch = await self._reader.stretch(table, after)
        if stretch is None:
            self.progress = self.progress.after(table, None)
            self._tell(table, "is not there any more")
        elif stretch.waits_for:
            self._wait(table, stretch.waits_for)
        else:
            if table != self._table:
                self._tell(table, "goes on" if after else "begins")
            self._table, self._held, self._waits_since, self._is_told = table, stretch, None, False
            self._is_shown = np.ones(len(stretch.page), bool)

    def _wait(self, table: str, holders: str) -> None:
        now = self._context.clock.monotonic()
        self._waits_since = now if self._waits_since is None else self._waits_since
        if now - self._waits_since >= TOLD_SECONDS and not self._is_told:
            self._is_told = True
            self._context.emit(
                LateCommitsAwaited(
                    connector=self._context.connector,
                    task=self._context.task,
                    table=table,
                    holders=holders,
                    seconds=now - self._waits_since,
                )
            )

    def _shown(self, stretch: Stretch) -> Page:
        page = replace(stretch.page, offset=self.progress.offset(), partition=self._partition)
        return page if self._is_shown.all() else filtered(page, self._is_shown)

    def _tell(self, table: str, what: str) -> None:
        self._context.emit(
            TableSnapshotMoved(connector=self._context.connector, task=self._context.task, table=table, what=what)
        )


def is_among(keys: Any, others: Any) -> np.ndarray:
    """Which of the structs are among others of the same fields; all, where one of those is null (a TRUNCATE)."""
    if others.null_count:
        return np.ones(len(keys), bool)
    columns = [(_plain(left), _plain(right)) for left, right in zip(keys.flatten(), others.flatten(), strict=True)]
    names = [str(at) for at in range(len(columns))]
    mine = pa.table([*(left for left, _ in columns), pa.array(np.arange(len(keys)))], names=[*names, "at"])
    theirs = pa.table([right for _, right in columns], names=names)
    found = np.zeros(len(keys), bool)
    found[mine.join(theirs, keys=names, join_type="left semi").column("at").to_numpy()] = True
    return found


def _plain(column: Any) -> Any:
    """A column that Arrow can join by: nested values as texts, floats that are equal as the same bits."""
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), float("nan"), pc.add(column, 0.0)).cast(column.type)
    return pa.array(map(repr, column.to_pylist()), pa.string()) if pa.types.is_nested(column.type) else column


def filtered(page: Page, is_kept: np.ndarray) -> Page:
    """A page without headers with some of its records only."""
    mask: Any = pa.array(is_kept)
    places = np.cumsum(is_kept) - 1
    return replace(
        page,
        payloads=page.payload_column.filter(mask),
        keys=None if page.keys is None else page.keys.filter(mask),  # type: ignore[union-attr]
        rejections=tuple(replace(one, index=int(places[one.index])) for one in page.rejections if is_kept[one.index]),
    )
