"""Dates that PyIceberg cannot write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder, batch_of


@pytest.fixture
def lake(tmp_path: Path) -> LakeFolder:
    """An empty folder for a warehouse."""
    return LakeFolder(tmp_path)


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.time64("us")], ids=str)
async def test_a_date_beyond_the_calendar_is_refused_alone(lake: LakeFolder, kind: Any) -> None:
    """The others of its batch are written; within structs too."""
    greatest = 2**31 - 1 if kind == pa.date32() else 2**63 - 1
    whole = pa.int32() if kind == pa.date32() else pa.int64()
    days: Any = pa.array([1, greatest, 2, -greatest], whole).view(kind)
    inner = pa.StructArray.from_arrays([days], ["day"])
    count = pa.array(range(4), pa.int64())
    for begin, values in enumerate((days, inner)):
        refused: list[tuple[int, str, str]] = []
        async with lake.running(iceberg__tables=f"shop.t{begin}") as sink:
            await sink.open({HERE: None})
            await sink.put(batch_of(pa.StructArray.from_arrays([count, values], ["n", "day"]), refused=refused))
            await sink.flush({HERE: 4})
        assert [(row, reason) for row, reason, _ in refused] == [(1, "out_of_range"), (3, "out_of_range")]
        assert lake.catalog.load_table(f"shop.t{begin}").scan().to_arrow()["n"].to_pylist() == [0, 2]
