"""The cluster as this worker has read it: connectors, states, who is in the group, and who carries out what.

Answers reads from memory, and tells whose a request is: this worker's, or another's (``ElsewhereError``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.domain.cluster import (
    ClusterConfig,
    ConnectorEntry,
    ConnectorInfo,
    ConnectorStatus,
    InstanceStatus,
    Member,
    Properties,
    Roster,
)
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State
from service.herder.errors import ConflictError, ElsewhereError, ForbiddenError, NotFoundError
from service.herder.ports import ConfigStore, HerderSettings, Membership, Owners, StatusStore

NO_LEADER = "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
CONFLICT = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
STALE = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)
_HELD = frozenset({State.RUNNING, State.PAUSED, State.RESTARTING})


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Everything that the parts of the herder know of the cluster. Holds no state of its own."""

    configs: ConfigStore
    statuses: StatusStore
    membership: Membership
    owners: Owners
    settings: HerderSettings
    type_of: Callable[[Properties], str]
    """``source``, ``sink`` or ``unknown``, of a connector of this config."""

    @property
    def config(self) -> ClusterConfig:
        """The config log, folded as far as it is read here."""
        return self.configs.config

    def names(self) -> Sequence[str]:
        """Names of all connectors, sorted."""
        return sorted(self.config.connectors)

    def other_workers(self) -> Sequence[str]:
        """URLs of the other workers of the group; none while this one is not in it."""
        roster = self.membership.roster
        return () if roster is None else [each.url for each in roster.members if each != self.membership.me]

    def entry(self, name: str) -> ConnectorEntry:
        """What the config log says of a connector; raises ``NotFoundError``."""
        entry = self.config.connectors.get(name)
        if entry is None:
            raise NotFoundError(f"Connector {name} not found")
        return entry

    def info(self, name: str, *, is_consistent: bool = True) -> ConnectorInfo:
        """Body of ``GET /connectors/{name}``; raises ``NotFoundError``.

        ``is_consistent``: raises ``ConflictError`` while a rebalance is due, because what is known may be old.
        """
        if is_consistent:
            self.demand_settled()
        entry = self.entry(name)
        return ConnectorInfo(name, entry.config, entry.task_ids, self.type_of(entry.config))

    def tasks(self, name: str) -> Sequence[tuple[TaskId, Properties]]:
        """Task configs as committed; raises ``NotFoundError``, and ``ConflictError`` while a rebalance is due."""
        self.demand_settled()
        entry = self.entry(name)
        return tuple(zip(entry.task_ids, entry.tasks or (), strict=True))

    def status(self, name: str) -> ConnectorStatus:
        """States as the owners told them last; raises ``NotFoundError`` where none is known.

        Tasks that there are no more are left out even before the leader has removed their states.
        """
        entry = self.config.connectors.get(name)
        connector = self.statuses.connector(name)
        if entry is None or connector is None:
            raise NotFoundError(f"No status found for connector {name}")
        count = len(entry.tasks or ())
        told = {number: task for number, task in self.statuses.tasks(name).items() if number < count}
        return ConnectorStatus(name, connector, told, self.type_of(entry.config))

    def task_status(self, task: TaskId) -> InstanceStatus:
        """State of one task as its owner told it last; raises ``NotFoundError``."""
        status = self.statuses.instance(task)
        if status is None or not self.exists(task):
            raise NotFoundError(f"No status found for task {task}")
        return status

    def topics(self, name: str) -> Sequence[str]:
        """Topics that a connector uses; none of one that is not there, as in Connect. Raises ``ForbiddenError``."""
        if not self.settings.has_topic_tracking:
            raise ForbiddenError("Topic tracking is disabled.")
        return self.statuses.topics(name)

    def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has used so far; raises ``ForbiddenError`` where that is switched off."""
        if not self.settings.has_topic_tracking:
            raise ForbiddenError("Topic tracking is disabled.")
        if not self.settings.may_reset_topics:
            raise ForbiddenError("Topic tracking reset is disabled.")
        self.statuses.reset_topics(name)

    def exists(self, instance: InstanceId) -> bool:
        """Whether the config log knows of a connector or a task."""
        entry = self.config.connectors.get(instance.connector)
        if entry is None:
            return False
        return isinstance(instance, ConnectorId) or instance.task < len(entry.tasks or ())

    def is_sink(self, entry: ConnectorEntry) -> bool:
        """Whether a connector's class is a sink; one whose class is unknown here is treated as a source."""
        return self.type_of(entry.config) == "sink"

    def held_tasks(self, name: str) -> set[int]:
        """Numbers of a connector's tasks that a worker of the group has told to have, and not yet to have let go."""
        members = () if self.roster is None else self.roster.members
        return {
            number
            for number in self.statuses.tasks(name)
            if any(is_told_running(self.statuses, TaskId(name, number), member) for member in members)
        }

    @property
    def me(self) -> Member:
        """The worker that this view belongs to."""
        return self.membership.me

    @property
    def roster(self) -> Roster | None:
        """The group as last told; None while this worker is not in it."""
        return self.membership.roster

    @property
    def is_leader(self) -> bool:
        """Whether this worker leads the group. It may write as leader once it has its claim, too."""
        return self.roster is not None and self.roster.leader == self.me

    @property
    def generation(self) -> int:
        """Generation of the group, told with states; 0 before the first."""
        return 0 if self.roster is None else self.roster.generation

    def is_mine(self, instance: InstanceId) -> bool:
        """Whether this worker owns a connector or a task."""
        return self.owners.owner(instance) == self.me

    def demand_leader(self) -> None:
        """Raises ``ElsewhereError`` with the leader's URL, ``ConflictError`` while nobody may write as leader."""
        roster = self.roster
        if roster is None:
            raise ConflictError(NO_LEADER)
        if roster.leader != self.me:
            raise ElsewhereError(roster.leader.url)
        if not self.configs.is_leader:
            raise ConflictError(NO_LEADER)

    def demand_settled(self) -> None:
        """Raises ``ConflictError`` while a rebalance is due."""
        if self.roster is None or self.membership.is_rebalancing:
            raise ConflictError(STALE)

    def demand_owner(self, instance: InstanceId) -> None:
        """Raises ``ElsewhereError`` with the owner's URL, ``ConflictError`` while it has none that is in the group."""
        owner = self.owners.owner(instance)
        if owner is None or self.roster is None or owner not in self.roster.members:
            raise ConflictError(CONFLICT)
        if owner != self.me:
            raise ElsewhereError(owner.url)


def is_told_running(statuses: StatusStore, instance: InstanceId, owner: Member) -> bool:
    """Whether this owner was the last to tell of the instance, and told that it has it: running, paused, restarting."""
    status = statuses.instance(instance)
    return status is not None and status.state in _HELD and status.worker_id == owner.worker_id
