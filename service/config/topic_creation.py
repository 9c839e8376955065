"""Topics that a source may create: groups of topics by their names, and the settings of each (KIP-158).

``topic.creation.groups`` names groups; each has ``include``, ``exclude``, ``partitions``, ``replication.factor`` and
any setting of a topic under ``topic.creation.<group>.``. The first group that matches wins, ``default`` comes last.
What a group does not say is the default group's, and what that does not say the worker's or the broker's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fetchers.sdk import Finding, Severity
from spark_batch.transforms.java_pattern import java_pattern, pattern_doubt

PREFIX = "topic.creation."
DEFAULT = "default"
BROKER_DEFAULT = -1
_GROUPS = "topic.creation.groups"
_PARTITIONS = "Number of partitions must be positive, or -1 to use the broker's default"
_REPLICATION = (
    "Replication factor must be positive and not larger than the number of brokers in the Kafka cluster, "
    "or -1 to use the broker's default"
)
_COUNTS = {"partitions": (2**31 - 1, _PARTITIONS), "replication.factor": (2**15 - 1, _REPLICATION)}
"""The most there can be, and what is said of any other number."""
_PATTERNS = ("include", "exclude")


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """Topics that are made alike: expressions over their names, and the settings that they get.

    ``partitions`` and ``replication``: None where the group says nothing, -1 for the broker's default.
    """

    name: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    partitions: int | None = None
    replication: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def matches(self, topic: str) -> bool:
        """Whether the whole name of the topic is included, and not excluded."""
        return _matches(topic, self.include) and not _matches(topic, self.exclude)


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """How a source's topics are made."""

    groups: tuple[TopicGroup, ...] = ()
    default: TopicGroup = TopicGroup(DEFAULT)

    def of(self, topic: str) -> TopicGroup:
        """The settings of a topic; None where nothing is said, -1 where it is the broker's to say."""
        found = next((group for group in self.groups if group.matches(topic)), self.default)
        return TopicGroup(
            found.name,
            partitions=_first(found.partitions, self.default.partitions),
            replication=_first(found.replication, self.default.replication),
            settings={**self.default.settings, **found.settings},
        )


@dataclass(frozen=True, slots=True)
class TopicCreationReading:
    """The groups, as far as they can be read, and what is wrong with them."""

    creation: TopicCreation
    findings: tuple[Finding, ...] = ()


def read_topic_creation(properties: Mapping[str, str]) -> TopicCreationReading:
    """Read every ``topic.creation.*`` key of a source's config."""
    listed = list(dict.fromkeys(name.strip() for name in properties.get(_GROUPS, "").split(",") if name.strip()))
    names = [name for name in listed if name != DEFAULT]
    own = {name: _own(properties, name) for name in (*names, DEFAULT)}
    findings = [finding for name, keys in own.items() for finding in _doubts(name, keys)]
    findings.extend(_strangers(properties, own))
    if DEFAULT in listed:
        text = "The group 'default' is always there and always last; it need not be named."
        findings.append(Finding(_GROUPS, properties[_GROUPS], text, Severity.WARNING))
    creation = TopicCreation(tuple(_group(name, own[name]) for name in names), _group(DEFAULT, own[DEFAULT]))
    return TopicCreationReading(creation, tuple(findings))


def _own(properties: Mapping[str, str], name: str) -> dict[str, str]:
    prefix = f"{PREFIX}{name}."
    return {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}


def _group(name: str, keys: Mapping[str, str]) -> TopicGroup:
    return TopicGroup(
        name,
        include=_patterns(keys.get("include", "")),
        exclude=_patterns(keys.get("exclude", "")),
        partitions=_count(keys.get("partitions", "")),
        replication=_count(keys.get("replication.factor", "")),
        settings={key: value for key, value in keys.items() if key not in {*_COUNTS, *_PATTERNS}},
    )


def _doubts(name: str, keys: Mapping[str, str]) -> Iterator[Finding]:
    for key, (most, reason) in _COUNTS.items():
        if key in keys and not _is_right(keys[key], most):
            yield _wrong(f"{PREFIX}{name}.{key}", keys[key], reason)
    for key in _PATTERNS:
        for pattern in _patterns(keys.get(key, "")) if name != DEFAULT else ():
            doubt = pattern_doubt(pattern)
            if doubt is not None:
                yield _wrong(f"{PREFIX}{name}.{key}", keys[key], f"Syntax error in regular expression: {doubt}")


def _strangers(properties: Mapping[str, str], own: Iterable[str]) -> Iterator[Finding]:
    """Keys of groups that nobody named."""
    prefixes = (_GROUPS, *(f"{PREFIX}{name}." for name in own))
    for key in properties:
        if key.startswith(PREFIX) and not key.startswith(prefixes):
            group = key.removeprefix(PREFIX).partition(".")[0]
            text = f"Nothing reads it: there is no group '{group}' in {_GROUPS}."
            yield Finding(key, properties[key], text, Severity.WARNING)


def _wrong(key: str, value: str, reason: str) -> Finding:
    return Finding(key, value, f"Invalid value {value} for configuration {key}: {reason}")


def _is_right(text: str, most: int) -> bool:
    number = _count(text)
    return number is not None and (number == BROKER_DEFAULT or 1 <= number <= most)


def _count(text: str) -> int | None:
    trimmed = text.strip()
    return int(trimmed) if re.fullmatch(r"[+-]?\d{1,10}", trimmed, re.ASCII) else None


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _matches(topic: str, patterns: Iterable[str]) -> bool:
    return any(pattern_doubt(each) is None and java_pattern(each).fullmatch(topic) is not None for each in patterns)


def _first(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)
