"""From the records of a poll to what the sink is handed: decoded, transformed, cut where a schema changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import Refusal, SinkBatch
from service.sinks.converters import ColumnReader, in_thread
from service.sinks.headers import HeaderReader
from service.sinks.readings import Reading, Rows, Run, column_of, runs
from service.sinks.transforms.selecting import Selecting
from service.sinks.transforms.stage import Transformed, transformed, transformed_by_spark
from spark_batch.transforms.catalog import Step

KEY_STAGE, VALUE_STAGE, PUT_STAGE = "KEY_CONVERTER", "VALUE_CONVERTER", "TASK_PUT"
HEADER_STAGE = "HEADER_CONVERTER"
"""Connect's names of the stages at which a sink's record may be refused, besides that of transformations."""


@dataclass(frozen=True, slots=True)
class SideReader:
    """The reader of keys or of values, and the class that dead letters name."""

    reader: ColumnReader
    class_name: str
    stage: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """The records of a poll for the sink."""

    batches: list[SinkBatch]
    """Of one schema each, in order."""
    rows: list[Rows]
    """For each batch the rows of its records in the poll, ascending from batch to batch."""
    refusals: list[Refusal]
    """By the converters and the transformations."""
    filtered: int = 0
    """How many records transformations have dropped."""

    def left_out(self, count: int) -> Rows:
        """Of ``count`` polled rows those that the sink is not handed."""
        is_left_out = np.ones(count, dtype=bool)
        for rows in self.rows:
            is_left_out[rows] = False
        return np.flatnonzero(is_left_out)


@dataclass(frozen=True, slots=True)
class Decoding:
    """One task's converters and transformations."""

    key: SideReader
    value: SideReader
    sink_class: str
    steps: tuple[Step, ...] = ()
    headers: SideReader | None = None
    """What refuses headers, of converters that cannot read all bytes."""
    header_reader: HeaderReader = field(default_factory=HeaderReader)
    """How a sink that asks is told of headers."""
    selecting: Selecting | None = None
    """The way to Spark, of steps with `Sql` among them."""

    async def decode(self, polled: pa.Table, *, refuse: Callable[[Refusal], None]) -> Decoded:
        """Decode and transform. ``refuse`` is what the sink calls by `SinkBatch.refuse`.

        Raises RegistryRetriable, RegistryFatal, and of steps with `Sql` what ``Selecting.of`` raises. Cancelled, it
        leaves nothing behind.
        """
        keys = await self.key.reader.read(column_of(polled, "key"))
        values = await self.value.reader.read(column_of(polled, "value"))
        unread = [] if self.headers is None else await _unread_headers(self.headers, polled)
        refusals = [*_refusals(self.key, keys), *_refusals(self.value, values)]
        unread = [each for each in unread if each.row not in keys.refused and each.row not in values.refused]
        if unread:
            refusals += unread
            told = {each.row: (each.reason, each.message) for each in unread}
            values = replace(values, refused={**values.refused, **told})
        if self.selecting is not None:
            changed = await transformed_by_spark(self.steps, polled, keys, values, self.selecting)
            return await in_thread(lambda: self._cut(polled, changed, refusals, refuse), records=polled.num_rows)
        looked_at = polled.num_rows if self.steps else len(keys.refused) + len(values.refused)
        return await in_thread(
            lambda: self._cut(polled, transformed(self.steps, polled, keys, values), refusals, refuse),
            records=looked_at,
        )

    def _cut(
        self, polled: pa.Table, changed: Transformed, refused: list[Refusal], refuse: Callable[[Refusal], None]
    ) -> Decoded:
        """``refused``: before any transformation."""
        whole = changed.records.append_column("original_topic", polled.column("topic"))
        found = list(runs(changed.keys, changed.values))
        batches = [self._batch(whole, run, refuse) for run in found]
        return Decoded(batches, [run.rows for run in found], [*refused, *changed.refusals], changed.filtered)

    def _batch(self, whole: pa.Table, run: Run, refuse: Callable[[Refusal], None]) -> SinkBatch:
        def refuse_row(row: int, reason: str, message: str) -> None:
            refuse(Refusal(int(run.rows[row]), PUT_STAGE, reason, message, self.sink_class))

        rows = whole.slice(int(run.rows[0]), len(run.rows))
        if int(run.rows[-1]) - int(run.rows[0]) + 1 != len(run.rows):
            rows = whole.take(run.rows)
        rows = _with(_with(rows, "key", run.keys), "value", run.values)
        return SinkBatch(rows, run.key_type, run.value_type, refuse_row, self.header_reader)


async def _unread_headers(side: SideReader, polled: pa.Table) -> list[Refusal]:
    """Records with a header that its converter cannot read: the first one of each."""
    column = cast("Any", column_of(polled, "headers"))
    if column.null_count == len(column):
        return []
    flat: Any = pc.list_flatten(column)
    owners: Any = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    reading = await side.reader.read(pc.struct_field(flat, "value"))
    found: dict[int, Refusal] = {}
    for at, (reason, message) in sorted(reading.refused.items()):
        row = int(owners[at])
        found.setdefault(row, Refusal(row, side.stage, reason, f"a header: {message}", side.class_name))
    return list(found.values())


def _refusals(side: SideReader, reading: Reading) -> list[Refusal]:
    return [
        Refusal(row, side.stage, reason, message, side.class_name)
        for row, (reason, message) in sorted(reading.refused.items())
    ]


def _with(table: pa.Table, name: str, values: object) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, cast("Any", values))
