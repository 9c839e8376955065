"""What a cluster of workers agrees on, as values: connectors as configured, their states, who is in the group.

The shapes follow Kafka Connect's internal topics and REST bodies; nothing here reads or writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.domain.ids import InstanceId, TaskId
from service.domain.states import State, TargetState

Properties = Mapping[str, str]
"""A flat config, provider variables unresolved."""


@dataclass(frozen=True, slots=True)
class ConnectorEntry:
    """What the config log says of one connector."""

    name: str
    config: Properties
    target_state: TargetState = TargetState.STARTED
    tasks: tuple[Properties, ...] | None = None
    """Committed task configs; None while there are none yet, or while compaction has left too few of them."""
    task_generation: int = 0
    """Raised by each commit of task configs."""
    tasks_made_from: Properties | None = None
    """The connector config that was current when ``tasks`` were committed."""

    @property
    def task_ids(self) -> tuple[TaskId, ...]:
        """Ids of the committed tasks."""
        return tuple(TaskId(self.name, number) for number in range(len(self.tasks or ())))

    @property
    def is_current(self) -> bool:
        """Whether the tasks were made from the connector config of now."""
        return self.tasks is not None and self.tasks_made_from == self.config


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The secret that signs requests between workers, as the leader publishes it."""

    key: bytes
    algorithm: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The config log, folded up to ``offset`` (that of the next record)."""

    offset: int = 0
    connectors: Mapping[str, ConnectorEntry] = field(default_factory=dict)
    session_key: SessionKey | None = None
    task_counts: Mapping[str, int] = field(default_factory=dict)
    """Tasks of the generation that was last fenced, by connector."""
    fencing_pending: frozenset[str] = frozenset()
    """Connectors with a commit of task configs after which no task count is written yet: see ``herder.fencing``."""
    deleted: Mapping[str, Properties] = field(default_factory=dict)
    """Configs of deleted sources that have not taken away yet what they left outside: see ``herder.deletions``."""


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """State of one connector or task, as its owner last told."""

    state: State
    worker_id: str
    generation: int
    """Of the group, when it was told."""
    trace: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectorInfo:
    """A connector's config, tasks and type, as ``GET /connectors/{name}`` answers them."""

    name: str
    config: Properties
    tasks: tuple[TaskId, ...]
    type: str
    """``source``, ``sink`` or ``unknown``."""


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """Body of ``GET /connectors/{name}/status``; tasks by number."""

    name: str
    connector: InstanceStatus
    tasks: Mapping[int, InstanceStatus]
    type: str


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """A restart with parameters, as it stands in the config log."""

    connector: str
    is_failed_only: bool
    has_tasks: bool


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A worker in the group. Its URL is its identity: a worker that comes back under the same URL is the same one."""

    url: str

    @property
    def worker_id(self) -> str:
        """``host:port``, as states show it."""
        return self.url.rstrip("/").rpartition("//")[2]


@dataclass(frozen=True, slots=True)
class Roster:
    """Who is in the group, as the leader told everyone in one generation."""

    generation: int
    leader: Member
    members: tuple[Member, ...]
    """Sorted."""
    base: Mapping[InstanceId, Member]
    """Who owned what when the generation began; what it says nothing of is assigned by the config log after it.

    An owner may be absent from ``members``: its work is held for it until the leader ends its grace.
    """
    base_offset: int
    """Offset of the config log up to which ``base`` speaks."""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One record of the config log, as it was read; ``after`` is the state with it."""

    after: ClusterConfig
    connector: str | None = None
    """Which connector it concerns, if any."""
    restart: RestartRequest | None = None
    """Only of records read live, not of those before the start."""
    logger: tuple[str, str] | None = None
    """Namespace and level, read live."""
