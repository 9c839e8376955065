"""Which transformations a record meets, and which topic it ends in: told before any record is read.

Predicates ask for the topic, which a plan knows, for tombstones, and for headers, which records of sources do not have.
So the answer is worked out twice, for records with a value and for tombstones, and nothing is left to decide for single
records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from spark_batch.transforms.catalog import (
    HasHeaderKey,
    Predicate,
    RecordIsTombstone,
    RegexRouter,
    ReshapingForm,
    Side,
    Step,
)
from spark_batch.transforms.shape import Shape


@dataclass(frozen=True)
class AppliedStep:
    """One transformation of a key or value, on a record that is for `topic` at that time."""

    name: str
    reshaping: ReshapingForm
    topic: str


@dataclass(frozen=True)
class AppliedSteps:
    """What records of one sort (with a value, or tombstones) go through."""

    topic: str
    """Where they end."""
    steps: tuple[AppliedStep, ...] = ()

    def of(self, side: Side) -> tuple[AppliedStep, ...]:
        """Those of keys, or those of values."""
        return tuple(step for step in self.steps if step.reshaping.side is side)


def shape_after(steps: Iterable[AppliedStep], shape: Shape) -> Shape:
    """The shape at the end of these steps; raises Misfit."""
    for step in steps:
        shape = step.reshaping.reshaped(step.name, shape)
    return shape


@lru_cache(maxsize=256)
def applied_steps(steps: tuple[Step, ...], topic: str, *, is_tombstone: bool) -> AppliedSteps:
    """What records for `topic` go through; raises JavaPatternError."""
    applied = []
    for step in steps:
        if not _is_met(step, topic, is_tombstone=is_tombstone):
            continue
        if isinstance(step.transformation, RegexRouter):
            topic = step.transformation.routed(topic)
        else:
            applied.append(AppliedStep(step.name, step.transformation, topic))
    return AppliedSteps(topic, tuple(applied))


def _is_met(step: Step, topic: str, *, is_tombstone: bool) -> bool:
    if step.predicate is None:
        return True
    return _is_true(step.predicate, topic, is_tombstone=is_tombstone) != step.is_negated


def _is_true(predicate: Predicate, topic: str, *, is_tombstone: bool) -> bool:
    if isinstance(predicate, HasHeaderKey):
        return False
    return is_tombstone if isinstance(predicate, RecordIsTombstone) else predicate.is_match(topic)
