"""The seam between running connectors and what kind they are: sources and sinks each have one ``ConnectorKind``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from fetchers.catalog import Plugin
from fetchers.sdk import Fatal, Finding
from service.config.connector import ConnectorConfig
from service.config.converters import Converter
from service.domain.cluster import Properties
from service.domain.ids import TaskId
from service.worker.supervising import RunnableTask

MakeTask = Callable[[], Awaitable[RunnableTask]]
"""Makes one incarnation; asks the outside (registry, topics), and raises what ``recovery_of`` knows."""
UseTopic = Callable[[str], None]
"""Hears of topics that a task has used; hearing of one twice is harmless."""
Confirm = Callable[[], Awaitable[None]]
"""Returns while the task is wanted as it was begun; raises TaskSupersededError, DeliveryRetriable."""


class ConnectorRefusedError(Fatal):
    """A config that no connector can be made of: what is wrong was found only now, or has become wrong since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorTraits:
    """What is told of a connector as configured, whether it is a source or a sink."""

    kind: str
    """``source`` or ``sink``."""
    class_name: str
    """The plugin, as it is shown."""
    class_aliases: Sequence[str] = ()
    """Other names of the class, such as that of the Java class it stands for."""
    version: str
    """Of the class, or of the installed package that it comes from."""
    converter_classes: tuple[str, str]
    """Of keys and of values, by the names they are shown under."""
    tasks_max: int
    """``tasks.max``."""

    @classmethod
    def of(cls, kind: str, plugin: Plugin, common: ConnectorConfig, converters: Sequence[Converter]) -> Self:
        """From the parts of a definition; ``converters``: of keys and of values."""
        key, value = (converter.class_name for converter in converters)
        return cls(
            kind=kind,
            class_name=plugin.name,
            class_aliases=plugin.aliases,
            version=plugin.version,
            converter_classes=(key, value),
            tasks_max=common.tasks_max,
        )


class DefinedConnector(Protocol):
    """A connector as configured. Its methods may run the connector's own code: they block, hang and fail with it."""

    @property
    def traits(self) -> ConnectorTraits:
        """What is told of it."""

    def split(self) -> Sequence[Mapping[str, str]]:
        """For each task the keys that it has besides, or instead of, the connector's own."""

    def prepare_task(self, task_id: TaskId, use_topic: UseTopic, confirm: Confirm) -> MakeTask:
        """For a definition that was read with the task's own keys: what makes its incarnations, once each.

        ``confirm`` is for whoever has not the work itself as its bar, as members of a consumer group have.
        """


class ConnectorKind(Protocol):
    """Sources, or sinks."""

    def claims(self, class_name: str) -> bool:
        """Whether ``connector.class`` means one of this kind; may import it."""

    def define(self, properties: Properties) -> DefinedConnector:
        """Read a config, provider variables resolved; raises ``ConnectorRefusedError`` with all findings."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """All kinds; the first is asked about classes that nobody claims, and says that they are not found."""

    kinds: Sequence[ConnectorKind]

    def define(self, properties: Properties) -> DefinedConnector:
        """See ``ConnectorKind.define``."""
        class_name = properties.get("connector.class", "")
        kind = next((kind for kind in self.kinds if kind.claims(class_name)), self.kinds[0])
        return kind.define(properties)


def refusal(findings: Sequence[Finding]) -> ConnectorRefusedError:
    """All errors among the findings, in one text."""
    return ConnectorRefusedError("; ".join(finding.message for finding in findings if finding.is_error))
