"""Names of the sinks and their aliases: the one line a new sink adds. The shape is that of ``fetchers.catalog``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fetchers.catalog import PluginLoadError, load_class, names_of
from service.sinks.contract import SinkConnector


@dataclass(frozen=True, slots=True)
class SinkPlugin:
    """One sink that can be configured."""

    name: str
    """The class shown to clients, and the simple name it is found by."""
    target: str
    """``package.module:Class``."""
    aliases: tuple[str, ...] = ()

    def load(self) -> type[SinkConnector[Any]]:
        """Import the class; raises ``PluginLoadError``."""
        loaded = load_class(self.target)
        if not issubclass(loaded, SinkConnector):
            message = f"{self.target} is not a SinkConnector"
            raise PluginLoadError(message)
        return loaded

    def answers_to(self, name: str) -> bool:
        """Whether ``connector.class=name`` means this plugin."""
        return name in names_of(self.name, self.aliases)


SINKS: tuple[SinkPlugin, ...] = (
    SinkPlugin(
        "FileStreamSink",
        "service.sinks.file.sink:FileStreamSink",
        ("org.apache.kafka.connect.file.FileStreamSinkConnector",),
    ),
)


def find_sink(name: str, *, extra: Mapping[str, str] | None = None) -> SinkPlugin | None:
    """The sink meant by ``connector.class=name``; None where it means no sink, or nothing at all.

    ``package.module:Class`` is looked at: only its class says whether it is a sink. ``extra`` maps further names to
    such targets.
    """
    known = next((plugin for plugin in SINKS if plugin.answers_to(name)), None)
    if known is not None:
        return known
    target = (extra or {}).get(name, name)
    if ":" not in target:
        return None
    plugin = SinkPlugin(name, target)
    try:
        plugin.load()
    except PluginLoadError:
        return None
    return plugin
