"""From a polled batch to what the sink is handed: decoded, transformed, cut where a schema changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from service.sinks.batch import Refusal, SinkBatch
from service.sinks.dead_letters import Refused
from service.sinks.decoding import ColumnReader, in_thread
from service.sinks.readings import Column, Reading, Run, column_of, runs
from service.sinks.transforms.stage import transformed
from spark_batch.transforms.kinds import Step

KEY_STAGE, VALUE_STAGE, PUT_STAGE = "KEY_CONVERTER", "VALUE_CONVERTER", "TASK_PUT"
"""Connect's names of the stages at which a sink's record may be refused, besides that of transformations."""


@dataclass(frozen=True, slots=True)
class SideReader:
    """The reader of keys or of values, and the class that dead letters name."""

    reader: ColumnReader
    class_name: str
    stage: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """A polled batch for the sink."""

    batches: list[SinkBatch]
    refused: list[Refused]
    """By the converters and the transformations."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """One task's converters and transformations."""

    key: SideReader
    value: SideReader
    sink_class: str
    steps: tuple[Step, ...] = ()

    async def decode(self, polled: pa.Table, *, refuse: Callable[[Refused], None]) -> Decoded:
        """Batches of one schema each, in order; ``refuse`` is for the sink. Raises RegistryRetriable."""
        keys = await self.key.reader.read(column_of(polled, "key"))
        values = await self.value.reader.read(column_of(polled, "value"))
        refused = [
            Refused(polled, refusal)
            for side, reading in ((self.key, keys), (self.value, values))
            for refusal in _refusals(side, reading)
        ]
        topics = column_of(polled, "topic")
        if self.steps:
            changed = await in_thread(lambda: transformed(self.steps, polled, keys, values))
            topics, keys, values = changed.topics, changed.keys, changed.values
            refused += [Refused(polled, refusal) for refusal in changed.refusals]
        return Decoded([self._batch(polled, run, topics, refuse) for run in runs(keys, values)], refused)

    def _batch(self, polled: pa.Table, run: Run, topics: Column, refuse: Callable[[Refused], None]) -> SinkBatch:
        def refuse_row(row: int, reason: str, message: str) -> None:
            refuse(Refused(polled, Refusal(int(run.rows[row]), PUT_STAGE, reason, message, self.sink_class)))

        whole = _with(polled, "topic", topics).append_column("original_topic", polled.column("topic"))
        rows = whole.slice(int(run.rows[0]), len(run.rows))
        if int(run.rows[-1]) - int(run.rows[0]) + 1 != len(run.rows):
            rows = whole.take(run.rows)
        rows = _with(_with(rows, "key", run.keys), "value", run.values)
        return SinkBatch(rows, run.key_type, run.value_type, refuse_row)


def _refusals(side: SideReader, reading: Reading) -> list[Refusal]:
    return [
        Refusal(row, side.stage, reason, message, side.class_name)
        for row, (reason, message) in sorted(reading.refused.items())
    ]


def _with(table: pa.Table, name: str, values: object) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, cast("Any", values))
