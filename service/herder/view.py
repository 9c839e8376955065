"""Reads, answered from memory: connectors, states, task configs, topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.domain.cluster import ConnectorEntry, ConnectorInfo, ConnectorStatus, InstanceStatus, Properties
from service.domain.ids import TaskId
from service.herder.errors import ForbiddenError, NotFoundError
from service.herder.parts import HerderSettings
from service.herder.ports import ConfigStore, StatusStore


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as this worker has read it."""

    configs: ConfigStore
    statuses: StatusStore
    settings: HerderSettings
    type_of: Callable[[Properties], str]

    def names(self) -> Sequence[str]:
        """All connectors, sorted."""
        return sorted(self.configs.config.connectors)

    def entry(self, name: str) -> ConnectorEntry:
        """One connector; raises ``NotFoundError``."""
        entry = self.configs.config.connectors.get(name)
        if entry is None:
            raise NotFoundError(f"Connector {name} not found")
        return entry

    def info(self, name: str) -> ConnectorInfo:
        """Body of ``GET /connectors/{name}``."""
        entry = self.entry(name)
        return ConnectorInfo(name, entry.config, entry.task_ids, self.type_of(entry.config))

    def tasks(self, name: str) -> Sequence[tuple[TaskId, Properties]]:
        """Task configs."""
        entry = self.entry(name)
        return tuple(zip(entry.task_ids, entry.tasks or (), strict=True))

    def status(self, name: str) -> ConnectorStatus:
        """As the owners told; tasks that there are no more are left out even before the leader has removed them."""
        entry = self.configs.config.connectors.get(name)
        connector = self.statuses.connector(name)
        if entry is None or connector is None:
            raise NotFoundError(f"No status found for connector {name}")
        count = len(entry.tasks or ())
        told = {number: task for number, task in self.statuses.tasks(name).items() if number < count}
        return ConnectorStatus(name, connector, told, self.type_of(entry.config))

    def task_status(self, task: TaskId) -> InstanceStatus:
        """State of one task."""
        entry = self.configs.config.connectors.get(task.connector)
        status = self.statuses.tasks(task.connector).get(task.task)
        if entry is None or status is None or task.task >= len(entry.tasks or ()):
            raise NotFoundError(f"No status found for task {task}")
        return status

    def topics(self, name: str) -> Sequence[str]:
        """Topics in use; none for a connector that is not there, as in Connect."""
        if not self.settings.has_topic_tracking:
            raise ForbiddenError("Topic tracking is disabled.")
        return self.statuses.topics(name)

    def reset_topics(self, name: str) -> None:
        """Forget them."""
        if not self.settings.has_topic_tracking:
            raise ForbiddenError("Topic tracking is disabled.")
        if not self.settings.may_reset_topics:
            raise ForbiddenError("Topic tracking reset is disabled.")
        self.statuses.reset_topics(name)
