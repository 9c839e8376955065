"""Which values of a connector's config are secrets, so that no log line shows them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from fetchers.catalog import PluginLoadError
from fetchers.sdk import ConfigKey
from service.config.connector import SourceConnectorConfig
from service.config.secret_names import names_a_secret, secrets_in
from service.config.sink import SinkConnectorConfig
from service.validation.connectors import KnownConnector, find_connector


def secret_keys(properties: Mapping[str, str]) -> frozenset[str]:
    """Which keys of a config hold secrets: those its class declares so, and any that is named like one.

    For whoever is not to see them. A class that is not imported yet is not imported for that: then every key counts
    that the worker itself does not declare.
    """
    named = {key for key in properties if names_a_secret(key)}
    class_name = properties.get("connector.class", "").strip()
    module, colon, _ = class_name.partition(":")
    connector = find_connector(class_name, {}) if not colon or module in sys.modules else None
    if (
        connector is not None
        and connector.plugin.target.partition(":")[0] not in sys.modules
        and connector.plugin.package_version
    ):
        connector = None
    keys = () if connector is None else _declared_keys(connector)
    if connector is None or not keys:
        known = {key.name for common in (SourceConnectorConfig, SinkConnectorConfig) for key in common.config_keys()}
        return frozenset(named | {key for key in properties if key not in known})
    return frozenset(named | set(_declared(keys, properties)))


def _declared_keys(connector: KnownConnector) -> Sequence[ConfigKey]:
    try:
        return (*connector.plugin.load().config_class.config_keys(), *connector.kind.common_class.config_keys())
    except PluginLoadError:
        return ()


def _declared(keys: Sequence[ConfigKey], properties: Mapping[str, str]) -> Iterator[str]:
    """Keys of a config that are among those declared as secrets, or under a prefix of theirs."""
    secrets = [key for key in keys if key.kind == "PASSWORD"]
    names = {key.name for key in secrets}
    prefixes = tuple(key.name for key in secrets if key.is_prefix)
    yield from (key for key in properties if key in names or key.startswith(prefixes))


def secrets_of_connector(properties: Mapping[str, str], worker: Mapping[str, str]) -> Iterator[str]:
    """Values of the keys that its class declares as secrets, and of any key that is named like one.

    ``properties``: variables resolved. The class is imported if it was not yet, and if ``worker`` allows it.
    """
    yield from secrets_in(properties)
    connector = find_connector(properties.get("connector.class", "").strip(), worker)
    if connector is None:
        return
    yield from (properties[key] for key in _declared(_declared_keys(connector), properties))
