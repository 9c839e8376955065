"""A topic, a consumer of it and a sink, all in memory, for tests of sink tasks in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from fetchers.sdk import BackOff, SystemClock
from metrics.events import Event
from service.domain.ids import TaskId
from service.kafka.errors import RefusedRecord
from service.kafka.group_consumer import RECORDS_SCHEMA, CommitOutdated, GroupListener
from service.kafka.records import TopicRecords
from service.sinks.contract import Offsets, Partition, SinkBatch, SinkConfig, SinkConnector, SinkContext
from service.sinks.dead_letters import DeadLetterRules
from service.sinks.decoding import TextReader
from service.sinks.putting import KEY_STAGE, VALUE_STAGE, Decoding, SideReader
from service.sinks.task import SinkSettings, SinkTask

E = TypeVar("E", bound=Event)
TOPIC = "lines"
POLL_RECORDS = 10
COME = "come"
"""A value that means: the group gives the partition to someone else, and back."""


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
    fail_commit: Callable[[], Exception | None] = lambda: None
    rebalances_at: set[int] = field(default_factory=set)
    """Numbers of the polls at which the group rebalances."""
    log: list[str] = field(default_factory=list)


class FakeConsumer:
    """A member that has the partition from its first poll on."""

    def __init__(self, group: FakeGroup, listener: GroupListener) -> None:
        """Not started."""
        self._group = group
        self._listener = listener
        self._position: int | None = None
        self._polls = 0
        self._is_paused = False
        self.is_stopped = False

    async def start(self) -> None:
        """Nothing to connect to."""

    async def poll(self, *, seconds_max: float) -> pa.Table | None:
        """At most ``POLL_RECORDS``."""
        self._polls += 1
        if self._position is None or self._polls in self._group.rebalances_at:
            await self.rebalance()
        batch = [] if self._is_paused else self._group.values[self._position : self._at + POLL_RECORDS]
        if not batch:
            await asyncio.sleep(seconds_max)
            return None
        begin, self._position = self._at, self._at + len(batch)
        return polled(batch, begin=begin)

    async def rebalance(self) -> None:
        """Take the partition away, if it was there, and give it."""
        if self._position is not None:
            await self._listener.on_revoked([(TOPIC, 0)])
        self._is_paused = False
        self._position = self._group.committed or 0
        positions = await self._listener.on_assigned({(TOPIC, 0): self._group.committed})
        self._position = positions.get((TOPIC, 0), self._position)

    @property
    def _at(self) -> int:
        assert self._position is not None
        return self._position

    async def commit(self, offsets: Offsets) -> None:
        """Commit, or fail as told."""
        error = self._group.fail_commit()
        if error is not None:
            raise error
        self._group.committed = offsets[TOPIC, 0]
        self._group.log.append(f"commit {self._group.committed}")

    def pause(self) -> None:
        """Bring nothing."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on."""
        self._is_paused = False

    def lags(self) -> Mapping[Partition, int | None]:
        """Behind what was polled."""
        return {} if self._position is None else {(TOPIC, 0): len(self._group.values) - self._position}

    async def stop(self) -> None:
        """Leave."""
        self.is_stopped = True


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
        """Keep the values."""
        error = self.before_put(batch)
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
    """The writer of dead letters."""

    log: list[str]
    written: list[TopicRecords] = field(default_factory=list)
    fail: Callable[[], Exception | None] = lambda: None
    is_usable: bool = True

    async def start(self) -> None:
        """Nothing to connect to."""

    async def commit(self, writes: Any) -> None:
        """Keep them, or fail as told."""
        error = self.fail()
        if error is not None:
            raise error
        self.written += writes
        self.log.append(f"letters {sum(map(len, writes))}")

    async def refused(self, write: TopicRecords) -> list[RefusedRecord]:
        """Nothing is."""
        del write
        return []

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
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        """One log for all."""
        self.log = self.group.log
        self.sink = MemorySink(self.log)
        self.letters = FakeLetters(self.log)
        self.consumers: list[FakeConsumer] = []

    def task(self) -> SinkTask:
        """An incarnation."""

        def open_consumer(listener: GroupListener) -> FakeConsumer:
            self.consumers.append(FakeConsumer(self.group, listener))
            return self.consumers[-1]

        text = TextReader()
        decoding = Decoding(SideReader(text, "K", KEY_STAGE), SideReader(text, "V", VALUE_STAGE), "Sink")
        settings = SinkSettings(
            decoding,
            self.rules,
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


def outdated() -> CommitOutdated:
    """The group has moved on."""
    return CommitOutdated("rebalanced")
