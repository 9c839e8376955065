"""Which values of a connector's config are secrets, so that no log line shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fetchers.catalog import PluginLoadError
from service.config.secret_names import secrets_in
from service.validation.kinds import find_kind


def secrets_of_connector(properties: Mapping[str, str]) -> Iterator[str]:
    """Values of the keys that its class declares as secrets, and of any key that is named like one.

    ``properties``: variables resolved. The class is imported if it was not yet.
    """
    yield from secrets_in(properties)
    kind = find_kind(properties.get("connector.class", "").strip())
    if kind is None:
        return
    try:
        keys = kind.plugin.load().config_class.config_keys()
    except PluginLoadError:
        return
    secrets = [key for key in keys if key.kind == "PASSWORD"]
    names = {key.name for key in secrets}
    prefixes = tuple(key.name for key in secrets if key.is_prefix)
    yield from (value for key, value in properties.items() if key in names or key.startswith(prefixes))
