"""``IcebergSink``: records as rows of Apache Iceberg tables, each of them once.

Rows are gathered, written as data files, and committed together at each flush. The tables say how far they are
(``table``); the consumer group follows. What is begun and fails in the middle is given up with the task, and its
records come again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from service.sinks.batch import RefusalReason
from service.sinks.contract import (
    Fatal,
    Finding,
    Form,
    Offsets,
    Partition,
    PutLimits,
    SinkBatch,
    SinkConnector,
    SinkContext,
    StartAnew,
)
from service.sinks.iceberg.catalog import Lake
from service.sinks.iceberg.config import IcebergSinkConfig, is_table_name
from service.sinks.iceberg.evolution import created
from service.sinks.iceberg.fitting import Fitting, has_way, misfit
from service.sinks.iceberg.routing import chosen, is_routed, no_text, routed, texts_of_json
from service.sinks.iceberg.schemaless import column_of_texts
from service.sinks.iceberg.table import IcebergTable, offset_in, offsets_key
from service.sinks.own_thread import OwnThread
from service.sinks.shapes import ShapeError, column_of_json, mask_of, shape_of

FILES_MAX = 10_000
"""Data files that wait for their commit, with the bounds of their columns in memory; above it a commit is asked for."""
TABLES_MAX = 1_000
"""That are kept over a commit as the catalogue told them, with all their snapshots; others are loaded when they are
written to again."""
_ODD = "the payload is no object, or its fields are of other types than the table's columns or than those before it"
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class IcebergSink(SinkConnector[IcebergSinkConfig]):
    """Appends rows to tables of Apache Iceberg."""

    accepts = frozenset({Form.JSON, Form.RECORD})

    def __init__(self, config: IcebergSinkConfig) -> None:
        """Prepare; the catalogue is first asked at the start."""
        super().__init__(config)
        self.put_limits = PutLimits(records_max=50_000)
        self.flush_interval_seconds = config.iceberg_control_commit_interval_ms / 1000
        self._thread = OwnThread("sink-iceberg")
        self._lake: Lake | None = None
        self._context: SinkContext | None = None
        self._tables: dict[str, IcebergTable] = {}
        """Those that were written to last at the end."""
        self._forgotten: set[str] = set()
        """Names of tables that were written to and are no more kept."""
        self._begins: dict[Partition, int] = {}
        """Where the task was told to begin; what comes from before is of another topic of the same name."""
        self._records = self._bytes = 0
        """Since the last commit."""

    def findings(self) -> Sequence[Finding]:
        """What is wrong with the keys taken together."""
        return tuple(self.config.own_findings())

    def check_offsets(self, offsets: Mapping[Partition, int | None]) -> None:
        """Refuse to begin before what every table has already, which is not written again."""
        try:
            lake = Lake(self.config, self.allowed_paths, self.allowed_addresses)
            with closing(lake.catalog):
                loaded = [(lake.load(keys), keys.branch) for keys in map(self.config.table, self.config.names)]
            for partition, offset in offsets.items():
                self._demand_unwritten(partition, offset or 0, loaded)
        except (Fatal, StartAnew) as error:
            message = (
                "the tables cannot be asked how far they are, which decides it (if the catalogue is gone for good, "
                f"name another in 'iceberg.catalog.*' first): {error}"
            )
            raise ValueError(message) from error

    def _demand_unwritten(self, partition: Partition, offset: int, loaded: Sequence[tuple[Table | None, str]]) -> None:
        topic, number = partition
        keys = [offsets_key(self.connector_name, topic, branch) for _, branch in loaded]
        named = zip(keys, loaded, strict=True)
        known = [None if table is None else offset_in(table, key, number) for key, (table, _) in named]
        ends = [end for end in known if end is not None]
        if ends and len(ends) == len(known) and offset < min(ends):
            properties = "' or '".join(sorted(set(keys)))
            message = (
                f"partition {number} of topic {topic} is in the tables to offset {min(ends)}, and what is there is not "
                "written again: set that offset or a greater one; to have it written again, remove its rows and the "
                f"property '{properties}' of the tables first"
            )
            raise ValueError(message)

    async def start(self, context: SinkContext) -> None:
        """Ask the catalogue for its config."""
        self._context = context
        self._lake = await self._thread.run(lambda: Lake(self.config, self.allowed_paths, self.allowed_addresses))

    async def open(self, partitions: Mapping[Partition, int | None]) -> Offsets:
        """Begin where the group says, or else where all the tables that the config names say."""
        context = self._ready
        found = await self._thread.run(lambda: self._in_tables(partitions))
        ends = await context.ends([partition for partition in partitions if found.get(partition)])
        for (topic, number), offset in found.items():
            if offset > ends.get((topic, number), offset):
                raise Fatal(self._of_another_topic((topic, number), offset))
        # A table that is not there, or says nothing, may need every record.
        unknown = [partition for partition, group in partitions.items() if group is None]
        begins = {partition: found[partition] for partition in unknown if partition in found}
        self._begins |= {partition: begins.get(partition, group or 0) for partition, group in partitions.items()}
        return begins

    @property
    def _ready(self) -> SinkContext:
        if self._context is None:
            raise Fatal("the sink is not started")
        return self._context

    def _in_tables(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """For each partition the offset that all tables have of it; nothing where one of them says none."""
        for table in self._tables.values():
            if not table.is_pending:
                table.refresh()
        tables = [self._table(name) for name in self.config.names]
        known: dict[Partition, int] = {}
        for partition in partitions:
            offsets = [None if table is None else table.offset_in_table(partition) for table in tables]
            there = [offset for offset in offsets if offset is not None]
            if there and len(there) == len(offsets):
                known[partition] = min(there)
        return known

    def _table(self, name: str) -> IcebergTable | None:
        """The table, loaded once; None where it is not there yet."""
        known = self._tables.pop(name, None)
        if known is not None:
            self._tables[name] = known
        if known is not None or self._lake is None:
            return known
        keys = self.config.table(name)
        loaded = self._lake.load(keys)
        if loaded is None:
            return None
        context = self._ready
        self._tables[name] = IcebergTable(
            self._lake, self.config, keys, context.connector, context.clock, context.note_progress, loaded
        )
        self._forgotten.discard(name)
        return self._tables[name]

    async def put(self, batch: SinkBatch) -> None:
        """Gather; above the bounds data files are written, or a commit is asked for."""
        await self._thread.run(lambda: self._put(batch))
        config = self.config
        # Rows that are held become a file at least.
        is_full = sum(max(len(table.files), table.is_pending) for table in self._tables.values()) >= FILES_MAX
        is_full |= self._records >= config.iceberg_control_commit_records
        if is_full or self._bytes >= config.iceberg_control_commit_bytes:
            self._ready.request_flush()

    def _put(self, batch: SinkBatch) -> None:
        for partition, part in batch.by_partition():
            if partition not in self._begins:
                raise StartAnew("records of a partition that is not open")
            offsets: Numbers = part.records.column("offset").to_numpy()
            if offsets[0] < self._begins[partition]:
                raise Fatal(self._of_another_topic(partition, self._begins[partition]))
            self._take(partition, part, offsets)
        self._bound_memory()

    def _of_another_topic(self, partition: Partition, offset: int) -> str:
        topic, number = partition
        names = (*self.config.names, *self._tables, *self._forgotten)
        branches = {self.config.table(name).branch for name in names}
        keys = "' or '".join(sorted(offsets_key(self._ready.connector, topic, branch) for branch in branches))
        return (
            f"partition {number} of topic {topic} is written to offset {offset}, and the topic does not go so far: if "
            f"it was made anew, remove the property '{keys}' of the tables, then restart the task"
        )

    def _take(self, partition: Partition, batch: SinkBatch, offsets: Numbers) -> None:
        is_fit = self._with_values(batch)
        try:
            if batch.value.form is Form.JSON and batch.value.schema is None and is_routed(self.config):
                self._take_untyped(partition, batch, offsets, is_fit)
                return
            values = self._columns(batch, is_fit, self.config.names)
            for name, is_here in self._within(batch, routed(values, self.config, is_fit)):
                self._write(name, partition, batch, values, offsets=offsets, is_here=is_here)
        except ShapeError as error:
            _refuse(batch, is_fit, error.reason, str(error))

    def _take_untyped(self, partition: Partition, batch: SinkBatch, offsets: Numbers, is_fit: Mask) -> None:
        """JSON without a schema: each table's records have types of their own, whatever comes beside them."""
        column, path = _whole(batch), self.config.iceberg_tables_route_field or ""
        is_object: Any = pc.starts_with(pc.ascii_ltrim_whitespace(column), "{")
        is_odd = ~pc.fill_null(is_object, False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - a scalar
        _refuse(batch, is_odd & is_fit, RefusalReason.WRONG_TYPE, _ODD)
        texts, unfit = texts_of_json(column, path)
        _refuse(batch, unfit & is_fit, RefusalReason.WRONG_TYPE, no_text(path))
        is_fit &= ~(is_odd | unfit)
        for name, is_here in self._within(batch, chosen(texts, self.config, is_fit)):
            rows = np.flatnonzero(is_here)
            part, is_part = batch.take(rows), np.ones(len(rows), dtype=bool)
            try:
                values = self._columns(part, is_part, (name,))
                self._write(name, partition, part, values, offsets=offsets[rows], is_here=is_part)
            except ShapeError as error:
                _refuse(part, is_part, error.reason, str(error))

    def _with_values(self, batch: SinkBatch) -> Mask:
        """Which rows have a value; the others are refused or passed over."""
        column: Any = batch.records.column("value")
        has_value: Mask = np.array(column.is_valid().to_numpy(), dtype=bool)
        if self.config.behavior_on_null_values == "fail":
            message = "the value is null, and behavior.on.null.values=fail"
            _refuse(batch, ~has_value, RefusalReason.NULL_VALUE, message)
        return has_value

    def _columns(self, batch: SinkBatch, is_fit: Mask, names: Sequence[str]) -> Any:
        """The values as a struct column, for tables of these names; refuses those that are not of their schema."""
        column = _whole(batch)
        if batch.value.form is not Form.JSON:
            return _struct(column)
        if batch.value.schema is None:
            values, unfit, changed = column_of_texts(column, self._place_of_types(names))
            _refuse(batch, unfit & is_fit, RefusalReason.WRONG_TYPE, _ODD)
            for row, path in changed.items():
                batch.refuse(row, RefusalReason.OUT_OF_RANGE, misfit(path, pa.float64()))
                unfit[row] = True
        else:
            values, misfits = column_of_json(column, shape_of(batch.value, "parquet"))
            unfit = mask_of(misfits, len(batch))
            for row in np.flatnonzero(unfit & is_fit).tolist():
                batch.refuse(row, RefusalReason.WRONG_TYPE, misfits[row])
        is_fit &= ~unfit
        return _struct(values)

    def _place_of_types(self, names: Sequence[str]) -> Callable[[Any], bool]:
        """Whether records of an Arrow type have a place in one of the tables; where there are none yet, all have."""
        goals = [table.arrow_schema for table in map(self._table, names) if table is not None]
        is_folded = self.config.iceberg_tables_schema_case_insensitive
        is_widened = self.config.iceberg_tables_evolve_schema_enabled

        def has_place(kind: Any) -> bool:
            return not goals or any(has_way(kind, goal, is_folded, is_widened) for goal in goals)

        return has_place

    def _within(self, batch: SinkBatch, found: Iterator[tuple[str, Mask]]) -> Iterator[tuple[str, Mask]]:
        """Tables and the rows that go to each, but for names that are none, and tables that are too many."""
        room = self.config.iceberg_tables_dynamic_max
        for name, is_here in found:
            if not is_table_name(name):
                message = f"'{name}' names no table as namespace.table"
                _refuse(batch, is_here, RefusalReason.REFUSED_BY_TARGET, message)
            elif not self._is_known(name) and self._tables_known >= max(room, len(self.config.names)):
                message = f"its table would be one more than iceberg.tables.dynamic-max, {room}"
                _refuse(batch, is_here, RefusalReason.REFUSED_BY_TARGET, message)
            else:
                yield name, is_here

    def _is_known(self, name: str) -> bool:
        return name in self._tables or name in self._forgotten

    @property
    def _tables_known(self) -> int:
        """How many tables this task has written to."""
        return len(self._tables) + len(self._forgotten)

    def _write(
        self, name: str, partition: Partition, batch: SinkBatch, values: Any, *, offsets: Numbers, is_here: Mask
    ) -> None:
        """Rows of a partition to a table. What it has already is looked at, and not taken."""
        try:
            table = self._table(name) or self._made(name, values.type)
            table.fit(values.type)
            fitting = Fitting(len(batch), is_case_insensitive=self.config.iceberg_tables_schema_case_insensitive)
            rows = fitting.table(values, table.arrow_schema)
        except ShapeError as error:
            _refuse(batch, is_here, error.reason, str(error))
            return
        for reason, unfit in fitting.reasons.items():
            _refuse(batch, unfit & is_here, RefusalReason.OUT_OF_RANGE, reason)
            is_here &= ~unfit
        is_new = is_here & (offsets >= table.next_offset(partition))
        if is_new.any():
            taken = rows if is_new.all() else rows.filter(pa.array(is_new))
            table.take(taken, partition, int(offsets[-1]) + 1)
            self._records += len(taken)
            self._bytes += taken.nbytes

    def _made(self, name: str, records: Any) -> IcebergTable:
        keys = self.config.table(name)
        if not self.config.iceberg_tables_auto_create_enabled or self._lake is None:
            raise Fatal(f"there is no table {name}: make it, or set iceberg.tables.auto-create-enabled=true")
        self._lake.create(keys, created(records, is_optional=self.config.iceberg_tables_schema_force_optional))
        made = self._table(name)
        if made is None:
            raise StartAnew(f"table {name} is not there, though it was made")
        return made

    def _bound_memory(self) -> None:
        """Write what is held, the most first, so that it stays bounded."""
        tables = sorted(self._tables.values(), key=lambda table: -table.held_bytes)
        held_bytes = sum(table.held_bytes for table in tables)
        for table in tables:
            if held_bytes <= self.config.buffer_bytes:
                return
            held_bytes -= table.held_bytes
            table.write()

    async def flush(self, offsets: Offsets) -> Offsets:
        """Commit everything: one commit for each table that has rows waiting."""
        await self._thread.run(self._commit)
        return offsets

    def _commit(self) -> None:
        for table in self._tables.values():
            table.commit()
        self._records = self._bytes = 0
        self._forget_tables()

    def _forget_tables(self) -> None:
        """Keep those alone that were written to last; nothing of any waits, and each table itself says how far it is.

        Of the rest names are remembered, to be counted.
        """
        for name in [*self._tables][: max(0, len(self._tables) - max(TABLES_MAX, len(self.config.names)))]:
            del self._tables[name]
            self._forgotten.add(name)

    async def close(self, partitions: Collection[Partition]) -> None:
        """Give up what is not committed: its records come again, to whoever gets the partitions."""
        gone = frozenset(partitions)
        await self._thread.run_always(lambda: self._close(gone))

    def _close(self, gone: frozenset[Partition]) -> None:
        for partition in gone:
            self._begins.pop(partition, None)
        for table in self._tables.values():
            if table.partitions & gone and table.partitions - gone:
                self._thread.failure = "rows of partitions that are kept wait beside those of partitions that are gone"
            if table.partitions & gone:
                table.drop()
            for partition in gone:
                table.forget(partition)

    async def stop(self) -> None:
        """Drop what waits; a put under way ends first, by itself."""
        lake, self._lake = self._lake, None
        self._thread.end(lambda: None if lake is None else lake.catalog.close())


def _whole(batch: SinkBatch) -> Any:
    chunked: Any = batch.records.column("value")
    return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()


def _struct(column: Any) -> Any:
    if not pa.types.is_struct(column.type):
        raise ShapeError(RefusalReason.WRONG_TYPE, "only values with fields make rows: use Avro, or JSON objects")
    return column


def _refuse(batch: SinkBatch, unfit: Mask, reason: RefusalReason, message: str) -> None:
    for row in np.flatnonzero(unfit).tolist():
        batch.refuse(row, reason, message)
