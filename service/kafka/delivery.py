"""Sends encoded batches: one lane a topic partition, order kept within each, lanes side by side.

Encoding large batches happens in threads, so that the event loop is never held for long; compressing them in others.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from aiokafka import errors as kafka
from aiokafka.protocol.admin import DescribeConfigsRequest

from service.kafka.batches import Columns, EncodedBatch
from service.kafka.errors import DeliveryFatal, DeliveryRetriable, RecordsRefused, RefusedRecord
from service.kafka.limits import LIMIT_KEYS, TopicLimits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aiokafka import AIOKafkaProducer

    from service.kafka.client import ProducerSettings
    from service.kafka.compression import Compression
    from service.kafka.records import TopicRecords

TOPIC_SECONDS_MAX = 15.0
# Below this a thread hop costs more than the encoding.
_INLINE_BYTES_MAX = 65_536
_TOPIC_RESOURCE = 2
_INLINE_COMPRESSED_BYTES_MAX = 4_096
_ENCODERS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="kafka-encode")
# Apart, because a transaction may be open while its batches wait for the others: some may take a second a piece.
_COMPRESSORS = ThreadPoolExecutor(max_workers=max(2, (os.cpu_count() or 2) // 2), thread_name_prefix="kafka-compress")


@dataclass(frozen=True)
class _Topic:
    name: str
    partitions: int
    batch_bytes_max: int
    limits: TopicLimits


@dataclass
class Lane:
    """What goes to one partition, in order."""

    topic: str
    partition: int
    pieces: list[Columns | EncodedBatch] = field(default_factory=list)
    compression: Compression | None = None
    is_transactional: bool = False

    async def compress(self) -> None:
        """Encode all pieces, some at once, where they are to be compressed."""
        if self.compression is not None:
            async with asyncio.TaskGroup() as group:
                encoding = [group.create_task(self.encode(piece)) for piece in self.pieces]
            self.pieces = [task.result() for task in encoding]

    async def encode(self, piece: Columns | EncodedBatch) -> EncodedBatch:
        """Encode a piece unless it is, in a thread when it is large."""
        if isinstance(piece, EncodedBatch):
            return piece
        encode = partial(EncodedBatch, piece, compression=self.compression, is_transactional=self.is_transactional)
        is_plain = self.compression is None
        inline_bytes_max = _INLINE_BYTES_MAX if is_plain else _INLINE_COMPRESSED_BYTES_MAX
        if int(piece.sizes_bytes().sum()) <= inline_bytes_max:
            return encode()
        return await asyncio.get_running_loop().run_in_executor(_ENCODERS if is_plain else _COMPRESSORS, encode)


class Lanes:
    """Plans lanes for writes; remembers per topic which partition the next keyless records go to."""

    def __init__(self, producer: AIOKafkaProducer, limits: ProducerSettings, *, is_transactional: bool) -> None:
        """Plan for a started producer."""
        self._producer = producer
        self._limits = limits
        self._is_transactional = is_transactional
        self._next_partition: dict[str, int] = {}
        self._topic_limits: dict[str, TopicLimits] = {}

    async def plan(self, writes: Sequence[TopicRecords]) -> list[Lane]:
        """Cut all writes into lanes; several writes to one topic keep their order.

        Raises DeliveryFatal for a topic that does not exist, RecordsRefused, DeliveryRetriable for a partition that it
        does not have (any more).
        """
        lanes: dict[tuple[str, int], Lane] = {}
        now_ms = _now_ms()
        for write in writes:
            topic = await self._topic(write.topic)
            if write.partition is not None and write.partition >= topic.partitions:
                raise DeliveryRetriable(f"topic '{topic.name}' has no partition {write.partition}: was it made anew?")
            for partition, piece in await self._cut(write, topic=topic, now_ms=now_ms):
                lane = lanes.setdefault(
                    (write.topic, partition),
                    Lane(
                        write.topic,
                        partition,
                        compression=self._limits.compression,
                        is_transactional=self._is_transactional,
                    ),
                )
                lane.pieces.append(piece)
        return list(lanes.values())

    async def refused(self, write: TopicRecords) -> Sequence[RefusedRecord]:
        """Records that their topic would not take, by its settings as they are now.

        Raises DeliveryFatal for a topic that does not exist, DeliveryRetriable.
        """
        self._topic_limits.pop(write.topic, None)
        limits, compression = (await self._topic(write.topic)).limits, self._limits.compression

        def find() -> list[RefusedRecord]:
            now_ms = _now_ms()
            return list(limits.refused(Columns.of(write, now_ms=now_ms), now_ms=now_ms, compression=compression))

        return await asyncio.get_running_loop().run_in_executor(_ENCODERS, find)

    async def is_outdated(self, write: TopicRecords) -> bool:
        """Whether its topic's settings are others than it was planned by, or would refuse by now what they allowed.

        Raises DeliveryFatal for a topic that does not exist, DeliveryRetriable.
        """
        planned_by = self._topic_limits.get(write.topic)
        refused = await self.refused(write)
        return bool(refused) or self._topic_limits[write.topic] != planned_by

    async def _cut(self, write: TopicRecords, *, topic: _Topic, now_ms: int) -> list[tuple[int, Columns]]:
        first = self._next_partition.get(write.topic, 0)
        compression = self._limits.compression

        def cut() -> list[tuple[int, Columns]]:
            return list(_cut(write, topic=topic, first_partition=first, now_ms=now_ms, compression=compression))

        if write.values.nbytes <= _INLINE_BYTES_MAX:
            pieces = cut()
        else:
            pieces = await asyncio.get_running_loop().run_in_executor(_ENCODERS, cut)
        self._next_partition[write.topic] = first + len(pieces)
        return pieces

    async def _topic(self, name: str) -> _Topic:
        try:
            async with asyncio.timeout(TOPIC_SECONDS_MAX):
                numbers = await self._producer.partitions_for(name)
        except (TimeoutError, kafka.UnknownTopicOrPartitionError) as error:
            # An unreachable broker looks the same; only an answer about the cluster proves the topic missing.
            cluster = await self._producer.client.fetch_all_metadata()
            if cluster.partitions_for_topic(name):
                raise DeliveryRetriable(f"the brokers took too long to tell of topic '{name}'") from error
            raise DeliveryFatal(f"topic '{name}' does not exist and the brokers do not create it") from error
        if name not in self._topic_limits:
            told = await self._settings_of(name)
            self._topic_limits[name] = TopicLimits.of(told, request_bytes_max=self._limits.request_bytes_max)
        return _Topic(name, len(numbers), self._limits.batch_bytes_max, self._topic_limits[name])

    async def _settings_of(self, name: str) -> dict[str, str]:
        """Ask for the topic's limits; who may write to a topic may not always read its settings."""
        request = DescribeConfigsRequest([(_TOPIC_RESOURCE, name, list(LIMIT_KEYS))], include_synonyms=False)
        client = self._producer.client
        response = await client.send(client.get_random_node(), request)
        return {
            key: value
            for error_code, _, _, _, entries in response.resources
            if error_code == 0
            for key, value, *_ in entries
            if value is not None
        }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _cut(
    write: TopicRecords, *, topic: _Topic, first_partition: int, now_ms: int, compression: Compression | None
) -> Iterator[tuple[int, Columns]]:
    columns = Columns.of(write, now_ms=now_ms)
    refused = list(topic.limits.refused(columns, now_ms=now_ms, compression=compression))
    if refused:
        raise RecordsRefused(write, refused)
    batch_bytes_max = min(topic.batch_bytes_max, topic.limits.record_bytes_max)
    if write.partition is not None:
        for piece in columns.pieces(batch_bytes_max=batch_bytes_max):
            yield write.partition, piece
        return
    if columns.keys is None:
        # Whole batches to one partition, the next batch to the next: spread as evenly, in fewer batches.
        for index, piece in enumerate(columns.pieces(batch_bytes_max=batch_bytes_max)):
            yield (first_partition + index) % topic.partitions, piece
        return
    keyless = first_partition % topic.partitions
    for partition, part in columns.by_partition(partitions=topic.partitions, keyless_partition=keyless):
        for piece in part.pieces(batch_bytes_max=batch_bytes_max):
            yield partition, piece


async def compress(lanes: Sequence[Lane]) -> None:
    """Encode what is to be compressed: before a transaction begins, for it takes long where many do it at once.

    It ends by itself and needs nobody, so no time limit of a commit counts it.
    """
    for lane in lanes:
        await lane.compress()


async def send(producer: AIOKafkaProducer, lanes: Sequence[Lane]) -> None:
    """Send all lanes side by side and wait until every batch is acknowledged.

    Raises the client's error (possibly in a group) of the first batch that failed in each lane.
    """
    async with asyncio.TaskGroup() as group:
        for lane in lanes:
            group.create_task(_feed(producer, lane), name=f"deliver {lane.topic}-{lane.partition}")


async def _feed(producer: AIOKafkaProducer, lane: Lane) -> None:
    acknowledgements = []
    for piece in lane.pieces:
        batch = await lane.encode(piece)
        # Waits until the batch before it is on its way, so at most two batches a lane are in memory.
        acknowledgement = await producer.send_batch(batch, lane.topic, partition=lane.partition)
        acknowledgement.add_done_callback(_notice)
        acknowledgements.append(acknowledgement)
    for acknowledgement in acknowledgements:
        await acknowledgement


def _notice(acknowledgement: asyncio.Future[object]) -> None:
    """Look at the result, so that asyncio does not complain of one that nobody waited for any more."""
    if not acknowledgement.cancelled():
        acknowledgement.exception()
