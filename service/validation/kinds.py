"""Sources and sinks alike, as far as validation and listings care."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fetchers.catalog import PLUGINS, find_plugin
from fetchers.sdk import ConfigKey, ConfigModel, Finding
from service.config.connector import ConnectorConfig, SourceConnectorConfig
from service.config.definition import read_definition
from service.config.sink import SinkConnectorConfig
from service.sinks.catalog import SINKS, find_sink
from service.sinks.definition import read_sink_definition


class ConnectorClass(Protocol):
    """What is asked of a connector's class."""

    @property
    def config_class(self) -> type[ConfigModel]:
        """Its own keys."""

    @property
    def version(self) -> str:
        """Its version."""


class AnyPlugin(Protocol):
    """A source's or sink's entry in its catalogue."""

    @property
    def name(self) -> str:
        """Its own name."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Java classes it stands for."""

    def load(self) -> ConnectorClass:
        """Import the class."""


@dataclass(frozen=True, slots=True)
class ConnectorKind:
    """A connector that can be configured."""

    plugin: AnyPlugin
    is_sink: bool

    @property
    def type_name(self) -> str:
        """As clients are told."""
        return "sink" if self.is_sink else "source"

    @property
    def class_name(self) -> str:
        """The class shown in listings: the Java class it stands for, since stored configs and clients know that."""
        return next(iter(self.plugin.aliases), self.plugin.name)

    @property
    def common_class(self) -> type[ConnectorConfig]:
        """The keys that the worker reads."""
        return SinkConnectorConfig if self.is_sink else SourceConnectorConfig

    def key(self, name: str) -> ConfigKey | None:
        """The key of that name, of those every config has."""
        keys = (*self.common_class.config_keys(), *self.plugin.load().config_class.config_keys())
        return next((key for key in keys if key.name == name), None)

    def findings(self, properties: Mapping[str, str], worker: Mapping[str, str]) -> Sequence[Finding]:
        """Everything that can be found without asking the outside."""
        if self.is_sink:
            return read_sink_definition(properties, worker=worker).findings
        return read_definition(properties, worker=worker).findings


def connector_kinds() -> Iterator[ConnectorKind]:
    """Those of the catalogues: sinks, then sources."""
    yield from (ConnectorKind(plugin, is_sink=True) for plugin in SINKS)
    yield from (ConnectorKind(plugin, is_sink=False) for plugin in PLUGINS)


def find_kind(name: str) -> ConnectorKind | None:
    """What ``connector.class=name`` means; a class of a user's own is imported to see whether it is a sink."""
    sink = find_sink(name)
    if sink is not None:
        return ConnectorKind(sink, is_sink=True)
    source = find_plugin(name)
    return None if source is None else ConnectorKind(source, is_sink=False)
