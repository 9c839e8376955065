"""A member of a consumer group that reads whole batches as columns and commits only what it is told to.

Rebalances are eager: everything is revoked, then assigned anew. The listener is awaited in between, so that what was
read can be made durable and committed while it is still this member's. Three things that the client library does are
mended here. It makes a new assignment live before the listener has been awaited: so new partitions are paused first,
and resumed when the listener has said where to begin. It takes a coordinator that still loads its offsets, as one does
after its broker's start, for one that has none, and would begin where `auto.offset.reset` says: so it is told where the
group stands. And it would swallow an error of the listener: it is kept and raised by the next `poll`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import errors as kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.structs import TopicPartition

from service.kafka import library
from service.kafka.client import KafkaSettings
from service.kafka.closing import close_consumer
from service.kafka.errors import CLIENT_ERRORS, CommitOutdated, DeliveryRetriable, classify
from service.kafka.fetching import Room, poll_tables

Partition = tuple[str, int]
"""Topic and number."""
Offsets = Mapping[Partition, int]
"""The next offset of each partition."""

START_SECONDS_MAX = 60.0
COMMIT_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 5.0
POLL_BYTES_MAX = 67_108_864
"""A poll ends with the records that pass this, keys and values counted: the limits of the protocol are of compressed
bytes."""
MISSING_LOOK_SECONDS = 1.0
"""How often a topic that does not exist yet is looked for; the client's own interval is minutes."""


_NOTHING = TopicPartition("", -1)
"""Asked for alone, it makes the library poll and leave every record where it is."""


class GroupListener(Protocol):
    """Who is told of partitions that come and go; awaited by the group, so be quick or have a time limit."""

    async def on_revoked(self, partitions: Collection[Partition]) -> None:
        """They are still this member's while this runs: make durable, commit."""

    async def on_assigned(self, committed: Mapping[Partition, int | None]) -> Offsets:
        """The partitions with their committed offsets; returns where to begin instead, if anywhere."""


class NamePattern(Protocol):
    """An expression over names of topics that answers in time linear to the name, whatever it is."""

    def fullmatch(self, name: str, /) -> object | None:
        """Something where the whole name matches, else None."""


@dataclass(frozen=True, slots=True)
class _WholeNames:
    """A pattern as the library asks for it."""

    pattern: NamePattern

    def match(self, name: str) -> object | None:
        """The library would match the beginning of a name; Java matches the whole of it."""
        return self.pattern.fullmatch(name)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group reads: topics by name, or all whose whole name a pattern matches."""

    topics: tuple[str, ...] = ()
    pattern: NamePattern | None = None


class GroupConsumer:
    """One member. A consumer that raised is used up, except for `CommitOutdated`: stop it and make another."""

    def __init__(
        self,
        settings: KafkaSettings,
        subscription: Subscription,
        *,
        group_id: str,
        listener: GroupListener,
        make_client: Callable[..., AIOKafkaConsumer] = AIOKafkaConsumer,
    ) -> None:
        """Prepare; `settings` with `consumer` for the role."""
        self._make_client = make_client
        self._settings = settings
        self._subscription = subscription
        self._group_id = settings.consumer.group_id or group_id
        self._listener = _Listener(self, listener)
        self._consumer: AIOKafkaConsumer | None = None
        self._look_at = 0.0
        self._room = Room()

    async def start(self) -> None:
        """Connect and begin to join; the first assignment comes while polling.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        limits = self._settings.consumer
        self._consumer = self._make_client(
            **self._settings.connection_arguments(),
            group_id=self._group_id,
            enable_auto_commit=False,
            auto_offset_reset=limits.offset_reset,
            isolation_level="read_committed",
            # Java's default, so that Java members may be in the group while it moves.
            partition_assignment_strategy=(RangePartitionAssignor,),
            fetch_max_bytes=limits.fetch_bytes_max,
            max_partition_fetch_bytes=limits.partition_fetch_bytes_max,
            fetch_min_bytes=limits.fetch_bytes_min,
            fetch_max_wait_ms=round(limits.fetch_wait_seconds_max * 1000),
            session_timeout_ms=round(limits.session_seconds_max * 1000),
            heartbeat_interval_ms=round(limits.heartbeat_seconds * 1000),
            max_poll_interval_ms=round(limits.poll_seconds_max * 1000),
            rebalance_timeout_ms=round(limits.poll_seconds_max * 1000),
        )
        library.mend_bootstrap(library.client_of(self._consumer))
        async with self._translated(f"{self._settings.connecting} as a member of group '{self._group_id}'"):
            async with asyncio.timeout(START_SECONDS_MAX):
                await self._consumer.start()
            poll_tables(self._consumer, self._room)
            if self._subscription.pattern is not None:
                self._subscribe_pattern(self._subscription.pattern)
            else:
                self._consumer.subscribe(topics=self._subscription.topics, listener=self._listener)

    def _subscribe_pattern(self, pattern: NamePattern) -> None:
        """What `subscribe(pattern=…)` does, which takes expressions of Python's alone: those may never come back."""
        library.subscribe_by(self._client, _WholeNames(pattern), self._listener)

    async def poll(self, *, seconds_max: float) -> pa.Table | None:
        """What has come, with `RECORDS_SCHEMA`; None when nothing came in time.

        At most `max.poll.records` records, and about `POLL_BYTES_MAX` bytes; those of a partition are in order.
        Membership needs a call of this or of `keep_membership` within every `max.poll.interval.ms`. While a rebalance
        revokes partitions a call waits for its end. Raises DeliveryFatal, DeliveryRetriable, and what the listener
        raised.
        """
        tables = await self._polled((), seconds_max=seconds_max)
        return pa.concat_tables(tables).combine_chunks() if tables else None

    async def keep_membership(self, *, seconds_max: float) -> None:
        """Be a member for so long without taking anything: no position moves. Raises what `poll` does."""
        await self._polled((_NOTHING,), seconds_max=seconds_max)

    async def _polled(self, partitions: Collection[TopicPartition], *, seconds_max: float) -> list[pa.Table]:
        """Records of these partitions, or of all."""
        self._listener.raise_failure()
        tables: list[pa.Table] = []
        async with self._translated(f"reading as a member of group '{self._group_id}'"):
            self._room.records, self._room.size_bytes = self._settings.consumer.poll_records_max, POLL_BYTES_MAX
            wait_ms = seconds_max * 1000
            while self._room.is_left:
                # Only the first call can wait, so all that is taken here is of one assignment. One table each.
                got = await self._client.getmany(*partitions, timeout_ms=ceil(wait_ms), max_records=1)
                if not got:
                    break
                tables += (table for come in got.values() for table in come)
                wait_ms = 0
            if not tables:
                await self._look_for_missing_topics()
        self._listener.raise_failure()
        return tables

    async def _look_for_missing_topics(self) -> None:
        """Ask for the cluster's topics now; the group rebalances by itself when one has appeared."""
        now = asyncio.get_running_loop().time()
        is_missing = any(not self._client.partitions_for_topic(topic) for topic in self._subscription.topics)
        if is_missing and now >= self._look_at:
            self._look_at = now + MISSING_LOOK_SECONDS
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                await library.client_of(self._client).force_metadata_update()

    async def commit(self, offsets: Offsets) -> None:
        """Make `offsets` those that a successor begins at. Raises CommitOutdated, DeliveryFatal, DeliveryRetriable."""
        if not offsets:
            return
        if self.member.generation < 0:
            # A group without members takes such a commit as an administrator's, also behind others that have been here.
            raise CommitOutdated(f"not a member of group '{self._group_id}' any more")
        try:
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                await self._client.commit({TopicPartition(*partition): offset for partition, offset in offsets.items()})
        except (kafka.CommitFailedError, kafka.IllegalStateError) as error:
            raise CommitOutdated(
                f"group '{self._group_id}' has rebalanced before its offsets were committed"
            ) from error
        except CLIENT_ERRORS as error:
            raise classify(error, doing=f"committing offsets of group '{self._group_id}'") from error

    async def committed(self, partitions: Collection[Partition]) -> dict[Partition, int | None]:
        """The group's offsets; None where it has none."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        async with self._translated(f"asking for the offsets of group '{self._group_id}'"):
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                found = await library.committed_offsets(self._client, wanted)
        return {partition: found.get(TopicPartition(*partition)) for partition in partitions}

    async def ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """The offset behind the last committed record of each partition, as the brokers say now.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        async with self._translated(f"asking where {len(wanted)} partitions end"), asyncio.timeout(COMMIT_SECONDS_MAX):
            found = await self._client.end_offsets(wanted)
        return {tuple(partition): offset for partition, offset in found.items()}

    @property
    def member(self) -> library.GroupMember:
        """Who this is in the group now."""
        return library.member_of(self._client)

    @property
    def generation(self) -> int:
        """Number of the last assignment; -1 outside of the group, also before the start and after the stop."""
        return -1 if self._consumer is None else library.generation_of(self._consumer)

    def seek(self, offsets: Offsets) -> None:
        """Go on from there; the partitions must be assigned."""
        for partition, offset in offsets.items():
            self._client.seek(TopicPartition(*partition), offset)

    def hold_back(self) -> None:
        """Let polls bring nothing of what is assigned now."""
        self._client.pause(*self._client.assignment())

    def let_go(self) -> None:
        """Let polls bring records again, after `hold_back`."""
        self._client.resume(*self._client.paused())

    def lags(self) -> dict[Partition, int | None]:
        """Records that lie behind what `poll` has given, by partition; None where nobody knows yet.

        As it was told with what was read last; no request is made.
        """
        return {tuple(partition): self._lag(partition) for partition in self._client.assignment()}

    def _lag(self, partition: TopicPartition) -> int | None:
        end: int | None = self._client.last_stable_offset(partition)
        position = library.position_now(self._client, partition)
        if end is None or end < 0 or position is None:
            return None
        return max(0, end - position)

    async def stop(self) -> None:
        """Leave the group, within a time limit; nothing is committed. Harmless when repeated or never started."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close_consumer(consumer, seconds_max=STOP_SECONDS_MAX)

    @property
    def _client(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            message = "the consumer is not started, or is stopped"
            raise DeliveryRetriable(message)
        return self._consumer

    @asynccontextmanager
    async def _translated(self, doing: str) -> AsyncIterator[None]:
        try:
            yield
        except CLIENT_ERRORS as error:
            raise classify(error, doing=doing) from error


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Between the library and the listener: partitions as plain values, errors kept."""

    def __init__(self, consumer: GroupConsumer, listener: GroupListener) -> None:
        self._consumer = consumer
        self._listener = listener
        self._failure: Exception | None = None

    def raise_failure(self) -> None:
        """What went wrong in a rebalance, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        if revoked:
            await self._guarded(lambda: self._listener.on_revoked([tuple(partition) for partition in revoked]))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        async def place() -> None:
            # Before anything is awaited: the assignment is live already.
            self._consumer.hold_back()
            committed = await self._consumer.committed([tuple(partition) for partition in assigned])
            known = {partition: offset for partition, offset in committed.items() if offset is not None}
            self._consumer.seek({**known, **await self._listener.on_assigned(committed)})
            self._consumer.let_go()

        await self._guarded(place)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the library would only log it: the next poll raises it
            self._failure = error
