"""What is read alike of a source's and of a sink's config: the worker's keys, its own, converters, overrides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fetchers.sdk import ConfigKey, ConfigModel, Finding
from fetchers.sdk.config import unknown_keys
from service.config.connector import ConnectorConfig
from service.config.converters import Converter, read_converter
from service.config.overrides import override_findings

Common = TypeVar("Common", bound=ConnectorConfig)
Own = TypeVar("Own", bound=ConfigModel)


@dataclass(frozen=True, slots=True)
class ConfigParts(Generic[Common, Own]):
    """A connector's config, taken apart."""

    common: Common
    own: Own
    key_converter: Converter
    value_converter: Converter


@dataclass(frozen=True, slots=True)
class PartsReading(Generic[Common, Own]):
    """The parts, or why there are none; warnings come with either."""

    parts: ConfigParts[Common, Own] | None
    findings: tuple[Finding, ...]


def read_parts(
    properties: Mapping[str, str],
    *,
    worker: Mapping[str, str],
    common_class: type[Common],
    own_class: type[Own],
    also_found: Iterable[Finding] = (),
) -> PartsReading[Common, Own]:
    """Read everything at once. ``also_found``: what checks of this kind of connector alone have found."""
    common, own = common_class.parse(properties), own_class.parse(properties)
    key, value = (read_converter(side, properties, worker) for side in ("key", "value"))
    findings = (
        *common.findings,
        *own.findings,
        *key.findings,
        *value.findings,
        *override_findings(properties, worker=worker),
        *also_found,
        *_strangers(properties, (common_class, own_class)),
    )
    is_refused = any(finding.is_error for finding in findings)
    if is_refused or not (common.config and own.config and key.converter and value.converter):
        return PartsReading(None, findings)
    return PartsReading(ConfigParts(common.config, own.config, key.converter, value.converter), findings)


def known_keys(*config_classes: type[ConfigModel]) -> tuple[ConfigKey, ...]:
    """Every key of these classes, in their order."""
    return tuple(key for config_class in config_classes for key in config_class.config_keys())


def class_not_found(class_name: str, available: Iterable[str]) -> str:
    """Kafka Connect's text."""
    return (
        f"Failed to find any class that implements Connector and which name matches {class_name}, "
        f"available connectors are: {', '.join(available)}"
    )


def class_not_found_findings(class_name: str, available: Iterable[str]) -> tuple[Finding, ...]:
    """Nothing where no class is named: the key itself says that."""
    if not class_name:
        return ()
    return (Finding("connector.class", class_name, class_not_found(class_name, available)),)


def _strangers(properties: Mapping[str, str], config_classes: Sequence[type[ConfigModel]]) -> tuple[Finding, ...]:
    known = [key.name for key in known_keys(*config_classes)]
    prefixes = [prefix for config_class in config_classes for prefix in config_class.free_prefixes]
    return unknown_keys(properties, known, free_prefixes=prefixes)
