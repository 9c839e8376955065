"""The predicates of transformations: which records of a source or a sink are transformed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spark_batch.transforms.form import FormKey, KeyKind, KeyValues
from spark_batch.transforms.java_pattern import java_pattern


@dataclass(frozen=True)
class TopicNameMatches:
    """True where the whole name of the topic matches; the text is Java's."""

    pattern: str

    NAME: ClassVar[str] = "TopicNameMatches"
    ABOUT: ClassVar[str] = "True where the record's topic matches."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey(
            "pattern", "Expression that the whole name of the topic must match.", KeyKind.PATTERN, is_required=True
        ),
    )

    @classmethod
    def configured(cls, values: KeyValues) -> TopicNameMatches:
        """Made of the values of its keys."""
        return cls(values["pattern"])

    def is_match(self, topic: str) -> bool:
        """Whether the whole name matches; raises JavaPatternError."""
        return java_pattern(self.pattern).fullmatch(topic) is not None


@dataclass(frozen=True)
class RecordIsTombstone:
    """True where the record has no value."""

    NAME: ClassVar[str] = "RecordIsTombstone"
    ABOUT: ClassVar[str] = "True where the record has no value."
    KEYS: ClassVar[tuple[FormKey, ...]] = ()

    @classmethod
    def configured(cls, values: KeyValues) -> RecordIsTombstone:
        """The same for every config, since it has no keys."""
        del values
        return cls()


@dataclass(frozen=True)
class HasHeaderKey:
    """True where the record has a header of this name."""

    name: str

    NAME: ClassVar[str] = "HasHeaderKey"
    ABOUT: ClassVar[str] = "True where the record has a header."
    KEYS: ClassVar[tuple[FormKey, ...]] = (FormKey("name", "Name of the header.", KeyKind.NAME, is_required=True),)

    @classmethod
    def configured(cls, values: KeyValues) -> HasHeaderKey:
        """Made of the values of its keys."""
        return cls(values["name"])


Predicate = TopicNameMatches | RecordIsTombstone | HasHeaderKey
