"""One worker's herder: the operations of its API, each carried out by the part that knows how."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.domain.cluster import ConnectorInfo, ConnectorStatus, InstanceStatus, Properties, RestartRequest
from service.domain.ids import TaskId
from service.domain.states import TargetState
from service.herder.api import OffsetEntry, Signature, Stage
from service.herder.offsets import OffsetRequests
from service.herder.parts import HerderSettings
from service.herder.ports import ConfigStore
from service.herder.publication import TaskPublication
from service.herder.requests import ConnectorRequests
from service.herder.restarts import RestartRequests
from service.herder.stages import Stages
from service.herder.view import ClusterView
from service.herder.whereabouts import Whereabouts
from service.herder.writing import ChangeTurns


@dataclass(slots=True)
class WorkerHerder:
    """Implements ``service.herder.api.Herder``; made and run by ``service.herder.life``."""

    configs: ConfigStore
    view: ClusterView
    whereabouts: Whereabouts
    connectors: ConnectorRequests
    restarts: RestartRequests
    offset_requests: OffsetRequests
    publication: TaskPublication
    turns: ChangeTurns
    settings: HerderSettings
    stages: Stages
    request_tick: Callable[[], asyncio.Future[None]]
    is_started: bool = False
    kafka_cluster_id: str | None = None

    @property
    def stage(self) -> Stage:
        """What it is doing now, or did last."""
        return self.stages.current

    async def wait_tick(self) -> None:
        """Until a tick that begins after the call has ended."""
        await self.request_tick()

    def connector_names(self) -> Sequence[str]:
        """All connectors."""
        return self.view.names()

    def connector_info(self, name: str, *, is_consistent: bool = True) -> ConnectorInfo:
        """Refused with 409 while a rebalance is due, unless for a list."""
        if is_consistent:
            self.whereabouts.demand_settled()
        return self.view.info(name)

    def connector_status(self, name: str) -> ConnectorStatus:
        """As last told by the owners."""
        return self.view.status(name)

    def task_status(self, task: TaskId) -> InstanceStatus:
        """As last told by the owner."""
        return self.view.task_status(task)

    def task_configs(self, name: str) -> Sequence[tuple[TaskId, Properties]]:
        """As committed in the config log."""
        self.whereabouts.demand_settled()
        return self.view.tasks(name)

    async def create_connector(self, name: str, config: Properties, initial: TargetState | None) -> ConnectorInfo:
        """Validate and write; 409 where it exists."""
        return await self.connectors.create(name, config, initial)

    async def put_connector(self, name: str, config: Properties) -> tuple[ConnectorInfo, bool]:
        """Validate and write; True where it was created."""
        return await self.connectors.put(name, config)

    async def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        """Merge into the config, then as ``put_connector``."""
        return await self.connectors.patch(name, patch)

    async def delete_connector(self, name: str) -> None:
        """Remove it, its tasks and its states."""
        await self.connectors.delete(name)

    async def set_target_state(self, name: str, state: TargetState) -> None:
        """Pause, resume, stop."""
        await self.connectors.set_target(name, state)

    async def restart_connector(self, name: str) -> None:
        """Only the connector itself."""
        self.restarts.connector(name)

    async def restart_task(self, task: TaskId) -> None:
        """One task."""
        self.restarts.task(task)

    async def restart(self, request: RestartRequest) -> ConnectorStatus:
        """The plan: states as known, what restarts shown RESTARTING."""
        return await self.restarts.plan(request)

    def topics(self, name: str) -> Sequence[str]:
        """403 where tracking is off."""
        return self.view.topics(name)

    def reset_topics(self, name: str) -> None:
        """403 where tracking or reset is off."""
        self.view.reset_topics(name)

    async def offsets(self, name: str) -> Sequence[OffsetEntry]:
        """Of a source from the offset topic, of a sink from its consumer group."""
        return await self.offset_requests.read(name)

    async def alter_offsets(self, name: str, offsets: Sequence[OffsetEntry]) -> str:
        """The text of success; only while STOPPED."""
        return await self.offset_requests.alter(name, offsets)

    async def reset_offsets(self, name: str) -> str:
        """The text of success; only while STOPPED."""
        return await self.offset_requests.reset(name)

    async def publish_tasks(self, name: str, *, signature: Signature | None, body: bytes) -> None:
        """Internal: the leader writes task configs that a connector's owner has made."""
        await self.publication.receive(name, signature=signature, body=body)

    async def set_cluster_logger(self, namespace: str, level: str) -> None:
        """Ask every worker to log at this level."""
        async with self.turns.telling_failures():
            await self.configs.put_logger_level(namespace, level)
