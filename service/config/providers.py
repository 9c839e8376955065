"""Config providers: variables such as ``${file:/etc/secrets/db.properties:password}``, resolved at the worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class ProviderError(Exception):
    """A provider that could not be asked; the text names no value."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A config with its variables resolved, and what came from where."""

    properties: dict[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    """The text with the variables, by the key whose value came from them."""
    secrets: frozenset[str] = frozenset()
    """Everything a provider gave."""
