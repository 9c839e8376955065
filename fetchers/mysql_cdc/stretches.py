"""MySQL's and MariaDB's watermarks: whether a stretch of rows shows all that the log has told, and what it has besides.

A commit is in the log a moment before other sessions see it. MariaDB says up to which place of the log a consistent
snapshot sees all: that is compared with the place that is told. MySQL adds a transaction to ``gtid_executed`` only when
its engine has committed it (``MYSQL_BIN_LOG::process_commit_stage_queue``): a snapshot that begins after the GTIDs of
all that is told are there shows all of it. Without GTIDs commits are stopped for the moment in which it begins. Where
the log has told all that the rows show is its end after they were read: what is committed has been logged.

A stretch gives up a lock that it does not get soon, because the log is not followed meanwhile, and is read later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import pyarrow as pa

from fetchers.mysql_cdc.named_types import with_names
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.segment import Run
from fetchers.mysql_cdc.snapshot import KeyTexts, Sizes, begin, log_end, quoted_name, tables_of
from fetchers.mysql_cdc.table_map import TableMap
from fetchers.mysql_cdc.tables import TABLES_MAX, Tables
from fetchers.mysql_cdc.values import MICROS
from fetchers.sdk import BackOff, Clock, Fatal, Page, Retriable
from fetchers.toolkit.mysql import LOCK_TIMED_OUT, NO_COLUMN, NO_TABLE, WAS_ALTERED, MySqlConnection, number_of
from fetchers.toolkit.mysql_texts import text_literal
from fetchers.toolkit.table_reading import Stretch

LOCK_SECONDS = 1
"""How long a table is waited for that another statement alters, or waits to alter."""
LATER = BackOff(first_seconds=1.0, cap_seconds=60.0)
"""Without GTIDs each try stops all writers for as long as `begin` waits."""
_LOCK = f"SET SESSION lock_wait_timeout = {LOCK_SECONDS}"
_WAITED_FOR = {
    LOCK_TIMED_OUT: "a lock that a statement has which alters the table, or, without GTIDs, one that writes for long",
} | dict.fromkeys((NO_COLUMN, WAS_ALTERED), "a new beginning, because the table was altered a moment ago")
_NO_MORE_TEXT = 40
"""Letters of GTIDs that a person is told."""


class MySqlStretches:
    """Tables of one server, read in stretches over a connection of their own."""

    def __init__(
        self,
        opened: Callable[[], Awaitable[MySqlConnection]],
        tables: Tables,
        takes: Callable[[str], bool],
        *,
        rows_max: int,
        lock_seconds_max: int | None,
        clock: Clock,
    ) -> None:
        """``lock_seconds_max``: as `begin` takes it, on MySQL without GTIDs."""
        self.told = Place()
        """Up to where the log has told all; to be set before each stretch."""
        self._opened = opened
        self._tables = tables
        self._takes = takes
        self._rows_max = rows_max
        self._lock_seconds_max = lock_seconds_max
        self._clock = clock
        self._tries, self._again_at, self._waits_for = 0, 0.0, ""
        self._connection: MySqlConnection | None = None
        self._names: dict[str, tuple[str, str]] = {}
        self._is_known = False
        """Whether the names are of all tables, as they were once."""
        self._known: dict[int, tuple[TableMap, TableMap]] = {}
        """Tables as the log has described them, and with their types; by the identity of the former, because after a
        DDL the log may describe another table in the same words."""
        self._types: dict[str, dict[str, str]] = {}
        self._table = ""
        self._rows_next = Sizes(rows_max)
        self._last: pa.RecordBatch | None = None

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def tables(self) -> Mapping[str, bool]:
        """All that are meant, and whether each has a key. Over a new connection: the last one may be old."""
        self.close()
        self._connection = await self._opened()
        await self._connection.rows(_LOCK)
        found = await tables_of(self._connection, self._takes)
        self._is_known = True
        self._names = {table.name: (table.database, table.table) for table in found}
        return {table.name: bool(table.key) for table in found}

    @property
    def made(self) -> Mapping[str, str]:
        """Nothing tells a table that was made again from one that was altered; its rows are in the log."""
        return {}

    async def describe(self, run: Run) -> None:
        """Add what the log does not say: the table of a TRUNCATE, and types that it has as bytes."""
        if run.table.columns or run.table.trouble:
            run.table = await self._named(run.table)
        elif run.described is not None:
            run.described = await self._named(run.described)
        else:
            run.described = await self._described(run.table)

    async def _named(self, table: TableMap) -> TableMap:
        """With the types that the catalogue has for its columns when they are first met, and first after each DDL.

        Columns that are not there any more have the types that were told last.
        """
        if not self._tables.is_mariadb or not any(column.may_be_named for column in table.columns):
            return table
        known = self._known.get(id(table))
        if known is None:
            if len(self._known) >= TABLES_MAX:
                self._known.clear()
                self._types.clear()
            types = self._types.setdefault(table.name, {})
            if (found := await self._described(table)) is not None:
                types.update({column.name: column.named for column in found.columns})
            known = self._known[id(table)] = (table, with_names(table, types))
        return known[1]

    async def _described(self, table: TableMap) -> TableMap | None:
        """The table of this name as it is now; None where there is none."""
        connection = await self._opened()
        try:
            found = await tables_of(connection, table.name.__eq__, only=(table.database, table.table))
            return found[0] if found else None
        finally:
            connection.close()

    async def stretch(self, table: str, after: Sequence[str]) -> Stretch | None:
        """Rows of ``database.table`` behind a key."""
        connection = self._connection
        if connection is None or not self._is_known:
            return self._none_yet("a look at which tables there are")
        if table not in self._names:
            return None
        if self._clock.monotonic() < self._again_at:
            return self._none_yet(self._waits_for)
        if table != self._table:
            self._table, self._last = table, None
        try:
            waits_for = await self._begin(connection)
            found = self._none_yet(waits_for) if waits_for else await self._read(connection, table, after)
        except Retriable as error:
            number = number_of(error)
            if number == NO_TABLE:
                found = None
            elif number in _WAITED_FOR:
                self._tries, self._waits_for = self._tries + 1, _WAITED_FOR[number]
                self._again_at = self._clock.monotonic() + LATER.wait_seconds(self._tries)
                await connection.rows(_LOCK)  # that of `begin` may be set
                found = self._none_yet(self._waits_for)
            else:
                raise
        else:
            self._tries = 0
        await connection.rows("ROLLBACK")
        return found

    def _none_yet(self, waits_for: str) -> Stretch:
        return Stretch(Page([], {}), (), self.told.order, waits_for)

    async def _begin(self, connection: MySqlConnection) -> str:
        """Begin to see what is committed; what the log has told and is not seen, empty: nothing."""
        if connection.is_mariadb:
            shown = await begin(connection, lock_seconds_max=None)
            missing = shown.order < self.told.order
            return f"transactions behind {shown.file}:{shown.position}, which are about to commit" if missing else ""
        gtids = text_literal(self.told.gtids.text)
        (row,) = await connection.rows(
            f"SELECT @@global.gtid_mode AS mode, GTID_SUBTRACT({gtids}, @@global.gtid_executed) AS missing"
        )
        has_gtids = row["mode"] == "ON"
        await begin(connection, lock_seconds_max=None if has_gtids else self._lock_seconds_max)
        return f"transactions {row['missing'][:_NO_MORE_TEXT]}" if has_gtids and row["missing"] else ""

    async def _read(self, connection: MySqlConnection, name: str, after: Sequence[str]) -> Stretch | None:
        # Nobody can alter the table from here on; MySQL's catalogue may be that of the transaction's beginning.
        await connection.rows(f"SELECT 1 FROM {quoted_name(*self._names[name])} LIMIT 0")  # noqa: S608 - quoted
        found = await tables_of(connection, name.__eq__, only=self._names[name])
        if not found:
            return None
        (table,) = found
        if not table.key:
            return Stretch(Page([], {}), (), self.told.order, "a primary key, which it had before")
        keys, limit = KeyTexts(self._tables, table), self._rows_next(self._last)
        try:
            sql = keys.select(after, rows_max=limit)
        except ValueError as error:
            raise Fatal(f"{name}: {error}: ask for the table again (snapshot.request.id)") from error
        batches = [batch async for batch in connection.read(sql, rows_next=lambda _: limit)]
        end = await log_end(connection)
        if not batches:
            return Stretch(Page([], {}), None, end.order)
        (self._last,) = batches
        last = None if self._last.num_rows < limit else keys.last(self._last)
        now_us = int(self._clock.now().timestamp() * MICROS)
        page = self._tables.read(table, self._last, place=end, handled_us=now_us, snapshot="incremental")
        return Stretch(page, last, end.order)
