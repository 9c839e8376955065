"""JSON without a schema as rows of Iceberg tables: types are what the values of a batch are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import DoubleType, LongType

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


BEYOND = 2**53 + 1
"""The first whole number that no double holds."""


@pytest.mark.parametrize("company", [[], [{"n": 1.5}], [{"n": 1}], [{"n": 2.5}, {"n": 3}, {"n": "odd"}]])
@pytest.mark.parametrize("comes_first", [True, False])
async def test_a_whole_number_that_a_double_does_not_hold_is_refused_by_name(
    lake: LakeFolder, company: list[Any], *, comes_first: bool
) -> None:
    """Whatever stands beside it in its batch; one that a double holds is taken, and every number is what it was."""
    odd = [{"n": BEYOND}, {"n": -BEYOND}, {"n": 10**400}]
    values = [*odd, *company] if comes_first else [*company, *odd]
    async with lake.running() as sink:
        assert not await put(sink, [{"n": 0.5}, {"n": 2**60}, {"n": 10**22}])
        refused = await put(sink, values, begin=3)
    kinds = {json.dumps(values[row]): (reason, message) for row, reason, message in refused if values[row] in odd}
    assert set(kinds) == set(map(json.dumps, odd))
    for reason, message in kinds.values():
        assert reason == "out_of_range"
        assert "field 'n' does not fit the table's column, double" in message
    taken = [each["n"] for each in company if each["n"] != "odd"]
    assert lake.rows() == sorted([0.5, 2**60, 10**22, *taken])
    assert isinstance(lake.table.schema().find_type("n"), DoubleType)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"deep": {"n": BEYOND}}, "deep.n"),
        ({"list": [1, BEYOND]}, "list.element"),
        ({"deep": {"n": 0.5}, "list": [1.5, BEYOND]}, "list.element"),
        ({"items": [{}, {"n": BEYOND}]}, "items.element.n"),
    ],
)
async def test_a_whole_number_that_a_double_does_not_hold_within_others(
    lake: LakeFolder, value: dict[str, Any], path: str
) -> None:
    """In structs and lists; what is whole beside it, in a column of its own, is no affair of the doubles."""
    plain = {"id": BEYOND, "deep": {"n": 0.5}, "list": [0.5], "items": [{"n": 0.5}]}
    async with lake.running() as sink:
        refused = await put(sink, [plain, value, {"id": 2**63 - 1, "list": None, "deep": None}, plain])
    assert [(row, reason) for row, reason, _ in refused] == [(1, "out_of_range")]
    assert f"field '{path}'" in refused[0][2]
    assert lake.rows("id") == [BEYOND, BEYOND, 2**63 - 1]


async def test_a_number_that_is_refused_gives_no_type_to_the_others(lake: LakeFolder) -> None:
    """Whole numbers beside one that no type holds are long."""
    async with lake.running() as sink:
        refused = await put(sink, [{"n": BEYOND}, {"n": 2**64 + 1}, {"n": 7}])
    assert [(row, reason) for row, reason, _ in refused] == [(1, "out_of_range")]
    assert lake.rows() == [7, BEYOND]
    assert isinstance(lake.table.schema().find_type("n"), LongType)


async def test_numbers_of_which_none_is_held(lake: LakeFolder) -> None:
    """Each is refused for what it is."""
    async with lake.running() as sink:
        refused = await put(sink, [{"n": 2**64 + 1}, {"n": 10**400}])
    assert [(row, reason) for row, reason, _ in refused] == [(0, "out_of_range"), (1, "out_of_range")]
