"""`RegexRouter`: another topic, made from the name of the first."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from spark_batch.transforms.form import FormKey, KeyKind, KeyValues
from spark_batch.transforms.halves import Faults, Origins
from spark_batch.transforms.java_pattern import JavaPatternError, java_pattern
from spark_batch.transforms.records import Records

_GROUP_NAME = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}")


@dataclass(frozen=True)
class RegexRouter:
    """Another topic, made from the name of the first; both texts are Java's."""

    regex: str
    replacement: str

    NAME: ClassVar[str] = "RegexRouter"
    ABOUT: ClassVar[str] = "Another topic, made from the name of the first."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey(
            "regex",
            "Expression that the whole name of the topic must match; other topics stay.",
            KeyKind.PATTERN,
            is_required=True,
            is_important=True,
        ),
        FormKey(
            "replacement",
            "Name of the new topic; ``$1`` stands for the first group.",
            is_required=True,
            is_important=True,
        ),
    )

    @classmethod
    def configured(cls, values: KeyValues) -> RegexRouter:
        """Made of the values of its keys."""
        return cls(values["regex"], values["replacement"])

    def routed(self, topic: str) -> str:
        """The topic for records of that topic; raises JavaPatternError.

        As in Java: where the whole name matches, what is *found* first in it is replaced. The two can differ: `a|ab`
        matches all of `ab`, and finds `a`.
        """
        pattern = java_pattern(self.regex)
        parts = _parts(self.replacement, pattern.groups, pattern.groupindex)
        if pattern.fullmatch(topic) is None:
            return topic
        found = pattern.search(topic)
        if found is None:
            return topic
        replacement = "".join(part if isinstance(part, str) else found[part[0]] or "" for part in parts)
        return topic[: found.start()] + replacement + topic[found.end() :]

    @property
    def literal(self) -> str:
        """What every name that is made has of the replacement itself; raises JavaPatternError."""
        pattern = java_pattern(self.regex)
        return "".join(
            part for part in _parts(self.replacement, pattern.groups, pattern.groupindex) if isinstance(part, str)
        )

    def is_match(self, topic: str) -> bool:
        """Whether the topic's whole name matches; raises JavaPatternError."""
        return java_pattern(self.regex).fullmatch(topic) is not None

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """The same records under another topic."""
        del origins
        return (replace(records, topic=self.routed(records.topic)),), {}


def _parts(replacement: str, groups: int, names: Collection[str]) -> list[str | tuple[int | str]]:
    """Texts, and groups in brackets of their own; `$12` is the twelfth group only where there are so many."""
    parts: list[str | tuple[int | str]] = []
    at = 0
    while at < len(replacement):
        letter = replacement[at]
        if letter == "$":
            group, at = _group(replacement, at + 1, groups, names)
            parts.append((group,))
            continue
        at += letter == "\\"
        if at >= len(replacement):
            raise JavaPatternError("the replacement ends with a backslash")
        parts.append(replacement[at])
        at += 1
    return parts


def _group(replacement: str, at: int, groups: int, names: Collection[str]) -> tuple[int | str, int]:
    named = _GROUP_NAME.match(replacement, at)
    if named:
        if named[1] not in names:
            raise JavaPatternError(f"the replacement names a group {named[1]} that the regex does not have")
        return named[1], named.end()
    if not replacement[at : at + 1].isdecimal():
        raise JavaPatternError("in the replacement a $ must be followed by a group, or have a backslash before it")
    number = int(replacement[at])
    if number > groups:
        raise JavaPatternError(f"the replacement names group {number}, the regex has {groups}")
    at += 1
    while replacement[at : at + 1].isdecimal() and 10 * number + int(replacement[at]) <= groups:
        number = 10 * number + int(replacement[at])
        at += 1
    return number, at
