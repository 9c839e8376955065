"""A kind of connector in memory: its tasks follow a script, and notice when two of one name run at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from fetchers.sdk import SystemClock, WorkContext
from metrics.events import Event
from service.domain.cluster import Properties
from service.domain.errors import Recovery, TaskSupersededError
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.ports import Desired
from service.pipeline.activity import Signal
from service.worker.instances import InstanceParts, RunningInstances
from service.worker.kinds import Confirm, ConnectorRefusedError, ConnectorTraits, Kinds, MakeTask, UseTopic

T = TypeVar("T")
STOP_SECONDS = 8.0
HANG = 10_000.0
VERSION = "7.1"


@dataclass(slots=True)
class Script:
    """How long a task takes for what it does, and how it fails."""

    start_seconds: float = 0.0
    stop_seconds: float = 0.0
    """Between the request to stop and the end, with something in hand all the while."""
    farewell_seconds: float = 0.0
    """After it was cancelled."""
    failure: Callable[[int], Exception | None] = lambda _: None
    """Given the number of the start (from 1), the error it runs into after it is RUNNING."""
    fails_when_stopped: Exception | None = None


@dataclass(slots=True)
class FakeActivity:
    """Idle since it began."""

    records_in_hand: int = 0
    idle_seconds: float | None = 0.0


@dataclass(slots=True)
class FakeTask:
    """Obeys ``RunnableTask``."""

    scene: Scene
    task_id: TaskId
    config: Properties
    script: Script
    confirm: Confirm
    on_running: Signal = lambda: None
    activity: FakeActivity = field(default_factory=FakeActivity)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Start, tell, wait for the stop, deliver."""
        self.scene.enter(self)
        try:
            await asyncio.sleep(self.script.start_seconds)
            await self.confirm()
            self.on_running()
            error = self.script.failure(self.scene.starts[self.task_id])
            if error is not None:
                raise error
            self.activity.records_in_hand = 7
            await self._stop.wait()
            await asyncio.sleep(self.script.stop_seconds)
            if self.script.fails_when_stopped is not None:
                raise self.script.fails_when_stopped
            self.activity.records_in_hand = 0
        except asyncio.CancelledError:
            await asyncio.sleep(self.script.farewell_seconds)
            raise
        finally:
            self.scene.leave(self)

    def take_over(self, keys: Collection[str], make: Callable[[], Awaitable[object]]) -> bool:
        """Only what begins with ``live.``; making it shows that it could be made."""
        del make
        return all(key.startswith("live.") for key in keys)

    def request_stop(self) -> None:
        """Deliver, then end."""
        self._stop.set()


@dataclass(frozen=True, slots=True)
class FakeDefined:
    """Splits into as many tasks as ``split`` says; a config with ``refused`` is none."""

    scene: Scene
    properties: Properties

    @property
    def traits(self) -> ConnectorTraits:
        """Of a source whose tasks are as many as configured."""
        return ConnectorTraits(
            kind="source",
            class_name="Fake",
            version=VERSION,
            converter_classes=("string", "json"),
            tasks_max=int(self.properties.get("tasks.max", "1")),
        )

    def split(self) -> Sequence[Mapping[str, str]]:
        """Numbered parts."""
        self.scene.splits += 1
        error = self.scene.split_failure(self.scene.splits)
        if error is not None:
            raise error
        count = int(self.properties.get("split", "1")) + self.scene.parts_more
        return [{"part": str(number)} for number in range(count)]

    async def work_changed(self, context: WorkContext) -> None:
        """As the scene's script says; never where it has none."""
        if self.scene.work_changed is None:
            await asyncio.Event().wait()
        else:
            await self.scene.work_changed(context)

    def prepare_task(self, task_id: TaskId, use_topic: UseTopic, confirm: Confirm) -> MakeTask:
        """By the script of the task."""

        async def make() -> FakeTask:
            use_topic("things")
            return FakeTask(self.scene, task_id, self.properties, self.scene.scripts.get(task_id, Script()), confirm)

        return make


@dataclass(slots=True)
class Scene:
    """A kind, an observer and the calls of connectors' code, with all they have seen."""

    scripts: dict[InstanceId, Script] = field(default_factory=dict)
    split_failure: Callable[[int], Exception | None] = lambda _: None
    work_changed: Callable[[WorkContext], Awaitable[None]] | None = None
    parts_more: int = 0
    """Parts of the work that have appeared beside those that the config names."""
    hanging: set[Hashable] = field(default_factory=set)
    """Subjects whose calls do not return in ``hang_seconds``."""
    hang_seconds: float = HANG
    events: list[Event] = field(default_factory=list)
    states: dict[InstanceId, list[State]] = field(default_factory=dict)
    traces: dict[InstanceId, str] = field(default_factory=dict)
    versions: dict[InstanceId, str | None] = field(default_factory=dict)
    failures: dict[InstanceId, Recovery | None] = field(default_factory=dict)
    task_configs: list[tuple[ConnectorId, Sequence[Properties], Properties]] = field(default_factory=list)
    topics: list[tuple[TaskId, str]] = field(default_factory=list)
    superseded: set[tuple[TaskId, int]] = field(default_factory=set)
    """Tasks that the config log no longer asks for, with the generation they were begun in."""
    running: dict[TaskId, FakeTask] = field(default_factory=dict)
    starts: Counter[TaskId] = field(default_factory=Counter)
    splits: int = 0

    def claims(self, class_name: str) -> bool:
        """Every class."""
        del class_name
        return True

    def define(self, properties: Properties) -> FakeDefined:
        """Refused where the config says so."""
        if "refused" in properties:
            raise ConnectorRefusedError(properties["refused"])
        return FakeDefined(self, properties)

    def version_of(self, class_name: str) -> str:
        """Of every class but one that is missing."""
        if class_name == "Missing":
            raise ImportError(class_name)
        return "8.0" if class_name == "Newer" else VERSION

    async def run(self, call: Callable[[], T], *, subject: Hashable, seconds_max: float | None = None) -> T:
        """The call, unless its subject hangs."""
        del seconds_max
        await asyncio.sleep(self.hang_seconds if subject in self.hanging else 0)
        return call()

    def close(self) -> None:
        """There are no threads."""

    def enter(self, task: FakeTask) -> None:
        """A task begins; never beside another incarnation of itself."""
        assert task.task_id not in self.running, f"two incarnations of {task.task_id} at once"
        self.running[task.task_id] = task
        self.starts[task.task_id] += 1

    def leave(self, task: FakeTask) -> None:
        """A task has ended."""
        del self.running[task.task_id]

    async def confirm(self, task_id: TaskId, begun: Desired) -> None:
        """Refused where superseded."""
        if (task_id, begun.generation) in self.superseded:
            message = f"{task_id} has newer configs"
            raise TaskSupersededError(message)

    def on_state(
        self,
        instance: InstanceId,
        state: State,
        *,
        trace: str | None,
        version: str | None,
        failure: Recovery | None = None,
    ) -> None:
        """See ``InstanceObserver``."""
        self.states.setdefault(instance, []).append(state)
        self.versions[instance] = version
        self.failures[instance] = failure
        if trace is not None:
            self.traces[instance] = trace

    def on_task_configs(self, connector: ConnectorId, tasks: Sequence[Properties], made_from: Properties) -> None:
        """See ``InstanceObserver``."""
        self.task_configs.append((connector, tasks, made_from))

    def on_topic(self, task: TaskId, topic: str) -> None:
        """See ``InstanceObserver``."""
        self.topics.append((task, topic))

    def state(self, instance: InstanceId) -> State | None:
        """As last told."""
        return self.states.get(instance, [None])[-1]

    def told(self, kind: type[Event]) -> list[Any]:
        """Events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @asynccontextmanager
    async def instances(self, **options: Any) -> AsyncIterator[RunningInstances]:
        """Instances over this scene, stopped at the end of the block."""
        parts = InstanceParts(
            kinds=Kinds([self]),
            confirm=self.confirm,
            observer=self,
            clock=SystemClock(),
            emit=self.events.append,
            stop_seconds_max=STOP_SECONDS,
            version_of=self.version_of,
            calls=self,
            **options,
        )
        async with RunningInstances(parts) as instances:
            yield instances
            await instances.stop()


def task(
    generation: int = 1,
    target: TargetState = TargetState.STARTED,
    dotted: Mapping[str, str] = MappingProxyType({}),
    **config: str,
) -> Desired:
    """A task as it is desired; ``config`` is its connector's, ``dotted``: keys of it with dots."""
    return Desired({"name": "c", **dotted, **config}, target, {"task.class": "FakeTask", "part": "0"}, generation)


def connector(
    target: TargetState = TargetState.STARTED, dotted: Mapping[str, str] = MappingProxyType({}), **config: str
) -> Desired:
    """A connector as it is desired; ``dotted``: keys that are no names of Python."""
    return Desired({"name": "c", "connector.class": "Fake", **dotted, **config}, target)
