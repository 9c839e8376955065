"""``MySqlCdcSource``: changes of MySQL and MariaDB from their binary log, behind a snapshot of what was there before.

One task follows the one log of a server. What it reads becomes segments (``segments``), each segment a page for each of
its tables (``tables``). Its place moves with each page, so that it is stored with the records in one transaction.
Tables that are read later, or again, are read in stretches beside the log (``stretches``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import replace

from fetchers.mysql_cdc.checks import column_findings, settings_findings
from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.events import MalformedError
from fetchers.mysql_cdc.failover import at_this_server
from fetchers.mysql_cdc.log import Log
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.replay import begun, segments_of
from fetchers.mysql_cdc.segment import Segment
from fetchers.mysql_cdc.segments import Segments
from fetchers.mysql_cdc.snapshot import begin, is_wanted_database, log_end, pages, tables_at, tables_of
from fetchers.mysql_cdc.stretches import MySqlStretches
from fetchers.mysql_cdc.table_map import NotDescribed
from fetchers.mysql_cdc.tables import Tables
from fetchers.mysql_cdc.values import MICROS
from fetchers.sdk import Fatal, FetchContext, Finding, Offset, Page, Partition, PayloadKind, Severity, SourceConnector
from fetchers.toolkit.databases import DatabaseUrl, Login
from fetchers.toolkit.mysql import MySqlConnection
from fetchers.toolkit.name_lists import NameFilter, list_findings
from fetchers.toolkit.refusals import Unreachable, session_finding
from fetchers.toolkit.table_reading import Progress, TableReading

BESIDE_SECONDS = 0.1
"""How long to wait for the log while tables are read beside it."""
TOLD_SECONDS = 5.0
"""How often the place is stored while only tables change that nobody wants."""


class MySqlCdcSource(SourceConnector[MySqlCdcConfig]):
    """Inserts, updates and deletes as Debezium's envelopes, or as rows."""

    payload_kind = PayloadKind.ROWS

    def partition(self) -> Partition:
        """Debezium's: the name that begins the topics."""
        return {"server": self.config.topic_prefix}

    @property
    def _progress_partition(self) -> Partition:
        return {**self.partition(), "snapshot": "tables"}

    def takes_over(self, keys: Collection[str]) -> bool:
        """A request for a snapshot is heard while the log is read."""
        return {"snapshot.request.id", "snapshot.request.tables"}.issuperset(keys)

    async def apply_config(self, config: MySqlCdcConfig) -> None:
        """The next look at the log, a second later at most, hears of it."""
        self.config = config

    def findings(self) -> Sequence[Finding]:
        """Lists that are none, and operations."""
        config = self.config
        found = list_findings(
            {
                "database.include.list": config.database_include_list,
                "database.exclude.list": config.database_exclude_list,
                "table.include.list": config.table_include_list,
                "table.exclude.list": config.table_exclude_list,
                "column.include.list": config.column_include_list,
                "column.exclude.list": config.column_exclude_list,
                "snapshot.request.tables": config.snapshot_request_tables,
            }
        )
        strange = [word for word in config.skipped_operations if word not in {"c", "u", "d", "t", "none"}]
        if strange:
            told = "Expected some of c, u, d, t, or none."
            found.append(Finding("skipped.operations", ",".join(strange), told))
        if config.heartbeat_action_query and not config.heartbeat_interval_ms:
            told = "It is run with each heartbeat, of which there are none: set heartbeat.interval.ms."
            found.append(Finding("heartbeat.action.query", None, told, Severity.WARNING))
        if config.decimal_handling_mode == "double":
            told = "A double has 15 digits: DECIMAL columns with more are rounded."
            found.append(Finding("decimal.handling.mode", "double", told, Severity.WARNING))
        return found

    def check_offsets(self, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """Refuse offsets that name no place of a log."""
        for partition, offset in offsets:
            is_progress = dict(partition) == self._progress_partition
            (Progress if is_progress else Place).read(offset or {})

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Log in, and look at the server's settings, the user's rights and the tables."""
        del context
        try:
            async with self._session() as connection:
                found = list(await settings_findings(connection, self.config, self._takes()))
                wanted = await tables_of(connection, self._takes())
                tables = await tables_at(connection, self.config)
        except (Fatal, Unreachable) as error:
            return [session_finding(error, self.config.database_hostname)]
        if not wanted:
            lists = ",".join(self.config.table_include_list)
            told = "There is no such table yet that this user may read."
            found.append(Finding("table.include.list", lists, told, Severity.WARNING))
        found += column_findings(self.config, wanted)
        for table in wanted:
            try:
                tables.of(table)
            except NotDescribed as trouble:
                found.append(Finding("table.include.list", table.name, str(trouble)))
        return found

    async def fetch(self, context: FetchContext) -> AsyncGenerator[Page, None]:
        """The snapshot where there is none yet, then the log, with what is left of the snapshot beside it."""
        try:
            async with self._session() as connection:
                for finding in await settings_findings(connection, self.config, self._takes()):
                    if finding.is_error:
                        raise Fatal(finding.message)
                tables = await tables_at(connection, self.config)
                with closing(self._stretches(tables, context)) as stretches:
                    async with aclosing(self._changes(connection, tables, stretches, context)) as read:
                        async for page in read:
                            yield page
        except (NotDescribed, MalformedError) as error:
            raise Fatal(f"{self.config.database_hostname}: {error}") from error

    async def _changes(
        self, connection: MySqlConnection, tables: Tables, stretches: MySqlStretches, context: FetchContext
    ) -> AsyncGenerator[Page, None]:
        stored, progress = self._stored(context)
        if stored is None and not self._has_snapshot:
            stored = await begun(connection, self._session, context.clock, lambda: log_end(connection))
            yield Page([], stored.offset(), partition=tables.partition)
        elif stored is None:
            limit = self.config.lock_seconds_max
            place = await begun(
                connection, self._session, context.clock, lambda: begin(connection, lock_seconds_max=limit)
            )
            rows = self._rows(connection, tables, context, takes=self._takes(), place=place)
            async with aclosing(rows) as read:
                async for page in read:
                    if page.partition == tables.partition:
                        stored = Place.read(page.offset)
                    else:
                        progress = Progress.read(page.offset)
                    yield page
        assert stored is not None  # noqa: S101 - a snapshot has said where the log goes on
        reading, first = await self._reading(stretches, stored, progress, context)
        for page in first:
            yield page
        async with aclosing(self._keyless(reading, tables, context)) as read:
            async for page in read:
                yield page
        place = stored.at(stored.file, stored.position, stored.gtids) if stored.is_snapshot else stored
        follow = self._follow(connection, place, context, tables=tables, reading=reading, stretches=stretches)
        async with aclosing(follow) as read:
            async for page in read:
                yield page

    def _stored(self, context: FetchContext) -> tuple[Place | None, Progress | None]:
        try:
            progress = Progress.read(context.offset_of(self._progress_partition))
            return Place.read(context.offset_of(self.partition())), progress
        except ValueError as error:
            raise Fatal(f"the stored offset cannot be read: {error}") from error

    def _stretches(self, tables: Tables, context: FetchContext) -> MySqlStretches:
        async def opened() -> MySqlConnection:
            made = await self._opened()
            try:
                await made.rows("SET SESSION sql_mode = ''")  # else days that are none are refused in a condition
            except BaseException:  # a cancellation too: nobody else knows of the session yet
                made.close()
                raise
            return made

        return MySqlStretches(
            opened,
            tables,
            self._takes(),
            rows_max=self.config.snapshot_fetch_size,
            lock_seconds_max=self.config.lock_seconds_max,
            clock=context.clock,
        )

    async def _reading(
        self, stretches: MySqlStretches, stored: Place, progress: Progress | None, context: FetchContext
    ) -> tuple[TableReading, list[Page]]:
        """What is left to be read beside the log, and pages that store it where it is not stored yet."""
        made, first = progress, list[Page]()
        if stored.is_snapshot:
            made = Progress(frozenset(stored.tables)).with_found(await stretches.tables())
            if stored.table in made.waiting:
                made = made.after(stored.table, stored.keys)
            place = stored.at(stored.file, stored.position, stored.gtids)
            first = [Page([], place.offset(), partition=self.partition())]
        elif made is None:
            made = Progress(frozenset(await stretches.tables()))
        reading = TableReading(stretches, made, context, self._progress_partition)
        return reading, [] if made is progress else [reading.page(), *first]

    async def _keyless(
        self, reading: TableReading, tables: Tables, context: FetchContext
    ) -> AsyncGenerator[Page, None]:
        """Whole tables without a key, before the log is read: they cannot be read beside it."""
        async for page in reading.look(self.config, takes_new=self._has_snapshot):
            yield page
        for name in sorted(reading.aside):
            async with self._session() as connection:
                place = await begin(connection, lock_seconds_max=None)
                rows = self._rows(connection, tables, context, takes=name.__eq__, place=place)
                async with aclosing(rows) as read:
                    async for page in read:
                        if len(page):
                            yield replace(page, offset=reading.progress.offset(), partition=self._progress_partition)
            yield reading.pass_over(name)

    async def _opened(self) -> MySqlConnection:
        config = self.config
        settings = {"sslMode": config.database_ssl_mode}
        url = DatabaseUrl("mysql", config.database_hostname, config.database_port, "", settings=settings)
        connection = MySqlConnection(config.database_hostname)
        try:
            await connection.open(Login(url, config.database_user, config.database_password), self.allowed_addresses)
        except BaseException:  # a cancellation too: nobody else knows of the session yet
            connection.close()
            raise
        return connection

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[MySqlConnection]:
        with closing(await self._opened()) as connection:
            yield connection

    def _takes(self) -> Callable[[str], bool]:
        config = self.config
        databases = NameFilter(config.database_include_list, config.database_exclude_list)
        tables = NameFilter(config.table_include_list, config.table_exclude_list)

        def takes(name: str) -> bool:
            database = name.partition(".")[0]
            return is_wanted_database(database) and databases.takes(database) and tables.takes(name)

        return takes

    @property
    def _has_snapshot(self) -> bool:
        return self.config.snapshot_mode in ("initial", "initial_only")

    async def _rows(
        self,
        connection: MySqlConnection,
        tables: Tables,
        context: FetchContext,
        *,
        takes: Callable[[str], bool],
        place: Place,
    ) -> AsyncGenerator[Page, None]:
        """All of each table, by name, as at one moment. Last comes what was read, then where the log goes on."""
        wanted = await tables_of(connection, takes)
        read = pages(
            connection,
            tables,
            wanted,
            place,
            rows_max=self.config.snapshot_fetch_size,
            now_us=lambda: _now_us(context),
        )
        async with aclosing(read):
            async for page in read:
                yield page
        done = Progress(frozenset(table.name for table in wanted))
        yield Page([], done.offset(), partition=self._progress_partition)
        yield Page([], place.offset(), partition=tables.partition)

    async def _follow(  # noqa: C901, PLR0912 - one loop
        self,
        connection: MySqlConnection,
        place: Place,
        context: FetchContext,
        *,
        tables: Tables,
        reading: TableReading,
        stretches: MySqlStretches,
    ) -> AsyncGenerator[Page, None]:
        place = await at_this_server(connection, place, end := await log_end(connection))
        config = self.config
        log = Log(connection, server_id=config.database_server_id, silence_seconds=config.log_silence_max_ms / 1000)
        segments = await self._segments(connection, place)
        await log.begin(place)
        told, told_at = place, context.clock.monotonic()
        beaten_at = told_at
        if place.order >= end.order and not reading.is_waiting:
            context.finish_round()
        while config.snapshot_mode != "initial_only" or reading.is_waiting:
            was_behind = segments.place.order >= end.order
            is_beside = reading.is_waiting
            for event in segments.each(await log.events(wait_seconds_max=BESIDE_SECONDS if is_beside else None)):
                if (closed := segments.take(event)) is not None:
                    for page in await _pages(closed, tables, stretches, context):
                        yield reading.heed(page)
                if segments.committed is not None:
                    async for part in segments_of(segments.committed, segments, self._session):
                        for page in await _pages(part, tables, stretches, context):
                            yield reading.heed(page)
                if is_beside and segments.is_between and reading.is_due(segments.reached):
                    if segments.has_rows:
                        for page in await _pages(segments.close(), tables, stretches, context):
                            yield reading.heed(page)
                    async for page in _beside(reading, stretches, segments):
                        yield page
            if segments.is_idle:
                context.report_lag(0.0)
                if not reading.is_waiting:
                    context.finish_round()
            if segments.has_rows and segments.is_between and not await log.has_more():
                for page in await _pages(segments.close(), tables, stretches, context):
                    yield reading.heed(page)
            if segments.has_rows or not segments.is_between or not segments.place.file:
                continue
            async for page in reading.look(self.config, takes_new=self._has_snapshot):
                yield page
            async for page in _beside(reading, stretches, segments):
                yield page
            if not was_behind and segments.place.order >= end.order and not reading.is_waiting:
                context.finish_round()
            now = context.clock.monotonic()
            if config.heartbeat_interval_ms and now - beaten_at >= config.heartbeat_interval_ms / 1000:
                beaten_at = told_at = now
                told = segments.place
                yield await self._heartbeat(tables, told, context)
            elif now - told_at >= TOLD_SECONDS and segments.place != told:
                told, told_at = segments.place, now
                yield Page([], told.offset(), partition=tables.partition)
        context.finish_round()

    async def _segments(self, connection: MySqlConnection, place: Place) -> Segments:
        config = self.config
        (names,) = await connection.rows("SELECT @@lower_case_table_names AS mode")
        return Segments(
            place,
            self._takes(),
            is_mariadb=connection.is_mariadb,
            bytes_max=config.max_batch_bytes,
            tells_emptied="t" not in config.skipped_operations and config.event_form == "envelope",
            has_small_names=str(names["mode"]) == "1",
        )

    async def _heartbeat(self, tables: Tables, place: Place, context: FetchContext) -> Page:
        config = self.config
        if config.heartbeat_action_query:
            async with self._session() as connection:
                await connection.rows(config.heartbeat_action_query)
        return tables.heartbeat(place, now_us=_now_us(context), topic_prefix=config.heartbeat_topics_prefix)


async def _beside(reading: TableReading, stretches: MySqlStretches, segments: Segments) -> AsyncGenerator[Page, None]:
    """What is read beside the log, which stands between two transactions; nothing where some of the next is told."""
    place = stretches.told = segments.place
    is_due = reading.is_waiting and not place.is_inside
    while is_due:
        async for page in reading.advance(segments.reached):
            yield page
        is_due = reading.is_due(segments.reached)


async def _pages(segment: Segment, tables: Tables, stretches: MySqlStretches, context: FetchContext) -> list[Page]:
    for run in segment.runs:
        await stretches.describe(run)
    handled = _now_us(context)
    if segment.end.seconds:
        context.report_lag(max(0.0, handled / MICROS - segment.end.seconds))
    count = len(segment.runs)
    if not count:
        return [
            Page(
                [],
                segment.place_after(0).offset(),
                partition=tables.partition,
                ends_transaction=segment.ends_transaction,
            )
        ]
    return [
        tables.logged(
            run,
            place=segment.place_after(at + 1),
            file=segment.start.file,
            handled_us=handled,
            ends_transaction=segment.ends_transaction and at + 1 == count,
        )
        for at, run in enumerate(segment.runs)
    ]


def _now_us(context: FetchContext) -> int:
    return int(context.clock.now().timestamp() * MICROS)
