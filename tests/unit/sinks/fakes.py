"""A topic, a consumer of it and a sink, all in memory, for tests of sink tasks in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from fetchers.catalog import shared_http
from fetchers.sdk import BackOff, SystemClock
from metrics.events import Event
from service.domain.ids import TaskId
from service.kafka.client import ConsumerSettings, KafkaSettings
from service.kafka.errors import CommitOutdated
from service.kafka.group_consumer import GroupConsumer, GroupListener, Subscription
from service.kafka.library import GroupMember
from service.kafka.records import TopicRecords
from service.pipeline.memory import MemoryBudget
from service.sinks.contract import Offsets, Partition, PutLimits, SinkBatch, SinkConfig, SinkConnector, SinkContext
from service.sinks.converters import ColumnReader, TextReader
from service.sinks.dead_letters import DeadLetterRules
from service.sinks.decoding import KEY_STAGE, VALUE_STAGE, Decoding, SideReader
from service.sinks.task import SinkSettings, SinkTask
from spark_batch.plan import ConversionPlan, PlanFinding
from tests.unit.sinks.fake_library import HERE, ROUND_TRIP_SECONDS, TOPIC, FakeGroup, FakeLibrary

E = TypeVar("E", bound=Event)
POLL_RECORDS = 10


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


class NoSpark:
    """For sinks without `Sql`, which ask Spark for nothing."""

    async def convert(self, plan: ConversionPlan, batch: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """Nobody calls it."""
        raise AssertionError(plan, batch, is_alone)

    async def check(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """Nobody calls it."""
        raise AssertionError(plan)


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
    values: ColumnReader = field(default_factory=TextReader)
    """What reads values, for as long as it takes."""
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
            self.clients.append(FakeLibrary(self.group, lambda: consumers[-1]._room))
            return self.clients[-1]

        consumers: list[GroupConsumer] = []

        def open_consumer(listener: GroupListener) -> GroupConsumer:
            consumer = ConsumerSettings(poll_records_max=self.poll_records_max)
            settings = KafkaSettings(bootstrap="nowhere:9092", consumer=consumer)
            consumers.append(
                GroupConsumer(
                    settings,
                    Subscription((TOPIC,)),
                    group_id="connect-sink",
                    listener=listener,
                    make_client=make_client,
                )
            )
            return consumers[-1]

        keys, values = SideReader(TextReader(), "K", KEY_STAGE), SideReader(self.values, "V", VALUE_STAGE)
        decoding = Decoding(keys, values, "Sink")
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
