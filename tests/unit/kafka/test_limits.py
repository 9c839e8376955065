"""What a topic takes, to the byte and to the millisecond."""

from __future__ import annotations

import os
from dataclasses import replace
from unittest.mock import AsyncMock, MagicMock

import pyarrow as pa
import pytest
from aiokafka import errors as kafka

from service.kafka.batches import Columns, EncodedBatch
from service.kafka.client import ProducerSettings
from service.kafka.compression import Compression
from service.kafka.delivery import Lanes
from service.kafka.errors import DeliveryFatal, DeliveryRetriable
from service.kafka.limits import TopicLimits
from service.kafka.records import TopicRecords

NOW_MS = 1_700_000_000_000
LONG_MAX = 2**63 - 1
STRICT = {"message.timestamp.before.max.ms": "2000", "message.timestamp.after.max.ms": "1000"}


def refused(limits: TopicLimits, times_ms: list[int | None], values: list[bytes] | None = None) -> list[int]:
    """Rows that are not taken."""
    column = pa.array(values or [b"x"] * len(times_ms), pa.binary())
    write = TopicRecords("t", column, timestamps_ms=pa.array(times_ms, pa.int64()))
    return [record.row for record in limits.refused(Columns.of(write, now_ms=NOW_MS), now_ms=NOW_MS)]


def alone_bytes(value: bytes) -> int:
    """What is sent for a record that is alone."""
    columns = Columns.of(TopicRecords("t", pa.array([value], pa.binary())), now_ms=NOW_MS)
    return EncodedBatch(columns, compression=None, is_transactional=True).size()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (STRICT, [0, 4]),
        ({"message.timestamp.difference.max.ms": "1000"}, [0, 1, 4]),
        ({"message.timestamp.difference.max.ms": "1000", **STRICT}, [0, 4]),
        ({"message.timestamp.difference.max.ms": "1000", "message.timestamp.before.max.ms": str(LONG_MAX)}, [0, 1, 4]),
        ({**STRICT, "message.timestamp.type": "LogAppendTime"}, []),
        ({**STRICT, "message.timestamp.before.max.ms": "200000"}, [4]),
        ({"message.timestamp.before.max.ms": str(LONG_MAX), "message.timestamp.after.max.ms": str(LONG_MAX)}, []),
        ({}, []),
    ],
)
def test_times_around_the_limits(settings: dict[str, str], expected: list[int]) -> None:
    """What is off is taken up to a hundredth before the limit, for clocks differ; and so is the time of now."""
    limits = TopicLimits.of(settings, request_bytes_max=1000)
    times = [NOW_MS - 1981, NOW_MS - 1980, None, NOW_MS + 990, NOW_MS + 991]
    assert refused(limits, [*times]) == expected


def test_sizes_around_the_limit() -> None:
    """A record and the batch it is alone in, to the byte; the client's own limit counts where it is lower."""
    room = max(count for count in range(1000) if alone_bytes(b"v" * count) <= 1000)
    assert alone_bytes(b"v" * room) == 1000
    values = [b"v" * room, b"v" * (room + 1)]
    for limit in (TopicLimits.of({"max.message.bytes": "1000"}, request_bytes_max=5000), TopicLimits(1000)):
        assert refused(limit, [None, None], values) == [1]
    assert TopicLimits.of({"max.message.bytes": "9000"}, request_bytes_max=5000).record_bytes_max == 5000


def test_a_record_that_compresses_below_the_limit_is_taken() -> None:
    """The broker judges what it is sent."""
    columns = Columns.of(TopicRecords("t", pa.array([b"v" * 5000, os.urandom(5000)], pa.binary())), now_ms=NOW_MS)
    limits = TopicLimits(1000)
    assert [record.row for record in limits.refused(columns, now_ms=NOW_MS)] == [0, 1]
    assert [record.row for record in limits.refused(columns, now_ms=NOW_MS, compression=Compression("gzip"))] == [1]


def test_a_time_before_1970_is_refused_whatever_the_topic_says() -> None:
    """Kafka keeps negative numbers for times that are not there."""
    write = TopicRecords("t", pa.array([b"x"], pa.binary()), timestamps_ms=pa.array([-5], pa.int64()))
    for limits in (TopicLimits(1000), TopicLimits.of(STRICT, request_bytes_max=1000)):
        (record,) = limits.refused(Columns.of(write, now_ms=NOW_MS), now_ms=NOW_MS)
        assert "1970" in record.message


async def test_a_topic_that_the_brokers_told_late_of_is_not_missing() -> None:
    """A broker that stood still answers after the time for it; only its own word proves a topic missing."""
    producer = MagicMock()
    producer.partitions_for = AsyncMock(side_effect=kafka.UnknownTopicOrPartitionError())
    producer.client.fetch_all_metadata = AsyncMock()
    lanes = Lanes(producer, ProducerSettings(), is_transactional=True)
    write = TopicRecords("t", pa.array([b"x"], pa.binary()))
    cluster = producer.client.fetch_all_metadata.return_value = MagicMock()
    for partitions, failure in (({0}, DeliveryRetriable), (None, DeliveryFatal)):
        cluster.partitions_for_topic.return_value = partitions
        with pytest.raises(failure):
            await lanes.plan([write])


async def test_a_partition_that_a_topic_does_not_have_is_told_at_once() -> None:
    """The library would wait for a leader of it until the time of the commit is over."""
    producer = MagicMock()
    producer.partitions_for = AsyncMock(return_value={0, 1})
    producer.client.send = AsyncMock(return_value=MagicMock(resources=[]))
    lanes = Lanes(producer, ProducerSettings(), is_transactional=True)
    write = TopicRecords("t", pa.array([b"x"], pa.binary()), partition=1)
    assert [lane.partition for lane in await lanes.plan([write])] == [1]
    with pytest.raises(DeliveryRetriable, match="no partition 2"):
        await lanes.plan([replace(write, partition=2)])


@pytest.mark.parametrize(
    ("now", "is_outdated"),
    [
        ({"max.message.bytes": "5000"}, False),
        ({"max.message.bytes": "5000", "message.timestamp.after.max.ms": "3600000"}, True),
        ({"max.message.bytes": "4000"}, True),
        ({"max.message.bytes": "100"}, True),
    ],
)
async def test_a_plan_is_outdated_by_other_settings(now: dict[str, str], *, is_outdated: bool) -> None:
    """Lower ones refuse a record, or ask for smaller batches; the same refuse it for ever."""
    told = {"max.message.bytes": "5000"}
    producer = MagicMock()
    producer.partitions_for = AsyncMock(return_value={0})
    producer.client.send = AsyncMock(
        side_effect=lambda *_: MagicMock(resources=[(0, "", 2, "t", [(key, value) for key, value in told.items()])])
    )
    lanes = Lanes(producer, ProducerSettings(), is_transactional=True)
    write = TopicRecords("t", pa.array([b"v" * 1000], pa.binary()))
    await lanes.plan([write])
    told = now
    assert await lanes.is_outdated(write) == is_outdated


def test_each_says_what_is_wrong() -> None:
    """Size before time, and the topic's setting by name."""
    write = TopicRecords(
        "t",
        pa.array([b"v" * 2000, b"x", b"x"], pa.binary()),
        timestamps_ms=pa.array([NOW_MS + 5000, NOW_MS + 5000, NOW_MS - 5000], pa.int64()),
    )
    limits = TopicLimits.of({**STRICT, "max.message.bytes": "1000"}, request_bytes_max=5000)
    found = list(limits.refused(Columns.of(write, now_ms=NOW_MS), now_ms=NOW_MS))
    assert [record.reason for record in found] == ["too_large", "out_of_range", "out_of_range"]
    for record, key in zip(
        found,
        ("max.message.bytes", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"),
        strict=True,
    ):
        assert key in record.message
