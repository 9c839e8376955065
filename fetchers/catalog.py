"""Plugin names and their aliases: the one line a new fetcher adds, and the parts every fetcher shares.

Kafka Connect finds a connector by full class name, simple name, or simple name without ``Connector``; the names
that Java configs use are aliases here, so that such configs run unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from fetchers.sdk.connector import SourceConnector
from fetchers.toolkit.http import SharedHttp


class PluginLoadError(ImportError):
    """A class that is not there, is none, or whose module does not come through its import."""


def load_class(target: str) -> type[Any]:
    """Import ``package.module:Class``; raises ``PluginLoadError``, whatever the module of a user's own does."""
    module, _, name = target.partition(":")
    try:
        loaded = getattr(import_module(module), name)
    except Exception as error:  # a module may do anything when it is imported
        message = f"{type(error).__name__}: {error}"
        raise PluginLoadError(message) from error
    if not isinstance(loaded, type):
        message = f"{target} is not a class"
        raise PluginLoadError(message)
    return loaded


@dataclass(frozen=True, slots=True)
class Plugin:
    """One connector that can be configured."""

    name: str
    """The class shown to clients, and the simple name it is found by."""
    target: str
    """``package.module:Class``."""
    aliases: tuple[str, ...] = ()

    def load(self) -> type[SourceConnector[Any]]:
        """Import the class; raises ``PluginLoadError``."""
        loaded = load_class(self.target)
        if not issubclass(loaded, SourceConnector):
            message = f"{self.target} is not a SourceConnector"
            raise PluginLoadError(message)
        return loaded

    def answers_to(self, name: str) -> bool:
        """Whether ``connector.class=name`` means this plugin."""
        return name in names_of(self.name, self.aliases)


@cache
def names_of(name: str, aliases: tuple[str, ...]) -> frozenset[str]:
    """Everything a connector may be called: full names, simple names, and these without ``Connector``.

    Asked for every connector of every list, about the few that the catalogues know.
    """
    full = {name, *aliases}
    simple = {alias.rpartition(".")[2] for alias in full}
    return frozenset(full | simple | {known.removesuffix("Connector") for known in simple})


PLUGINS: tuple[Plugin, ...] = (
    Plugin(
        "FileStreamSource",
        "fetchers.file.fetcher:FileStreamSource",
        ("org.apache.kafka.connect.file.FileStreamSourceConnector",),
    ),
    Plugin("HttpSource", "fetchers.http.fetcher:HttpSource"),
    Plugin(
        "MixpanelSource",
        "fetchers.mixpanel.fetcher:MixpanelSource",
        ("org.apache.kafka.connect.mixpanel.MixPanelConnector",),
    ),
)


def find_plugin(name: str, *, extra: Mapping[str, str] | None = None) -> Plugin | None:
    """The plugin meant by ``connector.class=name``.

    A name of the form ``package.module:Class`` is a connector of the user's own, found on ``PYTHONPATH``;
    ``extra`` maps further names to such targets.
    """
    if extra and name in extra:
        return Plugin(name, extra[name])
    if ":" in name:
        return Plugin(name, name)
    return next((plugin for plugin in PLUGINS if plugin.answers_to(name)), None)


def shared_http(*, version: str = "0.1.0") -> SharedHttp:
    """The one http client of a worker, to be opened with ``async with`` and given to contexts by ``for_task``.

    ``version``: headrace's own, for ``User-Agent``. (The door through which ``service`` reaches the toolkit.)
    """
    return SharedHttp(version=version)
