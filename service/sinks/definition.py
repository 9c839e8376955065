"""A sink's whole config, read: its class, its own config and the worker's share of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fetchers.sdk import ConfigKey, Finding
from fetchers.sdk.config import HIDDEN, masked, unknown_keys
from service.config.converters import Converter, read_converter
from service.config.overrides import override_findings
from service.config.secret_names import names_a_secret
from service.config.sink import SinkConnectorConfig, group_of, topic_findings
from service.kafka.group_consumer import Subscription
from service.sinks.catalog import SINKS, SinkPlugin, find_sink
from service.sinks.contract import SinkConfig, SinkConnector

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SinkDefinition:
    """One sink as configured."""

    properties: Mapping[str, str]
    plugin: SinkPlugin
    connector_class: type[SinkConnector[Any]]
    common: SinkConnectorConfig
    own: SinkConfig
    key_converter: Converter
    value_converter: Converter

    @property
    def name(self) -> str:
        """Name of the connector."""
        return self.common.name

    @property
    def group_id(self) -> str:
        """Its consumer group."""
        return group_of(self.name, self.properties)

    @property
    def subscription(self) -> Subscription:
        """What its group reads."""
        return Subscription(self.common.topics, self.common.topics_regex or None)

    def masked_properties(self) -> dict[str, str]:
        """The config as it may be shown."""
        shown = {key: HIDDEN if names_a_secret(key) else value for key, value in self.properties.items()}
        return masked(shown, self.connector_class.config_class.config_keys())

    def new_connector(self) -> SinkConnector[Any]:
        """An instance for one run of a task."""
        return self.connector_class(self.own)


@dataclass(frozen=True, slots=True)
class SinkReading:
    """A definition, or why there is none; warnings come with either."""

    definition: SinkDefinition | None
    findings: tuple[Finding, ...]


def read_sink_definition(properties: Mapping[str, str], *, worker: Mapping[str, str]) -> SinkReading:
    """Read a sink's config; every finding at once."""
    common = SinkConnectorConfig.parse(properties)
    plugin = find_sink(properties.get("connector.class", ""))
    if plugin is None:
        return SinkReading(None, (*common.findings, *_no_plugin(properties.get("connector.class", ""))))
    connector_class = plugin.load()
    own = connector_class.config_class.parse(properties)
    key, value = (read_converter(side, properties, worker) for side in ("key", "value"))
    findings = [
        *common.findings,
        *topic_findings(properties),
        *own.findings,
        *key.findings,
        *value.findings,
        *override_findings(properties, worker=worker),
        *_not_built(properties),
        *_strangers(properties, connector_class.config_class),
    ]
    if any(finding.is_error for finding in findings):
        return SinkReading(None, tuple(findings))
    definition = SinkDefinition(
        properties=dict(properties),
        plugin=plugin,
        connector_class=connector_class,
        common=_present(common.config),
        own=_present(own.config),
        key_converter=_present(key.converter),
        value_converter=_present(value.converter),
    )
    findings.extend(connector_class(definition.own).findings())
    is_refused = any(finding.is_error for finding in findings)
    return SinkReading(None if is_refused else definition, tuple(findings))


def known_sink_keys(config_class: type[SinkConfig]) -> tuple[ConfigKey, ...]:
    """Every key a sink of this class may have: Connect's, then its own."""
    return (*SinkConnectorConfig.config_keys(), *config_class.config_keys())


def _strangers(properties: Mapping[str, str], config_class: type[SinkConfig]) -> tuple[Finding, ...]:
    known = [key.name for key in known_sink_keys(config_class)]
    prefixes = (*SinkConnectorConfig.free_prefixes, *config_class.free_prefixes)
    return unknown_keys(properties, known, free_prefixes=prefixes)


def _not_built(properties: Mapping[str, str]) -> tuple[Finding, ...]:
    """Keys of Kafka Connect whose silent omission would change what is put."""
    return tuple(
        Finding(
            key,
            properties[key],
            f"Invalid value {properties[key]} for configuration {key}: records of sinks cannot be "
            "transformed by this version of headrace yet; ignoring it would change them",
        )
        for key in ("transforms", "predicates")
        if properties.get(key, "").strip()
    )


def _no_plugin(class_name: str) -> tuple[Finding, ...]:
    if not class_name:
        return ()
    available = ", ".join(plugin.name for plugin in SINKS)
    message = (
        f"Failed to find any class that implements Connector and which name matches {class_name}, "
        f"available connectors are: {available}"
    )
    return (Finding("connector.class", class_name, message),)


def _present(value: T | None) -> T:
    if value is None:
        message = "a config without findings is missing"
        raise AssertionError(message)
    return value
