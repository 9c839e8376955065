"""PostgreSQL's watermarks: which transactions a stretch of rows shows is known from ``pg_current_snapshot``.

A commit is in the log a moment before other sessions see it, and with synchronous replicas a long one. So rows may show
less than the log has told already; then they are read again. Where the log has told all that they show is its end
after they were read. Facts: the chapter "pg_snapshot" of PostgreSQL's manual.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import psycopg
import psycopg.errors

from fetchers.postgres_cdc.captured import CapturedTables
from fetchers.postgres_cdc.catalogue import Catalogue, catalogue
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.events import CapturedTable
from fetchers.postgres_cdc.snapshot import LOCK_MS, LockedError, SnapshotReader, key_order, place_in, select
from fetchers.sdk import FetchContext, Page
from fetchers.toolkit.table_reading import Stretch

LOOK_MS = 3_000
"""How long a look which tables there are waits for the lock of one: longer than an autovacuum that is to give way."""
LATER_SECONDS = 1.0
"""After which a table is looked at again that another statement alters, or waits to alter."""
TRANSACTIONS_KEPT = 100_000
"""Of the log, of which a stretch is asked whether it shows them; older ones have long been seen by everybody."""

_MADE = """
select n.nspname || '.' || c.relname as name, concat_ws('.', c.oid, (select min(r.oid::int8)
  from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
  where p.pubname = %s and (r.prrelid = c.oid or r.prrelid in (select pg_partition_ancestors(c.oid))))) as made
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind in ('r', 'p')"""


def made_of(server: Catalogue, publication: str) -> dict[str, str]:
    """Of each ``schema.table`` its number and that of its entry in the publication, if it has one of its own. Blocks.

    What takes a table's name has another number, and what was left out for a while another entry.
    """
    return {row["name"]: row["made"] for row in server.rows(_MADE, (publication,))}


class PostgresStretches:
    """Tables of one database, read in stretches; blocking calls run in the context's door for them."""

    def __init__(
        self,
        config: PostgresCdcConfig,
        known: CapturedTables,
        reader: SnapshotReader,
        context: FetchContext,
        *,
        read: Callable[[], Collection[str]],
    ) -> None:
        """``reader`` is closed by whoever made it; ``read``: tables that the stored progress calls read."""
        self._read = read
        self.told: deque[int] = deque(maxlen=TRANSACTIONS_KEPT)
        """Numbers of the transactions that the log has told, and that no stretch was seen to show yet."""
        self._config = config
        self._captured = known
        self._reader = reader
        self._context = context
        self._begun = 0
        """Transactions before this one may have written before the log was followed, or had the table."""
        self._again_at = 0.0
        self.made: Mapping[str, str] = {}
        """By table, as the last look has found it: its number, and those of its places in the publication."""

    async def tables(self) -> Mapping[str, bool]:
        """All that are published and meant, and whether each has a key.

        Tables that are missing from the publication are added to it. Raises `LockedError`.
        Not while the stored progress calls one of them read: it was dropped and made again, or was left out for a
        while, and the log has not told all of it. First that it is to be read again must be in Kafka.
        """
        return await self._context.run_blocking(partial(self._tables, adds=True), subject="server")

    async def published(self) -> Mapping[str, bool]:
        """The same as the publication is."""
        return await self._context.run_blocking(partial(self._tables, adds=False), subject="server")

    @contextmanager
    def _looking(self, lock_ms: int) -> Iterator[Catalogue]:
        """The catalogue, which PostgreSQL 16 and newer tell of a publication only with its tables' locks.

        Raises `LockedError` where one is not given in time.
        """
        with catalogue(self._config) as server:
            server.rows(f"SET lock_timeout = {lock_ms}")
            try:
                yield server
            except psycopg.errors.LockNotAvailable as error:
                if self._reader.is_open:
                    self._reader.end()
                raise LockedError from error

    def _tables(self, *, adds: bool) -> Mapping[str, bool]:
        with self._looking(LOOK_MS) as server:
            if adds:
                server.publish_tables(but=self._read())
            keyed, made = server.keyed_tables(), made_of(server, self._config.publication_name)
            found = {f"{schema}.{table}": (schema, table) in keyed for schema, table in server.tables()}
            made = {name: one for name, one in made.items() if name in found}
            if not self._begun or made.items() - self.made.items():
                self._begun = server.next_transaction()
            self.made = made
            return found

    async def stretch(self, table: str, after: Sequence[str]) -> Stretch | None:
        """Rows of ``schema.table`` behind a key."""
        clock, locked = self._context.clock, LockedError()
        if clock.monotonic() >= self._again_at:
            try:
                return await self._context.run_blocking(partial(self._stretch, table, after), subject="server")
            except LockedError as error:
                self._again_at, locked = clock.monotonic() + LATER_SECONDS, error
        return Stretch(Page([], {}), (), (0,), str(locked))

    def _stretch(self, name: str, after: Sequence[str]) -> Stretch | None:
        rows_max = self._config.snapshot_fetch_size
        with self._looking(LOCK_MS) as server:
            names = _names_of(server, name)
            if names is None:
                return None
            seen = self._reader.begin(server.source(*names))
            relation = server.relation(*names)  # as it is till the transaction's end
            if relation is None:
                self._reader.end()
                return None
            table = self._captured.captured(server, relation)
            if not table.keys:
                self._reader.end()
                return Stretch(Page([], {}), (), (0,), "a primary key, which it had before")
            order = key_order(table, server)
            sql = select(table, server, after, rows_max=rows_max, order=order)
            rows, end, count = self._reader.stretch(sql, relation.oid)
        unseen = seen.unseen(self.told)
        waits = unseen or ([seen.oldest] if seen.oldest < self._begun else [])
        if not waits:
            self.told.clear()
        has_more = count >= rows_max or count > rows.num_rows
        last = place_in(table, rows, order) if has_more else None
        page = table.snapshot_page(rows, handled_us=self._now_us(), position=end, offset={}, snapshot="incremental")
        told = ", ".join(f"transaction {one}" for one in waits[:3])
        return Stretch(page, last, (end,), told)

    def captured(self, name: str) -> tuple[CapturedTable, str] | None:
        """A table, and the SQL of all its rows; None: there is no such table any more. Blocks."""
        with catalogue(self._config) as server:
            names = _names_of(server, name)
            relation = server.relation(*names) if names else None
            if relation is None:
                return None
            table = self._captured.captured(server, relation)
            return table, select(table, server)

    def _now_us(self) -> int:
        return int(self._context.clock.now().timestamp() * 1_000_000)


def _names_of(server: Catalogue, name: str) -> tuple[str, str] | None:
    """Schema and table; None: it is not published any more, or not meant."""
    return next((names for names in server.tables() if ".".join(names) == name), None)
