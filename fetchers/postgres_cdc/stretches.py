"""PostgreSQL's watermarks: which transactions a stretch of rows shows is known from ``pg_current_snapshot``.

A commit is in the log a moment before other sessions see it, and with synchronous replicas a long one. So rows may show
less than the log has told already; then they are read again. Where the log has told all that they show is its end
after they were read. Facts: the chapter "pg_snapshot" of PostgreSQL's manual.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from fetchers.postgres_cdc.catalogue import Catalogue, catalogue
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.events import CapturedTable
from fetchers.postgres_cdc.pgoutput import LogRelation
from fetchers.postgres_cdc.snapshot import SnapshotReader, select
from fetchers.sdk import Fatal, FetchContext
from fetchers.toolkit.change_events import ChangeForm
from fetchers.toolkit.table_reading import Stretch

TRANSACTIONS_KEPT = 100_000
"""Of the log, of which a stretch is asked whether it shows them; older ones have long been seen by everybody."""


class PostgresStretches:
    """Tables of one database, read in stretches; blocking calls run in the context's door for them."""

    def __init__(
        self,
        config: PostgresCdcConfig,
        form: ChangeForm,
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
        self._form = form
        self._reader = reader
        self._context = context
        self._begun = 0
        """Transactions before this one may have written before the log was followed, or had the table."""
        self._published: frozenset[str] = frozenset()
        self._known: dict[str, tuple[LogRelation, CapturedTable]] = {}
        self._apart: set[tuple[str, str]] = set()
        """See ``captured``."""

    async def tables(self) -> Mapping[str, bool]:
        """All that are published and meant, and whether each has a key.

        Tables that are missing from the publication are added to it.
        Not while the stored progress calls one of them read: it was dropped and made again, or was left out for a
        while, and the log has not told all of it. First that it is to be read again must be in Kafka.
        """
        return await self._context.run_blocking(partial(self._tables, adds=True), subject="server")

    async def published(self) -> Mapping[str, bool]:
        """The same as the publication is."""
        return await self._context.run_blocking(partial(self._tables, adds=False), subject="server")

    def _tables(self, *, adds: bool) -> Mapping[str, bool]:
        with catalogue(self._config) as server:
            if adds:
                server.publish_tables(but=self._read())
            keyed = server.keyed_tables()
            found = {f"{schema}.{table}": (schema, table) in keyed for schema, table in server.tables()}
            if not self._begun or found.keys() - self._published:
                self._begun = server.next_transaction()
            self._published = frozenset(found)
            return found

    async def stretch(self, table: str, after: Sequence[str]) -> Stretch | None:
        """Rows of ``schema.table`` behind a key."""
        return await self._context.run_blocking(partial(self._stretch, table, after), subject="server")

    def _stretch(self, name: str, after: Sequence[str]) -> Stretch | None:
        found = self.captured(name, after, self._config.snapshot_fetch_size)
        if found is None:
            return None
        table, sql = found
        seen, rows, end, count = self._reader.stretch(sql)
        unseen = seen.unseen(self.told)
        waits = unseen or ([seen.oldest] if seen.oldest < self._begun else [])
        if not waits:
            self.told.clear()
        has_more = count >= self._config.snapshot_fetch_size or count > rows.num_rows
        first = len(table.kinds)
        last = tuple(str(rows.column(first + at)[-1].as_py()) for at in range(len(table.keys))) if has_more else None
        page = table.snapshot_page(rows, handled_us=self._now_us(), position=end, offset={}, snapshot="incremental")
        told = ", ".join(f"transaction {one}" for one in waits[:3])
        return Stretch(page, last, (end,), told)

    def captured(self, name: str, after: Sequence[str], rows_max: int) -> tuple[CapturedTable, str] | None:
        """A table, and the SQL of its rows behind a key; None: there is no such table any more. Blocks."""
        with catalogue(self._config) as server:
            names = next((names for names in server.tables() if ".".join(names) == name), None)
            relation = server.relation(*names) if names else None
            if relation is None:
                return None
            known = self._known.get(name)
            if known is None or known[0] != relation or known[1].keys != server.keys(relation):
                table = captured(self._config, self._form, server, relation, apart=self._apart)
                known = self._known[name] = (relation, table)
            table = known[1]
            behind = after if len(after) == len(table.keys) else ()  # else the key was changed
            return table, select(table, server, behind, rows_max)

    def _now_us(self) -> int:
        return int(self._context.clock.now().timestamp() * 1_000_000)


class LoggedTables:
    """Tables as the log describes them, with what only the catalogue has: types, and the order of the key."""

    def __init__(self, config: PostgresCdcConfig, form: ChangeForm) -> None:
        """None yet."""
        self._config = config
        self._form = form
        self._known: dict[int, tuple[LogRelation, CapturedTable]] = {}
        self._apart: set[tuple[str, str]] = set()
        """See ``captured``."""

    def of(self, relation: LogRelation) -> CapturedTable:
        """Of each description that the log gives, as the catalogue is when its first rows are read. Blocks."""
        self.look_up([relation])
        return self._known[relation.oid][1]

    def look_up(self, relations: Iterable[LogRelation]) -> None:
        """Ask the server, in one session, for what the log does not say of those whose description is new. Blocks."""
        news = [one for one in relations if one.oid not in self._known or self._known[one.oid][0] is not one]
        if not news:
            return
        with catalogue(self._config) as server:
            for relation in news:
                table = captured(self._config, self._form, server, relation, apart=self._apart)
                self._known[relation.oid] = (relation, table)

    def has_key_still(self, relation: LogRelation) -> bool:
        """Whether the catalogue has the key that rows of this description get; True while it has none. Blocks."""
        known = self._known.get(relation.oid)
        if known is None or known[0] is not relation:
            return True
        with catalogue(self._config) as server:
            return known[1].keys == server.keys(relation)


def captured(
    config: PostgresCdcConfig,
    form: ChangeForm,
    server: Catalogue,
    relation: LogRelation,
    *,
    apart: set[tuple[str, str]],
) -> CapturedTable:
    """How a table's texts become events; raises ``Fatal``, also where its topic is another table's too.

    ``apart``: schema and name of tables that are known to have topics of their own. One that is not among them has all
    tables looked at, and this is what is known then: of two that share a topic the later one is always such a one.
    """
    own = (relation.schema, relation.name)
    if own not in apart:
        topic, sharing = form.topic(*own), defaultdict[str, set[tuple[str, str]]](set)
        for table in (own, *server.tables()):
            sharing[form.topic(*table)].add(table)
        for schema, name in sharing[topic] - {own}:
            both = f"{relation.schema}.{relation.name} and {schema}.{name}"
            raise Fatal(f"{both} would both be told in the topic {topic}; leave one out (table.exclude.list)")
        apart.clear()
        apart.update(*(tables for tables in sharing.values() if len(tables) == 1))
    try:
        return CapturedTable(config, form, relation, server.types(relation.columns), keys=server.keys(relation))
    except ValueError as error:
        raise Fatal(f"{relation.schema}.{relation.name}: {error}; leave a column out (column.exclude.list)") from error
