"""Reads a span of a topic: from and to an offset or a time, some partitions, to its end or on and on.

For people who look into a topic; what the worker itself reads it reads whole (`service.kafka.reader`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass

from aiokafka.structs import TopicPartition

from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from service.kafka.reader import STALL_SECONDS_MAX, Ends, StoredRecord, TopicFeed, last_ends

_LOOK_SECONDS = 0.25
END = 2**63 - 1
"""As the offset of a place: where each partition ends."""


@dataclass(frozen=True, slots=True)
class Place:
    """An offset in every partition, or a time; of the two one is given."""

    offset: int | None = None
    """A negative one counts from the partition's end."""
    timestamp_ms: int | None = None
    """The first record of that time or later; milliseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What is read; nothing given: all there is now."""

    begin: Place | None = None
    end: Place | None = None
    """Excluded."""
    partitions: frozenset[int] = frozenset()
    """Empty: all."""
    is_following: bool = False
    """Whether what comes later is waited for, up to ``end`` or for ever."""
    wait_seconds: float = 0.0
    """How long a topic that is not there is waited for."""


async def read_span(settings: KafkaSettings, topic: str, span: Span) -> AsyncGenerator[list[StoredRecord], None]:
    """Committed records, in lists of one partition each. Raises DeliveryFatal, DeliveryRetriable."""
    feed = await _open(settings, topic, seconds_max=span.wait_seconds)
    try:
        feed.keep(_chosen(feed, topic, span.partitions))
        now = await last_ends(settings, topic)
        now = {partition: now[partition] for partition in feed.partitions}
        begins = await _offsets(feed, span.begin, now, default=0)
        # Kafka would begin anew for who asks beyond the end.
        begins = {partition: min(begin, now[partition]) for partition, begin in begins.items()}
        feed.seek({partition: begin for partition, begin in begins.items() if begin})
        last = dict.fromkeys(now, END) if span.is_following else now
        ends = await _offsets(feed, span.end, now, default=END)
        ends = {partition: min(end, last[partition]) for partition, end in ends.items()}
        stall_seconds_max = float(END) if span.is_following else STALL_SECONDS_MAX
        open_ends = {partition: end for partition, end in ends.items() if end > begins[partition]}
        async for records in feed.read_until(open_ends, stall_seconds_max=stall_seconds_max):
            place = TopicPartition(topic, records[0].partition)
            begin, end = begins[place], ends[place]
            if chosen := [record for record in records if begin <= record.offset < end]:
                yield chosen
    finally:
        await feed.close()


async def _open(settings: KafkaSettings, topic: str, *, seconds_max: float) -> TopicFeed:
    """Open the topic; one that is not there is looked for again for a while: it may be being made."""
    clock = asyncio.get_running_loop().time
    until = clock() + seconds_max
    while True:
        try:
            return await TopicFeed.open(settings, topic)
        except DeliveryFatal:
            if clock() >= until:
                raise
        await asyncio.sleep(_LOOK_SECONDS)


def _chosen(feed: TopicFeed, topic: str, numbers: Collection[int]) -> list[TopicPartition]:
    known = {partition.partition for partition in feed.partitions}
    if missing := sorted(set(numbers) - known):
        text = ", ".join(map(str, missing))
        raise DeliveryFatal(f"topic '{topic}' has no partition {text}: there are {len(known)}, counted from 0")
    return [partition for partition in feed.partitions if not numbers or partition.partition in numbers]


async def _offsets(feed: TopicFeed, place: Place | None, now: Ends, *, default: int) -> Ends:
    if place is None:
        return dict.fromkeys(now, default)
    if place.timestamp_ms is not None:
        return await feed.offsets_at(place.timestamp_ms)
    offset = place.offset or 0
    return {partition: max(0, end + offset) if offset < 0 else offset for partition, end in now.items()}
