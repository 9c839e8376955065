"""Snapshots of a worker whose clock is set."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.sinks.filesystem.files_runs import CLOCK_SET, FixedClock
from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder, batch_of

MINUTE_MS = 60_000
AT = datetime(2040, 3, 29, tzinfo=UTC)
"""Later than the table is made, which has the time of this machine."""


@pytest.mark.parametrize("by", CLOCK_SET)
async def test_snapshots_are_in_order_though_the_clock_was_set(by: timedelta, tmp_path: Path) -> None:
    """Each row once, and no snapshot before the last: Iceberg's Java library reads no table in which one is.

    The clock is set twice: there, and back again. The schema changes after the first time.
    """
    lake, clock = LakeFolder(tmp_path), FixedClock(AT)
    async with lake.running(clock=clock, iceberg__tables__evolve___schema___enabled="true") as sink:
        await sink.open({HERE: None})
        for number, step in enumerate((timedelta(), by, timedelta(), -by, timedelta())):
            clock.at += step
            clock.go_on(10)
            await sink.put(batch_of([{"n": number, **({"more": "x"} if number > 1 else {})}], begin=number))
            assert await sink.flush({HERE: number + 1}) == {HERE: number + 1}
    assert lake.rows() == list(range(5))
    metadata = lake.table.metadata
    times = [entry.timestamp_ms for entry in metadata.snapshot_log]
    assert times == sorted(set(times))
    assert times == [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    assert times[0] == int(AT.timestamp() + 10) * 1000
    assert metadata.last_updated_ms >= times[-1]
    demand_times_of_java(tmp_path)


def demand_times_of_java(folder: Path) -> None:
    """Every version of a table is one that Java's ``TableMetadata`` reads, not the last one alone.

    It demands that the log of snapshots, that of earlier versions and the table's own time do not go back by more than
    a minute (https://github.com/apache/iceberg/blob/main/core/src/main/java/org/apache/iceberg/TableMetadata.java).
    """
    versions = [json.loads(path.read_text()) for path in sorted(folder.rglob("*.metadata.json"))]
    assert len(versions) > len((1, 2))
    for version in versions:
        for log in ("snapshot-log", "metadata-log"):
            times = [entry["timestamp-ms"] for entry in version.get(log) or []] + [version["last-updated-ms"]]
            assert all(next_ms - ms >= -MINUTE_MS for ms, next_ms in pairwise(times)), (log, times)


async def test_a_schema_that_changes_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """Nothing is committed after it: the table is one that others read all the same, and goes on from there."""
    lake, clock = LakeFolder(tmp_path), FixedClock(AT)
    async with lake.running(clock=clock, iceberg__tables__evolve___schema___enabled="true") as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of([{"n": 0}]))
        await sink.flush({HERE: 1})
        before = lake.table.metadata.last_updated_ms
        await sink.put(batch_of([{"n": 1, "more": "x"}], begin=1))
        assert lake.table.metadata.last_updated_ms > before
        demand_times_of_java(tmp_path)
        await sink.flush({HERE: 2})
    assert lake.rows() == [0, 1]
    demand_times_of_java(tmp_path)
