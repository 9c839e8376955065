"""Connectors that can be configured, sources and sinks alike, as validation and listings see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fetchers.catalog import Plugin
from fetchers.sdk import ConfigKey, Finding
from service.config.definition import SOURCES
from service.config.kinds import ConnectorKind, Definition
from service.config.sink import SinkConnectorConfig
from service.sinks.definition import SINKS

KINDS: tuple[ConnectorKind[Definition], ...] = (SINKS, SOURCES)
"""Sinks go first: a class of a user's own is taken for a source unless it is a sink."""


@dataclass(frozen=True, slots=True)
class KnownConnector:
    """A class of connectors and its kind."""

    plugin: Plugin
    kind: ConnectorKind[Definition]

    @property
    def is_sink(self) -> bool:
        """Whether it reads from Kafka."""
        return self.kind.common_class is SinkConnectorConfig

    @property
    def class_name(self) -> str:
        """The class shown in listings: the Java class it stands for, since stored configs and clients know that."""
        return next(iter(self.plugin.aliases), self.plugin.name)

    def key(self, name: str) -> ConfigKey | None:
        """The key of that name, of those every config has."""
        keys = (*self.kind.common_class.config_keys(), *self.plugin.load().config_class.config_keys())
        return next((key for key in keys if key.name == name), None)

    def findings(self, properties: Mapping[str, str], worker: Mapping[str, str]) -> Sequence[Finding]:
        """Everything that can be found without asking the outside."""
        return self.kind.read(properties, worker=worker).findings


def known_connectors() -> Iterator[KnownConnector]:
    """Those of the catalogues and of installed packages: sinks, then sources."""
    return (KnownConnector(plugin, kind) for kind in KINDS for plugin in kind.plugins())


def find_connector(name: str, worker: Mapping[str, str]) -> KnownConnector | None:
    """What ``connector.class=name`` means; a class of a user's own is imported to see whether it is a sink.

    ``worker``: its properties, which say what may be imported.
    """
    found = ((kind.plugin(name, worker), kind) for kind in KINDS)
    return next((KnownConnector(plugin, kind) for plugin, kind in found if plugin is not None), None)
