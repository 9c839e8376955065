"""Which transformations a record meets, and which topic it ends in: told before any record is read.

Predicates ask for the topic, which a plan knows, for tombstones, and for headers, which records of sources do not have.
So there are two tracks, one for records with a value and one for tombstones, and on a track nothing is left to decide
for single records.
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
class Leg:
    """One transformation of a key or value, on a record that is for `topic` at that time."""

    name: str
    reshaping: ReshapingForm
    topic: str


@dataclass(frozen=True)
class Track:
    """What records of one sort go through."""

    topic: str
    """Where they end."""
    legs: tuple[Leg, ...] = ()

    def of(self, side: Side) -> tuple[Leg, ...]:
        """The legs of keys or of values."""
        return tuple(leg for leg in self.legs if leg.reshaping.side is side)


def shape_after(legs: Iterable[Leg], shape: Shape) -> Shape:
    """The shape at the end of these legs; raises Misfit."""
    for leg in legs:
        shape = leg.reshaping.reshaped(leg.name, shape)
    return shape


@lru_cache(maxsize=256)
def lay(steps: tuple[Step, ...], topic: str, *, is_tombstone: bool) -> Track:
    """The track of records for `topic`; raises JavaPatternError."""
    legs = []
    for step in steps:
        if not _is_met(step, topic, is_tombstone=is_tombstone):
            continue
        if isinstance(step.transformation, RegexRouter):
            topic = step.transformation.routed(topic)
        else:
            legs.append(Leg(step.name, step.transformation, topic))
    return Track(topic, tuple(legs))


def _is_met(step: Step, topic: str, *, is_tombstone: bool) -> bool:
    if step.predicate is None:
        return True
    return _is_true(step.predicate, topic, is_tombstone=is_tombstone) != step.is_negated


def _is_true(predicate: Predicate, topic: str, *, is_tombstone: bool) -> bool:
    if isinstance(predicate, HasHeaderKey):
        return False
    return is_tombstone if isinstance(predicate, RecordIsTombstone) else predicate.is_match(topic)
