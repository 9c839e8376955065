"""``PostgresCdcSource``: a consistent snapshot of tables, then every change of them, from exactly that point on.

The slot is made together with a snapshot; its tables are read, and then the log from where the slot begins. The server
forgets log only behind what is committed in Kafka (``on_committed``). One task reads one slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from fetchers.postgres_cdc.catalogue import Catalogue, SlotInUseError, catalogue, choices, takes_table
from fetchers.postgres_cdc.config import PostgresCdcConfig, findings
from fetchers.postgres_cdc.events import CapturedTable, change_form
from fetchers.postgres_cdc.log import Batch, Framing, Log, created_slot
from fetchers.postgres_cdc.pgoutput import LogRelation
from fetchers.postgres_cdc.place import Place, SnapshotPlace, read_place
from fetchers.postgres_cdc.snapshot import SnapshotReader, select
from fetchers.sdk import (
    Fatal,
    FetchContext,
    Finding,
    Offset,
    Page,
    Partition,
    PayloadKind,
    Retriable,
    SourceConnector,
)

T = TypeVar("T")
QUIET_SECONDS = 5.0
"""Between two looks at a log that says nothing; and between two offsets that only move on."""
BACKLOG_SECONDS = 30.0
"""Between two questions how much log the slot holds back."""


class PostgresCdcSource(SourceConnector[PostgresCdcConfig]):
    """Changes of rows, as PostgreSQL's log has them."""

    payload_kind = PayloadKind.ROWS

    def __init__(self, config: PostgresCdcConfig) -> None:
        """One instance reads one slot, and hears what of it is in Kafka."""
        super().__init__(config)
        self._woken = asyncio.Event()
        self._confirmed = 0
        """Up to where all is in Kafka."""
        self._form = change_form(config, self.version)
        self._tables: dict[int, tuple[LogRelation, CapturedTable]] = {}

    def partition(self) -> Partition:
        """Debezium's."""
        return self.config.source_partition

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        return tuple(findings(self.config))

    def check_offsets(self, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """Refuse what is neither ours nor Debezium's."""
        for partition, offset in offsets:
            if set(partition) != {"server"}:
                message = 'expected the partition {"server": "<topic.prefix>"}'
                raise ValueError(message)
            if offset is not None:
                read_place(offset)

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Log in, and look whether the log and the tables may be read."""

        def ask() -> list[Finding]:
            try:
                with catalogue(self.config) as server:
                    return list(server.findings())
            except Fatal as error:
                return [Finding("database.hostname", self.config.database_hostname, str(error))]

        return await context.run_blocking(ask, subject="catalogue")

    async def on_committed(self, partition: Partition, offset: Offset) -> None:
        """Let the server forget what is in Kafka, with the next status it hears."""
        del partition
        place = read_place(offset)
        if isinstance(place, Place):
            self._confirmed = max(self._confirmed, place.commit)
            self._woken.set()

    async def fetch(self, context: FetchContext) -> AsyncGenerator[Page, None]:
        """The snapshot where there is none yet, then the log."""
        self._context = context
        try:
            stored = read_place(context.offset_of(self.partition()))
        except ValueError as error:
            raise Fatal(f"the stored offset cannot be read: {error}") from error
        if isinstance(stored, Place):
            self._confirmed = stored.commit  # of an earlier task, which may have had no time to tell the server
        reader = SnapshotReader(self.config)
        try:
            place = await self._blocking(partial(self._begun, stored, reader))
            if isinstance(place, SnapshotPlace):
                async for page in self._snapshot(reader, place):
                    yield page
        finally:
            reader.close()  # before anything else is handed over: its transaction keeps tables from being altered
        if isinstance(place, SnapshotPlace):
            place = Place(place.log)
            yield self._empty(place)
        if self.config.snapshot_mode == "initial_only":
            context.finish_round()
            return
        async for page in self._log(place):
            yield page

    async def _blocking(self, call: Callable[[], T]) -> T:
        return await self._context.run_blocking(call, subject="server")

    def _now_us(self) -> int:
        return int(self._context.clock.now().timestamp() * 1_000_000)

    def _empty(self, place: Place) -> Page:
        return Page([], offset=place.offset(), partition=self.partition())

    def _begun(self, stored: Place | SnapshotPlace | None, reader: SnapshotReader) -> Place | SnapshotPlace:
        """Where to go on; makes publication and slot where they are not there yet, and begins the snapshot."""
        config = self.config
        with catalogue(config) as server:
            slot = server.slot()
            if stored is not None:
                needed = stored.log if isinstance(stored, SnapshotPlace) else stored.commit
                if slot is None:
                    told = "there is none: it was dropped, or the server is a replica that took over without it"
                    raise Fatal(
                        f"the slot {config.slot_name} is needed from {_told(needed)} on, and {told}. "
                        + choices(config.slot_name)
                    )
                if slot.confirmed > needed:
                    raise Fatal(
                        f"the slot {config.slot_name} begins at {_told(slot.confirmed)}, and {_told(needed)} is "
                        f"needed: somebody else has read it. {choices(config.slot_name)}"
                    )
                server.publish()
                if isinstance(stored, SnapshotPlace):
                    reader.open(None)
                return stored
            server.publish()
        if slot is None:
            with created_slot(config) as (position, snapshot):
                if self._has_snapshot:
                    reader.open(snapshot)
                    return SnapshotPlace(position)
                return Place(position)
        if not self._has_snapshot:
            return Place(slot.confirmed)
        reader.open(None)
        return SnapshotPlace(slot.confirmed)

    @property
    def _has_snapshot(self) -> bool:
        return self.config.snapshot_mode in {"initial", "initial_only"}

    async def _snapshot(self, reader: SnapshotReader, place: SnapshotPlace) -> AsyncGenerator[Page, None]:
        """Table after table, by name; each page's offset is the key of its last row."""
        yield Page([], offset=place.offset(), partition=self.partition())
        for name, (table, sql) in (await self._blocking(partial(self._selects, place))).items():
            await self._blocking(partial(reader.start, sql))
            while (batch := await self._blocking(reader.next)) is not None:
                for start in range(0, batch.num_rows, self.config.snapshot_fetch_size):
                    part = batch.slice(start, self.config.snapshot_fetch_size)
                    keys = tuple(str(part.column(len(table.kinds) + at)[-1].as_py()) for at in range(len(table.keys)))
                    after = SnapshotPlace(place.log, name, keys)
                    yield await self._blocking(
                        partial(
                            table.snapshot_page,
                            part,
                            handled_us=self._now_us(),
                            position=place.log,
                            offset=after.offset(),
                        )
                    )

    def _selects(self, place: SnapshotPlace) -> Mapping[str, tuple[CapturedTable, str]]:
        """Tables that are not read yet, with the SQL of what is left of them."""
        found = {}
        with catalogue(self.config) as server:
            for schema, table in server.tables():
                name = f"{schema}.{table}"
                relation = server.relation(schema, table) if name >= place.table else None
                if relation is None:
                    continue
                captured = self._captured(server, relation)
                after = place.keys if name == place.table and len(place.keys) == len(captured.keys) else ()
                found[name] = (captured, select(captured, server.quoted, after))
        return dict(sorted(found.items()))

    def _captured(self, server: Catalogue, relation: LogRelation) -> CapturedTable:
        try:
            return CapturedTable(
                self.config, self._form, relation, server.types(relation.columns), keys=server.keys(relation)
            )
        except ValueError as error:
            raise Fatal(
                f"{relation.schema}.{relation.name}: {error}; leave a column out (column.exclude.list)"
            ) from error

    async def _log(self, start: Place) -> AsyncGenerator[Page, None]:
        """Batch after batch, for ever."""
        config, clock = self.config, self._context.clock
        framing = Framing(
            start,
            rows_max=config.max_batch_size,
            takes=lambda relation: takes_table(config, relation.schema, relation.name),
        )
        log = Log(config, framing)
        told = reached = start
        beaten = moved = clock.monotonic()
        measured = float("-inf")
        try:
            descriptor = await self._opened(log)
            end = await self._blocking(self._log_end)
            while True:
                self._woken.clear()
                pages, place = await self._blocking(partial(self._drained, log))
                for page in pages:
                    yield page
                reached = place or reached
                now = clock.monotonic()
                if now - measured >= BACKLOG_SECONDS:
                    measured = now
                    with suppress(Retriable):  # the log itself tells of a server that is away
                        self._context.report_backlog(await self._blocking(self._backlog))
                interval = config.heartbeat_interval_ms / 1000
                if interval and now - beaten >= interval and not reached.events:
                    beaten = moved = now
                    told = reached
                    yield await self._heartbeat(reached)
                if pages:
                    told, moved = reached, now
                    continue
                if reached != told and now - moved >= QUIET_SECONDS:
                    told, moved = reached, now
                    yield self._empty(reached)
                if not framing.is_open and (framing.place.commit >= end or now - moved >= QUIET_SECONDS):
                    self._context.report_lag(0.0)
                    self._context.finish_round()
                await self._readable(descriptor)
        finally:
            log.close()

    async def _opened(self, log: Log) -> int:
        """Connect, and wait while the slot has another reader: after a restart its last one is still ending."""
        attempt = 0
        while True:
            try:
                return await self._blocking(log.open)
            except SlotInUseError as error:
                attempt += 1
                await self._context.wait_to_retry(
                    error, attempt=attempt, wait_seconds=min(0.1 * attempt, QUIET_SECONDS)
                )

    def _log_end(self) -> int:
        with catalogue(self.config) as server:
            return server.log_end()

    def _backlog(self) -> int:
        with catalogue(self.config) as server:
            return server.backlog()

    def _drained(self, log: Log) -> tuple[list[Page], Place | None]:
        """Pages of what has arrived, and the place after it; None: nothing is whole yet."""
        batch = log.drain(self._confirmed)
        return ([], None) if batch is None else (self._pages(batch), batch.end)

    def _pages(self, batch: Batch) -> list[Page]:
        """One for each table; only after the last one is all of the batch delivered."""
        pages: list[Page] = []
        begin, end = batch.begin, batch.end
        done = set(begin.done)
        for group in batch.groups:
            done.add(group.relation.oid)
            is_last = group is batch.groups[-1]
            after = end if is_last else Place(begin.commit, begin.events, 0, frozenset(done), end.commit, end.events)
            transaction = batch.transactions[int(batch.transaction_of(group.numbers[-1:])[0])]
            position = batch.positions[group.numbers[-1]] if end.events else 0
            offset = after.offset(lsn=position, transaction=transaction[0], committed_us=transaction[1])
            page = self._table(group.relation).log_page(
                batch,
                group,
                handled_us=self._now_us(),
                offset=offset,
                ends_transaction=is_last and batch.ends_transaction,
            )
            pages.append(page)
        return pages

    def _table(self, relation: LogRelation) -> CapturedTable:
        known = self._tables.get(relation.oid)
        if known is None or known[0] is not relation:
            with catalogue(self.config) as server:
                known = self._tables[relation.oid] = (relation, self._captured(server, relation))
        return known[1]

    async def _heartbeat(self, place: Place) -> Page:
        if self.config.heartbeat_action_query:
            await self._blocking(self._run_action)
        return self._form.heartbeat(
            self._now_us(),
            offset=place.offset(),
            partition=self.partition(),
            topic_prefix=self.config.heartbeat_topics_prefix,
        )

    def _run_action(self) -> None:
        with catalogue(self.config) as server:
            server.rows(self.config.heartbeat_action_query)

    async def _readable(self, descriptor: int) -> None:
        """Until the server has sent something, a commit is to be told, or it is time for a look."""
        loop = asyncio.get_running_loop()
        seconds = min(QUIET_SECONDS, (self.config.heartbeat_interval_ms or 60_000) / 1000)
        timer = loop.call_later(seconds, self._woken.set)
        loop.add_reader(descriptor, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
            loop.remove_reader(descriptor)


def _told(position: int) -> str:
    """A position as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
