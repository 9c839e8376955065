"""What the incarnations of connectors and tasks are made of, from what is desired of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from fetchers.sdk import Clock
from metrics.events import Emit, TaskDescribed, TaskEvents
from service.config.providers import Resolved
from service.domain.cluster import Properties
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State
from service.foreground import Foreground
from service.herder.ports import Desired, InstanceObserver
from service.version import VERSION
from service.worker.foreign_calls import Calls, ForeignCalls
from service.worker.kinds import DefinedConnector, Kinds, MakeTask
from service.worker.life import InstanceLife
from service.worker.reconcile import Wish
from service.worker.restarting import restart_policy
from service.worker.splitting import ConnectorRun
from service.worker.supervising import RunnableTask, TaskSupervisor
from service.worker.task_configs import task_class, task_configs, with_task
from service.worker.telling import ConnectorTelling, LifeListener, TaskTelling
from service.worker.turnstile import Turnstile

_HEADER_CONVERTER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
"""Of every task that names none: headers are bytes here."""
STARTS_AT_ONCE = 32
START_COUNTED_SECONDS_MAX = 5.0
"""A start that takes longer waits for something, and makes room for the next."""
FENCED_GRACE_SECONDS = 10.0
"""So long the word that a task is another worker's now may take behind that worker's start of it."""


@dataclass(frozen=True, slots=True)
class InstanceParts:
    """What the worker lends to instances."""

    kinds: Kinds
    confirm: Callable[[TaskId, Desired], Awaitable[None]]
    """Returns while a task is wanted as it was begun; raises TaskSupersededError, DeliveryRetriable."""
    observer: InstanceObserver
    clock: Clock
    emit: Emit
    stop_seconds_max: float
    version_of: Callable[[str], str | None]
    """The version of a ``connector.class``; may block, and raise whatever its import does."""
    resolve: Callable[[Properties], Resolved] = lambda properties: Resolved(dict(properties))
    """Puts the values of config providers in; may block."""
    calls: Calls = field(default_factory=ForeignCalls)
    foreground: Foreground = field(default_factory=Foreground)
    """Before which starts give way."""


class InstanceMaker:
    """Makes lives; all their starts pass one turnstile."""

    def __init__(self, parts: InstanceParts) -> None:
        """No start is under way."""
        self.parts = parts
        self.starts = Turnstile(
            STARTS_AT_ONCE, seconds_max=START_COUNTED_SECONDS_MAX, give_way=parts.foreground.give_way
        )

    def life(self, instance: InstanceId, desired: Desired) -> InstanceLife:
        """Of a connector or a task; nothing runs yet."""
        parts = self.parts
        listener: LifeListener
        if isinstance(instance, TaskId):
            listener = task = TaskTelling(TaskEvents(parts.emit, instance.connector, instance.task), parts.observer)

            def make(wanted: Desired) -> Awaitable[RunnableTask]:
                return self._task(instance, wanted, task)
        else:
            listener = connector = ConnectorTelling(instance.connector, parts.emit, parts.observer)

            def make(wanted: Desired) -> Awaitable[RunnableTask]:
                return self._connector(instance, wanted, connector)

        def supervisor(wanted: Desired, state: State) -> TaskSupervisor:
            return TaskSupervisor(
                instance,
                lambda: make(wanted),
                restart_policy(wanted.config),
                listener,
                parts.clock,
                starts=self.starts,
                fenced_grace_seconds=FENCED_GRACE_SECONDS,
                state=state,
            )

        def version_of(config: Properties) -> Awaitable[str | None]:
            # Its own subject: a resume must not find its own call in the way of this one.
            class_name = config.get("connector.class", "")
            return parts.calls.run(lambda: parts.version_of(class_name), subject=("version", instance))

        return InstanceLife(
            instance, supervisor, listener, parts.clock, parts.stop_seconds_max, version_of, Wish(desired)
        )

    async def _connector(self, instance: ConnectorId, wanted: Desired, telling: ConnectorTelling) -> ConnectorRun:
        tasks = await self.parts.calls.run(lambda: self._split(wanted, telling), subject=instance)
        observer = self.parts.observer
        return ConnectorRun(
            tasks, lambda split: observer.on_task_configs(instance, split, wanted.config), self.parts.clock
        )

    def _split(self, wanted: Desired, telling: ConnectorTelling) -> Sequence[Properties]:
        """Run the connector's own code, in a thread."""
        telling.connector_class = wanted.config.get("connector.class", "")
        resolved = self.parts.resolve(wanted.config)
        defined = self.parts.kinds.define(resolved.properties)
        telling.connector_class, telling.kind, telling.version = defined.class_name, defined.kind, defined.version
        return task_configs(wanted.config, resolved, defined)

    async def _task(self, instance: TaskId, wanted: Desired, telling: TaskTelling) -> RunnableTask:
        defined, make = await self.parts.calls.run(lambda: self._prepare(instance, wanted), subject=instance)
        telling.version = defined.version
        self.parts.emit(described(instance, wanted.config, defined))
        return await make()

    def _prepare(self, instance: TaskId, wanted: Desired) -> tuple[DefinedConnector, MakeTask]:
        """Run the connector's own code, in a thread."""
        merged = with_task(wanted.config, wanted.task or {}, name=instance.connector)
        defined = self.parts.kinds.define(self.parts.resolve(merged).properties)
        parts = self.parts
        make = defined.prepare_task(
            instance,
            lambda topic: parts.observer.on_topic(instance, topic),
            lambda: parts.confirm(instance, wanted),
        )
        return defined, make


def described(task: TaskId, config: Properties, defined: DefinedConnector) -> TaskDescribed:
    """What a task is made of, for metrics."""
    key_converter, value_converter = defined.converter_classes
    return TaskDescribed(
        task.connector,
        task.task,
        kind=defined.kind,
        connector_class=defined.class_name,
        task_class=task_class(defined.class_name, defined.class_aliases),
        version=defined.version,
        key_converter=key_converter,
        value_converter=value_converter,
        header_converter=config.get("header.converter", _HEADER_CONVERTER),
        worker_version=VERSION,
        transforms=_named_classes(config, "transforms"),
        predicates=_named_classes(config, "predicates"),
    )


def _named_classes(config: Properties, kind: str) -> tuple[tuple[str, str], ...]:
    names = [name.strip() for name in config.get(kind, "").split(",") if name.strip()]
    return tuple((name, config.get(f"{kind}.{name}.type", "")) for name in names)
