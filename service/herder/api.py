"""What can be asked of a worker: the operations behind Kafka Connect's REST, standalone and distributed alike.

Every operation raises ``RequestError`` (its text and status are for the client) or ``ElsewhereError`` (forward it).
Reads answer from memory. None waits for a connector or a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Stage:
    """What the worker is busy with, for health and for requests that time out."""

    text: str
    began: str
    """ISO instant."""
    ended: str | None = None


class Herder(Protocol):
    """One worker's face to its clients."""

    @property
    def is_started(self) -> bool:
        """Whether the internal topics are read; before, every request is answered 503."""

    @property
    def stage(self) -> Stage:
        """What it is doing now, or did last."""

    @property
    def kafka_cluster_id(self) -> str | None:
        """For ``GET /``."""

    async def wait_tick(self) -> None:
        """Until a tick that begins after the call has ended: ``/health`` is unhealthy when it does not."""

    def connector_names(self) -> Sequence[str]:
        """All connectors."""

    def connector_info(self, name: str, *, is_consistent: bool = True) -> ConnectorInfo:
        """``is_consistent``: refuse with 409 while a rebalance is due (not for expanded lists)."""

    def connector_status(self, name: str) -> ConnectorStatus:
        """As last told by the owners."""

    def task_status(self, task: TaskId) -> InstanceStatus:
        """As last told by the owner."""

    def task_configs(self, name: str) -> Sequence[tuple[TaskId, Properties]]:
        """As committed in the config log."""

    async def create_connector(self, name: str, config: Properties, initial: TargetState | None) -> ConnectorInfo:
        """Validate and write; 409 where it exists."""

    async def put_connector(self, name: str, config: Properties) -> tuple[ConnectorInfo, bool]:
        """Validate and write; True where it was created."""

    async def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        """Merge into the config (None removes), then as ``put_connector``; 404 where it is missing."""

    async def delete_connector(self, name: str) -> None:
        """Remove it, its tasks and its states."""

    async def set_target_state(self, name: str, state: TargetState) -> None:
        """Pause, resume, stop."""

    async def restart_connector(self, name: str) -> None:
        """Only the connector itself."""

    async def restart_task(self, task: TaskId) -> None:
        """One task."""

    async def restart(self, request: RestartRequest) -> ConnectorStatus:
        """The plan: states as known, what restarts shown RESTARTING."""

    def topics(self, name: str) -> Sequence[str]:
        """403 where tracking is off."""

    def reset_topics(self, name: str) -> None:
        """403 where tracking or reset is off."""

    async def offsets(self, name: str) -> Sequence[OffsetEntry]:
        """Of a source from the offset topic, of a sink from its consumer group."""

    async def alter_offsets(self, name: str, offsets: Sequence[OffsetEntry]) -> str:
        """The text of success; only while STOPPED."""

    async def reset_offsets(self, name: str) -> str:
        """The text of success; only while STOPPED."""

    async def publish_tasks(self, name: str, *, signature: Signature | None, body: bytes) -> None:
        """Internal: the leader writes task configs that a connector's owner has made."""

    async def set_cluster_logger(self, namespace: str, level: str) -> None:
        """Ask every worker to log at this level."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a request between workers is signed with."""

    value: str
    algorithm: str

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self | None:
        """From a request's headers, where both are there."""
        value, algorithm = headers.get(SIGNATURE_HEADER), headers.get(ALGORITHM_HEADER)
        return None if value is None or algorithm is None else cls(value, algorithm)

    @property
    def headers(self) -> dict[str, str]:
        """For a request."""
        return {SIGNATURE_HEADER: self.value, ALGORITHM_HEADER: self.algorithm}
