"""What transformations of change events ask of the plan of a source: told before the first event and its schema.

At a source topics are made and schemas registered before the first record, and a record stays on its track
(`transforms.applied`); a delete that becomes a tombstone is the one that leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_batch.avro_types import Array, Map, Record
from spark_batch.plan import ConversionPlan, PlanFinding
from spark_batch.transforms.catalog import (
    HEADER_EDITS,
    ByLogicalTableRouter,
    ExtractNewRecordState,
    HasHeaderKey,
    RecordIsTombstone,
    Side,
    Step,
    ValueToKey,
)
from spark_batch.transforms.envelope import is_envelope


def event_findings(plan: ConversionPlan) -> Iterator[PlanFinding]:
    """What cannot be done with change events here, and where there are none."""
    form: ExtractNewRecordState | None = None
    is_changed = False
    for step in plan.transformations:
        if form is not None and form.makes_tombstones:
            yield from _of_tombstones(step)
        if isinstance(step.transformation, (ByLogicalTableRouter, ExtractNewRecordState)) and not plan.is_of_rows:
            yield _finding(step, "type", step.transformation.NAME, "a source of change events, or a sink")
        if form is not None and form.headers:
            yield from _of_headers(step, form)
        if isinstance(step.transformation, ExtractNewRecordState):
            form = step.transformation
            yield from _of_rows(step, form, is_first=not is_changed and step.predicate is None)
            yield from _without_text(step, form, plan.record)
        is_changed = is_changed or getattr(step.transformation, "side", None) is Side.VALUE


def _of_rows(step: Step, form: ExtractNewRecordState, *, is_first: bool) -> Iterator[PlanFinding]:
    if not is_first:
        expected = "its place before other transformations of values, for all records"
        yield _finding(step, "type", form.NAME, expected)
    if form.topic_field is not None:
        expected = "none at a source, whose topics are made before"
        yield _finding(step, "route.by.field", form.topic_field, expected)


def _without_text(step: Step, form: ExtractNewRecordState, record: Record | None) -> Iterator[PlanFinding]:
    """Headers that have no text, as far as the events' schema is known."""
    if record is None or not is_envelope(record):
        return
    for each in form.headers:
        outer = None if each.parent is None else record.field(each.parent)
        if each.parent is not None and (outer is None or not isinstance(outer.slot.type, Record)):
            yield _finding(step, "add.headers", each.field, f"a change event with the struct {each.parent}")
            continue
        inner = outer.slot.type.field(each.field) if outer and isinstance(outer.slot.type, Record) else None
        found = inner or record.field(each.field)
        if found is not None and isinstance(found.slot.type, (Record, Array, Map)):
            yield _finding(step, "add.headers", each.field, "fields that are no structs, arrays or maps")


def _of_headers(step: Step, form: ExtractNewRecordState) -> Iterator[PlanFinding]:
    """Fields of events become headers at the end, when a batch is converted."""
    if isinstance(step.transformation, HEADER_EDITS):
        name = step.transformation.NAME
        yield _finding(step, "type", name, "its place before what adds headers of change events")
    if isinstance(step.predicate, HasHeaderKey) and step.predicate.name in {each.name for each in form.headers}:
        yield _finding(step, "predicate", "HasHeaderKey", "no question for headers made of change events")


def _of_tombstones(step: Step) -> Iterator[PlanFinding]:
    """What would have to see that a delete has become a tombstone."""
    if isinstance(step.predicate, RecordIsTombstone):
        expected = "no question for tombstones that deletes have become"
        yield _finding(step, "predicate", "RecordIsTombstone", expected)
    if isinstance(step.transformation, ValueToKey):
        yield _finding(step, "type", ValueToKey.NAME, "deletes that are rows (rewrite), or none (drop)")


def _finding(step: Step, key: str, value: str, expected: str) -> PlanFinding:
    return PlanFinding(f"transforms.{step.name}.{key}", value, expected)
