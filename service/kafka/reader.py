"""Reads a topic from its beginning to where it ends now, seeing only what was committed.

For `topic read`, audits, and (through `service.kafka.tail`) the worker's own state topics.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeAlias

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from service.kafka import library
from service.kafka.closing import close_consumer
from service.kafka.errors import CLIENT_ERRORS, DeliveryFatal, DeliveryRetriable, classify

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from service.kafka.client import KafkaSettings

# Has topic, partition, offset, timestamp (ms), key, value, headers; key and value are bytes or None.
StoredRecord: TypeAlias = "ConsumerRecord[bytes | None, bytes | None]"
Ends: TypeAlias = dict[TopicPartition, int]

CONNECT_SECONDS_MAX = 30.0
# Longer than any transaction may stay open by its own time limit (60 s unless changed), plus the abort.
STALL_SECONDS_MAX = 75.0
CLOSE_SECONDS_MAX = 5.0
_POLL_MS = 200
_FETCH_BYTES_MAX = 4 * 1_048_576
_BATCH_RECORDS_MAX = 20_000
_FOR_EVER = 2**63 - 1


async def read_topic(
    settings: KafkaSettings,
    topic: str,
    *,
    is_pending_awaited: bool = True,
    stall_seconds_max: float = STALL_SECONDS_MAX,
    only_partition: Callable[[int], int] | None = None,
) -> AsyncGenerator[list[StoredRecord], None]:
    """Every committed record of a topic, in lists of one partition each, up to its end at the time of the call.

    A commit is acknowledged a moment before its records can be read, so by default transactions that
    are open at the call are waited for; else reading ends at the first of them.
    `only_partition` chooses one partition, given how many there are.
    Raises DeliveryFatal for a missing topic, DeliveryRetriable when nothing comes for the time given.
    """
    async with TopicFeed.opened(settings, topic, only_partition=only_partition) as feed:
        ends = await (last_ends(settings, topic) if is_pending_awaited else feed.ends())
        ends = {partition: ends[partition] for partition in feed.partitions}
        async for records in feed.read_until(ends, stall_seconds_max=stall_seconds_max):
            end = ends[TopicPartition(topic, records[0].partition)]
            # All of it is let go when the reading ends, so what came later is only left out.
            yield records if records[-1].offset < end else [record for record in records if record.offset < end]


async def partition_count(settings: KafkaSettings, topic: str) -> int:
    """How many partitions a topic has. Raises as `TopicFeed.open`."""
    feed = await TopicFeed.open(settings, topic, is_reading=False)
    await feed.close()
    return len(feed.partitions)


async def last_ends(settings: KafkaSettings, topic: str) -> Ends:
    """Offset after the last record of each partition, committed or not.

    Raises DeliveryFatal, DeliveryRetriable.
    """
    feed = await TopicFeed.open(settings, topic, is_committed=False, is_reading=False)
    try:
        return await feed.ends()
    finally:
        await feed.close()


class TopicFeed:
    """An open reader over all partitions of one topic, or one of them, positioned at the beginning."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str, *, partitions: list[TopicPartition]) -> None:
        """Wrap a started consumer; use `opened` or `open`."""
        self._consumer = consumer
        self._topic = topic
        self.partitions = partitions

    @classmethod
    async def open(
        cls,
        settings: KafkaSettings,
        topic: str,
        *,
        is_committed: bool = True,
        is_reading: bool = True,
        only_partition: Callable[[int], int] | None = None,
    ) -> Self:
        """Connect and assign the partitions; `is_committed` False also sees open and aborted transactions.

        `is_reading` False is for one who only asks for `ends`: nothing is fetched, so no question waits for a fetch.
        Raises DeliveryFatal for a missing topic or permission, else DeliveryRetriable.
        """
        consumer = AIOKafkaConsumer(
            **settings.connection_arguments(),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if is_committed else "read_uncommitted",
            max_partition_fetch_bytes=_FETCH_BYTES_MAX,
        )
        library.mend_bootstrap(library.client_of(consumer))
        library.forbid_creation(library.client_of(consumer))
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await consumer.start()
                numbers = await library.partitions_now(consumer, topic)
        except CLIENT_ERRORS as error:
            await _close(consumer)
            raise classify(error, doing=f"{settings.connecting} to read topic '{topic}'") from error
        except asyncio.CancelledError:
            await _close(consumer)
            raise
        if not numbers:
            await _close(consumer)
            raise DeliveryFatal(f"topic '{topic}' does not exist")
        if only_partition is not None:
            numbers = {only_partition(len(numbers))}
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        if is_reading:
            consumer.assign(partitions)
        return cls(consumer, topic, partitions=partitions)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        settings: KafkaSettings,
        topic: str,
        *,
        is_committed: bool = True,
        only_partition: Callable[[int], int] | None = None,
    ) -> AsyncIterator[Self]:
        """As `open`, for the length of a block."""
        feed = await cls.open(settings, topic, is_committed=is_committed, only_partition=only_partition)
        try:
            yield feed
        finally:
            await feed.close()

    async def close(self) -> None:
        """Disconnect, within a time limit."""
        await _close(self._consumer)

    def seek(self, positions: Ends) -> None:
        """Read on from these offsets; partitions that are not named stay where they are."""
        for partition, offset in positions.items():
            self._consumer.seek(partition, offset)

    def keep(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions and no others, from their beginnings."""
        if partitions != self.partitions:
            self._consumer.assign(partitions)
            self.partitions = partitions

    async def offsets_at(self, timestamp_ms: int) -> Ends:
        """Offset of the first record of that time or later in each partition; its end where there is none."""
        ends = await self.ends()
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                found = await self._consumer.offsets_for_times(dict.fromkeys(self.partitions, timestamp_ms))
        except CLIENT_ERRORS as error:
            raise classify(error, doing=f"finding a time in topic '{self._topic}'") from error
        return {place: ends[place] if at is None else at.offset for place, at in found.items()}

    async def positions(self) -> Ends:
        """Offset that comes next in each partition; aborted records and markers at the end are passed over."""
        return await self._behind(dict.fromkeys(self.partitions, _FOR_EVER))

    async def poll(self) -> list[list[StoredRecord]]:
        """What has come, as lists of one partition each: at once when there is something, else after a while empty."""
        return list((await self._poll([])).values())

    async def renew_partitions(self) -> None:
        """Take note of partitions that the topic has been given; for a feed that only asks for `ends`.

        Raises DeliveryRetriable, also while the topic is missing, DeliveryFatal.
        """
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                numbers = await library.partitions_now(self._consumer, self._topic)
        except CLIENT_ERRORS as error:
            raise classify(error, doing=f"asking for the partitions of topic '{self._topic}'") from error
        if not numbers:
            raise DeliveryRetriable(f"topic '{self._topic}' is not there any more")
        self.partitions = [TopicPartition(self._topic, number) for number in sorted(numbers)]

    async def ends(self) -> Ends:
        """Offset after the last record of each partition, as this reader's isolation sees it."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                ends: Ends = await self._consumer.end_offsets(self.partitions)
        except CLIENT_ERRORS as error:
            raise classify(error, doing=f"asking where topic '{self._topic}' ends") from error
        return ends

    async def read_until(self, ends: Ends, *, stall_seconds_max: float) -> AsyncIterator[list[StoredRecord]]:
        """Read on from where it stands until every partition has reached its end.

        What was committed meanwhile may come as well: a position never passes over a record that is not given, or who
        reads on from here would never see it. It does pass over aborted records and transaction markers.
        Raises DeliveryRetriable when no partition moves for `stall_seconds_max`.
        """
        clock = asyncio.get_running_loop().time
        moved_at = clock()
        last: Ends = {}
        while behind := await self._behind(ends):
            position = dict(behind)
            if position != last:
                moved_at, last = clock(), position
            elif clock() - moved_at > stall_seconds_max:
                where = ", ".join(f"{tp.partition} at {at} of {ends[tp]}" for tp, at in behind.items())
                raise DeliveryRetriable(
                    f"topic '{self._topic}' does not move (partition {where}): a transaction is open, or no leader"
                )
            for records in (await self._poll(list(behind))).values():
                yield records

    async def _behind(self, ends: Ends) -> dict[TopicPartition, int]:
        """Partitions that have not reached their end, with their positions."""
        behind = {}
        for partition, end in ends.items():
            if end == 0:
                continue
            try:
                async with asyncio.timeout(CONNECT_SECONDS_MAX):
                    position = await self._consumer.position(partition)
            except CLIENT_ERRORS as error:
                raise classify(error, doing=f"finding the beginning of topic '{self._topic}'") from error
            if position < end:
                behind[partition] = position
        return behind

    async def _poll(self, partitions: list[TopicPartition]) -> dict[TopicPartition, list[StoredRecord]]:
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                got: dict[TopicPartition, list[StoredRecord]] = await self._consumer.getmany(
                    *partitions, timeout_ms=_POLL_MS, max_records=_BATCH_RECORDS_MAX
                )
        except CLIENT_ERRORS as error:
            raise classify(error, doing=f"reading topic '{self._topic}'") from error
        return got


async def _close(consumer: AIOKafkaConsumer) -> None:
    await close_consumer(consumer, seconds_max=CLOSE_SECONDS_MAX)
