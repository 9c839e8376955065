"""A herder in memory, as small as ``service.herder.api`` allows, and fakes of the other ports of the REST interface."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from fetchers.sdk import Finding, Severity
from service.domain.cluster import ConnectorInfo, ConnectorStatus, InstanceStatus, Properties, RestartRequest
from service.domain.ids import TaskId
from service.domain.states import State, TargetState
from service.herder.api import Activity, Herder, OffsetEntry, Signature
from service.herder.errors import BadRequestError, ConflictError, ElsewhereError, NotFoundError
from service.validation.infos import ConfigInfo, ConfigInfos, ConfigKeyInfo, ConfigValueInfo
from service.validation.validator import Validated

FILE_KEY = ConfigKeyInfo("file", "STRING", True, None, "HIGH", "Path.", None, -1, "NONE", "file")  # noqa: FBT003
WORKER_ID = "127.0.0.1:8083"
ACTIVITY = Activity("reading to the end of the config topic", "2026-01-02T03:04:05.678Z")


def state(known: State, *, trace: str | None = None, version: str | None = "4.1.1") -> InstanceStatus:
    """A state as an owner tells it."""
    return InstanceStatus(known, WORKER_ID, 1, trace, version)


@dataclass(slots=True)
class Kept:
    """One connector."""

    config: Properties
    target: TargetState = TargetState.STARTED
    tasks: list[Properties] = field(default_factory=list)
    states: dict[int, InstanceStatus] = field(default_factory=dict)
    connector_state: InstanceStatus = field(default_factory=lambda: state(State.RUNNING))
    topics: list[str] = field(default_factory=list)
    offsets: list[OffsetEntry] = field(default_factory=list)


@dataclass(slots=True)
class FakeHerder:
    """Does what it is asked, remembers what that was, and fails on demand."""

    connectors: dict[str, Kept] = field(default_factory=dict)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    is_started: bool = True
    activity: Activity = ACTIVITY
    kafka_cluster_id: str | None = "cluster-1"
    failure: Exception | None = None
    """What every operation raises."""
    is_hanging: bool = False
    others: list[str] = field(default_factory=list)
    """URLs of the other workers."""
    vanished: list[str] = field(default_factory=list)
    """Still named, but gone by the time they are looked at."""

    @property
    def reads(self) -> Self:
        """All ports at once."""
        return self

    changes = restarts = offsets = publication = life = reads

    async def wait_tick(self) -> None:
        """At once, unless it hangs."""
        await self._turn()

    def names(self) -> Sequence[str]:
        """All of them."""
        return [*self.vanished, *self.connectors]

    def other_workers(self) -> Sequence[str]:
        """As set."""
        return self.others

    def info(self, name: str, *, is_consistent: bool = True) -> ConnectorInfo:
        """Refuses with the failure only where consistency is asked for."""
        if is_consistent:
            self._fail()
        kept = self._kept(name, f"Connector {name} not found")
        tasks = tuple(TaskId(name, number) for number in range(len(kept.tasks)))
        return ConnectorInfo(name, kept.config, tasks, "source")

    def status(self, name: str) -> ConnectorStatus:
        """As kept."""
        kept = self._kept(name, f"No status found for connector {name}")
        return ConnectorStatus(name, kept.connector_state, kept.states, "source")

    def task_status(self, task: TaskId) -> InstanceStatus:
        """As kept."""
        text = f"No status found for task {task}"
        kept = self._kept(task.connector, text)
        if task.task not in kept.states:
            raise NotFoundError(text)
        return kept.states[task.task]

    def tasks(self, name: str) -> Sequence[tuple[TaskId, Properties]]:
        """As kept."""
        self._fail()
        kept = self._kept(name, f"Connector {name} not found")
        return [(TaskId(name, number), config) for number, config in enumerate(kept.tasks)]

    async def create(self, name: str, config: Properties, initial: TargetState | None) -> ConnectorInfo:
        """Refuses what exists and what has no class."""
        self.asked.append(("create", name, dict(config), initial))
        await self._turn()
        self._validate(config)
        if name in self.connectors:
            raise ConflictError(f"Connector {name} already exists")
        self.connectors[name] = Kept(config, initial or TargetState.STARTED)
        return self.info(name)

    async def put(self, name: str, config: Properties) -> tuple[ConnectorInfo, bool]:
        """Creates or changes."""
        self.asked.append(("put", name, dict(config)))
        await self._turn()
        self._validate(config)
        is_new = name not in self.connectors
        self.connectors[name] = Kept(config)
        return self.info(name), is_new

    async def patch(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        """Merges."""
        self.asked.append(("patch", name, dict(patch)))
        await self._turn()
        kept = self._kept(name, f"Connector {name} not found")
        merged = {**kept.config, **patch}
        kept.config = {key: value for key, value in merged.items() if value is not None}
        return self.info(name)

    async def delete(self, name: str) -> None:
        """Forgets it."""
        self.asked.append(("delete", name))
        await self._turn()
        self._kept(name, f"Connector {name} not found")
        del self.connectors[name]

    async def set_target(self, name: str, state: TargetState) -> None:
        """As asked."""
        self.asked.append(("target", name, state))
        await self._turn()
        self._kept(name, f"Unknown connector {name}").target = state

    async def connector(self, name: str) -> None:
        """Only remembered."""
        self.asked.append(("restart", name))
        await self._turn()
        self._kept(name, f"Unknown connector: {name}")

    async def task(self, task: TaskId) -> None:
        """Only remembered."""
        self.asked.append(("restart", task))
        await self._turn()
        kept = self._kept(task.connector, f"Unknown connector: {task.connector}")
        if task.task >= len(kept.tasks):
            raise NotFoundError(f"Unknown task: {task}")

    async def plan(self, request: RestartRequest) -> ConnectorStatus:
        """The connector shown RESTARTING."""
        self.asked.append(("restart", request))
        await self._turn()
        kept = self._kept(request.connector, f"Unknown connector: {request.connector}")
        return ConnectorStatus(request.connector, state(State.RESTARTING), kept.states, "source")

    def topics(self, name: str) -> Sequence[str]:
        """None of a connector that is not there."""
        self._fail()
        return self.connectors[name].topics if name in self.connectors else []

    def reset_topics(self, name: str) -> None:
        """Forgets them."""
        self._fail()
        self.asked.append(("reset topics", name))

    async def read(self, name: str) -> Sequence[OffsetEntry]:
        """As kept."""
        return self._kept(name, f"Connector {name} not found").offsets

    async def alter(self, name: str, offsets: Sequence[OffsetEntry]) -> str:
        """As asked."""
        self.asked.append(("alter offsets", name, list(offsets)))
        await self._turn()
        self._kept(name, f"Connector {name} not found")
        return "The offsets for this connector have been altered successfully"

    async def reset(self, name: str) -> str:
        """As asked."""
        self.asked.append(("reset offsets", name))
        await self._turn()
        self._kept(name, f"Connector {name} not found").offsets = []
        return "The offsets for this connector have been reset successfully"

    async def receive(
        self, connector: str, *, signature: Signature | None, read: Callable[[], Awaitable[bytes]]
    ) -> None:
        """Only remembered; unsigned requests are refused, and their bodies not read."""
        self._demand(signature)
        await self._turn()
        self.asked.append(("publish", connector, signature, await read()))

    async def set_cluster_logger(self, namespace: str, level: str) -> None:
        """Only remembered."""
        self.asked.append(("logger", namespace, level))

    def _kept(self, name: str, text: str) -> Kept:
        if name not in self.connectors:
            raise NotFoundError(text)
        return self.connectors[name]

    async def _turn(self) -> None:
        if self.is_hanging:
            await asyncio.Event().wait()
        self._fail()

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    @staticmethod
    def _validate(config: Properties) -> None:
        if "connector.class" not in config:
            raise BadRequestError("Connector config contains no connector type")

    @staticmethod
    def _demand(signature: Signature | None) -> None:
        if signature is None:
            raise BadRequestError("Internal request missing required signature")


class FakePlugins:
    """One connector and one transformation."""

    def __init__(self) -> None:
        self.validated: list[tuple[str, dict[str, str | None]]] = []

    def listing(self, *, connectors_only: bool) -> Sequence[Mapping[str, str]]:
        """Both, or the connector."""
        connector = {"class": "org.example.Source", "type": "source", "version": "1"}
        transformation = {"class": "org.example.Transform", "type": "transformation"}
        return [connector] if connectors_only else [connector, transformation]

    def config_keys(self, plugin: str, *, version: str | None) -> Sequence[ConfigKeyInfo]:
        """One key."""
        if plugin != "Source":
            raise NotFoundError(f"Unknown plugin {plugin}.")
        if version == "no version":
            raise BadRequestError(f"Invalid version specification: {version}")
        return [FILE_KEY]

    def secret_keys(self, config: Mapping[str, str]) -> frozenset[str]:
        """Passwords."""
        return frozenset(key for key in config if key.endswith("password"))

    async def validate(self, plugin: str, config: Mapping[str, str | None], *, is_deep: bool) -> Validated:
        """One error, one warning."""
        self.validated.append((plugin, dict(config)))
        value = ConfigValueInfo("file", None, ("a", "b"), ("It is missing.",))
        stranger = ConfigInfo(None, ConfigValueInfo("x", "1"))
        value = replace(value, value="asked" if is_deep else None)
        infos = ConfigInfos(plugin, 1, ("Common",), (ConfigInfo(FILE_KEY, value), stranger))
        return Validated(infos, (Finding("x", "1", "Nothing reads it.", Severity.WARNING),))


def elsewhere(url: str) -> FakeHerder:
    """A herder that sends everyone to another worker."""
    return FakeHerder(failure=ElsewhereError(url))


def _obeys_the_port(herder: FakeHerder) -> Herder:
    """For mypy: the fake has every operation."""
    return herder
