"""``PostgresCdcSource``: a consistent snapshot of tables, then every change of them, from exactly that point on.

The slot is made together with a snapshot; its tables are read, and then the log from where the slot begins. Others are
read in stretches beside it. The server forgets log only behind what is in Kafka (``on_committed``). A task has a slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from fetchers.postgres_cdc.backlog import telling_backlog
from fetchers.postgres_cdc.captured import CapturedTables
from fetchers.postgres_cdc.catalogue import Catalogue, SlotInUseError, catalogue, takes_table
from fetchers.postgres_cdc.checks import checked, demand, rights_findings, settings_findings
from fetchers.postgres_cdc.config import PostgresCdcConfig, findings
from fetchers.postgres_cdc.deletion import take_away
from fetchers.postgres_cdc.events import CapturedTable, change_form
from fetchers.postgres_cdc.fail_over import Doubts
from fetchers.postgres_cdc.history import demand_log, history
from fetchers.postgres_cdc.log import Batch, Framing, Log, readable
from fetchers.postgres_cdc.place import Place, SnapshotPlace, read_origin, read_place
from fetchers.postgres_cdc.replication import Replication, created_slot, replication_session
from fetchers.postgres_cdc.snapshot import SnapshotReader, key_order, place_in
from fetchers.postgres_cdc.stretches import PostgresStretches, made_of
from fetchers.sdk import (
    Fatal,
    FetchContext,
    FetchError,
    Finding,
    Offset,
    Page,
    Partition,
    PayloadKind,
    Retriable,
    SourceConnector,
)
from fetchers.toolkit.table_reading import Progress, TableReading

T = TypeVar("T")
BESIDE_SECONDS = 0.1
"""Between two looks at the log while tables are read beside it and nothing comes."""
QUIET_SECONDS = 5.0
"""Between two looks at a log that says nothing; and between two offsets that only move on."""
FORGETTING_SECONDS = 30.0
"""Between two questions which tables were dropped."""


class PostgresCdcSource(SourceConnector[PostgresCdcConfig]):
    """Changes of rows, as PostgreSQL's log has them."""

    payload_kind = PayloadKind.ROWS

    def __init__(self, config: PostgresCdcConfig) -> None:
        """It hears what of its slot is in Kafka."""
        super().__init__(config)
        self._woken = asyncio.Event()
        self._doubts = Doubts()
        self._confirmed = 0
        """Up to where all is in Kafka."""
        self._read: frozenset[str] = frozenset()
        """Tables that the stored progress calls read."""
        self._forgetting_due = 0.0
        self._form = change_form(config, self.version)

    def partition(self) -> Partition:
        """Debezium's."""
        return self.config.source_partition

    @property
    def _progress_partition(self) -> Partition:
        return {**self.partition(), "snapshot": "tables"}

    def takes_over(self, keys: Collection[str]) -> bool:
        """A request for a snapshot is heard while the log is read."""
        return {"snapshot.request.id", "snapshot.request.tables"}.issuperset(keys)

    async def apply_config(self, config: PostgresCdcConfig) -> None:
        """Look for a request at once."""
        self.config = config.within(self.allowed_addresses)
        self._woken.set()

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        return tuple(findings(self.config))

    def check_offsets(self, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """Refuse what is neither ours nor Debezium's."""
        for partition, offset in offsets:
            if dict(partition) == self._progress_partition:
                Progress.read(offset or {})
                continue
            if set(partition) != {"server"}:
                message = 'expected the partition {"server": "<topic.prefix>"}'
                raise ValueError(message)
            if offset is not None:
                read_place(offset)
                read_origin(offset)

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Log in, and look whether the log and the tables may be read."""
        self.config = self.config.within(self.allowed_addresses)
        return await context.run_blocking(partial(checked, self.config), subject="catalogue")

    async def on_committed(self, partition: Partition, offset: Offset) -> None:
        """Let the server forget what is in Kafka, with the next status it hears."""
        if dict(partition) == self._progress_partition:
            progress = Progress.read(offset)
            self._read = frozenset() if progress is None else progress.done
        place = read_place(offset) if dict(partition) == self.partition() else None
        if isinstance(place, Place):
            self._confirmed = max(self._confirmed, place.commit)
            self._woken.set()

    async def on_deleted(self, context: FetchContext, others: Sequence[Mapping[str, str]]) -> bool:
        """Drop slot and publication, as ``slot.drop.on.delete`` has it."""
        self.config = self.config.within(self.allowed_addresses)
        return await take_away(self.config, context, others)

    async def fetch(self, context: FetchContext) -> AsyncGenerator[Page, None]:
        """The snapshot where there is none yet, then the log, with what is left of the snapshot beside it."""
        self._context = context
        self.config = self.config.within(self.allowed_addresses)
        self._tables = CapturedTables(self.config, self._form)
        self._dropped: tuple[Collection[int], int] = ((), 0)  # by ``Catalogue.dropped`` of the server of this call
        try:
            offset = context.offset_of(self.partition())
            stored, self._origin = read_place(offset), read_origin(offset)
            progress = Progress.read(context.offset_of(self._progress_partition))
        except ValueError as error:
            raise Fatal(f"the stored offset cannot be read: {error}") from error
        if isinstance(stored, Place):
            self._read = frozenset() if progress is None else progress.done
            self._confirmed = stored.commit  # of an earlier task, which may have had no time to tell the server
        reader = SnapshotReader(self.config)
        try:
            place = await self._blocking(partial(self._begun, stored, reader))
            if isinstance(place, SnapshotPlace) and reader.is_open:
                self._doubts.end()  # it may be read for hours before the log is
                async for page in self._snapshot(reader, place):
                    progress = Progress.read(page.offset)  # of the last one
                    yield page
                stored = place = Place(place.log)
                yield self._empty(place)
        finally:
            reader.close()  # before anything else is handed over: its transaction keeps tables from being altered
        reader = SnapshotReader(self.config)
        try:
            stretches = PostgresStretches(self.config, self._tables, reader, context, read=lambda: self._read)
            reading, pages = await self._reading(stretches, stored, place, progress)
            for page in pages:
                yield page
            async for page in self._keyless(reading, stretches):
                yield page
            async with telling_backlog(context, self.config):
                async for one in self._log(place if isinstance(place, Place) else Place(place.log), reading, stretches):
                    yield one
        finally:
            reader.close()

    async def _reading(
        self,
        stretches: PostgresStretches,
        stored: Place | SnapshotPlace | None,
        place: Place | SnapshotPlace,
        progress: Progress | None,
    ) -> tuple[TableReading, list[Page]]:
        """What is left to be read beside the log, and pages that store it where it is not stored yet."""
        begin = Place(place.log) if isinstance(place, SnapshotPlace) else place
        pages = [] if isinstance(stored, Place) else [self._empty(begin)]
        made = progress
        if isinstance(place, SnapshotPlace):
            tables = await stretches.tables()
            made = Progress(frozenset(one for one in tables if one < place.table)).with_found(tables)
            if made.waiting[:1] == (place.table,):
                made = replace(made, keys=place.keys)
        elif made is None or stored is None:
            made = Progress(frozenset(await stretches.published()))
        reading = TableReading(stretches, made, self._context, self._progress_partition)
        return reading, [] if made is progress else [reading.page(), *pages]

    async def _keyless(self, reading: TableReading, stretches: PostgresStretches) -> AsyncGenerator[Page, None]:
        """Whole tables without a key, before the log is read: they cannot be read beside it."""
        async for page in reading.look(self.config, takes_new=self._has_snapshot):
            yield page
        for name in sorted(reading.aside):
            found = await self._blocking(partial(stretches.captured, name))
            reader = SnapshotReader(self.config)
            try:
                if found is not None:
                    await self._blocking(partial(reader.open, None))
                    async for page, _ in self._rows(reader, *found, position=0):
                        yield replace(page, offset=reading.progress.offset(), partition=self._progress_partition)
            finally:
                reader.close()
            yield reading.pass_over(name)

    async def _blocking(self, call: Callable[[], T]) -> T:
        try:
            return await self._context.run_blocking(call, subject="server")
        except FetchError as error:
            raise await self._doubts.judged(error, self._context, self.partition()) from error

    def _now_us(self) -> int:
        return int(self._context.clock.now().timestamp() * 1_000_000)

    def _empty(self, place: Place | SnapshotPlace) -> Page:
        return Page([], offset=self._origin.of(place.offset()), partition=self.partition())

    def _begun(self, stored: Place | SnapshotPlace | None, reader: SnapshotReader) -> Place | SnapshotPlace:
        """Where to go on; makes publication and slot where they are not there yet, and begins the snapshot."""
        config = self.config
        if stored is not None:
            with replication_session(config) as session:
                demand_log(session, config, stored, self._origin)
            return stored  # its origin stays until the log is read: that session may be with another server
        with catalogue(config) as server:
            slot = server.slot()
            if slot is None:
                demand(settings_findings(server, config))
            server.publish()
            if slot is None and self._has_snapshot:  # else the slot would be there, and hold back log for nobody
                demand(rights_findings(server, config, server.tables()))
        if slot is None:
            with created_slot(config) as (position, snapshot, self._origin):
                if self._has_snapshot:
                    reader.open(snapshot)
                    return SnapshotPlace(position)
                return Place(position)
        with replication_session(config) as session:
            self._origin = history(session).origin
        return SnapshotPlace(slot.confirmed) if self._has_snapshot else Place(slot.confirmed)

    @property
    def _has_snapshot(self) -> bool:
        return self.config.snapshot_mode in {"initial", "initial_only"}

    async def _snapshot(self, reader: SnapshotReader, place: SnapshotPlace) -> AsyncGenerator[Page, None]:
        """Table after table, by name; each page's offset is the key of its last row. Last comes what was read."""
        yield self._empty(place)
        made = await self._asked(partial(made_of, publication=self.config.publication_name))
        for name, (table, sql) in (found := await self._asked(self._tables.selects)).items():
            async for page, keys in self._rows(reader, table, sql, position=place.log):
                yield replace(page, offset=self._origin.of(SnapshotPlace(place.log, name, keys).offset()))
        progress = Progress(frozenset(found), made={name: made[name] for name in made.keys() & found})
        yield Page([], offset=progress.offset(), partition=self._progress_partition)

    async def _rows(
        self, reader: SnapshotReader, table: CapturedTable, sql: str, *, position: int
    ) -> AsyncGenerator[tuple[Page, tuple[str, ...]], None]:
        """Pages of a SELECT, each with the place behind its last row."""
        await self._blocking(partial(reader.start, sql, table.relation.oid))
        order = await self._asked(partial(key_order, table))
        while (batch := await self._blocking(reader.next)) is not None:
            for start in range(0, batch.num_rows, self.config.snapshot_fetch_size):
                part = batch.slice(start, self.config.snapshot_fetch_size)
                made = partial(table.snapshot_page, part, handled_us=self._now_us(), position=position, offset={})
                yield await self._blocking(made), place_in(table, part, order)

    async def _log(
        self, start: Place, reading: TableReading, stretches: PostgresStretches
    ) -> AsyncGenerator[Page, None]:
        """Batch after batch, for ever; with ``initial_only`` while tables are to be read beside it."""
        config, clock = self.config, self._context.clock
        framing = Framing(
            start,
            rows_max=config.max_batch_size,
            takes=lambda relation: takes_table(config, relation.schema, relation.name),
            has_key_still=self._tables.has_key_still,
        )
        log = Log(config, framing, self._origin)
        told = reached = start
        beaten = moved = clock.monotonic()
        telling, stream = ExitStack(), None
        try:
            end = await self._asked(Catalogue.log_end)
            while config.snapshot_mode != "initial_only" or reading.is_waiting:
                if stream is None:
                    stream, moved = await self._opened(log), clock.monotonic()  # to wait for the slot is no quiet log
                    self._origin = stream.origin
                    self._doubts.end()
                    telling.enter_context(stream.telling(lambda: self._confirmed))
                await self._forget_dropped(framing)
                self._woken.clear()
                pages, place = await self._blocking(partial(self._drained, log, stretches))
                for page in pages:
                    yield reading.heed(page)
                reached = place or reached
                async for page in self._beside(reading, reached):
                    yield page
                now, interval = clock.monotonic(), config.heartbeat_interval_ms / 1000
                if interval and now - beaten >= interval and not reached.events:
                    told, beaten, moved = reached, now, now
                    yield await self._heartbeat(reached)
                if pages:
                    told, moved = reached, now
                elif reached != told and now - moved >= QUIET_SECONDS:
                    told, moved = reached, now
                    yield self._empty(reached)
                if place is not None or reading.is_ready:  # there may be more at hand, of which no socket tells
                    continue
                if (
                    not reading.is_waiting
                    and not framing.is_open
                    and (framing.place.commit >= end or now - moved >= QUIET_SECONDS)
                ):
                    self._context.report_lag(0.0)
                    self._context.finish_round()
                looks = (QUIET_SECONDS, config.table_poll_interval_ms / 1000, interval or QUIET_SECONDS)
                await readable(stream.fileno(), self._woken, min(looks) if not reading.is_waiting else BESIDE_SECONDS)
            self._context.finish_round()
        finally:
            telling.close()
            log.close()

    async def _beside(self, reading: TableReading, reached: Place) -> AsyncGenerator[Page, None]:
        """What is read beside the log, where that stands between two transactions."""
        async for page in reading.look(self.config, takes_new=self._has_snapshot):
            yield page
        if not reached.events and not reached.done:
            async for page in reading.advance((reached.commit,)):
                yield page

    async def _opened(self, log: Log) -> Replication:
        """Connect, and wait while the slot has another reader: after a restart its last one is still ending."""
        attempt = 0
        while True:
            try:
                return await self._blocking(log.open)
            except SlotInUseError as error:
                attempt += 1
                await self._context.wait_to_retry(error, attempt=attempt, wait_seconds=min(attempt / 10, QUIET_SECONDS))

    async def _asked(self, question: Callable[[Catalogue], T]) -> T:
        """What a connection of its own to the server answers."""

        def ask() -> T:
            with catalogue(self.config) as server:
                return question(server)

        return await self._blocking(ask)

    async def _forget_dropped(self, framing: Framing) -> None:
        """From time to time forget tables that were dropped, once the log has told all of them."""
        now = self._context.clock.monotonic()
        if now < self._forgetting_due:
            return
        self._forgetting_due = now + FORGETTING_SECONDS
        gone, behind = self._dropped
        if framing.place.commit >= behind and not framing.is_open:
            framing.forget(gone)
            self._tables.forget(gone)
            self._dropped = gone, behind = (), 0
        if not gone:
            with suppress(Retriable):  # the log itself tells of a server that is away
                self._dropped = await self._asked(lambda server: server.dropped(framing.oids))

    def _drained(self, log: Log, stretches: PostgresStretches) -> tuple[list[Page], Place | None]:
        """Pages of what has arrived, and the place after it; None: nothing is whole yet."""
        batch = log.drain(self._confirmed)
        if batch is None:
            return [], None
        stretches.told.extend(number for number, _ in batch.transactions)
        return self._pages(batch), batch.end

    def _pages(self, batch: Batch) -> list[Page]:
        """One for each table; only after the last one is all of the batch delivered."""
        pages, begin, end = list[Page](), batch.begin, batch.end
        self._tables.look_up([group.relation for group in batch.groups])
        done = set(begin.done)
        for group in batch.groups:
            done.add(group.relation.oid)
            is_last = group is batch.groups[-1]
            after = end if is_last else Place(begin.commit, begin.events, 0, frozenset(done), end.commit, end.events)
            transaction = batch.transactions[int(batch.transaction_of(group.numbers[-1:])[0])]
            position = batch.positions[group.numbers[-1]] if end.events else 0
            offset = after.offset(lsn=position, transaction=transaction[0], committed_us=transaction[1])
            page = self._tables.of(group.relation).log_page(
                batch,
                group,
                handled_us=self._now_us(),
                offset=self._origin.of(offset),
                ends_transaction=is_last and batch.ends_transaction,
            )
            pages.append(page)
        return pages

    async def _heartbeat(self, place: Place) -> Page:
        if self.config.heartbeat_action_query:
            await self._asked(lambda server: server.rows(self.config.heartbeat_action_query))
        return self._form.heartbeat(
            self._now_us(),
            offset=self._origin.of(place.offset()),
            partition=self.partition(),
            topic_prefix=self.config.heartbeat_topics_prefix,
        )
