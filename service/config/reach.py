"""What connectors may reach through their worker: files, modules and addresses of its machine and its network.

Whoever may write a connector's config is not thereby the worker's operating-system user. A worker that only its own
machine can reach is used by people who have that machine anyway: there everything is free that no key bounds. A worker
that others can reach gives to connectors only what its own config names. This is the one place that decides which of
the two a worker is; it reads the same listeners as REST.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from fetchers.sdk.reach import ADDRESSES_KEY, PATHS_KEY, AllowedAddresses, AllowedPaths, parse_networks
from service.config.listeners import listeners_text, parse_listeners

MODULES_KEY = "plugin.modules"
_LISTENERS_KEY, _ADMIN_KEY, _HOST_KEY, _PORT_KEY = "listeners", "admin.listeners", "rest.host.name", "rest.port"
_LISTENERS_BY_DEFAULT = "http://127.0.0.1:8083"
_KEYS = (PATHS_KEY, MODULES_KEY, ADDRESSES_KEY, _LISTENERS_KEY, _ADMIN_KEY, _HOST_KEY, _PORT_KEY)
_OWN_PACKAGES = frozenset({"fetchers", "metrics", "service", "spark_batch"})


@dataclass(frozen=True, slots=True)
class AllowedModules:
    """Modules whose classes a config may name as ``package.module:Class``."""

    names: tuple[str, ...] | None = None
    """Modules, and packages with all that is in them; None: every module that Python finds."""

    def refusal(self, module: str) -> str | None:
        """Why classes of a module may not be named; None where they may."""
        first = module.partition(".")[0]
        if first in _OWN_PACKAGES or first in sys.stdlib_module_names:
            return f"module {module} holds no connectors of one's own: it is part of headrace, or of Python"
        if self.names is None or any(module == name or module.startswith(f"{name}.") for name in self.names):
            return None
        return (
            f"module {module} is not allowed: {MODULES_KEY} of the worker lists modules, and what is installed with an "
            "entry point in headrace.sources or headrace.sinks needs no listing"
        )


def class_refusal(class_name: str, worker: Mapping[str, str]) -> str | None:
    """Why a worker does not load ``connector.class=package.module:Class``; None where it may, and for other names."""
    module, colon, _ = class_name.partition(":")
    return reach_of(worker).modules.refusal(module) if colon else None


@dataclass(frozen=True, slots=True)
class ConnectorReach:
    """The bounds of one worker."""

    paths: AllowedPaths = AllowedPaths()  # noqa: RUF009 - frozen
    modules: AllowedModules = AllowedModules()
    addresses: AllowedAddresses = AllowedAddresses()  # noqa: RUF009 - frozen
    is_local: bool = True
    """Whether only the worker's own machine can reach it."""


def reach_of(worker: Mapping[str, str]) -> ConnectorReach:
    """What a worker with these properties (variables resolved) lets connectors reach."""
    return _reach(tuple(worker.get(key) for key in _KEYS))


@lru_cache(maxsize=64)
def _reach(texts: tuple[str | None, ...]) -> ConnectorReach:
    paths, modules, addresses, *listening = texts
    is_local = _is_local(*listening)
    closed: tuple[str, ...] | None = None if is_local else ()
    return ConnectorReach(
        AllowedPaths(closed if paths is None else _names(paths)),
        AllowedModules(closed if modules is None else _names(modules)),
        AllowedAddresses(
            is_internal_free=is_local and addresses is None, networks=parse_networks(_names(addresses or ""))
        ),
        is_local,
    )


def _is_local(listeners: str | None, admin: str | None, host: str | None, port: str | None) -> bool:
    """A worker without listeners in its config has the default one; with what cannot be read here, none starts."""
    number = int(port) if port is not None and port.strip().isdecimal() else None
    text = listeners_text(_LISTENERS_BY_DEFAULT if listeners is None else listeners, host or None, number)
    try:
        return all(each.is_loopback for each in (*parse_listeners(text), *parse_listeners(admin or "")))
    except ValueError:
        return True


def _names(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())
