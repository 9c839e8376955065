"""What can be asked of a worker: the operations behind Kafka Connect's REST, standalone and distributed alike.

Every operation raises ``RequestError`` (its text and status are for the client) or ``ElsewhereError`` (forward it).
Reads answer from memory. None waits for a connector or a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from service.domain.cluster import ConnectorInfo, ConnectorStatus, InstanceStatus, Properties, RestartRequest
from service.domain.ids import TaskId
from service.domain.states import TargetState

OffsetEntry = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
"""A source partition (or ``kafka_topic``, ``kafka_partition``) and its offset; None = forget it.

The partition is None only where a request names none.
"""

SIGNATURE_HEADER = "X-Connect-Authorization"
ALGORITHM_HEADER = "X-Connect-Request-Signature-Algorithm"
HEAD_HEADER = "X-Headrace-Request-Signature"


class Reads(Protocol):
    """What the cluster is, as this worker has read it (``service.herder.view.ClusterView``)."""

    def names(self) -> Sequence[str]:
        """Names of all connectors that the config log knows, sorted."""

    def other_workers(self) -> Sequence[str]:
        """URLs of the other workers of the group, sorted."""

    def info(self, name: str, *, is_consistent: bool = True) -> ConnectorInfo:
        """Config and tasks of a connector; ``is_consistent``: 409 while a rebalance is due (not for expanded lists)."""

    def status(self, name: str) -> ConnectorStatus:
        """States of a connector and its tasks, as last told by their owners."""

    def task_status(self, task: TaskId) -> InstanceStatus:
        """State of a task, as last told by its owner."""

    def tasks(self, name: str) -> Sequence[tuple[TaskId, Properties]]:
        """Task configs, as committed in the config log."""

    def topics(self, name: str) -> Sequence[str]:
        """Topics that a connector uses; 403 where tracking is off."""

    def reset_topics(self, name: str) -> None:
        """Forget the topics used so far; 403 where tracking or reset is off."""


class Changes(Protocol):
    """Requests that change connectors, as REST asks for them (``service.herder.requests.ChangeRequests``)."""

    async def create(self, name: str, config: Properties, initial: TargetState | None) -> ConnectorInfo:
        """Validate and write; 409 where it exists."""

    async def put(self, name: str, config: Properties) -> tuple[ConnectorInfo, bool]:
        """Validate and write; True where it was created."""

    async def patch(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        """Merge into the config (None removes), then as ``put``; 404 where it is missing."""

    async def delete(self, name: str) -> None:
        """Remove it, its tasks and its states."""

    async def set_target(self, name: str, state: TargetState) -> None:
        """Ask that a connector be paused, resumed or stopped; returns before it is."""

    async def set_cluster_logger(self, namespace: str, level: str) -> None:
        """Ask every worker to log at this level."""


class Restarts(Protocol):
    """Requests to restart connectors and tasks, as REST asks for them (``service.herder.requests.RestartRequests``)."""

    async def connector(self, name: str) -> None:
        """Restart the connector itself, none of its tasks; returns before it has begun."""

    async def task(self, task: TaskId) -> None:
        """Restart one task; returns before it has begun."""

    async def plan(self, request: RestartRequest) -> ConnectorStatus:
        """Restart what a request chooses; the states as known, what restarts shown RESTARTING."""


class Offsets(Protocol):
    """Offsets of sources in their topic, of sinks in their consumer group (``service.herder.offsets``)."""

    async def read(self, name: str) -> Sequence[OffsetEntry]:
        """All offsets of a connector: source partitions with source offsets, or topic partitions with offsets."""

    async def alter(self, name: str, offsets: Sequence[OffsetEntry]) -> str:
        """Set or forget some, only while STOPPED; the text of success."""

    async def reset(self, name: str) -> str:
        """Forget all, only while STOPPED; the text of success."""


class Publication(Protocol):
    """Requests of other workers (``service.herder.publication``)."""

    async def receive(
        self, connector: str, *, signature: Signature | None, read: Callable[[], Awaitable[bytes]]
    ) -> None:
        """Write task configs that a connector's owner has made; the leader's.

        ``read`` gives the body, and is called only once a member of the group is known to have sent the request.
        """


class Life(Protocol):
    """How far the herder is (``service.herder.life.HerderLife``)."""

    @property
    def is_started(self) -> bool:
        """Whether the internal topics are read; before, every request is answered 503."""

    @property
    def activity(self) -> Activity:
        """What the herder is doing now, or did last."""

    @property
    def kafka_cluster_id(self) -> str | None:
        """For ``GET /``; None until Kafka was asked."""

    async def wait_tick(self) -> None:
        """Until a tick that begins after the call has ended: ``/health`` is unhealthy when it does not."""


class Herder(Protocol):
    """One worker's face to its clients: who carries out what."""

    @property
    def reads(self) -> Reads:
        """Answers from what this worker has read of the config log and the status topic."""

    @property
    def changes(self) -> Changes:
        """Changes connectors by records of the config log."""

    @property
    def restarts(self) -> Restarts:
        """Restarts connectors and tasks, on whichever worker they run."""

    @property
    def offsets(self) -> Offsets:
        """Reads and changes offsets of connectors, those of sinks too."""

    @property
    def publication(self) -> Publication:
        """Takes what other workers send."""

    @property
    def life(self) -> Life:
        """Tells how far the herder is."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What the herder is busy with, for health and for requests that time out; Connect calls it a stage."""

    text: str
    began: str
    """ISO instant."""
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """What a request between workers is signed with."""

    value: str
    """HMAC of the body, in base64, as KIP-507 has it."""
    algorithm: str
    head: str = ""
    """HMAC of ``value`` and of what the request concerns, in base64: shows before the body is read that whoever sends
    it has the key."""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self | None:
        """From a request's headers, where the two of KIP-507 are there."""
        value, algorithm = headers.get(SIGNATURE_HEADER), headers.get(ALGORITHM_HEADER)
        return None if value is None or algorithm is None else cls(value, algorithm, headers.get(HEAD_HEADER, ""))

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers that carry it in a request between workers."""
        return {SIGNATURE_HEADER: self.value, ALGORITHM_HEADER: self.algorithm, HEAD_HEADER: self.head}
