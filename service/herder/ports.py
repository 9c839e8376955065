"""What the herder is given: ports to the rest of the worker, each with a real part and a fake, and its settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from service.domain.cluster import (
    ClusterConfig,
    ConfigChange,
    InstanceStatus,
    Member,
    Properties,
    RestartRequest,
    Roster,
    SessionKey,
)
from service.domain.errors import Recovery
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.api import OffsetEntry, Signature


class ConfigStore(Protocol):
    """The config log: connectors, target states, task configs in the records of Connect's config topic.

    Reading is continuous; ``listen`` hears every change in the order of the log, on the event loop. Writers return
    once their record is in the log *and* read back here. All of them raise ``DeliveryRetriable`` or ``DeliveryFatal``;
    all but those of target states and log levels are the leader's, and raise ``ClaimMissing`` without a claim,
    ``WriterFenced`` once another has one.
    """

    @property
    def config(self) -> ClusterConfig:
        """The log, folded as far as it is read."""

    def listen(self, listener: Callable[[ConfigChange], None]) -> None:
        """Hear of every record from now on."""

    async def start(self) -> None:
        """Make the topic if it is missing, check it, read it to its end, and go on reading."""

    async def stop(self) -> None:
        """Stop reading and disconnect; harmless before ``start``."""

    async def read_to_end(self) -> None:
        """Until everything written before the call is in ``config``."""

    @property
    def is_leader(self) -> bool:
        """Whether this worker holds a claim to the leader's writes that, as far as it knows, is the newest."""

    async def claim_leadership(self) -> None:
        """Take over the leader's writes; who had them before can write as leader no more."""

    async def drop_leadership(self) -> None:
        """Give them up; harmless without a claim."""

    async def put_connector(self, name: str, config: Properties, *, initial: TargetState | None = None) -> None:
        """Create or change; the target state, where given, is written first."""

    async def remove_connector(self, name: str, *, deleted: Properties | None = None) -> None:
        """Tombstones on the connector and on its target state.

        ``deleted``: its config, to be kept until ``forget_deleted``, or until a connector of this name is written.
        """

    async def forget_deleted(self, name: str) -> None:
        """Forget the config that was kept of a deleted connector."""

    async def put_tasks(self, name: str, tasks: Sequence[Properties], *, may_start: bool = False) -> None:
        """All task records, then the commit that makes them visible.

        ``may_start``: nothing is to be fenced before; then the count of ``put_task_count`` goes with them.
        """

    async def put_target_state(self, name: str, state: TargetState) -> None:
        """Write that a connector is to run, to be paused or to be stopped."""

    async def put_restart(self, request: RestartRequest) -> None:
        """Write a restart that every owner carries out when it reads the record."""

    async def put_task_count(self, name: str, count: int) -> None:
        """How many tasks the generation that may now start has; its older ones are fenced."""

    async def put_session_key(self, key: SessionKey) -> None:
        """Publish the key that signs requests between workers."""

    async def put_logger_level(self, namespace: str, level: str) -> None:
        """Ask every worker to log at this level."""


class StatusStore(Protocol):
    """States and topics in use, as all workers tell them in the records of Connect's status topic.

    Reads are from memory and see at once what is told here; writes are queued, and tried until they succeed.
    """

    async def start(self) -> None:
        """Make the topic if it is missing, check it, read it to its end, and go on reading and writing."""

    async def stop(self) -> None:
        """Write what is queued, within a time limit, and disconnect."""

    async def read_to_end(self) -> None:
        """Until every state that was written before the call is read; raises ``KafkaFailure``."""

    def instance(self, instance: InstanceId) -> InstanceStatus | None:
        """State of a connector or a task."""

    def names(self) -> Sequence[str]:
        """Connectors of which any state or topic is known."""

    def connector(self, name: str) -> InstanceStatus | None:
        """State of the connector itself, as last told; None where none is known."""

    def tasks(self, name: str) -> Mapping[int, InstanceStatus]:
        """States of its tasks, sorted by number."""

    def put(self, instance: InstanceId, status: InstanceStatus) -> None:
        """Tell a state; seen by reads here at once."""

    def put_safe(self, instance: InstanceId, status: InstanceStatus) -> None:
        """Tell a state unless a newer generation of another worker has told one."""

    def remove(self, instance: InstanceId) -> None:
        """Forget the state of a connector or a task that is no more."""

    def topics(self, name: str) -> Sequence[str]:
        """Names of the topics that a connector has used since the last reset, sorted."""

    def add_topic(self, topic: str, task: TaskId) -> None:
        """The task has used a topic; may be called with every commit, because what is known is not written again."""

    def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has used so far."""


class Membership(Protocol):
    """The place of this worker in the group (standalone: a group of one that never changes)."""

    @property
    def me(self) -> Member:
        """The worker itself, as the others know it."""

    @property
    def roster(self) -> Roster | None:
        """The group as last told; None while this worker is not in it."""

    @property
    def is_rebalancing(self) -> bool:
        """Whether a round of the group is under way or due, so that ``roster`` is about to change."""

    @property
    def failure(self) -> Exception | None:
        """Why this worker can never be in the group as it is configured; listeners hear of it."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Hear when ``roster`` or ``is_rebalancing`` has changed."""

    async def start(self) -> None:
        """Begin to join; returns without waiting for the group."""

    async def stop(self) -> None:
        """Leave the group, so that the others need not wait for the session's end."""


@dataclass(frozen=True, slots=True)
class Desired:
    """What should run here of one instance, and as what.

    Two equal values mean: nothing to do. A difference in ``config``, ``task`` or ``generation`` makes a new
    incarnation, unless what runs takes the changed keys over; one in ``target`` alone pauses or resumes.
    """

    config: Properties
    """The connector's config, provider variables unresolved."""
    target: TargetState
    task: Properties | None = None
    """The task's own config; None for the connector itself."""
    generation: int = 0
    """Generation of the task configs: it grows each time a connector's tasks are configured anew."""


class Instances(Protocol):
    """What runs in this process (`service.worker`). Every method returns at once; what follows is told by status."""

    def apply(self, connector: str, desired: Mapping[InstanceId, Desired]) -> None:
        """Start, stop, pause, resume and re-make until of the connector exactly this runs."""

    def restart(self, instances: Sequence[InstanceId]) -> None:
        """New incarnations of instances that run here (FAILED ones too)."""

    @property
    def idle_seconds(self) -> float | None:
        """For how long every task here has had nothing to do or been FAILED; None while one is not (DESIGN, idle)."""

    async def stop(self) -> None:
        """Stop everything step by step: take no more, deliver what is there, cancel what does not end in time."""


class InstanceObserver(Protocol):
    """Hears from instances; the herder turns it into statuses and task configs."""

    def on_state(
        self,
        instance: InstanceId,
        state: State,
        *,
        trace: str | None,
        version: str | None,
        failure: Recovery | None = None,
    ) -> None:
        """An instance has entered a state; ``failure`` is the recovery of the error that made it FAILED."""

    def on_task_configs(self, connector: ConnectorId, tasks: Sequence[Properties], made_from: Properties) -> None:
        """A connector has split its work; provider variables turned back."""

    def on_topic(self, task: TaskId, topic: str) -> None:
        """A task has used a topic; told with every commit to it, or with every batch read from it."""


class Owners(Protocol):
    """Who runs what, as every worker works it out from the roster and the config log."""

    def owner(self, instance: InstanceId) -> Member | None:
        """Its owner; None while nobody is (or the group is not known yet)."""

    def take_moved(self) -> frozenset[str] | None:
        """Connectors of which something may have got another owner since the last call; None: all of them."""


class Validator(Protocol):
    """Looks at connector configs before they are written."""

    async def errors_of(self, config: Properties) -> Sequence[str]:
        """Texts of all errors, in Connect's order; warnings are told by event."""


class Altered(NamedTuple):
    """What is answered to a change of offsets that was made."""

    is_whole: bool
    """Whether the connector itself took part."""
    remark: str = ""
    """What whoever asked should know besides."""


class OffsetAccess(Protocol):
    """Offsets of one kind of connector: sources in their topic, sinks in their consumer group."""

    async def read(self, name: str, config: Properties) -> Sequence[OffsetEntry]:
        """All offsets of a connector of this name and config."""

    async def alter(self, name: str, config: Properties, offsets: Sequence[OffsetEntry]) -> Altered:
        """Write these (None = forget)."""

    async def reset(self, name: str, config: Properties) -> bool:
        """Forget all; whether the connector itself took part."""


class DeletedSources(Protocol):
    """What deleted sources leave outside, such as a replication slot (``SourceConnector.on_deleted``)."""

    def leaves_anything(self, config: Properties) -> bool:
        """Whether a connector of this config may have left anything; asked before it is deleted."""

    async def take_away(self, config: Properties, offsets: Sequence[OffsetEntry], others: Sequence[Properties]) -> bool:
        """Have it take that away; True: its offsets mean nothing any more. Raises what the connector raises.

        ``others``: configs of the connectors that are left, as they are written.
        """


class Peers(Protocol):
    """Requests to other workers of the group."""

    async def publish_tasks(self, url: str, connector: str, body: bytes, signature: Signature | None) -> None:
        """Hand task configs to the leader; raises ``PeerError``."""


class PeerError(Exception):
    """Another worker could not be asked, or has refused; the text says which."""


@dataclass(frozen=True, slots=True)
class HerderSettings:
    """Keys of the worker that concern its herder."""

    group_id: str
    is_standalone: bool = False
    has_topic_tracking: bool = True
    may_reset_topics: bool = True
    graceful_seconds: float = 8.0
    """How long a task's former owner may take to let go."""
    doubt_seconds: float = 10.0
    """After another has taken the lead: how long until this worker would know, if it led still. Session time-out."""
    key_seconds_max: float = 3600.0
    """Age at which the session key is replaced."""
    key_algorithm: str = "HmacSHA256"
    signature_algorithm: str = "HmacSHA256"
    verification_algorithms: tuple[str, ...] = ("HmacSHA256",)


@dataclass(frozen=True, slots=True)
class ClusterDoors:
    """What the herder may ask of Kafka and of other workers."""

    validator: Validator
    source_offsets: OffsetAccess
    sink_offsets: OffsetAccess
    peers: Peers
    deleted_sources: DeletedSources
    fence_producers: Callable[[Properties, Sequence[str]], Awaitable[None]]
    """With the client settings of a connector of this config, ends older incarnations of these transactional ids."""
    cluster_id: Callable[[], Awaitable[str | None]]
    set_log_level: Callable[[str, str], None] = lambda _namespace, _level: None
    hide: Callable[[str], str] = str
    """Takes secrets out of what is told of failures."""
