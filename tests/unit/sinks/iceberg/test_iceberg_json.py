"""JSON without a schema as rows of Iceberg tables: types are what the values of a batch are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from tests.unit.sinks.iceberg.iceberg_runs import LakeFolder, put


@pytest.fixture
def lake(tmp_path: Path) -> LakeFolder:
    """An empty folder for a warehouse."""
    return LakeFolder(tmp_path)


async def test_json_without_a_schema(lake: LakeFolder) -> None:
    """Whole numbers are long, others double, texts stay texts; what does not fit in with the others is refused."""
    values: list[Any] = [{"n": 1, "t": "2026-01-01"}, {"n": 2, "deep": {"x": 1.5}}, {"n": "many"}, 7, {"n": 3}]
    async with lake.running() as sink:
        refused = await put(sink, values)
    assert [row for row, _, _ in refused] == [2, 3]
    assert lake.rows("n", "t", "deep") == [(1, "2026-01-01", None), (2, None, {"x": 1.5}), (3, None, None)]
    assert isinstance(lake.table.schema().find_type("n"), LongType)


@pytest.mark.parametrize("odd", ["x", 1.5, {"a": 1}, [1]])
@pytest.mark.parametrize("at", [0, 3, 6])
@pytest.mark.parametrize("evolves", ["true", "false"])
async def test_json_of_another_type_is_refused_alone(lake: LakeFolder, odd: object, at: int, evolves: str) -> None:
    """Wherever it stands in a batch: it gives no type to the records around it, which have a place in the table."""
    values: list[Any] = [{"n": number} for number in range(6)]
    values.insert(at, {"n": odd})
    async with lake.running(iceberg__tables__evolve___schema___enabled=evolves) as sink:
        assert not await put(sink, [{"n": 100}])
        refused = await put(sink, values, begin=1)
        alone = await put(sink, [{"n": odd}, {"n": odd}], begin=8)
    assert [row for row, _, _ in refused] == [at]
    assert [row for row, _, _ in alone] == [0, 1]
    assert "and the table's column int64" in alone[0][2]
    assert lake.rows() == [*range(6), 100]
