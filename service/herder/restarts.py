"""Restarts: one instance at its owner, or a plan through the config log (`connect-rest`, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.domain.cluster import ConnectorStatus, InstanceStatus, RestartRequest
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State
from service.herder.errors import NotFoundError
from service.herder.parts import HerderSettings
from service.herder.ports import ConfigStore, Instances
from service.herder.view import ClusterView
from service.herder.whereabouts import Whereabouts
from service.herder.writing import ChangeTurns


@dataclass(frozen=True, slots=True)
class RestartRequests:
    """Restarts that clients ask for."""

    configs: ConfigStore
    view: ClusterView
    whereabouts: Whereabouts
    instances: Instances
    turns: ChangeTurns
    settings: HerderSettings

    def connector(self, name: str) -> None:
        """Only the connector itself, at its owner."""
        self._demand_known(name)
        self.whereabouts.demand_settled()
        self.whereabouts.demand_owner(ConnectorId(name))
        self.instances.restart([ConnectorId(name)])

    def task(self, task: TaskId) -> None:
        """One task, at its owner."""
        self._demand_known(task.connector)
        if task not in self.view.entry(task.connector).task_ids:
            raise NotFoundError(self._unknown("Task", str(task)))
        self.whereabouts.demand_settled()
        self.whereabouts.demand_owner(task)
        self.instances.restart([task])

    async def plan(self, request: RestartRequest) -> ConnectorStatus:
        """Written by the leader, carried out by every owner; answered with what is about to restart."""
        self._demand_known(request.connector)
        self.whereabouts.demand_settled()
        self.whereabouts.demand_leader()
        try:
            status = self.view.status(request.connector)
        except NotFoundError:
            raise NotFoundError(f"Status for connector {request.connector} not found") from None
        async with self.turns.changing(request.connector):
            await self.configs.put_restart(request)
        return planned(request, status)

    def _demand_known(self, name: str) -> None:
        if name not in self.configs.config.connectors:
            raise NotFoundError(self._unknown("Connector", name))

    def _unknown(self, what: str, name: str) -> str:
        """Connect's two modes say it in two ways."""
        return f"{what} {name} not found" if self.settings.is_standalone else f"Unknown {what.lower()}: {name}"


def chosen(request: RestartRequest, status: ConnectorStatus) -> Sequence[InstanceId]:
    """What a request restarts."""

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
    """Of several requests for one connector the one of larger impact wins."""
    return not request.is_failed_only, request.has_tasks
