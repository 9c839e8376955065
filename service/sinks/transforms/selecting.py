"""`Sql` at a sink: records of one schema go to the worker's Spark as the rows of a plan, and come back as Avro.

It is the plan of a source whose pages are rows (`ConversionPlan.for_rows`), so that both say the same of a record. What
Spark has written is read by the decoder of the sink's own Avro converter. A poll is one job for each schema; the
plan of a schema is judged and compiled once, when its first records come.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import BackOff, Clock
from metrics.events import TaskEvents
from service.pipeline.lost_conversions import tried_again
from service.sinks.avro_columns import AvroShape, AvroShapeError, avro_shape
from service.sinks.batch import Form, ValueType
from service.sinks.converters import avro_reading, in_thread
from service.sinks.readings import column_of
from service.sinks.shapes import Shape as JsonShape
from service.sinks.shapes import ShapeError, column_of_json, mask_of, shape_of
from spark_batch.avro_documents import definitions, without_json_names
from spark_batch.errors import ConversionFatal
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, PlanFinding
from spark_batch.plan_transforms import value_shape
from spark_batch.transforms.catalog import Side, Sql, Step
from spark_batch.transforms.halves import (
    Fault,
    FaultReason,
    Half,
    JsonHalf,
    Mask,
    TypedHalf,
    Unfit,
    java_class_of_type,
    only_structs,
    typed,
)
from spark_batch.transforms.records import Records
from spark_batch.transforms.shape import Shape, record_document

SCHEMAS_MAX = 1_024
"""Schemas of which a task remembers what a text makes of them; the least recently used one goes first."""
_RECORD_BYTES_MAX = 2**31 - 1
"""Whatever its size, the record is in Kafka already."""
_SCHEMA_ID = 1
"""In the frames of what Spark writes; no registry knows of it."""
_PURPOSE = "SQL"
_REASONS = {str(reason): reason for reason in FaultReason}
_NO_SCHEMA = Fault(
    FaultReason.NO_SCHEMA,
    "Sql needs fields whose types are known: records of AvroConverter, or of JsonConverter with schemas",
)
_NOT_OF_SCHEMA = Fault(FaultReason.WRONG_TYPE, "the value is not what its schema says")


class Spark(Protocol):
    """The worker's conversion service, as far as sinks need it."""

    async def convert(self, plan: ConversionPlan, batch: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """The outcome of rows; raises ConversionRetriable, ConversionFatal."""

    async def check(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """What is wrong with a plan; raises as ``convert``."""


def select_plan(steps: Iterable[Step]) -> ConversionPlan:
    """The plan of the `Sql` among some steps, whose schemas are still to come; to the plan all are of values."""
    return ConversionPlan(
        PayloadFormat.ROWS,
        value_converter=ConverterSpec(ConverterKind.AVRO),
        record_bytes_max=_RECORD_BYTES_MAX,
        transformations=tuple(
            Step(step.name, replace(step.transformation, side=Side.VALUE))
            for step in steps
            if isinstance(step.transformation, Sql)
        ),
    )


@dataclass(frozen=True, slots=True)
class Selected:
    """What a `SELECT` has made of a half, row by row."""

    half: Half
    is_dropped: Mask
    """Where `WHERE` does not hold."""
    faults: dict[int, Fault]


@dataclass(slots=True)
class Selecting:
    """The `Sql` of one sink task: what its texts make of each schema, and the way to Spark."""

    spark: Spark
    events: TaskEvents
    clock: Clock
    back_off: BackOff = BackOff()
    _known: OrderedDict[tuple[str, type[Half], str | None], _Selection | Fault] = field(default_factory=OrderedDict)
    """By the step, and by what its records are."""

    async def of(self, step: Step, parts: Sequence[Records]) -> list[tuple[Records, Selected]]:
        """What a step makes of parts whose keys or values, as its side says, are all there; a job for each schema.

        Raises ConversionFatal, and PoisonedBatchError where Spark is lost again and again.
        """
        side = cast("Sql", step.transformation).side
        found: list[tuple[Records, Selected]] = []
        for members in _alike(side, parts):
            halves = [part.halves[side] for part in members]
            whole = replace(halves[0], column=pa.concat_arrays([half.column for half in halves]))
            selected = await self._selected(step, whole)
            found += zip(members, _cut(selected, [len(half.column) for half in halves]), strict=True)
        return found

    async def _selected(self, step: Step, half: Half) -> Selected:
        count = len(half.column)
        known = await self._selection(step, half)
        if isinstance(known, Fault):
            return Selected(half, np.zeros(count, dtype=bool), dict.fromkeys(range(count), known))
        rows, unfit = await in_thread(lambda: known.rows(half), records=count)

        async def convert(*, is_alone: bool) -> pa.Table:
            return await self.spark.convert(known.plan, rows, is_alone=is_alone)

        outcome = await tried_again(convert, count, self.events, self.clock, self.back_off)
        if outcome.num_rows != count:
            message = f"{count} records were converted to {outcome.num_rows} verdicts"
            raise ConversionFatal(message)
        return await in_thread(lambda: known.selected(outcome, unfit), records=count)

    async def _selection(self, step: Step, half: Half) -> _Selection | Fault:
        """What the text makes of such records, or why it makes nothing of them; Spark is asked once."""
        schema = half.schema if isinstance(half, JsonHalf) else half.shape.avro
        key = (step.name, type(half), schema)
        if key not in self._known:
            try:
                self._known[key] = await self._judged(step, half)
            except Unfit as unfit:
                self._known[key] = unfit.fault
            while len(self._known) > SCHEMAS_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    async def _judged(self, step: Step, half: Half) -> _Selection:
        """Raises Unfit."""
        avro, json_shape = _avro_of(half)
        document = json.loads(avro)
        branch = without_json_names(record_document(document, definitions(document, ""), ""))
        plan = select_plan([step]).for_rows(schema=json.dumps(branch), key_schema=None, topic="")
        plan = plan.with_schema_ids(value=_SCHEMA_ID)

        async def check(*, is_alone: bool) -> Sequence[PlanFinding]:
            del is_alone
            return await self.spark.check(plan)

        found = await tried_again(check, len(half.column), self.events, self.clock, self.back_off)
        if found:
            told = "; ".join(f"{each.key}: expected {each.expected}" for each in found)
            raise Unfit(Fault(FaultReason.WRONG_TYPE, told))
        shape = cast("Shape", value_shape(plan))
        try:
            return _Selection(plan, shape, avro_shape(shape.avro), json_shape)
        except AvroShapeError as error:
            raise Unfit(Fault(FaultReason.WRONG_TYPE, f"what is selected {error}")) from error


@dataclass(frozen=True, slots=True)
class _Selection:
    """A text and the records of one schema."""

    plan: ConversionPlan
    shape: Shape
    """Of what comes out."""
    reader: AvroShape
    json_shape: JsonShape | None
    """Of what goes in, where it is JSON."""

    def rows(self, half: Half) -> tuple[pa.Table, Mask]:
        """A micro-batch for the plan, and which values are not of their schema (null there)."""
        count = len(half.column)
        column, misfits = half.column, dict[int, str]()
        if self.json_shape is not None:
            column, misfits = column_of_json(column, self.json_shape)
        columns: list[Any] = [pa.nulls(count, pa.binary()), column, pa.nulls(count, pa.int64())]
        return pa.table(columns, names=["key", "value", "timestamp"]), mask_of(misfits, count)

    def selected(self, outcome: pa.Table, unfit: Mask) -> Selected:
        """What an outcome says of such a micro-batch."""
        reading = avro_reading(column_of(outcome, "value"), {_SCHEMA_ID: self.reader})
        column = reading.columns[0]
        if column.type != self.reader.type:
            column = pa.nulls(len(column), self.reader.type)  # nothing was written
        rejected = np.flatnonzero(_mask(column_of(outcome, "reason").is_valid()))
        told = outcome.select(["reason", "message"]).take(rejected).to_pylist()
        faults = {
            row: Fault(_REASONS.get(each["reason"], FaultReason.WRONG_TYPE), each["message"])
            for row, each in zip(rejected.tolist(), told, strict=True)
        }
        faults |= {row: Fault(FaultReason.WRONG_TYPE, message) for row, (_, message) in reading.refused.items()}
        faults |= dict.fromkeys(np.flatnonzero(unfit).tolist(), _NOT_OF_SCHEMA)
        is_dropped = _mask(cast("Any", pc.fill_null)(column_of(outcome, "is_dropped"), fill_value=False))
        return Selected(typed(column, self.shape), is_dropped, faults)


def _alike(side: Side, parts: Sequence[Records]) -> list[list[Records]]:
    """The parts by what the half of this side is."""
    found: dict[tuple[type[Half], str | None], list[Records]] = {}
    for part in parts:
        half = part.halves[side]
        schema = half.schema if isinstance(half, JsonHalf) else half.shape.avro
        found.setdefault((type(half), schema), []).append(part)
    return list(found.values())


def _cut(selected: Selected, counts: Sequence[int]) -> list[Selected]:
    """One for each of these numbers of rows."""
    rows, ends = sorted(selected.faults), np.cumsum([0, *counts]).tolist()
    found = []
    for begin, end in pairwise(ends):
        first, last = np.searchsorted(rows, [begin, end]).tolist()
        faults = {row - begin: selected.faults[row] for row in rows[first:last]}
        half = replace(selected.half, column=selected.half.column.slice(begin, end - begin))
        found.append(Selected(half, selected.is_dropped[begin:end], faults))
    return found


def _avro_of(half: Half) -> tuple[str, JsonShape | None]:
    """The Avro schema of records; raises Unfit for what is none."""
    if isinstance(half, TypedHalf):
        if half.shape.record is None:
            raise Unfit(only_structs(_PURPOSE, java_class_of_type(half.shape.slot.type)))
        return half.shape.avro, None
    if half.schema is None:
        raise Unfit(_NO_SCHEMA)
    try:
        shape = shape_of(ValueType(Form.JSON, half.schema), "avro")
    except ShapeError as error:
        raise Unfit(Fault(FaultReason.NO_SCHEMA, str(error))) from error
    if not pa.types.is_struct(shape.type):
        raise Unfit(only_structs(_PURPOSE, "another value"))
    return cast("str", shape.avro), shape


def _mask(column: Any) -> Mask:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
