"""Everything that runs in this process: ``apply`` says what should, and each instance's own life brings it about.

No method waits: one connector that hangs in its start, its work or its stop keeps nothing from the others.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from fetchers.sdk import Clock
from fetchers.sdk.context import BLOCKING_SECONDS_MAX
from metrics.events import ConnectorRemoved, Emit, TaskDescribed, TaskEvents, TaskRemoved
from service.background import Background
from service.config.providers import Resolved
from service.domain.cluster import Properties
from service.domain.errors import Recovery
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State
from service.foreground import Foreground
from service.herder.ports import Desired, InstanceObserver
from service.version import VERSION
from service.worker.foreign_calls import Calls, ForeignCalls
from service.worker.kinds import ConnectorRefusedError, DefinedConnector, Kinds, MakeTask
from service.worker.life import InstanceLife, Wish
from service.worker.reporting import ConnectorReporter, InstanceReporter, TaskReporter
from service.worker.splitting import ConnectorRun, task_class, task_configs, with_task
from service.worker.supervising import RunnableTask, TaskSupervisor, restart_policy
from service.worker.turnstile import Turnstile

T = TypeVar("T")
_HEADER_CONVERTER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
"""Header converter of every task that names none: headers are passed on as bytes."""
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


class RunningInstances:
    """The ``Instances`` of a worker. Use as an async context manager, whose end cancels what still runs."""

    def __init__(self, parts: InstanceParts) -> None:
        """Nothing runs before ``apply`` says what should."""
        self._parts = parts
        self._maker = InstanceMaker(parts)
        self._background = Background()
        self._lives: dict[str, dict[InstanceId, InstanceLife]] = {}
        """By connector."""
        self._desired: dict[str, Mapping[InstanceId, Desired]] = {}
        self._is_stopping = False

    async def __aenter__(self) -> Self:
        """Open the parent of all lives."""
        await self._background.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what was not stopped."""
        self._is_stopping = True
        try:
            await self._background.__aexit__(kind, error, trace)
        finally:
            self._parts.calls.close()

    def apply(self, connector: str, desired: Mapping[InstanceId, Desired]) -> None:
        """Start, stop, pause, resume and re-make until this runs of the connector; nothing once the worker stops."""
        if self._is_stopping:
            return
        if desired:
            self._desired[connector] = desired
        else:
            self._desired.pop(connector, None)
        lives = self._lives.get(connector, {})
        for instance, life in lives.items():
            if instance not in desired:
                life.want(None)
        for instance, wanted in desired.items():
            if instance in lives:
                lives[instance].want(wanted)
            else:
                self._begin(instance, wanted)

    def restart(self, instances: Sequence[InstanceId]) -> None:
        """New incarnations of instances that are here, FAILED ones too."""
        for instance in instances:
            life = self._lives.get(instance.connector, {}).get(instance)
            wanted = self._desired.get(instance.connector, {}).get(instance)
            if self._is_stopping or wanted is None:
                continue
            if life is None:
                # A bug has ended its life.
                self._begin(instance, wanted)
            else:
                life.restart()

    @property
    def idle_seconds(self) -> float | None:
        """For how long everything here has had nothing to do: infinite where nothing runs, None while one is busy."""
        idle = [life.idle_seconds for life in self._all_lives()]
        known = [seconds for seconds in idle if seconds is not None]
        return min(known, default=math.inf) if len(known) == len(idle) else None

    async def stop(self) -> None:
        """The staged stop of everything, all together; within the graceful time-out and a little."""
        self._is_stopping = True
        for life in self._all_lives():
            life.want(None)
        await self._background.wait(seconds_max=self._parts.stop_seconds_max * 1.25)

    def _all_lives(self) -> list[InstanceLife]:
        return [life for lives in self._lives.values() for life in lives.values()]

    def _begin(self, instance: InstanceId, desired: Desired) -> None:
        life = self._maker.life(instance, desired)
        self._lives.setdefault(instance.connector, {})[instance] = life
        self._background.start(self._live(life), name=f"life of {instance}")

    async def _live(self, life: InstanceLife) -> None:
        """The border of an instance: no bug in it may end the others."""
        try:
            await life.run()
        except Exception as error:  # noqa: BLE001 - see above; told, never swallowed
            trace = "".join(traceback.format_exception(error))
            life.listener.on_failure(error, trace=trace)
            self._parts.observer.on_state(life.instance, State.FAILED, trace=trace, version=None, failure=Recovery.FAIL)
        finally:
            self._forget(life.instance)

    def _forget(self, instance: InstanceId) -> None:
        connector = instance.connector
        del self._lives[connector][instance]
        is_last = not self._lives[connector]
        if is_last:
            del self._lives[connector]
        if self._is_stopping:
            return
        if isinstance(instance, TaskId):
            self._parts.emit(TaskRemoved(connector, instance.task))
        if is_last:
            self._parts.emit(ConnectorRemoved(connector))


class InstanceMaker:
    """Makes lives; all their starts pass one turnstile."""

    def __init__(self, parts: InstanceParts) -> None:
        """No start is under way."""
        self.parts = parts
        self.starts = Turnstile(
            STARTS_AT_ONCE, seconds_max=START_COUNTED_SECONDS_MAX, give_way=parts.foreground.give_way
        )

    def life(self, instance: InstanceId, desired: Desired) -> InstanceLife:
        """The life of a connector or a task; nothing runs yet."""
        parts = self.parts
        listener: InstanceReporter
        if isinstance(instance, TaskId):
            listener = task = TaskReporter(TaskEvents(parts.emit, instance.connector, instance.task), parts.observer)

            def make(wanted: Desired) -> Awaitable[RunnableTask]:
                return self._task(instance, wanted, task)
        else:
            listener = connector = ConnectorReporter(instance.connector, parts.emit, parts.observer)

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

    async def _connector(self, instance: ConnectorId, wanted: Desired, telling: ConnectorReporter) -> ConnectorRun:
        parts = self.parts
        resolved, defined, tasks = await parts.calls.run(lambda: self._begun(wanted, telling), subject=instance)

        async def split() -> Sequence[Properties]:
            return await parts.calls.run(lambda: task_configs(wanted.config, resolved, defined), subject=instance)

        return ConnectorRun(
            tasks,
            lambda made: parts.observer.on_task_configs(instance, made, wanted.config),
            parts.clock,
            work_changed=lambda: defined.work_changed(ConnectorWatch(instance, parts.clock, parts.calls)),
            split=split,
        )

    def _begun(
        self, wanted: Desired, telling: ConnectorReporter
    ) -> tuple[Resolved, DefinedConnector, Sequence[Properties]]:
        """Run the connector's own code, in a thread."""
        telling.connector_class = wanted.config.get("connector.class", "")
        resolved = _with_values(self.parts.resolve(wanted.config))
        defined = self.parts.kinds.define(resolved.properties)
        traits = defined.traits
        telling.connector_class, telling.kind, telling.version = traits.class_name, traits.kind, traits.version
        return resolved, defined, task_configs(wanted.config, resolved, defined)

    async def _task(self, instance: TaskId, wanted: Desired, telling: TaskReporter) -> RunnableTask:
        defined, make = await self.parts.calls.run(lambda: self._prepare(instance, wanted), subject=instance)
        telling.version = defined.traits.version
        self.parts.emit(described(instance, wanted.config, defined))
        return await make()

    def _prepare(self, instance: TaskId, wanted: Desired) -> tuple[DefinedConnector, MakeTask]:
        """Run the connector's own code, in a thread."""
        merged = with_task(wanted.config, wanted.task or {}, name=instance.connector)
        defined = self.parts.kinds.define(_with_values(self.parts.resolve(merged)).properties)
        parts = self.parts
        make = defined.prepare_task(
            instance,
            lambda topic: parts.observer.on_topic(instance, topic),
            lambda: parts.confirm(instance, wanted),
        )
        return defined, make


@dataclass(frozen=True, slots=True)
class ConnectorWatch:
    """A ``fetchers.sdk.WorkContext``."""

    connector: ConnectorId
    clock: Clock
    calls: Calls

    async def run_blocking(self, call: Callable[[], T], *, seconds_max: float = BLOCKING_SECONDS_MAX) -> T:
        """In one of the threads in which connectors' code runs."""
        return await self.calls.run(call, subject=("watch", self.connector), seconds_max=seconds_max)


def _with_values(resolved: Resolved) -> Resolved:
    """Raises ``ConnectorRefusedError`` for variables whose provider has no value: nobody is to be sent their text."""
    if resolved.missing:
        told = "; ".join(f"{finding.key}: {finding.message}" for finding in resolved.missing)
        message = f"{told}. Give it a value and restart the connector with its tasks"
        raise ConnectorRefusedError(message)
    return resolved


def described(task: TaskId, config: Properties, defined: DefinedConnector) -> TaskDescribed:
    """What a task is made of, for metrics."""
    traits = defined.traits
    key_converter, value_converter = traits.converter_classes
    return TaskDescribed(
        task.connector,
        task.task,
        kind=traits.kind,
        connector_class=traits.class_name,
        task_class=task_class(traits.class_name, traits.class_aliases),
        version=traits.version,
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
