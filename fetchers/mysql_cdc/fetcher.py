"""``MySqlCdcSource``: changes of MySQL and MariaDB from their binary log, behind a snapshot of what was there before.

One task follows the one log of a server. What it reads becomes segments (``segments``), each segment a page for each of
its tables (``tables``). Its place moves with each page, so that it is stored with the records in one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from fetchers.mysql_cdc.checks import settings_findings
from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.events import MalformedError
from fetchers.mysql_cdc.log import Log
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.segments import Segment, Segments
from fetchers.mysql_cdc.snapshot import begin, is_wanted_database, log_end, pages, tables_of
from fetchers.mysql_cdc.table_map import NotDescribed
from fetchers.mysql_cdc.tables import MICROS, Tables
from fetchers.sdk import Fatal, FetchContext, Finding, Offset, Page, Partition, PayloadKind, Severity, SourceConnector
from fetchers.toolkit.databases import DatabaseUrl, Login
from fetchers.toolkit.mysql import MySqlConnection
from fetchers.toolkit.name_lists import NameFilter, list_findings

TOLD_SECONDS = 5.0
"""How often the place is stored while only tables change that nobody wants."""


class MySqlCdcSource(SourceConnector[MySqlCdcConfig]):
    """Inserts, updates and deletes as Debezium's envelopes, or as rows."""

    payload_kind = PayloadKind.ROWS

    def partition(self) -> Partition:
        """Debezium's: the name that begins the topics."""
        return {"server": self.config.topic_prefix}

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
            }
        )
        strange = [word for word in config.skipped_operations if word not in {"c", "u", "d", "t"}]
        if strange:
            told = "Expected some of c, u, d, t; TRUNCATE (t) is always left out."
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
        for _, offset in offsets:
            Place.read(offset or {})

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Log in, and look at the server's settings, the user's rights and the tables."""
        del context
        connection = MySqlConnection(self.config.database_hostname)
        try:
            await self._open(connection)
            found = list(await settings_findings(connection, self.config))
            wanted = await tables_of(connection, self._takes())
            if not wanted:
                told = "There is no such table yet that this user may read."
                found.append(
                    Finding("table.include.list", ",".join(self.config.table_include_list), told, Severity.WARNING)
                )
            tables = await self._tables(connection)
            for table in wanted:
                try:
                    tables.of(table)
                except NotDescribed as trouble:
                    found.append(Finding("table.include.list", table.name, str(trouble)))
            return found
        except Fatal as error:
            return [Finding("database.hostname", self.config.database_hostname, str(error))]
        finally:
            connection.close()

    async def fetch(self, context: FetchContext) -> AsyncGenerator[Page, None]:
        """The snapshot where there is none yet, then the log."""
        connection = MySqlConnection(self.config.database_hostname)
        try:
            await self._open(connection)
            for finding in await settings_findings(connection, self.config):
                if finding.is_error:
                    raise Fatal(finding.message)
            tables = await self._tables(connection)
            place = self._stored(context)
            if place is None or place.is_snapshot:
                async with aclosing(self._snapshot(connection, tables, place, context)) as read:
                    async for page in read:
                        place = Place.read(page.offset)
                        yield page
            if place is None or self.config.snapshot_mode == "initial_only":
                context.finish_round()
                return
            async with aclosing(self._follow(connection, tables, place, context)) as read:
                async for page in read:
                    yield page
        except (NotDescribed, MalformedError) as error:
            raise Fatal(f"{self.config.database_hostname}: {error}") from error
        finally:
            connection.close()

    def _stored(self, context: FetchContext) -> Place | None:
        try:
            return Place.read(context.offset_of(self.partition()))
        except ValueError as error:
            raise Fatal(f"the stored offset is no place of a log: {error}") from error

    async def _open(self, connection: MySqlConnection) -> None:
        config = self.config
        settings = {"sslMode": config.database_ssl_mode}
        url = DatabaseUrl("mysql", config.database_hostname, config.database_port, "", settings=settings)
        await connection.open(Login(url, config.database_user, config.database_password), self.allowed_addresses)

    async def _tables(self, connection: MySqlConnection) -> Tables:
        source = "collation_character_set_applicability" if connection.is_mariadb else "collations"
        rows = await connection.rows(
            f"SELECT id, character_set_name AS name FROM information_schema.{source}"  # noqa: S608 - one of two
        )
        charsets = {int(row["id"]): str(row["name"]) for row in rows if row["id"] is not None}
        return Tables(self.config, connector="mariadb" if connection.is_mariadb else "mysql", charsets=charsets)

    def _takes(self) -> Callable[[str], bool]:
        config = self.config
        databases = NameFilter(config.database_include_list, config.database_exclude_list)
        tables = NameFilter(config.table_include_list, config.table_exclude_list)

        def takes(name: str) -> bool:
            database = name.partition(".")[0]
            return is_wanted_database(database) and databases.takes(database) and tables.takes(name)

        return takes

    async def _snapshot(
        self, connection: MySqlConnection, tables: Tables, place: Place | None, context: FetchContext
    ) -> AsyncGenerator[Page, None]:
        config = self.config
        if place is None and config.snapshot_mode not in ("initial", "initial_only"):
            yield Page([], (await log_end(connection)).offset(), partition=tables.partition)
            return
        begun = await begin(connection, locks=config.snapshot_locking_mode == "minimal")
        wanted = await tables_of(connection, self._takes())
        read = pages(
            connection,
            tables,
            wanted,
            place or begun,
            rows_max=config.snapshot_fetch_size,
            now_us=lambda: _now_us(context),
        )
        async with aclosing(read):
            async for page in read:
                yield page

    async def _follow(  # noqa: C901, PLR0912 - one loop
        self, connection: MySqlConnection, tables: Tables, place: Place, context: FetchContext
    ) -> AsyncGenerator[Page, None]:
        end = await log_end(connection)
        if place.server_id and place.server_id != end.server_id:
            raise Fatal(
                f"the stored place is one of the server {place.server_id}, and this is {end.server_id}: files and "
                "positions of two servers have nothing to do with each other. Go back to the first one, or forget the "
                "offset (DELETE /connectors/NAME/offsets) so that snapshot.mode=initial reads all rows anew"
            )
        place = replace(place, server_id=end.server_id)
        config = self.config
        log = Log(connection, server_id=config.database_server_id, silence_seconds=config.log_silence_max_ms / 1000)
        segments = Segments(place, self._takes(), is_mariadb=connection.is_mariadb, bytes_max=config.max_batch_bytes)
        await log.begin(place)
        told, told_at = place, context.clock.monotonic()
        beaten_at = told_at
        if _is_behind(place, end):
            context.finish_round()
        while True:
            was_behind = _is_behind(segments.place, end)
            for event in await log.events():
                if (closed := segments.take(event)) is not None:
                    for page in _pages(closed, tables, context):
                        yield page
            if segments.is_idle:
                context.report_lag(0.0)
                context.finish_round()
            if segments.has_rows and segments.is_between and not await log.has_more():
                for page in _pages(segments.close(), tables, context):
                    yield page
            if segments.has_rows or not segments.is_between:
                continue
            if not was_behind and _is_behind(segments.place, end):
                context.finish_round()
            now = context.clock.monotonic()
            if config.heartbeat_interval_ms and now - beaten_at >= config.heartbeat_interval_ms / 1000:
                beaten_at = told_at = now
                told = segments.place
                yield await self._heartbeat(tables, told, context)
            elif now - told_at >= TOLD_SECONDS and segments.place != told:
                told, told_at = segments.place, now
                yield Page([], told.offset(), partition=tables.partition)

    async def _heartbeat(self, tables: Tables, place: Place, context: FetchContext) -> Page:
        config = self.config
        if config.heartbeat_action_query:
            connection = MySqlConnection(config.database_hostname)
            try:
                await self._open(connection)
                await connection.rows(config.heartbeat_action_query)
            finally:
                connection.close()
        return tables.heartbeat(place, now_us=_now_us(context), topic_prefix=config.heartbeat_topics_prefix)


def _pages(segment: Segment, tables: Tables, context: FetchContext) -> list[Page]:
    handled = _now_us(context)
    if segment.end.seconds:
        context.report_lag(max(0.0, handled / MICROS - segment.end.seconds))
    count = len(segment.runs)
    if not count:
        return [Page([], segment.end.offset(), partition=tables.partition, ends_transaction=segment.ends_transaction)]
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


def _is_behind(place: Place, end: Place) -> bool:
    """Whether a place is at an end of the log or behind it."""
    return (_number(place.file), place.position) >= (_number(end.file), end.position)


def _number(file: str) -> int:
    number = file.rpartition(".")[2]
    return int(number) if number.isdigit() else 0


def _now_us(context: FetchContext) -> int:
    return int(context.clock.now().timestamp() * MICROS)
