"""Requests that change connectors or restart them: checked in Connect's order, then written to the config log.

None of them waits for what follows: the owners see the record and act (KIP-745 for restarts, KIP-875 for stop).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from service.domain.cluster import ConnectorInfo, ConnectorStatus, InstanceStatus, Properties, RestartRequest
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.errors import BadRequestError, ConflictError, NotFoundError, RequestError
from service.herder.ports import DeletedSources, Instances, Validator
from service.herder.view import CONFLICT, NO_LEADER, ClusterView
from service.kafka.errors import KafkaFailure, WriterFenced
from service.stores.state_log import ClaimMissing


@dataclass(slots=True)
class ConnectorLocks:
    """Lets one request at a time look at a connector and change it, and tells clients of writes that failed."""

    on_fenced: Callable[[], None] = lambda: None
    """Hears that another worker leads now."""
    on_failed: Callable[[], None] = lambda: None
    """Hears that a change was not written, which may have cost the claim to write."""
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _is_closed: bool = False
    _begun: int = 0
    _last_ended: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def changing(self, connector: str) -> AsyncIterator[None]:
        """Alone with the connector; a write that fails is told to the client with the store's own text."""
        async with self.alone_with(connector), self.telling_failures():
            try:
                yield
            except KafkaFailure:
                self.on_failed()
                raise

    def alone_with(self, connector: str) -> AbstractAsyncContextManager[None]:
        """Alone with the connector; failures are raised as they are."""
        # Held across the write on purpose: what the next request looks at must be what this one has written.
        # The store bounds each write by a time limit.
        return self._locks.setdefault(connector, asyncio.Lock())

    async def close(self, *, seconds_max: float) -> None:
        """Let the changes that have begun end, for so long; from now on others are conflicts."""
        self._is_closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self._begun:
                    self._last_ended.clear()
                    await self._last_ended.wait()

    @asynccontextmanager
    async def telling_failures(self) -> AsyncIterator[None]:
        """A failure of Kafka becomes the answer to the request: ``ConflictError`` where another worker leads."""
        if self._is_closed:
            raise ConflictError(CONFLICT)
        self._begun += 1
        try:
            yield
        except WriterFenced as error:
            self.on_fenced()
            raise ConflictError(NO_LEADER) from error
        except ClaimMissing as error:
            raise ConflictError(NO_LEADER) from error
        except KafkaFailure as error:
            raise RequestError(str(error)) from error
        finally:
            self._begun -= 1
            if not self._begun:
                self._last_ended.set()


@dataclass(frozen=True, slots=True)
class ChangeRequests:
    """Create, change, delete, pause, resume, stop, and log levels of the whole cluster.

    All raise ``RequestError``; what only the leader may write raises ``ElsewhereError`` on other workers.
    """

    view: ClusterView
    validator: Validator
    locks: ConnectorLocks
    deleted_sources: DeletedSources

    async def create(self, name: str, config: Properties, initial: TargetState | None) -> ConnectorInfo:
        """Validate and write a new connector; ``ConflictError`` where it exists."""
        config = named(name, config)
        await self._demand_valid(config)
        self.view.demand_leader()
        async with self.locks.changing(name):
            if name in self.view.config.connectors:
                raise ConflictError(f"Connector {name} already exists")
            await self.view.configs.put_connector(name, config, initial=initial)
        return self.view.info(name, is_consistent=False)

    async def put(self, name: str, config: Properties) -> tuple[ConnectorInfo, bool]:
        """Validate and write, over what is there; True where it was created. An equal config is written again."""
        config = named(name, config)
        await self._demand_valid(config)
        self.view.demand_leader()
        async with self.locks.changing(name):
            is_new = name not in self.view.config.connectors
            await self.view.configs.put_connector(name, config)
        return self.view.info(name, is_consistent=False), is_new

    async def patch(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        """Merge into the config, None removes a key; done by the leader, which alone knows the newest config."""
        self.view.demand_leader()
        async with self.locks.changing(name):
            merged = {**self.view.entry(name).config, **patch}
            config = named(name, {key: value for key, value in merged.items() if value is not None})
            await self._demand_valid(config)
            await self.view.configs.put_connector(name, config)
        return self.view.info(name, is_consistent=False)

    async def delete(self, name: str) -> None:
        """Remove a connector: its owners stop what runs, the leader forgets its states; source offsets stay.

        But of a source that takes away what it has left outside: see ``service.herder.deletions``.
        """
        self.view.demand_leader()
        async with self.locks.changing(name):
            config = self.view.entry(name).config
            kept = config if self.deleted_sources.leaves_anything(config) else None
            await self.view.configs.remove_connector(name, deleted=kept)

    async def set_target(self, name: str, state: TargetState) -> None:
        """Pause and resume on any worker; stop on the leader, because it takes the task configs back."""
        if name not in self.view.config.connectors:
            raise NotFoundError(f"Unknown connector {name}")
        if state is TargetState.STOPPED:
            self.view.demand_leader()
        async with self.locks.changing(name):
            if state is TargetState.STOPPED:
                await self.view.configs.put_tasks(name, ())
            await self.view.configs.put_target_state(name, state)

    async def set_cluster_logger(self, namespace: str, level: str) -> None:
        """Ask every worker to log at this level, by a record of the config log."""
        async with self.locks.telling_failures():
            await self.view.configs.put_logger_level(namespace, level)

    async def _demand_valid(self, config: Properties) -> None:
        if not config.get("connector.class"):
            raise BadRequestError("Connector config contains no connector type")
        errors = await self.validator.errors_of(config)
        if errors:
            raise BadRequestError(refusal(errors))


def named(name: str, config: Properties) -> Properties:
    """The config with its connector's name in it; raises ``BadRequestError`` where another name stands there."""
    given = config.get("name", name)
    if given != name:
        raise BadRequestError(
            f"Connector name configuration ({given}) doesn't match connector name in the URL ({name})"
        )
    return {**config, "name": name}


def refusal(errors: Sequence[str]) -> str:
    """Connect's text about an invalid config, with all that is wrong with it."""
    return (
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n"
        + "\n".join(errors)
        + "\nYou can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )


@dataclass(frozen=True, slots=True)
class RestartRequests:
    """Restarts that clients ask for: of one instance at its owner, or a plan through the config log."""

    view: ClusterView
    instances: Instances
    locks: ConnectorLocks

    async def connector(self, name: str) -> None:
        """Restart only the connector itself; raises ``RequestError``, on other workers ``ElsewhereError``."""
        self._demand_known(name)
        self.view.demand_settled()
        self.view.demand_owner(ConnectorId(name))
        self.instances.restart([ConnectorId(name)])

    async def task(self, task: TaskId) -> None:
        """Restart one task; raises ``RequestError``, on other workers ``ElsewhereError``."""
        self._demand_known(task.connector)
        if not self.view.exists(task):
            raise NotFoundError(self._unknown("Task", str(task)))
        self.view.demand_settled()
        self.view.demand_owner(task)
        self.instances.restart([task])

    async def plan(self, request: RestartRequest) -> ConnectorStatus:
        """Write a plan that every owner carries out; the states, with RESTARTING where something restarts."""
        self._demand_known(request.connector)
        self.view.demand_settled()
        self.view.demand_leader()
        try:
            status = self.view.status(request.connector)
        except NotFoundError:
            raise NotFoundError(f"Status for connector {request.connector} not found") from None
        async with self.locks.changing(request.connector):
            await self.view.configs.put_restart(request)
        return planned(request, status)

    def _demand_known(self, name: str) -> None:
        if name not in self.view.config.connectors:
            raise NotFoundError(self._unknown("Connector", name))

    def _unknown(self, what: str, name: str) -> str:
        """Connect's two modes say it in two ways."""
        return f"{what} {name} not found" if self.view.settings.is_standalone else f"Unknown {what.lower()}: {name}"


def chosen(request: RestartRequest, status: ConnectorStatus) -> Sequence[InstanceId]:
    """What a request restarts, by the states that are known."""

    def is_meant(told: InstanceStatus) -> bool:
        return told.state is State.FAILED or not request.is_failed_only

    connector: list[InstanceId] = [ConnectorId(status.name)] if is_meant(status.connector) else []
    tasks = [TaskId(status.name, number) for number, told in status.tasks.items() if is_meant(told)]
    return [*connector, *(tasks if request.has_tasks else [])]


def planned(request: RestartRequest, status: ConnectorStatus) -> ConnectorStatus:
    """The states, with RESTARTING where something restarts."""
    restarting = set(chosen(request, status))

    def shown(instance: InstanceId, told: InstanceStatus) -> InstanceStatus:
        return replace(told, state=State.RESTARTING) if instance in restarting else told

    return replace(
        status,
        connector=shown(ConnectorId(status.name), status.connector),
        tasks={number: shown(TaskId(status.name, number), told) for number, told in status.tasks.items()},
    )


def impact(request: RestartRequest) -> tuple[bool, bool]:
    """A key to sort by: of several requests for one connector the one of larger impact is carried out."""
    return not request.is_failed_only, request.has_tasks
