"""What a topic takes, to the byte and to the millisecond."""

from __future__ import annotations

import pyarrow as pa
import pytest

from service.kafka.batches import BATCH_HEADER_BYTES, RECORD_OVERHEAD_BYTES_MAX, Columns
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


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (STRICT, [0, 4]),
        ({**STRICT, "message.timestamp.type": "LogAppendTime"}, []),
        ({"message.timestamp.before.max.ms": str(LONG_MAX), "message.timestamp.after.max.ms": str(LONG_MAX)}, []),
        ({}, []),
    ],
)
def test_times_around_the_limits(settings: dict[str, str], expected: list[int]) -> None:
    """The limits themselves are still taken, and so is a record that has the time of its delivery."""
    limits = TopicLimits.of(settings, request_bytes_max=1000)
    times = [NOW_MS - 2001, NOW_MS - 2000, None, NOW_MS + 1000, NOW_MS + 1001]
    assert refused(limits, [*times]) == expected


def test_sizes_around_the_limit() -> None:
    """A record and the batch it is alone in; the client's own limit counts where it is lower."""
    room = 1000 - BATCH_HEADER_BYTES - RECORD_OVERHEAD_BYTES_MAX - 1
    values = [b"v" * room, b"v" * (room + 1)]
    for limit in (TopicLimits.of({"max.message.bytes": "1000"}, request_bytes_max=5000), TopicLimits(1000)):
        assert refused(limit, [None, None], values) == [1]
    assert TopicLimits.of({"max.message.bytes": "9000"}, request_bytes_max=5000).record_bytes_max == 5000


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
