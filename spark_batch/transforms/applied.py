"""Which transformations a record meets, and which topic it ends in: told before any record is read.

Predicates ask for the topic and for headers, which a plan knows, and for tombstones. So the answer is worked out twice,
for records with a value and for tombstones, and nothing is left to decide for single records but the time in a topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import cast

from spark_batch.transforms.by_logical_table_router import EventOfTable, KeyOfTable
from spark_batch.transforms.catalog import (
    HEADER_EDITS,
    ROUTERS,
    ByLogicalTableRouter,
    ExtractNewRecordState,
    Filter,
    HasHeaderKey,
    HeaderEdit,
    HeaderFrom,
    Predicate,
    RecordIsTombstone,
    ReshapingForm,
    Router,
    Side,
    Sql,
    Step,
    TimestampRouter,
    ValueToKey,
)
from spark_batch.transforms.shape import Shape

AppliedForm = ReshapingForm | HeaderFrom | Sql | ValueToKey | ExtractNewRecordState | KeyOfTable | EventOfTable


@dataclass(frozen=True)
class AppliedStep:
    """One transformation of a key or value, on a record that is for `topic` at that time."""

    name: str
    reshaping: AppliedForm
    topic: str


@dataclass(frozen=True)
class AppliedSteps:
    """What records of one sort (with a value, or tombstones) go through."""

    topic: str
    """Where they end, or come to the first of `routers`."""
    steps: tuple[AppliedStep, ...] = ()
    is_dropped: bool = False
    """Whether a filter drops them; no later step is told then."""
    edits: tuple[HeaderEdit | AppliedStep, ...] = ()
    """Of their headers; steps of `HeaderFrom` stand among them, for what they make of each record."""
    header_events: ExtractNewRecordState | None = None
    """What adds fields of change events to their headers, behind those that the edits have left."""
    routers: tuple[Router, ...] = ()
    """From the first on that asks for the time of each record."""

    def of(self, side: Side) -> tuple[AppliedStep, ...]:
        """Those of keys, or those of values; keys made of the value begin as the value and take its steps till then."""
        made = [at for at, step in enumerate(self.steps) if isinstance(step.reshaping, ValueToKey)]
        if side is Side.VALUE or not made:
            return tuple(step for step in self.steps if step.reshaping.side is side)
        values = (step for step in self.steps[: made[-1]] if step.reshaping.side is Side.VALUE)
        keys = (step for step in self.steps[made[-1] :] if step.reshaping.side is Side.KEY)
        return (*values, *keys)

    @property
    def header_steps(self) -> tuple[tuple[AppliedStep, HeaderFrom], ...]:
        """Those that make headers of fields, in their order."""
        return tuple((step, step.reshaping) for step in self.steps if isinstance(step.reshaping, HeaderFrom))

    @property
    def events(self) -> ExtractNewRecordState | None:
        """What takes rows out of change events."""
        return next((step.reshaping for step in self.steps if isinstance(step.reshaping, ExtractNewRecordState)), None)

    @property
    def has_key_of_value(self) -> bool:
        """Whether the key is made of fields of the value."""
        return any(isinstance(step.reshaping, ValueToKey) for step in self.steps)


def shape_after(steps: Iterable[AppliedStep], shape: Shape) -> Shape:
    """The shape at the end of these steps; raises Misfit."""
    for step in steps:
        shape = step.reshaping.reshaped(step.name, shape)
    return shape


@lru_cache(maxsize=256)
def applied_steps(
    steps: tuple[Step, ...], topic: str, *, is_tombstone: bool, headers: frozenset[str] = frozenset()
) -> AppliedSteps:
    """What records for `topic` go through that have headers of these names; raises JavaPatternError."""
    applied: list[AppliedStep] = []
    edits: list[HeaderEdit | AppliedStep] = []
    header_events: ExtractNewRecordState | None = None
    routers: list[Router] = []
    for step in steps:
        form = step.transformation
        if not _is_met(step, topic, headers, is_tombstone=is_tombstone):
            continue
        if isinstance(form, HeaderFrom):
            made = _steps_of_headers(step, form, topic, is_tombstone=is_tombstone)
            headers |= frozenset(form.headers if made else ())
            edits += made[:1]
            applied += made
            continue
        events = form if isinstance(form, ExtractNewRecordState) else None
        if isinstance(form, Filter) or (is_tombstone and events is not None and events.is_dropping_tombstones):
            return AppliedSteps(topic, tuple(applied), is_dropped=True)
        if events is not None and events.headers:
            header_events = events
        if isinstance(form, HEADER_EDITS):
            headers = form.names_after(headers)
            edits.append(form)
        elif isinstance(form, ROUTERS):
            topic = _routed(form, topic, routers)
        elif isinstance(form, ByLogicalTableRouter):
            applied += [AppliedStep(step.name, each, topic) for each in form.forms(topic) or ()]
            topic = form.routed(topic)
        elif not (is_tombstone and events is not None):
            applied.append(AppliedStep(step.name, cast("AppliedForm", form), topic))
    return AppliedSteps(topic, tuple(applied), edits=tuple(edits), header_events=header_events, routers=tuple(routers))


def _steps_of_headers(step: Step, form: HeaderFrom, topic: str, *, is_tombstone: bool) -> list[AppliedStep]:
    """What makes the headers, and what takes the fields away that are moved; tombstones have no fields."""
    if is_tombstone and form.side is Side.VALUE:
        return []
    made = [AppliedStep(step.name, form, topic)]
    return [*made, AppliedStep(step.name, form.rest, topic)] if form.is_moved else made


def _routed(router: Router, topic: str, later: list[Router]) -> str:
    """The topic after it; from a router by time on they are asked of each record, `later`."""
    if isinstance(router, TimestampRouter) or later:
        later.append(router)
        return topic
    return router.routed(topic)


def asked_headers(steps: Iterable[Step]) -> frozenset[str]:
    """The names of headers that predicates ask for."""
    return frozenset(step.predicate.name for step in steps if isinstance(step.predicate, HasHeaderKey))


def header_sets(steps: Iterable[Step]) -> tuple[frozenset[str], ...]:
    """Every choice of the headers that predicates ask for: what records may have of them, nothing first."""
    names = sorted(asked_headers(steps))
    return tuple(frozenset(chosen) for count in range(len(names) + 1) for chosen in combinations(names, count))


def topics_after(steps: tuple[Step, ...], topic: str, *, is_tombstone: bool) -> tuple[str, ...]:
    """Where records for ``topic`` end that are not dropped and not routed by their time, whatever headers they have.

    Raises JavaPatternError.
    """
    found = (applied_steps(steps, topic, is_tombstone=is_tombstone, headers=headers) for headers in header_sets(steps))
    return tuple(dict.fromkeys(each.topic for each in found if not each.is_dropped and not each.routers))


def _is_met(step: Step, topic: str, headers: frozenset[str], *, is_tombstone: bool) -> bool:
    if step.predicate is None:
        return True
    return _is_true(step.predicate, topic, headers, is_tombstone=is_tombstone) != step.is_negated


def _is_true(predicate: Predicate, topic: str, headers: frozenset[str], *, is_tombstone: bool) -> bool:
    if isinstance(predicate, HasHeaderKey):
        return predicate.name in headers
    return is_tombstone if isinstance(predicate, RecordIsTombstone) else predicate.is_match(topic)
