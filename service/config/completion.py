"""What the properties of a worker and of its connectors are completed with."""

from __future__ import annotations

from collections.abc import Mapping

from service.config.worker import EMBEDDED

REGISTRY_KEY = "schema.registry.url"
PLACEHOLDER_REGISTRY = "http://127.0.0.1:1"
"""Stands for the embedded registry while configs are validated before it is started."""
_CONVERTER_DEFAULTS = {"key.converter": "string", "value.converter": "json"}


def with_registry(properties: Mapping[str, str], url: str) -> dict[str, str]:
    """The properties with the embedded registry's real URL."""
    return {
        key: url if key.endswith(REGISTRY_KEY) and value == EMBEDDED else value for key, value in properties.items()
    }


def with_defaults(worker: Mapping[str, str]) -> dict[str, str]:
    """A worker's properties with the converters it has when it names none."""
    return {**_CONVERTER_DEFAULTS, **worker}
