"""A herder on real stores in memory, with fakes of what reaches outside: instances, Kafka, other workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from fetchers.sdk import SystemClock
from metrics.events import Event
from service.background import Background
from service.domain.cluster import ClusterConfig, Member, Properties, Roster
from service.domain.errors import Recovery
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.api import OffsetEntry, Signature
from service.herder.assignment import AssignmentTracker
from service.herder.herder import WorkerHerder, make_herder
from service.herder.ports import Altered, ClusterDoors, Desired, HerderSettings, InstanceObserver, PeerError
from service.herder.view import ClusterView
from service.kafka.errors import DeliveryFatal
from service.stores.config_log import ConfigLog
from service.stores.state_log import MemoryStateLog
from service.stores.statuses import Statuses
from tests.unit.herder.contested_log import ContestedLog

ME, OTHER = Member("http://me:8083"), Member("http://other:8083")
SOURCE = {"connector.class": "FileStreamSource", "file": "/in", "topic": "t"}
SINK = {"connector.class": "FileStreamSink", "file": "/out", "topics": "t"}


def type_of(config: Properties) -> str:
    """By the name of the class."""
    return "sink" if "Sink" in config.get("connector.class", "") else "source"


@dataclass
class FakeMembership:
    """A place in a group that tests decide about."""

    tracker: AssignmentTracker
    me: Member = ME
    roster: Roster | None = None
    is_rebalancing: bool = False
    failure: Exception | None = None
    listeners: list[Callable[[], None]] = field(default_factory=list)
    first: Sequence[Member] = (ME,)
    has_left: bool = False
    generation: int = 0

    def listen(self, listener: Callable[[], None]) -> None:
        """See ``Membership``."""
        self.listeners.append(listener)

    async def start(self) -> None:
        """See ``Membership``: the group is there at once."""
        if self.first:
            self.become(*self.first)

    async def stop(self) -> None:
        """See ``Membership``."""
        self.has_left = True

    def become(
        self, *members: Member, leader: Member | None = None, owners: Mapping[InstanceId, Member] | None = None
    ) -> None:
        """A new generation of these members (the first leads); who owned what stays, unless given."""
        self.generation += 1
        base = self.tracker.assignment.owners() if owners is None else owners
        self.roster = Roster(self.generation, leader or members[0], tuple(sorted(members)), base, self.tracker.offset)
        self.tracker.on_roster(self.roster)
        self.tell()

    def leave(self) -> None:
        """Be out of the group."""
        self.roster = None
        self.tell()

    def tell(self) -> None:
        """Tell the listeners."""
        for listener in self.listeners:
            listener()


@dataclass
class FakeInstances:
    """Runs nothing, but says what real instances would say: at once, unless ``is_silent``."""

    observer: InstanceObserver
    applied: dict[InstanceId, Desired] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    restarted: list[InstanceId] = field(default_factory=list)
    is_silent: bool = False
    is_draining: bool = False
    """Tasks that end go on delivering what they hold, as real ones do, until ``end_drain``."""
    has_stopped: bool = False
    idle_seconds: float | None = None
    _drained: list[Callable[[], None]] = field(default_factory=list)
    """What follows the end of each task that delivers on."""

    def apply(self, connector: str, desired: Mapping[InstanceId, Desired]) -> None:
        """Tell RUNNING, PAUSED, STOPPED, UNASSIGNED; a connector that starts makes ``tasks.max`` tasks."""
        self.asked.append(connector)
        before = {instance: wanted for instance, wanted in self.applied.items() if instance.connector == connector}
        others = {instance: wanted for instance, wanted in self.applied.items() if instance.connector != connector}
        self.applied = {**others, **desired}
        if self.is_silent:
            return
        for instance in before.keys() - desired.keys():
            self._after_drain(instance, partial(self.tell, instance, State.UNASSIGNED))
        for instance, wanted in desired.items():
            if before.get(instance) != wanted:
                self._after_drain(instance, partial(self._start, instance, wanted))

    def _after_drain(self, instance: InstanceId, follow: Callable[[], None]) -> None:
        if self.is_draining and isinstance(instance, TaskId):
            self._drained.append(follow)
        else:
            follow()

    def end_drain(self) -> None:
        """Tasks that were to end have delivered what they held."""
        self.is_draining = False
        drained, self._drained = self._drained, []
        for follow in drained:
            follow()

    def _start(self, instance: InstanceId, wanted: Desired) -> None:
        states = {
            TargetState.STARTED: State.RUNNING,
            TargetState.PAUSED: State.PAUSED,
            TargetState.STOPPED: State.STOPPED,
        }
        self.tell(instance, states[wanted.target])
        if isinstance(instance, ConnectorId) and wanted.target is TargetState.STARTED:
            count = int(wanted.config.get("tasks.max", "1"))
            tasks = [{"task.class": "Task", "number": str(number)} for number in range(count)]
            self.observer.on_task_configs(instance, tasks, wanted.config)

    def tell(
        self, instance: InstanceId, state: State, trace: str | None = None, *, failure: Recovery | None = None
    ) -> None:
        """As a real instance does."""
        self.observer.on_state(instance, state, trace=trace, version="1", failure=failure)

    def restart(self, instances: Sequence[InstanceId]) -> None:
        """See ``Instances``."""
        self.restarted += instances

    async def stop(self) -> None:
        """See ``Instances``."""
        self.has_stopped = True
        for instance in self.applied:
            self.tell(instance, State.UNASSIGNED)


@dataclass
class FakeOffsets:
    """Offsets of connectors in memory."""

    known: dict[str, list[OffsetEntry]] = field(default_factory=dict)
    altered: list[OffsetEntry] = field(default_factory=list)
    asked_with: list[Properties] = field(default_factory=list)
    is_whole: bool = False
    failure: Exception | None = None

    async def read(self, name: str, config: Properties) -> Sequence[OffsetEntry]:
        """See ``OffsetAccess``."""
        self._take(config)
        return self.known.get(name, [])

    async def alter(self, name: str, config: Properties, offsets: Sequence[OffsetEntry]) -> Altered:
        """See ``OffsetAccess``."""
        self._take(config)
        self.altered += offsets
        self.known.setdefault(name, []).extend(offsets)
        return Altered(self.is_whole)

    async def reset(self, name: str, config: Properties) -> bool:
        """See ``OffsetAccess``."""
        self._take(config)
        self.known.pop(name, None)
        return self.is_whole

    def _take(self, config: Properties) -> None:
        self.asked_with.append(config)
        if self.failure is not None:
            raise self.failure


@dataclass
class FakeDeletedSources:
    """Sources of this class leave something behind; failures first."""

    leaving: str = "FileStreamSource"
    failures: list[Exception] = field(default_factory=list)
    gate: asyncio.Event | None = None
    """Nothing is taken away before it is set."""
    asked: list[tuple[Properties, Sequence[OffsetEntry], Sequence[Properties]]] = field(default_factory=list)
    are_offsets_over: bool = True

    def leaves_anything(self, config: Properties) -> bool:
        """See ``DeletedSources``."""
        return config["connector.class"] == self.leaving

    async def take_away(self, config: Properties, offsets: Sequence[OffsetEntry], others: Sequence[Properties]) -> bool:
        """See ``DeletedSources``."""
        self.asked.append((config, offsets, others))
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return self.are_offsets_over


@dataclass
class FakePeers:
    """Keeps what was handed to the leader; refuses so many requests first."""

    refusals: int = 0
    published: list[tuple[str, str, bytes, Signature | None]] = field(default_factory=list)

    async def publish_tasks(self, url: str, connector: str, body: bytes, signature: Signature | None) -> None:
        """See ``Peers``."""
        if self.refusals:
            self.refusals -= 1
            raise PeerError("away")
        self.published.append((url, connector, body, signature))


@dataclass
class FakeValidator:
    """Finds these errors in every config."""

    errors: list[str] = field(default_factory=list)
    seen: list[Properties] = field(default_factory=list)

    async def errors_of(self, config: Properties) -> Sequence[str]:
        """See ``Validator``."""
        self.seen.append(config)
        return self.errors


@dataclass
class HerderWorld:
    """One worker's herder and everything around it."""

    settings: HerderSettings = field(default_factory=lambda: HerderSettings("g"))
    first: Sequence[Member] = (ME,)
    events: list[Event] = field(default_factory=list)
    validator: FakeValidator = field(default_factory=FakeValidator)
    offsets: FakeOffsets = field(default_factory=FakeOffsets)
    sink_offsets: FakeOffsets = field(default_factory=FakeOffsets)
    peers: FakePeers = field(default_factory=FakePeers)
    deleted_sources: FakeDeletedSources = field(default_factory=FakeDeletedSources)
    fenced: list[Sequence[str]] = field(default_factory=list)
    fenced_with: list[Properties] = field(default_factory=list)
    unfenceable: set[str] = field(default_factory=set)
    """Connectors whose fencing fails."""
    hanging: dict[str, asyncio.Event] = field(default_factory=dict)
    """Connectors whose fencing does not end before this is set."""
    fencing_now: int = 0
    levels: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing is started."""
        self.clock = SystemClock()
        self.config_records = ContestedLog("configs")
        self.configs = ConfigLog(self.config_records, emit=self.events.append)
        self.statuses = Statuses(MemoryStateLog("statuses"), clock=self.clock, emit=self.events.append)
        self.tracker = AssignmentTracker(ClusterConfig())
        self.configs.listen(self.tracker.on_change)
        self.membership = FakeMembership(self.tracker, first=self.first)
        self.herder: WorkerHerder

    @property
    def instances(self) -> FakeInstances:
        """What runs."""
        instances = self.herder.life.tick.instances
        assert isinstance(instances, FakeInstances)
        return instances

    @asynccontextmanager
    async def started(
        self, *, make_instances: Callable[[InstanceObserver], FakeInstances] = FakeInstances
    ) -> AsyncIterator[HerderWorld]:
        """Run for the length of a block."""
        async with Background() as background:
            self.herder = make_herder(
                ClusterView(self.configs, self.statuses, self.membership, self.tracker, self.settings, type_of),
                self.doors(),
                make_instances=make_instances,
                background=background,
                clock=self.clock,
                emit=self.events.append,
            )
            await self.herder.life.start()
            await self.settled()
            try:
                yield self
            finally:
                await self.herder.life.stop()

    async def fence(self, connector: Properties, ids: Sequence[str]) -> None:
        """As Kafka does, where it may and answers."""
        self.fenced_with.append(connector)
        if connector["name"] in self.unfenceable:
            raise DeliveryFatal("not authorized")
        if connector["name"] in self.hanging:
            self.fencing_now += 1
            await self.hanging[connector["name"]].wait()
            self.fencing_now -= 1
        self.fenced.append(ids)

    def doors(self) -> ClusterDoors:
        """To the fakes."""

        async def cluster_id() -> str:
            return "cluster-1"

        return ClusterDoors(
            validator=self.validator,
            source_offsets=self.offsets,
            sink_offsets=self.sink_offsets,
            peers=self.peers,
            deleted_sources=self.deleted_sources,
            fence_producers=self.fence,
            cluster_id=cluster_id,
            set_log_level=lambda namespace, level: self.levels.append((namespace, level)),
        )

    async def settled(self) -> None:
        """Until ticks bring nothing new: what they write makes others due."""
        for _ in range(3):
            await self.herder.life.wait_tick()
            await asyncio.sleep(0.01)

    def states(self, name: str) -> dict[str, str]:
        """States of a connector (``""``) and its tasks, as a client sees them."""
        status = self.herder.reads.status(name)
        return {"": str(status.connector.state), **{str(task): str(told.state) for task, told in status.tasks.items()}}

    def mark(self, instance: InstanceId, state: State, *, by: Member = ME, trace: str | None = None) -> None:
        """Another worker's word, or this one's."""
        current = (
            self.statuses.tasks(instance.connector)[instance.task]
            if isinstance(instance, TaskId)
            else self.statuses.connector(instance.connector)
        )
        assert current is not None
        self.statuses.put(instance, replace(current, state=state, worker_id=by.worker_id, trace=trace))
