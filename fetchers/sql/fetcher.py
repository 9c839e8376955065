"""``JdbcSource``: tables and queries, read by polling, safe against late commits.

A task goes over its tables in turn. For each it takes a bound (the highest id, the database's clock), waits until
nobody is left who could still commit a row under it (``settling``), and then reads what lies between its place and
the bound, in order, in one statement. So each row is read once, also where ids and commits are in different orders.
"""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Self, TypeVar, cast

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
from fetchers.sdk import rows as forms
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Blocking, Database, NoTableError, Range, Relation, Table
from fetchers.sql.idle import idle_tables
from fetchers.sql.kinds import INT8, INT16, INT32, INT64, ColumnPlan
from fetchers.sql.load import Part, even_ends, load_of
from fetchers.sql.places import forgotten_with, stored_offset
from fetchers.sql.postgresql import PostgresDatabase
from fetchers.sql.ranges import wanted_range, whole_number
from fetchers.sql.sqlite import SqliteDatabase
from fetchers.sql.tables import listed_tables, missing_tables, selected_tables
from fetchers.sql.walk import Walk
from fetchers.toolkit.name_lists import list_findings
from fetchers.toolkit.refusals import Unreachable

T = TypeVar("T")


class InThisThread:
    """``Blocking`` where no event loop is held up by it: while the work is split."""

    async def run_blocking(self, call: Callable[[], T], *, subject: str = "", seconds_max: float = 300.0) -> T:
        """What the call returns or raises."""
        del subject, seconds_max
        return call()


TABLES_SHOWN, TABLES_ASKED = 1000, 20
"""Most tables that are recommended, and whose columns are looked at for it."""
HELD_SECONDS = 0.05
"""Between two looks at a bound that is not settled, at first; the wait grows by half up to the poll interval."""


class JdbcSource(SourceConnector[JdbcConfig]):
    """Rows of tables, or of a query, as typed records."""

    payload_kind = PayloadKind.ROWS

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        return tuple(_findings(self.config))

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """A query has one task; tables are dealt over the tasks by name, so that a new one moves no other.

        Where first loads are split, the database is asked between which ids; raises as ``fetch`` does.
        """
        config = self.config
        listed = len(config.table_whitelist) * config.load_parts
        count = 1 if config.query else min(tasks_max, listed) if listed else tasks_max
        ends = {}
        if count > 1 and config.load_parts > 1:
            ends = {"load.ends": json.dumps(asyncio.run(self._ends_of_parts()), separators=(",", ":"))}
        return tuple({"task.number": str(number), "task.count": str(count), **ends} for number in range(count))

    async def _ends_of_parts(self) -> Mapping[str, Sequence[int]]:
        """Of tables that have more rows than pages of all parts would hold, going by their ids."""
        database = self._database(InThisThread())
        found: dict[str, Sequence[int]] = {}
        try:
            await database.open()
            for table in selected_tables(self.config, await self._all_tables(database)):
                relation = await database.relation(table)
                wanted = wanted_range(self.config, relation, database)
                # The highest first: what is between the two looks is then below it, or waited for.
                highest = await database.bound(wanted)
                lowest = await _lowest(database, wanted)
                if highest is not None and lowest is not None:
                    ends = even_ends(lowest, whole_number(highest, wanted), self.config.load_parts)
                    if whole_number(highest, wanted) - lowest >= self.config.load_parts * self.config.batch_max_rows:
                        found[table.full_name] = ends
        finally:
            database.close()
        return found

    def _database(self, context: Blocking) -> Database:
        dialect = self.config.url.dialect
        if dialect == "postgresql":
            return PostgresDatabase(self.config, context, self.allowed_addresses)
        if dialect == "sqlite":
            return SqliteDatabase(self.config, context, self.allowed_paths)
        from fetchers.sql.mysql import MySqlDatabase  # noqa: PLC0415 - its driver takes 10 MB

        return MySqlDatabase(self.config, self.allowed_addresses)

    def check_offsets(self, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """Refuse offsets in which nothing is known."""
        for _, offset in offsets:
            if offset and not {"incrementing", "timestamp", "at"} & set(offset):
                message = 'expected {"incrementing": 17} or {"timestamp": milliseconds, "timestamp_nanos": nanoseconds}'
                raise ValueError(message)

    def forgotten_with(self, partition: Partition, stored: Sequence[Partition]) -> Sequence[Partition]:
        """Older forms of a table's or a query's partition, and the parts of a first load."""
        return forgotten_with(partition, stored, database=self.config.url.database)

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Log in, look for the tables and at the columns of the mode, and whether late commits can be seen."""
        config, database = self.config, self._database(context)
        found: list[Finding] = []
        key = "connection.url"
        try:
            await database.open()
            key = "query" if config.query else "table.whitelist"
            tables = await self._all_tables(database)
            found += [
                Finding("table.whitelist", name, f"There is no table {name} that this user may read.")
                for name in missing_tables(config, tables)
            ]
            if not config.query and not found and not selected_tables(config, tables):
                found.append(_no_table(config))
            for relation in await self._relations(database):
                found += await self._relation_findings(database, relation)
        except (Fatal, Unreachable) as error:
            found.append(Finding(key, None, str(error)))
        finally:
            database.close()
        return found

    @classmethod
    def asked_for_values(cls, properties: Mapping[str, str]) -> Self | None:
        """Where the URL and the login are known already; tables that are listed narrow the columns."""
        known = {name: text for name, text in properties.items() if name in _ASKED_WITH}
        config = cls.config_class.parse({**known, "mode": "bulk", "topic.prefix": "asked"}).config
        return cls(cast("JdbcConfig", config)) if config is not None else None

    async def recommended(self, context: FetchContext) -> Mapping[str, Sequence[str]]:
        """Tables that the user may read, and columns that all listed tables (or the first few) have for a mode."""
        database = self._database(context)
        try:
            await database.open()
            tables = await self._all_tables(database)
            names = [table.name for table in tables]
            shown = [
                table.name if names.count(table.name) == 1 else table.schema_name for table in tables[:TABLES_SHOWN]
            ]
            listed = selected_tables(self.config, tables)[:TABLES_ASKED] if self.config.table_whitelist else []
            relations = [await database.relation(table) for table in listed]
        finally:
            database.close()
        return {
            "table.whitelist": shown,
            "table.blacklist": shown,
            "incrementing.column.name": _shared(relations, lambda column: column.kind in _WHOLE),
            "timestamp.column.name": _shared(relations, lambda column: column.kind.form == forms.TIMESTAMP),
            "key.columns": _shared(relations, lambda _: True),
        }

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
                idle = await idle_tables(database, walks)
                for name, walk in [each for each in walks.items() if each[0] not in idle]:
                    try:
                        async with aclosing(walk.round()) as pages:
                            async for page in pages:
                                yield page
                    except NoTableError:
                        if config.table_whitelist:
                            raise
                        del walks[name]  # dropped, and nobody has named it
                    if walk.is_done:
                        _let_go(walks, name)
                held_seconds = await self._wait(context, walks.values(), held_seconds)
        finally:
            database.close()

    async def _wait(self, context: FetchContext, walks: Iterable[Walk], held_seconds: float) -> float:
        """Until the next round, which comes sooner where a range is not settled; how long to wait for that then."""
        if any(walk.is_held for walk in walks):
            await context.clock.sleep(min(held_seconds, self.config.poll_interval))
            return held_seconds * 1.5
        context.finish_round()
        await context.clock.sleep(self.config.poll_interval)
        return HELD_SECONDS

    async def _renew(self, walks: dict[str, Walk], database: Database, context: FetchContext) -> None:
        """Begin with tables that are new; leave those that are gone."""
        tables = await self._chosen(database)
        wanted: dict[str, tuple[Table, Part | None]] = {
            table.full_name: (table, None) for table in self._dealt(tables)
        } | {f"{table.full_name} {part.ids}": (table, part) for table, part in self._parts(tables, context)}
        missing = [] if walks else missing_tables(self.config, await self._all_tables(database))
        if missing:
            raise Fatal(f"there is no table {', '.join(missing)} that this user may read (table.whitelist)")
        for name in [name for name in walks if name not in wanted]:
            del walks[name]
        for name, (table, part) in wanted.items():
            if name not in walks:
                walks[name] = Walk(self.config, database, context, table, part=part)

    def _parts(self, tables: Sequence[Table], context: FetchContext) -> Iterator[tuple[Table, Part]]:
        """Parts of first loads that are this task's and not read yet; the tables are those of all tasks."""
        config = self.config
        if config.mode != "incrementing":
            return
        offsets = context.offsets
        for table in tables:
            stored = stored_offset(context, table)
            load = load_of(table, stored, offsets, config.ends_of_parts.get(table.full_name, ()))
            for at, part in enumerate(load.parts if load is not None else ()):
                if at % config.task_count == config.task_number and load is not None and part in load.unread:
                    yield table, part

    async def _all_tables(self, database: Database) -> list[Table]:
        if self.config.query:
            return []
        return await database.tables(types=self.config.types, schema_pattern=self.config.schema_pattern)

    async def _tables(self, database: Database) -> list[Table]:
        """Those of the task."""
        return self._dealt(await self._chosen(database))

    async def _chosen(self, database: Database) -> list[Table]:
        """Those of all tasks; raises ``Fatal`` where two have the same name, and so the same topic."""
        tables = selected_tables(self.config, await self._all_tables(database))
        names: dict[str, Table] = {}
        for table in tables:
            other = names.setdefault(table.name, table)
            if other is not table:
                raise Fatal(
                    f"the tables {other.schema_name} and {table.schema_name} would have one topic: "
                    "choose with table.whitelist or schema.pattern, and give each schema its connector"
                )
        return tables

    def _dealt(self, tables: Sequence[Table]) -> list[Table]:
        config = self.config
        if config.table_whitelist:
            places = listed_tables(config.table_whitelist, tables)
            return [table for table, at in places.items() if at % config.task_count == config.task_number]
        return [
            table for table in tables if zlib.crc32(table.full_name.encode()) % config.task_count == config.task_number
        ]


_ASKED_WITH = {"connection.url", "connection.user", "connection.password", "table.whitelist", "table.types"}
_ASKED_WITH |= {"schema.pattern"}
_TYPES_OF_POSTGRESQL = ("PARTITIONED TABLE", "FOREIGN TABLE", "MATERIALIZED VIEW")
_WHOLE = (INT8, INT16, INT32, INT64)


def _shared(relations: Sequence[Relation], fits: Callable[[ColumnPlan], bool]) -> list[str]:
    """Names of columns that fit in every relation, in the order of the first."""
    found = [[column.name for column in relation.columns if fits(column)] for relation in relations]
    return [name for name in found[0] if all(name in names for names in found)] if found else []


def _scope_findings(config: JdbcConfig) -> Iterator[Finding]:
    """Of keys that narrow what is read: one that is not heeded would show more, or nothing at all."""
    dialect, database = config.url.dialect, config.url.database
    known = ["TABLE", "VIEW", *(_TYPES_OF_POSTGRESQL if dialect == "postgresql" else ())]
    for word in config.types:
        if word not in known:
            yield Finding("table.types", word, f"No table is of this type: expected some of {', '.join(known)}.")
    patterns = {"catalog.pattern": config.catalog_pattern}
    if dialect in {"mysql", "mariadb"}:
        patterns["schema.pattern"] = config.schema_pattern
    for key, pattern in patterns.items():
        like = re.escape(pattern or "%").replace("%", ".*").replace("_", ".")
        if dialect != "sqlite" and re.fullmatch(like, database, re.IGNORECASE | re.DOTALL) is None:
            told = (
                f"Only the database of connection.url is read, which is {database}: remove the key, or name it there."
            )
            yield Finding(key, pattern, told)


def _no_table(config: JdbcConfig) -> Finding:
    """What the lists leave over is nothing, which may be right: tables are looked for again and again."""
    key = "table.include.list" if config.table_include_list else "table.blacklist" if config.table_blacklist else ""
    key = key or ("schema.pattern" if config.schema_pattern else "table.types")
    told = "No table that this user may read is meant: none is read until there is one."
    return Finding(key, None, told, Severity.WARNING)


def _let_go(walks: dict[str, Walk], name: str) -> None:
    """Of a part that was read; what was settled for it is for the others of its table."""
    read = walks.pop(name)
    for other in walks.values():
        other.is_settled = other.is_settled or read.is_before(other)


async def _lowest(database: Database, wanted: Range) -> int | None:
    relation = wanted.relation
    lowest = database.text_of(f"min({wanted.identity})", relation, wanted.identity_column)
    sql = f"select {lowest} as headrace_0 from {relation.source}"  # noqa: S608 - names are quoted
    async with aclosing(database.read(sql, rows_max=1)) as batches:
        async for batch in batches:
            value = batch.column(0)[0].as_py()
            return None if value in {None, "NULL"} else whole_number(str(value), wanted)
    return None


def _findings(config: JdbcConfig) -> Iterator[Finding]:
    lists = ("table.whitelist", "table.blacklist", "table.include.list", "table.exclude.list")
    values = (config.table_whitelist, config.table_blacklist, config.table_include_list, config.table_exclude_list)
    given = [key for key, value in zip(lists, values, strict=True) if value]
    if len(given) > 1:
        yield Finding(given[1], None, f"It cannot be had together with {given[0]}: they exclude each other.")
    if config.query and given:
        yield Finding("query", None, f"It cannot be had together with {given[0]}: a query names its tables itself.")
    for key in ("table.include.list", "table.exclude.list"):
        yield from list_findings({key: values[lists.index(key)]})
    yield from _scope_findings(config)
    if config.query_suffix:
        yield Finding("query.suffix", config.query_suffix, "It would lose rows; batch.max.rows bounds a page.")
    if config.load_parts > 1 and (config.mode != "incrementing" or config.query):
        yield Finding("load.parts", str(config.load_parts), "Only tables in mode incrementing are read in parts.")
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
