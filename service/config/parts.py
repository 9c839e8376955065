"""What is read alike of a source's and of a sink's config: the worker's keys, its own, converters, overrides."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fetchers.sdk import ConfigKey, ConfigModel, Finding
from fetchers.sdk.config import unknown_keys
from service.config.connector import ConnectorConfig
from service.config.converters import Converter, read_converter
from service.config.overrides import override_findings
from service.config.reach import reach_of
from spark_batch.plan import ConverterKind, ConverterSpec

Common = TypeVar("Common", bound=ConnectorConfig)
Own = TypeVar("Own", bound=ConfigModel)
Model = TypeVar("Model", bound=ConfigModel)
_ANY_CONVERTER = Converter(ConverterSpec(ConverterKind.JSON), ConverterKind.JSON)
"""Stands for one that is not known: the one that asks least of a plan."""


@dataclass(frozen=True, slots=True)
class ConfigParts(Generic[Common, Own]):
    """A connector's config, taken apart."""

    common: Common
    own: Own
    key_converter: Converter
    value_converter: Converter


@dataclass(frozen=True, slots=True)
class PartsReading(Generic[Common, Own]):
    """The parts, and what is wrong with them; with stand-ins for refused keys they are for further checks only."""

    parts: ConfigParts[Common, Own] | None
    """None where nothing can stand for a refused key."""
    findings: tuple[Finding, ...]

    def with_checks(self, checks: Iterable[Finding]) -> tuple[Finding, ...]:
        """All findings: also of checks of the parts, as far as these do not rest on stand-ins."""
        return (*self.findings, *not_about(refused_keys(self.findings), checks))


def read_parts(
    properties: Mapping[str, str],
    *,
    worker: Mapping[str, str],
    common_class: type[Common],
    own_class: type[Own],
    also_found: Iterable[Finding] = (),
) -> PartsReading[Common, Own]:
    """Read everything at once. ``also_found``: what checks of this kind of connector alone have found."""
    common, own = with_stand_ins(common_class, properties), with_stand_ins(own_class, properties)
    key, value = (read_converter(side, properties, worker) for side in ("key", "value"))
    findings = (
        *common_class.parse(properties).findings,
        *own_class.parse(properties).findings,
        *key.findings,
        *value.findings,
        *override_findings(properties, worker=worker),
        *_path_findings(own_class, properties, worker),
        *also_found,
        *_strangers(properties, (common_class, own_class)),
    )
    if common is None or own is None:
        return PartsReading(None, findings)
    converters = (reading.converter or _ANY_CONVERTER for reading in (key, value))
    return PartsReading(ConfigParts(common, own, *converters), findings)


def _path_findings(
    config_class: type[ConfigModel], properties: Mapping[str, str], worker: Mapping[str, str]
) -> Iterable[Finding]:
    """Files that the worker does not let connectors name."""
    paths = reach_of(worker).paths
    for key in config_class.config_keys():
        value = properties.get(key.name, "").strip()
        refusal = paths.pattern_refusal(value) if key.extras.is_path and value else None
        if refusal is not None:
            yield Finding(key.name, value, f"Invalid value {value} for configuration {key.name}: {refusal}")


def known_keys(*config_classes: type[ConfigModel]) -> tuple[ConfigKey, ...]:
    """Every key of these classes, in their order."""
    return tuple(key for config_class in config_classes for key in config_class.config_keys())


def class_not_found(class_name: str, available: Iterable[str]) -> str:
    """What Kafka Connect says to a class that no plugin has: the name asked for, and those that there are."""
    names = tuple(available)
    own = class_name.rpartition(".")[2]
    by_name = {name.rpartition(".")[2].lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(own.lower(), by_name, n=1, cutoff=0.75)
    advice = f"; did you mean {by_name[close[0]]}?" if close else ""
    return (
        f"Failed to find any class that implements Connector and which name matches {class_name}, "
        f"available connectors are: {', '.join(names)}{advice}"
    )


def class_not_found_findings(class_name: str, available: Iterable[str]) -> tuple[Finding, ...]:
    """Nothing where no class is named: the key itself says that."""
    if not class_name:
        return ()
    return (Finding("connector.class", class_name, class_not_found(class_name, available)),)


def _strangers(properties: Mapping[str, str], config_classes: Sequence[type[ConfigModel]]) -> tuple[Finding, ...]:
    known = [key.name for key in known_keys(*config_classes)]
    prefixes = [prefix for config_class in config_classes for prefix in config_class.free_prefixes]
    foreign = {key: idle for config_class in config_classes for key, idle in config_class.foreign_keys.items()}
    strangers = [key for key in properties if key not in foreign]
    return (*_foreign(properties, foreign), *unknown_keys(strangers, known, free_prefixes=prefixes))


def _foreign(properties: Mapping[str, str], foreign: Mapping[str, Sequence[str]]) -> Iterable[Finding]:
    """What would be done otherwise than the key says is refused; its value may be a secret, and is not told."""
    for key, idle in foreign.items():
        given = properties.get(key, "").strip().lower()
        if given and given not in {each.lower() for each in idle}:
            advice = f"leave it out, or give {' or '.join(idle)}" if idle else "leave it out"
            yield Finding(key, None, f"{key} is not supported, and would not be obeyed: {advice}")


def with_stand_ins(config_class: type[Model], properties: Mapping[str, str]) -> Model | None:
    """The config with the default of every refused key, or its example where it must be given; else None."""
    parsed = config_class.parse(properties)
    if parsed.config is not None:
        return parsed.config
    refused = refused_keys(parsed.findings)
    examples = {key.name: key.extras.example for key in config_class.config_keys() if key.is_required}
    right = {key: value for key, value in properties.items() if key not in refused}
    return config_class.parse(right | {key: examples.get(key) for key in refused}).config


def refused_keys(findings: Iterable[Finding]) -> frozenset[str]:
    """Keys that at least one of the findings refuses."""
    return frozenset(finding.key for finding in findings if finding.is_error)


def not_about(refused: frozenset[str], findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that rest on no refused key: what stands for it there was nobody's wish.

    A finding rests on the keys that it names. Keys of one word are not looked for: sentences are made of such words.
    """
    dotted = "|".join(re.escape(key) for key in sorted(refused) if "." in key)
    named = re.compile(rf"(?<![\w.])(?:{dotted})(?!\.?\w)") if dotted else None
    return tuple(
        finding
        for finding in findings
        if finding.key not in refused and not (named is not None and named.search(finding.message))
    )
