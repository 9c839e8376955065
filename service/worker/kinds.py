"""The seam between running connectors and what kind they are: of each kind the worker has one ``Maker``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from fetchers.sdk import Fatal, WorkContext
from service.config.kinds import ConnectorKind, Definition
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
    """Version of the class, or of the installed package that it comes from."""
    converter_classes: tuple[str, str]
    """Classes of the key's and of the value's converter, by the names they are shown under."""
    tasks_max: int
    """``tasks.max``."""

    @classmethod
    def of(cls, kind: str, definition: Definition) -> Self:
        """What is told of a connector whose config was read as ``definition``; ``kind``: ``source`` or ``sink``."""
        return cls(
            kind=kind,
            class_name=definition.plugin.name,
            class_aliases=definition.plugin.aliases,
            version=definition.plugin.version,
            converter_classes=(definition.key_converter.class_name, definition.value_converter.class_name),
            tasks_max=definition.common.tasks_max,
        )


class DefinedConnector(Protocol):
    """A connector as configured. Its methods may run the connector's own code: they block, hang and fail with it."""

    @property
    def traits(self) -> ConnectorTraits:
        """What is told of it."""

    def split(self) -> Sequence[Mapping[str, str]]:
        """For each task the keys that it has besides, or instead of, the connector's own."""

    async def work_changed(self, context: WorkContext) -> None:
        """Return once ``split`` would say something else than it last did; runs the connector's code on this loop."""

    def prepare_task(self, task_id: TaskId, use_topic: UseTopic, confirm: Confirm) -> MakeTask:
        """For a definition that was read with the task's own keys: what makes its incarnations, once each.

        ``confirm`` is for whoever has not the work itself as its bar, as members of a consumer group have.
        """


class Maker(Protocol):
    """Makes connectors of one kind from their configs."""

    def claims(self, class_name: str) -> bool:
        """Whether ``connector.class`` means one of this kind; may import it."""

    def define(self, properties: Properties) -> DefinedConnector:
        """Read a config, provider variables resolved; raises ``ConnectorRefusedError`` with all findings."""


OfKind = TypeVar("OfKind", bound=Definition)


@dataclass(frozen=True, slots=True)
class KindMaker(Generic[OfKind]):
    """Sources, or sinks, that run with the parts that ``make`` holds."""

    kind: ConnectorKind[OfKind]
    worker: Properties
    """The worker's properties: converters that a connector does not name are its."""
    make: Callable[[ConnectorTraits, OfKind], DefinedConnector]

    def claims(self, class_name: str) -> bool:
        """By the catalogue, or by the class itself."""
        return self.kind.plugin(class_name, self.worker) is not None

    def define(self, properties: Properties) -> DefinedConnector:
        """Read a config; raises ``ConnectorRefusedError`` with all findings."""
        reading = self.kind.read(properties, worker=self.worker)
        if reading.definition is None:
            text = "; ".join(finding.message for finding in reading.findings if finding.is_error)
            raise ConnectorRefusedError(text)
        return self.make(ConnectorTraits.of(self.kind.name, reading.definition), reading.definition)


@dataclass(frozen=True, slots=True)
class Kinds:
    """All kinds; the first is asked about classes that nobody claims, and says that they are not found."""

    makers: Sequence[Maker]

    def define(self, properties: Properties) -> DefinedConnector:
        """See ``Maker.define``."""
        class_name = properties.get("connector.class", "")
        maker = next((maker for maker in self.makers if maker.claims(class_name)), self.makers[0])
        return maker.define(properties)
