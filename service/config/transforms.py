"""Transformations and predicates by their names in Kafka Connect, with the keys of each.

What they do to a record is the conversion's business; here stands what can be configured of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fetchers.sdk import Boolean, ConfigModel, Importance, Key
from spark_batch.transforms.java_pattern import pattern_doubt

PACKAGE = "org.apache.kafka.connect.transforms"
_NO_REGEX = "Invalid regex: there is none"
_HIGH = Key(importance=Importance.HIGH)


def _regex(pattern: str) -> str:
    doubt = pattern_doubt(pattern)
    if doubt is not None:
        message = f"Invalid regex: {doubt}"
        raise ValueError(message)
    return pattern


Regex = Annotated[str, AfterValidator(_regex)]


class InsertFieldConfig(ConfigModel):
    """Adds what is known of a record to its key or value."""

    topic_field: str | None = None
    """Field for the topic; with ``!`` at its end required, with ``?`` (or nothing) optional."""
    partition_field: str | None = None
    """Field for the partition; records of sinks only."""
    offset_field: str | None = None
    """Field for the offset; records of sinks only."""
    timestamp_field: str | None = None
    """Field for the record's timestamp."""
    static_field: str | None = None
    """Field for ``static.value``."""
    static_value: str | None = None
    """Text for ``static.field``."""
    replace_null_with_default: Boolean = True
    """Whether a field that is null is read as its default."""


class HoistFieldConfig(ConfigModel):
    """Wraps the key or value in a record of one field."""

    field: str
    """Name of that field."""


class ExtractFieldConfig(ConfigModel):
    """Puts one field in place of the whole key or value."""

    field: str
    """Name of the field; with ``field.syntax.version=V2`` a dotted path."""
    field_syntax_version: Annotated[Literal["V1", "V2"], _HIGH] = "V1"
    """``V2``: dots lead into records in records; back-ticks go around names that have dots themselves."""
    replace_null_with_default: Boolean = True
    """Whether a field that is null is read as its default."""


class RegexRouterConfig(ConfigModel):
    """Another topic, made from the name of the first."""

    regex: Annotated[Regex, Key(importance=Importance.HIGH, null_reason=_NO_REGEX)]
    """Expression that the whole name of the topic must match; other topics stay."""
    replacement: Annotated[str, _HIGH]
    """Name of the new topic; ``$1`` stands for the first group."""


class TopicNameMatchesConfig(ConfigModel):
    """True where the record's topic matches."""

    pattern: Annotated[Regex, Key(null_reason=_NO_REGEX)]
    """Expression that the whole name of the topic must match."""


class HasHeaderKeyConfig(ConfigModel):
    """True where the record has a header; records of sources have none."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the header."""


class RecordIsTombstoneConfig(ConfigModel):
    """True where the record has no value."""


class StageConfig(ConfigModel):
    """What every transformation takes besides its own keys."""

    predicate: str | None = None
    """Name of the predicate that says which records are transformed; all of them when not given."""
    negate: Boolean = False
    """Whether the predicate is to be false instead."""


@dataclass(frozen=True, slots=True)
class TransformClass:
    """A transformation or predicate that can be configured."""

    name: str
    """The Java class, in full."""
    config_class: type[ConfigModel]

    def answers_to(self, name: str) -> bool:
        """Whether ``type=name`` means it: in full, or by the simple name where that is no inner class."""
        return name == self.name or ("$" not in self.name and name == self.name.rpartition(".")[2])


def _key_and_value(name: str, config_class: type[ConfigModel]) -> tuple[TransformClass, ...]:
    return tuple(TransformClass(f"{PACKAGE}.{name}${side}", config_class) for side in ("Key", "Value"))


TRANSFORMATIONS: tuple[TransformClass, ...] = (
    *_key_and_value("ExtractField", ExtractFieldConfig),
    *_key_and_value("HoistField", HoistFieldConfig),
    *_key_and_value("InsertField", InsertFieldConfig),
    TransformClass(f"{PACKAGE}.RegexRouter", RegexRouterConfig),
)
PREDICATES: tuple[TransformClass, ...] = (
    TransformClass(f"{PACKAGE}.predicates.HasHeaderKey", HasHeaderKeyConfig),
    TransformClass(f"{PACKAGE}.predicates.RecordIsTombstone", RecordIsTombstoneConfig),
    TransformClass(f"{PACKAGE}.predicates.TopicNameMatches", TopicNameMatchesConfig),
)


def find_class(name: str, classes: Iterable[TransformClass]) -> TransformClass | None:
    """The class that ``type=name`` means."""
    return next((known for known in classes if known.answers_to(name)), None)
