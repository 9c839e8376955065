"""A topic, a consumer of it and a sink, all in memory, for tests of sink tasks in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa
from aiokafka import ConsumerRebalanceListener
from aiokafka.structs import ConsumerRecord, TopicPartition

from fetchers.catalog import shared_http
from fetchers.sdk import BackOff, SystemClock
from metrics.events import Event
from service.domain.ids import TaskId
from service.kafka.client import ConsumerSettings, KafkaSettings
from service.kafka.errors import CommitOutdated
from service.kafka.group_consumer import RECORDS_SCHEMA, GroupConsumer, GroupListener, Subscription
from service.kafka.library import GroupMember
from service.kafka.newer_requests import OffsetFetchRequest
from service.kafka.records import TopicRecords
from service.pipeline.memory import MemoryBudget
from service.sinks.contract import Offsets, Partition, PutLimits, SinkBatch, SinkConfig, SinkConnector, SinkContext
from service.sinks.converters import TextReader
from service.sinks.dead_letters import DeadLetterRules
from service.sinks.decoding import KEY_STAGE, VALUE_STAGE, Decoding, SideReader
from service.sinks.task import POLL_SECONDS, SinkSettings, SinkTask

E = TypeVar("E", bound=Event)
TOPIC = "lines"
POLL_RECORDS = 10


def polled(values: list[bytes | None], *, begin: int = 0, topic: str = TOPIC, partition: int = 0) -> pa.Table:
    """Records as a consumer gives them."""
    count = len(values)
    columns: list[Any] = [
        [topic] * count,
        [partition] * count,
        range(begin, begin + count),
        [1_000 + number for number in range(count)],
        [0] * count,
        [None] * count,
        values,
        [None] * count,
    ]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, RECORDS_SCHEMA, strict=True)]
    return pa.table(arrays, schema=RECORDS_SCHEMA)


@dataclass
class FakeGroup:
    """One partition and the group's offset in it; what any consumer of it does shows here."""

    values: list[bytes | None] = field(default_factory=list)
    committed: int | None = None
    generation: int = 0
    """Of its last assignment: a commit of another is refused."""
    fail_commit: Callable[[], Exception | None] = lambda: None
    log: list[str] = field(default_factory=list)
    is_rebalance_due: asyncio.Event = field(default_factory=asyncio.Event)

    def rebalance(self) -> None:
        """Let the group take the partition away and give it back, as soon as the client hears of it."""
        self.is_rebalance_due.set()


ROUND_TRIP_SECONDS = 0.01
"""Of virtual time, that a request to the broker takes."""
HERE = TopicPartition(TOPIC, 0)


@dataclass
class _Position:
    """Of one assignment."""

    position: int | None = None
    is_paused: bool = False

    @property
    def has_valid_position(self) -> bool:
        """Whether the client knows where to read."""
        return self.position is not None


class FakeLibrary:
    """The client library's consumer, as ``GroupConsumer`` uses it: ``aiokafka`` 0.14 is what it follows.

    A background task joins the group and rebalances. While partitions are revoked, polls wait. Then the assignment is
    live and not paused: the client learns the group's offset and fetches, *before the listener has been awaited*.
    What is polled moves the position.
    """

    def __init__(self, group: FakeGroup) -> None:
        """Not started."""
        self._group = group
        self._assigned: _Position | None = None
        self._is_assigned = asyncio.Event()
        self._membership: asyncio.Task[None] | None = None
        self.is_stopped = False
        self.polls = 0
        self._coordinator = SimpleNamespace(group_id="connect-sink", generation=-1, member_id="")
        self._client = SimpleNamespace(bootstrap=None, coordinator_lookup=self._coordinator_of, send=self._answer)
        assignment = SimpleNamespace(state_value=lambda _partition: self._assigned)
        self._subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))

    async def start(self) -> None:
        """Nothing to connect to."""

    def subscribe(self, topics: Collection[str], listener: ConsumerRebalanceListener) -> None:
        """Begin to join."""
        assert list(topics) == [TOPIC]
        self._membership = asyncio.get_running_loop().create_task(self._be_member(listener))

    async def _be_member(self, listener: ConsumerRebalanceListener) -> None:
        while True:
            self._is_assigned.clear()
            await listener.on_partitions_revoked(set() if self._assigned is None else {HERE})
            self._group.generation += 1
            self._coordinator.generation, self._coordinator.member_id = self._group.generation, "member"
            self._assigned = _Position()
            self._is_assigned.set()
            await asyncio.sleep(0)
            async with asyncio.TaskGroup() as group:
                group.create_task(listener.on_partitions_assigned({HERE}))
                group.create_task(self._learn_position(self._assigned))
            await self._group.is_rebalance_due.wait()
            self._group.is_rebalance_due.clear()

    async def _learn_position(self, assigned: _Position) -> None:
        committed = self._group.committed or 0
        await asyncio.sleep(ROUND_TRIP_SECONDS)
        if assigned.position is None:
            assigned.position = committed

    async def _coordinator_of(self, _kind: int, _name: str) -> int:
        return 0

    async def _answer(self, _node: int, request: OffsetFetchRequest, **_group: object) -> SimpleNamespace:
        """The group's offset, as the broker tells it."""
        assert request.prepare({9: (0, 9)}).topics == [(TOPIC, [0], {})]
        await asyncio.sleep(ROUND_TRIP_SECONDS)
        offset = -1 if self._group.committed is None else self._group.committed
        return SimpleNamespace(topics=[(TOPIC, [(0, offset, -1, "", 0, {})], {})], error_code=0)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float, max_records: int
    ) -> dict[TopicPartition, list[ConsumerRecord[bytes | None, bytes | None]]]:
        """Of these partitions, or of all, after a wait if there is nothing."""
        self.polls += 1
        until = asyncio.get_running_loop().time() + timeout_ms / 1000
        while True:
            await self._is_assigned.wait()
            records = [] if partitions and HERE not in partitions else self._drained(max_records)
            left_seconds = until - asyncio.get_running_loop().time()
            if records:
                return {HERE: records}
            if left_seconds < 1e-6:
                return {}
            await asyncio.sleep(min(left_seconds, POLL_SECONDS))

    def _drained(self, max_records: int) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        assigned = self._assigned
        if assigned is None or assigned.position is None or assigned.is_paused:
            return []
        begin = assigned.position
        values = self._group.values[begin : begin + max_records]
        assigned.position += len(values)
        return [
            ConsumerRecord(TOPIC, 0, offset, 1_000 + offset, 0, None, value, None, -1, len(value or b""), ())
            for offset, value in enumerate(values, begin)
        ]

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, or fail as told."""
        error = self._group.fail_commit()
        if error is not None:
            raise error
        self._group.committed = offsets[HERE]
        self._group.log.append(f"commit {self._group.committed}")

    def assignment(self) -> set[TopicPartition]:
        """Nothing before the first rebalance."""
        return set() if self._assigned is None else {HERE}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from there."""
        assert partition == HERE
        assert self._assigned is not None
        self._assigned.position = offset

    def pause(self, *partitions: TopicPartition) -> None:
        """Bring nothing."""
        if partitions and self._assigned is not None:
            self._assigned.is_paused = True

    def paused(self) -> set[TopicPartition]:
        """Until the next assignment, or ``resume``."""
        return {HERE} if self._assigned is not None and self._assigned.is_paused else set()

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on."""
        if partitions and self._assigned is not None:
            self._assigned.is_paused = False

    def last_stable_offset(self, _partition: TopicPartition) -> int:
        """The end."""
        return len(self._group.values)

    def partitions_for_topic(self, _topic: str) -> set[int]:
        """The one."""
        return {0}

    async def stop(self) -> None:
        """Leave."""
        self.is_stopped = True
        if self._membership is not None:
            self._membership.cancel()
            await asyncio.wait([self._membership])


class MemoryConfig(SinkConfig):
    """Nothing to configure."""


class MemorySink(SinkConnector[MemoryConfig]):
    """Keeps what it is given; does as it is told by its hooks."""

    def __init__(self, log: list[str]) -> None:
        """``log``: everything that was asked of it, in order."""
        super().__init__(MemoryConfig.model_validate({}))
        self.log = log
        self.values: list[str | None] = []
        self.before_put: Callable[[SinkBatch], Exception | None] = lambda _batch: None
        self.safe: Callable[[Offsets], Offsets] = lambda offsets: offsets

    async def start(self, context: SinkContext) -> None:
        """Tell."""
        self.log.append(f"start {context.connector}-{context.task}")

    async def open(self, partitions: Mapping[Partition, int | None]) -> Offsets:
        """Tell."""
        self.log.append(f"open {list(partitions.values())}")
        return {}

    async def put(self, batch: SinkBatch) -> None:
        """Keep the values, a round trip later."""
        error = self.before_put(batch)
        await asyncio.sleep(ROUND_TRIP_SECONDS)
        if error is not None:
            raise error
        self.values += batch.records.column("value").to_pylist()

    async def flush(self, offsets: Offsets) -> Offsets:
        """As told."""
        self.log.append(f"flush {list(offsets.values())}")
        return self.safe(offsets)

    async def committed(self, offsets: Offsets) -> None:
        """Tell."""
        self.log.append(f"committed {list(offsets.values())}")

    async def close(self, partitions: Collection[Partition]) -> None:
        """Tell."""
        self.log.append(f"close {len(partitions)}")

    async def stop(self) -> None:
        """Tell."""
        self.log.append("stop")


@dataclass
class FakeLetters:
    """The writer of dead letters, with the group's offsets in its transactions."""

    log: list[str]
    group: FakeGroup = field(default_factory=FakeGroup)
    written: list[TopicRecords] = field(default_factory=list)
    fail: Callable[[], Exception | None] = lambda: None
    is_usable: bool = True

    async def start(self) -> None:
        """Nothing to connect to."""

    async def commit(self, writes: Any) -> None:
        """Keep them a round trip later, or fail as told."""
        error = self.fail()
        await asyncio.sleep(ROUND_TRIP_SECONDS)
        if error is not None:
            raise error
        self.written += writes
        self.log.append(f"letters {sum(map(len, writes))}")

    async def commit_with(self, writes: Any, member: GroupMember, offsets: Offsets) -> bool:
        """Keep them, and the group's offset with them, or neither."""
        if member.generation != self.group.generation:
            message = "the group goes on without this member"
            raise CommitOutdated(message)
        await self.commit(writes)
        self.group.committed = offsets[HERE]
        self.log.append(f"commit {self.group.committed}")
        return True

    async def stop(self) -> None:
        """Nothing to leave."""

    @property
    def values(self) -> list[bytes | None]:
        """Of all dead letters."""
        return [value for write in self.written for value in write.values.to_pylist()]


@dataclass
class World:
    """Everything around one task."""

    group: FakeGroup = field(default_factory=FakeGroup)
    rules: DeadLetterRules = field(default_factory=lambda: DeadLetterRules(is_tolerant=False))
    retry_seconds_max: float | None = None
    flush_seconds: float = 60.0
    limits: PutLimits = field(default_factory=PutLimits)
    poll_records_max: int = POLL_RECORDS
    memory: MemoryBudget = field(default_factory=lambda: MemoryBudget(2**30))
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        """One log for all."""
        self.log = self.group.log
        self.sink = MemorySink(self.log)
        self.letters = FakeLetters(self.log, self.group)
        self.clients: list[FakeLibrary] = []

    def task(self) -> SinkTask:
        """An incarnation."""

        def make_client(**_arguments: object) -> FakeLibrary:
            self.clients.append(FakeLibrary(self.group))
            return self.clients[-1]

        def open_consumer(listener: GroupListener) -> GroupConsumer:
            consumer = ConsumerSettings(poll_records_max=self.poll_records_max)
            settings = KafkaSettings(bootstrap="nowhere:9092", consumer=consumer)
            return GroupConsumer(
                settings, Subscription((TOPIC,)), group_id="connect-sink", listener=listener, make_client=make_client
            )

        text = TextReader()
        decoding = Decoding(SideReader(text, "K", KEY_STAGE), SideReader(text, "V", VALUE_STAGE), "Sink")
        settings = SinkSettings(
            decoding,
            self.rules,
            self.limits,
            self.flush_seconds,
            BackOff(first_seconds=1, cap_seconds=8, jitter_seconds=0),
            self.retry_seconds_max,
        )
        has_letters = bool(self.rules.topic)
        return SinkTask(
            TaskId("sink", 0),
            self.sink,
            settings,
            open_consumer,
            (lambda: self.letters) if has_letters else None,
            SystemClock(),
            self.events.append,
            self.memory.share(TaskId("sink", 0), self.events.append),
            shared_http(),
        )

    def told(self, kind: type[E]) -> list[E]:
        """Events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


async def run_until(task: SinkTask, condition: Callable[[], bool], *, seconds_max: float = 10_000) -> None:
    """Run the task until the condition holds, then stop it; raises what ends the task before."""
    async with asyncio.TaskGroup() as group:
        group.create_task(task.run())
        async with asyncio.timeout(seconds_max):
            while not condition():
                await asyncio.sleep(0.1)
        task.request_stop()


def numbers(count: int, *, begin: int = 0) -> list[bytes | None]:
    """Values that can be told apart."""
    return [b"%d" % number for number in range(begin, begin + count)]


def texts(values: list[bytes | None]) -> list[str | None]:
    """Values as a sink sees them."""
    return [None if value is None else value.decode() for value in values]
