"""Tables of a worker whose clock was set back, read by Iceberg's own Java library, behind a real REST catalogue."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.iceberg_rest import RestLake
from tests.unit.sinks.filesystem.files_runs import FixedClock
from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder, batch_of
from tests.unit.sinks.iceberg.test_iceberg_clock import AT

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.timeout(600)
async def test_every_version_of_a_table_is_read_by_java(rest_lake: RestLake, tmp_path: Path) -> None:
    """Those whose schema alone has changed too. Java is given each version of a SQL catalogue's table as its own."""
    lake, clock = LakeFolder(tmp_path), FixedClock(AT)
    async with lake.running(clock=clock, iceberg__tables__evolve___schema___enabled="true") as sink:
        await sink.open({HERE: None})
        for number in range(4):
            clock.at -= timedelta(days=number)
            await sink.put(batch_of([{"n": number, f"more{number}": "x"}], begin=number))
            await sink.flush({HERE: number + 1})
    versions = sorted(tmp_path.rglob("*.metadata.json"))
    assert len(versions) > sum(1 for _ in lake.table.metadata.snapshots)

    def read() -> list[Any]:
        catalog = rest_lake.catalog
        catalog.create_namespace(rest_lake.namespace)
        names = [f"{rest_lake.namespace}.v{number}" for number in range(len(versions))]
        for name, version in zip(names, versions, strict=True):
            catalog.register_table(name, f"file://{version}")
        found: list[Any] = catalog.load_table(names[-1]).scan().to_arrow()["n"].to_pylist()
        return sorted(found)

    assert await asyncio.to_thread(read) == list(range(4))
