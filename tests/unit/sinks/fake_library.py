"""A topic, and the client library's consumer of it, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from aiokafka import ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError, GroupLoadInProgressError
from aiokafka.structs import TopicPartition

from service.kafka.fetched import RECORDS_SCHEMA
from service.kafka.fetching import Room, sizes_bytes
from service.kafka.newer_requests import OffsetFetchRequest
from service.sinks.task import POLL_SECONDS

TOPIC = "lines"


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
    is_lost: bool = False
    """The group has given its member up, and had others since, who have left: the member hears of it next."""
    fail_commit: Callable[[], Exception | None] = lambda: None
    log: list[str] = field(default_factory=list)
    is_rebalance_due: asyncio.Event = field(default_factory=asyncio.Event)
    loading_answers: int = 0
    """So many times more the coordinator answers that it still loads its offsets, as it does after a broker's start."""

    def rebalance(self) -> None:
        """Let the group take the partition away and give it back, as soon as the client hears of it."""
        self.is_rebalance_due.set()

    def lose_member(self) -> None:
        """Let the group give its member up, and have no other when the client hears of it."""
        self.generation += 1
        self.is_lost = True
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

    def __init__(self, group: FakeGroup, room: Callable[[], Room]) -> None:
        """Not started."""
        self._group = group
        self._room = room
        self._fetcher = SimpleNamespace(_proc_fetch_request=None, _records={})
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
            if self._group.is_lost:
                self._coordinator.generation, self._coordinator.member_id = -1, ""
            await listener.on_partitions_revoked(set() if self._assigned is None else {HERE})
            self._group.generation += 1
            self._group.is_lost = False
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
        # The error that stands beside the topics is not looked at: a coordinator that loads is one without offsets.
        committed = 0 if self._group.loading_answers else self._group.committed or 0
        await asyncio.sleep(ROUND_TRIP_SECONDS)
        if assigned.position is None:
            assigned.position = committed

    async def _coordinator_of(self, _kind: int, _name: str) -> int:
        return 0

    async def _answer(self, _node: int, request: OffsetFetchRequest, **_group: object) -> SimpleNamespace:
        """The group's offset, as the broker tells it."""
        assert request.prepare({9: (0, 9)}).topics == [(TOPIC, [0], {})]
        await asyncio.sleep(ROUND_TRIP_SECONDS)
        if self._group.loading_answers:
            self._group.loading_answers -= 1
            return SimpleNamespace(topics=[], error_code=GroupLoadInProgressError.errno)
        offset = -1 if self._group.committed is None else self._group.committed
        return SimpleNamespace(topics=[(TOPIC, [(0, offset, -1, "", 0, {})], {})], error_code=0)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float, max_records: int
    ) -> dict[TopicPartition, list[pa.Table]]:
        """One table of these partitions, or of all, after a wait if there is nothing."""
        assert max_records == 1
        self.polls += 1
        until = asyncio.get_running_loop().time() + timeout_ms / 1000
        while True:
            await self._is_assigned.wait()
            records = polled([]) if partitions and HERE not in partitions else self._drained(self._room())
            left_seconds = until - asyncio.get_running_loop().time()
            if records.num_rows:
                return {HERE: [records]}
            if left_seconds < 1e-6:
                return {}
            await asyncio.sleep(min(left_seconds, POLL_SECONDS))

    def _drained(self, room: Room) -> pa.Table:
        assigned = self._assigned
        if assigned is None or assigned.position is None or assigned.is_paused:
            return polled([])
        begin = assigned.position
        records = polled(self._group.values[begin:], begin=begin)
        if records.num_rows:
            sizes = sizes_bytes(records)
            records = records.slice(0, room.fitting(sizes))
            room.take(sizes[: records.num_rows])
            assigned.position += records.num_rows
        return records

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, or fail as told, or as the broker does: a group without members takes what names no generation."""
        own = self._coordinator.generation
        is_taken = own < 0 if self._group.is_lost else own == self._group.generation
        error = self._group.fail_commit() if is_taken else CommitFailedError()
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
