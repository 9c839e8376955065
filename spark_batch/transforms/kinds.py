"""Transformations and predicates as values: what is configured, nothing of how it is done.

Behaviour: Kafka Connect 4.1's classes of the same names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Side(StrEnum):
    """Which half of a record a transformation works on: Connect's `$Key` and `$Value`."""

    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True)
class FieldName:
    """A field to be added; optional fields may be null."""

    name: str
    is_optional: bool = True


@dataclass(frozen=True)
class InsertField:
    """Adds what is known of a record: topic, partition, offset, timestamp, then the text of `static`.

    Only records of sinks have a partition and an offset.
    """

    side: Side
    topic: FieldName | None = None
    timestamp: FieldName | None = None
    static: FieldName | None = None
    static_value: str = ""
    is_null_defaulted: bool = True
    """Connect's `replace.null.with.default`."""
    partition: FieldName | None = None
    offset: FieldName | None = None


@dataclass(frozen=True)
class HoistField:
    """Wraps the whole in a record of one field."""

    side: Side
    field: str


@dataclass(frozen=True)
class ExtractField:
    """Puts one field in place of the whole; `path` has several names where fields lie in records in records."""

    side: Side
    path: tuple[str, ...]
    is_null_defaulted: bool = True


@dataclass(frozen=True)
class RegexRouter:
    """Another topic, made from the name of the first; both texts are Java's."""

    regex: str
    replacement: str


@dataclass(frozen=True)
class TopicNameMatches:
    """True where the whole name of the topic matches; the text is Java's."""

    pattern: str


@dataclass(frozen=True)
class RecordIsTombstone:
    """True where the record has no value."""


@dataclass(frozen=True)
class HasHeaderKey:
    """True where the record has a header of this name; records of sources have no headers."""

    name: str


Reshaping = InsertField | HoistField | ExtractField
Transformation = Reshaping | RegexRouter
Predicate = TopicNameMatches | RecordIsTombstone | HasHeaderKey


@dataclass(frozen=True)
class Step:
    """One transformation under its name in the config, and for which records."""

    name: str
    transformation: Transformation
    predicate: Predicate | None = None
    is_negated: bool = False
