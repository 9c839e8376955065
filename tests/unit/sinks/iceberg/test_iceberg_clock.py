"""Snapshots of a worker whose clock is set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.unit.sinks.filesystem.files_runs import CLOCK_SET, FixedClock
from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder, batch_of

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
