"""Transformations of a polled batch: split by what the records are, each part taken through the steps, put together.

Unlike a source's plan, a sink learns only from its records which topics and schemas there are and, after a field was
extracted, which values are null. So predicates are asked at each step, of whole columns, and a part is split where
they say different things. What a transformation makes of a schema is worked out once for each schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.config.transforms import PACKAGE
from service.sinks.avro_columns import parsed_slot
from service.sinks.batch import Form, Refusal, ValueType
from service.sinks.converters import in_thread
from service.sinks.readings import UNKNOWN, Column, Reading, Rows, column_of
from service.sinks.transforms.joining import joined
from service.sinks.transforms.selecting import Selected, Selecting
from spark_batch.avro_types import Primitive, Slot
from spark_batch.transforms.catalog import (
    HEADER_EDITS,
    RESHAPINGS,
    ROUTERS,
    WHOLE,
    ByLogicalTableRouter,
    ExtractNewRecordState,
    HasHeaderKey,
    HeaderFrom,
    RecordIsTombstone,
    ReshapingForm,
    Side,
    Sql,
    Step,
    Transformation,
)
from spark_batch.transforms.halves import Fault, Half, JsonHalf, Mask, Origins, TypedHalf, Unfit
from spark_batch.transforms.records import SINK_HEADERS, OfRecords, Records, has_header, is_null, sink_headers
from spark_batch.transforms.shape import Shape

TRANSFORMATION_STAGE = "TRANSFORMATION"


@dataclass(frozen=True, slots=True)
class Transformed:
    """A polled batch after its transformations; rows are those that were polled."""

    records: pa.Table
    """What was polled, with the topics and headers that came of it."""
    keys: Reading
    values: Reading
    refusals: list[Refusal]
    filtered: int
    """How many records were dropped; readings have them among their refused rows no more than the sink sees them."""


def transformed(steps: tuple[Step, ...], polled: pa.Table, keys: Reading, values: Reading) -> Transformed:
    """Take decoded records through the steps; those that do not fit one are refused, and the others go on."""
    if not steps:
        return Transformed(polled, keys, values, [], 0)
    work = _Work(steps, polled)
    work.begin(keys, values)
    work.go(steps)
    return work.end(keys, values)


async def transformed_by_spark(  # noqa: PLR0917 - as `transformed`, and Spark
    steps: tuple[Step, ...], polled: pa.Table, keys: Reading, values: Reading, selecting: Selecting
) -> Transformed:
    """The same, of steps with `Sql` among them, which Spark carries out; nobody waits for it in a thread.

    Raises what ``Selecting.of`` raises.
    """
    work, count = _Work(steps, polled), polled.num_rows
    await in_thread(lambda: work.begin(keys, values), records=count)
    for is_sql, chain in groupby(steps, key=lambda step: isinstance(step.transformation, Sql)):
        own = tuple(chain)
        if not is_sql:
            await in_thread(partial(work.go, own), records=count)
            continue
        for step in own:
            asked = await in_thread(partial(work.asked, step), records=count)
            found = await selecting.of(step, asked)
            await in_thread(partial(work.take, step, found), records=count)
    return await in_thread(lambda: work.end(keys, values), records=count)


def _changes(transformation: Transformation, side: Side) -> bool:
    if isinstance(transformation, ByLogicalTableRouter):
        return True
    if isinstance(transformation, HeaderFrom):
        return transformation.is_moved and transformation.side is side
    return getattr(transformation, "side", None) is side


def _asks_for_headers(step: Step) -> bool:
    return _makes_headers(step.transformation) or isinstance(step.predicate, HasHeaderKey)


def _makes_headers(transformation: Transformation) -> bool:
    if isinstance(transformation, ExtractNewRecordState):
        return bool(transformation.headers)
    return isinstance(transformation, (*HEADER_EDITS, HeaderFrom))


def _routes(transformation: Transformation) -> bool:
    if isinstance(transformation, ExtractNewRecordState):
        return transformation.topic_field is not None
    return isinstance(transformation, (*ROUTERS, ByLogicalTableRouter))


def _dropped(count: int, parts: list[Records]) -> Mask:
    is_dropped = np.ones(count, dtype=bool)
    for part in parts:
        is_dropped[part.rows] = False
    return is_dropped


def _records(steps: tuple[Step, ...], polled: pa.Table, parts: list[Records]) -> pa.Table:
    """What was polled, with other topics and headers where the steps may have made others."""
    if any(_routes(step.transformation) for step in steps):
        names: npt.NDArray[Any] = np.array(column_of(polled, "topic").to_pylist(), dtype=object)
        for part in parts:
            names[part.rows] = part.topic
        polled = _with(polled, "topic", pa.array(names, pa.string()))
    if any(_makes_headers(step.transformation) for step in steps):
        rows = np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)])
        places = np.full(polled.num_rows, UNKNOWN)
        places[rows] = np.arange(len(rows))
        pieces: list[Any] = [pa.nulls(0, SINK_HEADERS), *(part.headers for part in parts)]
        indices: Any = pa.array(places, mask=places == UNKNOWN)
        polled = _with(polled, "headers", pa.concat_arrays(pieces).take(indices))
    return polled


def _with(table: pa.Table, name: str, values: object) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, cast("Any", values))


@dataclass(slots=True)
class _Work:
    """One polled batch on its way."""

    steps: tuple[Step, ...]
    polled: pa.Table
    refusals: list[Refusal] = field(default_factory=list)
    parts: list[Records] = field(default_factory=list)
    """What is left of it so far."""
    _count: int = 0
    """How many records the converters have taken."""

    def begin(self, keys: Reading, values: Reading) -> None:
        """With what the converters have taken."""
        self.parts = list(self._split(keys, values))
        self._count = sum(len(part.rows) for part in self.parts)

    def go(self, steps: Iterable[Step]) -> None:
        """Take all parts through steps of which none is `Sql`."""
        for step in steps:
            self.parts = [after for part in self.parts for after in self._stepped(part, step)]

    def asked(self, step: Step) -> list[Records]:
        """Take out what a `Sql` applies to; what is not there it leaves alone."""
        side, asked, others = cast("Sql", step.transformation).side, [], []
        for part in self.parts:
            is_asked = self._is_met(part, step) & ~is_null(part.halves[side])
            if is_asked.all():
                asked.append(part)
                continue
            others.append(part.taken(~is_asked))
            if is_asked.any():
                asked.append(part.taken(is_asked))
        self.parts = others
        return asked

    def take(self, step: Step, found: Iterable[tuple[Records, Selected]]) -> None:
        """Put back what `Sql` has made of it, without what it drops and what it fails on."""
        form = cast("Sql", step.transformation)
        for part, selected in found:
            self._refuse(part, selected.faults, class_name(form))
            is_kept = ~selected.is_dropped
            is_kept[list(selected.faults)] = False
            after = part.with_half(form.side, selected.half)
            if is_kept.any():
                self.parts.append(after if is_kept.all() else after.taken(is_kept))

    def end(self, keys: Reading, values: Reading) -> Transformed:
        """The parts put together again."""
        steps, polled, parts = self.steps, self.polled, self.parts
        found = {Side.KEY: keys, Side.VALUE: values}
        for side, reading in found.items():
            if any(_changes(step.transformation, side) for step in steps):
                pieces = [(part.rows, _type_of(part.halves[side]), part.halves[side].column) for part in parts]
                found[side] = joined(pieces, polled.num_rows, reading)
        refused = {refusal.row: (refusal.reason, refusal.message) for refusal in self.refusals}
        filtered = self._count - len(refused) - sum(len(part.rows) for part in parts)
        values = replace(found[Side.VALUE], refused={**found[Side.VALUE].refused, **refused})
        if filtered:
            values = replace(values, dropped=_dropped(polled.num_rows, parts))
        refusals = sorted(self.refusals, key=lambda refusal: refusal.row)
        return Transformed(_records(steps, polled, parts), found[Side.KEY], values, refusals, filtered)

    def _stepped(self, part: Records, step: Step) -> Iterator[Records]:
        """What one step makes of a part; what it does not apply to stays a part of its own."""
        is_met = self._is_met(part, step)
        form = step.transformation
        if isinstance(form, RESHAPINGS) and not form.takes_nulls:
            is_met = is_met & ~is_null(part.halves[form.side])
        if not is_met.any():
            yield part
            return
        if not is_met.all():
            yield part.taken(~is_met)
            part = part.taken(is_met)
        if not isinstance(form, RESHAPINGS):
            yield from self._changed(part, cast("OfRecords", form))
            return
        part = self._reshaped(part, form)
        if len(part.rows):
            yield part

    def _is_met(self, part: Records, step: Step) -> Mask:
        predicate = step.predicate
        if predicate is None:
            return np.ones(len(part.rows), dtype=bool)
        if isinstance(predicate, RecordIsTombstone):
            is_true = is_null(part.halves[Side.VALUE])
        elif isinstance(predicate, HasHeaderKey):
            is_true = has_header(part.headers, predicate.name)
        else:
            is_true = np.full(len(part.rows), predicate.is_match(part.topic))
        return ~is_true if step.is_negated else is_true

    def _changed(self, part: Records, form: OfRecords) -> Iterator[Records]:
        """What a transformation of whole records makes of a part, without what it refuses."""
        try:
            after, faults = form.of_records(part, self._origins(part))
        except Unfit as unfit:
            is_none = is_null(part.halves[Side.VALUE])
            after, faults = (), {row: unfit.of_nulls if is_none[row] else unfit.fault for row in range(len(part.rows))}
        self._refuse(part, faults, class_name(form))
        refused = part.rows[list(faults)]
        for each in after:
            good = each if not faults else each.taken(~np.isin(each.rows, refused))
            if len(good.rows):
                yield good

    def _split(self, keys: Reading, values: Reading) -> Iterator[Records]:
        """The records that their converters have taken, by topic and types."""
        polled = self.polled
        has_headers = any(_asks_for_headers(step) for step in self.steps)
        is_good = np.ones(polled.num_rows, dtype=bool)
        is_good[[*keys.refused, *values.refused]] = False
        topics: Any = cast("Any", column_of(polled, "topic")).dictionary_encode()
        is_key_absent, is_value_absent = _is_absent(polled, "key", keys), _is_absent(polled, "value", values)
        marks = (topics.indices.to_numpy(), keys.groups, values.groups, is_key_absent, is_value_absent)
        for rows in _alike(np.flatnonzero(is_good), marks):
            first = int(rows[0])
            halves: dict[Side, Half] = {
                Side.KEY: _half(keys, int(keys.groups[first]), rows, is_absent=bool(is_key_absent[first])),
                Side.VALUE: _half(values, int(values.groups[first]), rows, is_absent=bool(is_value_absent[first])),
            }
            headers: Any = pa.nulls(len(rows), SINK_HEADERS)
            if has_headers:
                headers = sink_headers(cast("Any", column_of(polled, "headers")).take(pa.array(rows)))
            yield Records(rows, str(topics.dictionary[int(topics.indices[first])]), halves, headers)

    def _reshaped(self, part: Records, reshaping: ReshapingForm) -> Records:
        half = part.halves[reshaping.side]
        try:
            after, faults = _applied(half, reshaping, self._origins(part))
        except Unfit as unfit:
            is_there = _as_mask(half.column.is_valid())
            after = half
            faults = {row: unfit.fault if is_there[row] else unfit.of_nulls for row in range(len(part.rows))}
        part = part.with_half(reshaping.side, after)
        if not faults:
            return part
        self._refuse(part, faults, class_name(reshaping))
        is_good = np.ones(len(part.rows), dtype=bool)
        is_good[list(faults)] = False
        return part.taken(is_good)

    def _origins(self, part: Records) -> Origins:
        rows: Any = pa.array(part.rows)
        partitions, offsets, timestamps = (
            column_of(self.polled, name).take(rows) for name in ("partition", "offset", "timestamp")
        )
        # Records of Kafka's oldest formats have none: −1.
        is_known: Any = pc.greater_equal(cast("Any", timestamps), pa.scalar(0))
        timestamps = cast("Any", pc.if_else(is_known, timestamps, pa.scalar(None, pa.int64())))
        return Origins(part.topic, partitions, offsets, timestamps)

    def _refuse(self, part: Records, faults: Mapping[int, Fault], name: str) -> None:
        self.refusals += [
            Refusal(int(part.rows[row]), TRANSFORMATION_STAGE, fault.reason, fault.message, name, fault.exception)
            for row, fault in faults.items()
        ]


def _applied(half: Half, reshaping: ReshapingForm, origins: Origins) -> tuple[Half, Mapping[int, Fault]]:
    if isinstance(half, JsonHalf):
        return reshaping.of_texts(half, origins)
    return reshaping.of_columns(half, origins)


def class_name(form: Any) -> str:
    """Connect's class, which dead letters name."""
    name = f"{getattr(form, 'PACKAGE', PACKAGE)}.{form.NAME}"
    return name if isinstance(form, WHOLE) else f"{name}${form.side.capitalize()}"


def _alike(rows: Rows, marks: Iterable[npt.NDArray[Any]]) -> list[Rows]:
    """The rows, together with those that have the same marks; in order."""
    numbers = np.zeros(len(rows), np.int64)
    for mark in marks:
        own = mark[rows].astype(np.int64)
        numbers = numbers * (int(own.max(initial=0)) + 1) + own
    found, which = np.unique(numbers, return_inverse=True)
    return [rows] if len(found) == 1 else [rows[which == number] for number in range(len(found))]


def _is_absent(polled: pa.Table, name: str, reading: Reading) -> Mask:
    """Tombstones, and keys that are not there: no schema comes with them, but from converters of strings and bytes."""
    has_schema = np.array([kind.form in {Form.TEXT, Form.BYTES} for kind in reading.types], dtype=bool)
    is_absent: Mask = _as_mask(column_of(polled, name).is_null()) & ~has_schema[reading.groups]
    return is_absent


def _half(reading: Reading, group: int, rows: Rows, *, is_absent: bool) -> Half:
    kind = reading.types[group]
    if is_absent or (kind.form is Form.RECORD and kind.schema is None):
        return JsonHalf(pa.nulls(len(rows), pa.string()), has_type=False)
    column = reading.columns[group]
    if len(column) != len(rows):
        places: Any = pa.array(np.searchsorted(np.flatnonzero(reading.groups == group), rows))
        column = column.take(places)
    if kind.form is Form.JSON:
        return JsonHalf(column if kind.schema else _without_null_texts(column), kind.schema)
    return TypedHalf(column, _shape_of(kind), is_record=kind.form is Form.RECORD)


def _type_of(half: Half) -> ValueType | None:
    """What a sink is told of the values; None where there are only nulls."""
    if isinstance(half, JsonHalf):
        return ValueType(Form.JSON, half.schema) if half.has_type else None
    if half.is_record:
        return ValueType(Form.RECORD, half.shape.avro)
    return ValueType(Form.TEXT if half.shape.slot.type is Primitive.STRING else Form.BYTES)


@lru_cache(maxsize=256)
def _shape_of(kind: ValueType) -> Shape:
    """Of texts, bytes, or records of an Avro schema."""
    if kind.form is Form.RECORD:
        return Shape(parsed_slot(str(kind.schema)), str(kind.schema))
    primitive = Primitive.STRING if kind.form is Form.TEXT else Primitive.BYTES
    # Connect's converters of strings and bytes call every value optional.
    return Shape(Slot(primitive, is_nullable=True), json.dumps(["null", primitive.value]))


def _without_null_texts(column: Column) -> Column:
    """A JSON text that says null is no value, as in Connect."""
    # The comparison is for texts of four letters and blanks: most columns have none and stay as they are.
    is_null: Any = pc.equal(cast("Any", pc.utf8_trim_whitespace(column)), pa.scalar("null"))
    if not pc.any(is_null).as_py():
        return column
    return cast("Column", pc.if_else(is_null, pa.scalar(None, pa.string()), column))


def _as_mask(column: Any) -> Mask:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
