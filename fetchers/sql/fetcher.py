"""``JdbcSource``: tables and queries, read by polling, safe against late commits.

A task goes over its tables in turn. For each it takes a bound (the highest id, the database's clock), waits until
nobody is left who could still commit a row under it (``settling``), and then reads what lies between its place and
the bound, in order, in one statement. So each row is read once, also where ids and commits are in different orders.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing

from fetchers.sdk import (
    Fatal,
    FetchContext,
    Finding,
    Offset,
    Page,
    Partition,
    PayloadKind,
    Severity,
    SourceConnector,
)
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Database, NoTableError, Relation, Table
from fetchers.sql.mysql import MySqlDatabase
from fetchers.sql.postgresql import PostgresDatabase
from fetchers.sql.ranges import wanted_range
from fetchers.sql.sqlite import SqliteDatabase
from fetchers.sql.tables import listed_tables, missing_tables, selected_tables
from fetchers.sql.walk import Walk

HELD_SECONDS = 0.05
"""Between two looks at a bound that is not settled, at first; the wait grows by half up to the poll interval."""


class JdbcSource(SourceConnector[JdbcConfig]):
    """Rows of tables, or of a query, as typed records."""

    payload_kind = PayloadKind.ROWS

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        return tuple(_findings(self.config))

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """A query has one task; tables are dealt over the tasks by name, so that a new one moves no other."""
        config = self.config
        listed = len(config.table_whitelist)
        count = 1 if config.query else min(tasks_max, listed) if listed else tasks_max
        return tuple({"task.number": str(number), "task.count": str(count)} for number in range(count))

    def _database(self, context: FetchContext) -> Database:
        dialect = self.config.url.dialect
        if dialect == "postgresql":
            return PostgresDatabase(self.config, context)
        if dialect == "sqlite":
            return SqliteDatabase(self.config, context, self.allowed_paths)
        return MySqlDatabase(self.config)

    def check_offsets(self, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """Refuse offsets in which nothing is known."""
        for _, offset in offsets:
            if offset and not {"incrementing", "timestamp", "at"} & set(offset):
                message = 'expected {"incrementing": 17} or {"timestamp": milliseconds, "timestamp_nanos": nanoseconds}'
                raise ValueError(message)

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Log in, look for the tables and at the columns of the mode, and whether late commits can be seen."""
        database = self._database(context)
        found: list[Finding] = []
        try:
            await database.open()
            found += [
                Finding("table.whitelist", name, f"There is no table {name} that this user may read.")
                for name in missing_tables(self.config, await self._all_tables(database))
            ]
            for relation in await self._relations(database):
                found += await self._relation_findings(database, relation)
        except Fatal as error:
            found.append(Finding("connection.url", None, str(error)))
        finally:
            database.close()
        return found

    async def _relations(self, database: Database) -> list[Relation]:
        if self.config.query:
            return [await database.query(self.config.query)]
        return [await database.relation(table) for table in await self._tables(database)]

    async def _relation_findings(self, database: Database, relation: Relation) -> list[Finding]:
        config = self.config
        found = []
        for name in config.key_columns:
            try:
                relation.column(name)
            except Fatal as error:
                found.append(Finding("key.columns", name, str(error)))
        if config.mode == "bulk":
            return found
        key = "incrementing.column.name" if config.mode == "incrementing" else "timestamp.column.name"
        try:
            wanted = wanted_range(config, relation, database)
        except Fatal as error:
            return [*found, Finding(key, None, str(error))]
        if config.late_commits == "wait":
            try:
                trouble = await database.trouble(wanted)
                if trouble is None:
                    await database.holders(wanted)
            except Fatal as error:
                trouble = str(error)
            if trouble:
                found.append(Finding("late.commits", config.late_commits, f"{relation.name}: {trouble}"))
        return found

    async def fetch(self, context: FetchContext) -> AsyncGenerator[Page, None]:
        """Round after round over the task's tables."""
        config, database = self.config, self._database(context)
        walks: dict[str, Walk] = {}
        looked = -1e9
        held_seconds = HELD_SECONDS
        try:
            await database.open()
            while True:
                if not config.query and context.clock.monotonic() - looked >= config.table_poll_interval_ms / 1000:
                    looked = context.clock.monotonic()
                    await self._renew(walks, database, context)
                elif config.query and not walks:
                    walks[""] = Walk(config, database, context, None)
                is_held = False
                for name, walk in list(walks.items()):
                    try:
                        async with aclosing(walk.round()) as pages:
                            async for page in pages:
                                yield page
                    except NoTableError:
                        if config.table_whitelist:
                            raise
                        del walks[name]  # dropped, and nobody has named it
                    is_held = is_held or walk.is_held
                if is_held:
                    await context.clock.sleep(min(held_seconds, config.poll_interval))
                    held_seconds *= 1.5
                else:
                    held_seconds = HELD_SECONDS
                    context.finish_round()
                    await context.clock.sleep(config.poll_interval)
        finally:
            database.close()

    async def _renew(self, walks: dict[str, Walk], database: Database, context: FetchContext) -> None:
        """Begin with tables that are new; leave those that are gone."""
        tables = {table.full_name: table for table in await self._tables(database)}
        missing = [] if walks else missing_tables(self.config, await self._all_tables(database))
        if missing:
            raise Fatal(f"there is no table {', '.join(missing)} that this user may read (table.whitelist)")
        for name in [name for name in walks if name not in tables]:
            del walks[name]
        for name, table in tables.items():
            if name not in walks:
                walks[name] = Walk(self.config, database, context, table)

    async def _all_tables(self, database: Database) -> list[Table]:
        if self.config.query:
            return []
        return await database.tables(types=self.config.table_types, schema_pattern=self.config.schema_pattern)

    async def _tables(self, database: Database) -> list[Table]:
        """Those of the task; raises ``Fatal`` where two have the same name, and so the same topic."""
        tables = selected_tables(self.config, await self._all_tables(database))
        names: dict[str, Table] = {}
        for table in tables:
            other = names.setdefault(table.name, table)
            if other is not table:
                raise Fatal(
                    f"the tables {other.schema_name} and {table.schema_name} would have one topic: "
                    "choose with table.whitelist or schema.pattern, and give each schema its connector"
                )
        config = self.config
        if config.table_whitelist:
            places = listed_tables(config.table_whitelist, tables)
            return [table for table, at in places.items() if at % config.task_count == config.task_number]
        return [
            table for table in tables if zlib.crc32(table.full_name.encode()) % config.task_count == config.task_number
        ]


def _findings(config: JdbcConfig) -> Iterator[Finding]:
    lists = ("table.whitelist", "table.blacklist", "table.include.list", "table.exclude.list")
    values = (config.table_whitelist, config.table_blacklist, config.table_include_list, config.table_exclude_list)
    given = [key for key, value in zip(lists, values, strict=True) if value]
    if len(given) > 1:
        yield Finding(given[1], None, f"It cannot be had together with {given[0]}: they exclude each other.")
    if config.query and given:
        yield Finding("query", None, f"It cannot be had together with {given[0]}: a query names its tables itself.")
    if config.query_suffix:
        yield Finding("query.suffix", config.query_suffix, "It would lose rows; batch.max.rows bounds a page.")
    if config.uses_times and not config.timestamp_column_name:
        yield Finding("timestamp.column.name", None, f"Mode {config.mode} needs a column of timestamps.")
    if config.query and config.uses_ids and not config.incrementing_column_name:
        yield Finding("incrementing.column.name", None, f"Mode {config.mode} of a query needs a column.")
    if config.mode == "bulk" and (config.timestamp_column_name or config.incrementing_column_name):
        key = "timestamp.column.name" if config.timestamp_column_name else "incrementing.column.name"
        yield Finding(key, None, "Mode bulk reads all rows at each poll, and uses no column.", Severity.WARNING)
    if config.timestamp_granularity == "connect_logical" and config.uses_times:
        yield Finding(
            "timestamp.granularity",
            config.timestamp_granularity,
            "Fractions of a millisecond are cut off in records (not in offsets); micros_long keeps them.",
            Severity.WARNING,
        )
