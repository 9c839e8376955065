"""Plugin names and their aliases: the one line a new fetcher adds, and the parts every fetcher shares.

Kafka Connect finds a connector by full class name, simple name, or simple name without ``Connector``; the names
that Java configs use are aliases here, so that such configs run unchanged.
"""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from aiohttp import DefaultResolver, TCPConnector

from fetchers.sdk.connector import SourceConnector
from fetchers.sdk.reach import AllowedAddresses, AllowedPaths
from fetchers.toolkit.http import BoundResolver, SharedHttp, check_literal

__all__ = [
    "PLUGINS",
    "SINKS_GROUP",
    "SOURCES_GROUP",
    "Plugin",
    "PluginLoadError",
    "bound_connector",
    "check_literal",
    "find_plugin",
    "installed_plugins",
    "load_class",
    "shared_http",
    "source_plugins",
]

SOURCES_GROUP, SINKS_GROUP = "headrace.sources", "headrace.sinks"
"""Entry points of installed packages, whose names and targets are like those of the tables here."""


class PluginLoadError(ImportError):
    """A class that is not there, is none, may not be loaded, or whose module does not come through its import."""


def load_class(target: str) -> type[Any]:
    """Import ``package.module:Class``; raises ``PluginLoadError``, whatever the module of a user's own does."""
    module, _, name = target.partition(":")
    try:
        loaded = getattr(import_module(module), name)
    except (Exception, SystemExit, GeneratorExit, CancelledError) as error:  # a module may do anything at its import
        message = f"{type(error).__name__}: {error}"
        raise PluginLoadError(message) from error
    if not isinstance(loaded, type):
        message = f"{target} is not a class"
        raise PluginLoadError(message)
    return loaded


@dataclass(frozen=True, slots=True)
class Plugin:
    """One connector that can be configured: a source of this catalogue, a sink, or one of a user's own."""

    name: str
    """The class shown to clients, and the simple name it is found by."""
    target: str
    """``package.module:Class``."""
    base: type[Any]
    """What the class must be derived from: ``SourceConnector``, or the sinks' contract."""
    aliases: tuple[str, ...] = ()
    """Java classes it stands for."""
    package_version: str | None = None
    """Version of the installed package that it comes from; None where the class itself says its version."""
    refusal: str | None = None
    """Why the worker does not let it be loaded."""

    def load(self) -> type[Any]:
        """Import the class; raises ``PluginLoadError``."""
        if self.refusal is not None:
            raise PluginLoadError(self.refusal)
        loaded = load_class(self.target)
        if not issubclass(loaded, self.base):
            message = f"{self.target} is not a {self.base.__name__}"
            raise PluginLoadError(message)
        return loaded

    def answers_to(self, name: str) -> bool:
        """Whether ``connector.class=name`` means this plugin."""
        return name in names_of(self.name, self.aliases)

    @property
    def version(self) -> str:
        """As listings and states tell it; raises ``PluginLoadError`` where only the class says it."""
        return self.package_version or str(getattr(self.load(), "version", ""))


@cache
def installed_plugins(group: str, base: type[Any]) -> tuple[Plugin, ...]:
    """Connectors of installed packages, by the names of their entry points; nothing of them is imported.

    Looked up once: what is installed later is found by the next worker.
    """
    found = {}
    for point in entry_points(group=group):
        version = point.dist.version if point.dist is not None else None
        found[point.name] = Plugin(point.name, point.value.replace(" ", ""), base, package_version=version)
    return tuple(found[name] for name in sorted(found))


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
        SourceConnector,
        ("org.apache.kafka.connect.file.FileStreamSourceConnector",),
    ),
    Plugin("HttpSource", "fetchers.http.fetcher:HttpSource", SourceConnector),
    Plugin(
        "JdbcSource",
        "fetchers.sql.fetcher:JdbcSource",
        SourceConnector,
        ("io.confluent.connect.jdbc.JdbcSourceConnector",),
    ),
    Plugin(
        "MySqlCdcSource",
        "fetchers.mysql_cdc.fetcher:MySqlCdcSource",
        SourceConnector,
        (
            "io.debezium.connector.mysql.MySqlConnector",
            "io.debezium.connector.mariadb.MariaDbConnector",
        ),
    ),
    Plugin("NdjsonStreamSource", "fetchers.ndjson.fetcher:NdjsonStreamSource", SourceConnector),
    Plugin(
        "PostgresCdcSource",
        "fetchers.postgres_cdc.fetcher:PostgresCdcSource",
        SourceConnector,
        ("io.debezium.connector.postgresql.PostgresConnector",),
    ),
    Plugin("SseSource", "fetchers.sse.fetcher:SseSource", SourceConnector),
    Plugin("XStreamSource", "fetchers.x.fetcher:XStreamSource", SourceConnector),
    Plugin(
        "TwitterSource",
        "fetchers.x.twitter:TwitterSource",
        SourceConnector,
        (
            "io.confluent.kafka.connect.twitter.TwitterSourceConnector",
            "com.github.jcustenborder.kafka.connect.twitter.TwitterSourceConnector",
        ),
    ),
    Plugin("WebSocketSource", "fetchers.websocket.fetcher:WebSocketSource", SourceConnector),
    Plugin(
        "MixpanelSource",
        "fetchers.mixpanel.fetcher:MixpanelSource",
        SourceConnector,
        ("org.apache.kafka.connect.mixpanel.MixPanelConnector",),
    ),
)


def source_plugins() -> tuple[Plugin, ...]:
    """Those of the catalogue, then those of installed packages; of two of one name the catalogue's."""
    return (*PLUGINS, *installed_plugins(SOURCES_GROUP, SourceConnector))


def find_plugin(name: str, *, refusal: str | None = None) -> Plugin | None:
    """The source meant by ``connector.class=name``.

    A name of the form ``package.module:Class`` is a connector of the user's own, found on ``PYTHONPATH``, unless there
    is a ``refusal``: why the worker does not let it be loaded.
    """
    if ":" in name:
        return Plugin(name, name, SourceConnector, refusal=refusal)
    return next((plugin for plugin in source_plugins() if plugin.answers_to(name)), None)


def bound_connector(addresses: AllowedAddresses, *, connections_max: int) -> TCPConnector:
    """For a client of ``aiohttp`` that connects to allowed addresses alone; for hosts in digits see ``check_literal``.

    (Like ``shared_http`` a door to the toolkit.)
    """
    return TCPConnector(limit=connections_max, resolver=BoundResolver(DefaultResolver(), addresses))


def shared_http(
    *, version: str = "0.1.0", paths: AllowedPaths | None = None, addresses: AllowedAddresses | None = None
) -> SharedHttp:
    """The one http client of a worker, to be opened with ``async with`` and given to contexts by ``for_task``.

    ``version``: headrace's own, for ``User-Agent``. ``paths`` and ``addresses``: what it may open and connect to, all
    where not given. (The door through which ``service`` reaches the toolkit.)
    """
    return SharedHttp(version=version, paths=paths, addresses=addresses)
