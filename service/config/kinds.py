"""The kinds of connector: ``SOURCES`` and ``SINKS`` are each declared once, beside the reader of their configs.

Validation and listings use such a declaration as it is; the worker adds to it how a connector of that kind is run
(``service.worker.kinds.Maker``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from fetchers.catalog import Plugin
from fetchers.sdk import Finding
from service.config.connector import ConnectorConfig
from service.config.converters import Converter
from service.config.reach import class_refusal


class Definition(Protocol):
    """What is known alike of a source and of a sink whose config was read."""

    @property
    def plugin(self) -> Plugin:
        """Its class, as the catalogue knows it."""

    @property
    def common(self) -> ConnectorConfig:
        """The keys that the worker reads."""

    @property
    def key_converter(self) -> Converter:
        """Converter of keys, the worker's where the config names none."""

    @property
    def value_converter(self) -> Converter:
        """Converter of values, the worker's where the config names none."""


Defined_co = TypeVar("Defined_co", bound=Definition, covariant=True)


@dataclass(frozen=True, slots=True)
class Reading(Generic[Defined_co]):
    """A definition, or why there is none; warnings come with either."""

    definition: Defined_co | None
    findings: tuple[Finding, ...]


class Find(Protocol):
    """Looks for the class that a config names.

    ``refusal``: why the worker does not let a class of a user's own be loaded, if it does not.
    """

    def __call__(self, name: str, *, refusal: str | None = None) -> Plugin | None:
        """The plugin meant by ``connector.class=name``, None where it is none of this kind; may import it."""


class Read(Protocol[Defined_co]):
    """Reads a whole config, as far as that can be done without asking the outside."""

    def __call__(self, properties: Mapping[str, str], *, worker: Mapping[str, str]) -> Reading[Defined_co]:
        """Variables of both are resolved; every finding comes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorKind(Generic[Defined_co]):
    """Sources, or sinks: where their classes are found, which keys all of them have, how their configs are read."""

    name: str
    """``source`` or ``sink``, as listings, states and metrics name it."""
    common_class: type[ConnectorConfig]
    """The keys that the worker reads of every connector of this kind."""
    plugins: Callable[[], Sequence[Plugin]]
    """Those of the catalogue and of installed packages."""
    find: Find
    read: Read[Defined_co]

    def plugin(self, name: str, worker: Mapping[str, str]) -> Plugin | None:
        """What ``connector.class=name`` means, if it is of this kind.

        ``worker``: its properties, which say whether a class of a user's own may be imported.
        """
        return self.find(name, refusal=class_refusal(name, worker))
