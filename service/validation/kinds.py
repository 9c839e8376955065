"""Sources and sinks alike, as far as validation and listings care."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fetchers.catalog import Plugin, find_plugin, source_plugins
from fetchers.sdk import ConfigKey, Finding
from service.config.connector import ConnectorConfig, SourceConnectorConfig
from service.config.definition import read_definition
from service.config.reach import class_refusal
from service.config.sink import SinkConnectorConfig
from service.sinks.catalog import find_sink, sink_plugins
from service.sinks.definition import read_sink_definition


@dataclass(frozen=True, slots=True)
class ConnectorKind:
    """A connector that can be configured."""

    plugin: Plugin
    is_sink: bool

    @property
    def type_name(self) -> str:
        """``sink`` or ``source``, as listings and states name the kind."""
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
    """Those of the catalogues and of installed packages: sinks, then sources."""
    yield from (ConnectorKind(plugin, is_sink=True) for plugin in sink_plugins())
    yield from (ConnectorKind(plugin, is_sink=False) for plugin in source_plugins())


def find_kind(name: str, worker: Mapping[str, str]) -> ConnectorKind | None:
    """What ``connector.class=name`` means; a class of a user's own is imported to see whether it is a sink.

    ``worker``: its properties, which say what may be imported.
    """
    refusal = class_refusal(name, worker)
    sink = find_sink(name, refusal=refusal)
    if sink is not None:
        return ConnectorKind(sink, is_sink=True)
    source = find_plugin(name, refusal=refusal)
    return None if source is None else ConnectorKind(source, is_sink=False)
