"""JSON without a schema as rows of Iceberg tables: types are what the values of a batch are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

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


ROUTING: dict[str, Any] = {
    "iceberg__tables": "",
    "iceberg__tables__dynamic___enabled": "true",
    "iceberg__tables__route___field": "to.table",
}
PATTERNS: dict[str, Any] = {
    "iceberg__tables": "shop.a,shop.b",
    "iceberg__tables__route___field": "to.table",
    "iceberg__table__shop__a__route___regex": "shop.a|both",
    "iceberg__table__shop__b__route___regex": "shop.b|both",
}


@pytest.mark.parametrize("routing", [ROUTING, PATTERNS], ids=["dynamic", "patterns"])
@pytest.mark.parametrize("is_apart", [True, False])
async def test_records_of_several_tables_give_each_other_no_types(
    lake: LakeFolder, routing: dict[str, Any], *, is_apart: bool
) -> None:
    """Nor columns: what one table has as a number may be a text, a double or a struct in another."""

    def record(table: str, **fields: Any) -> dict[str, Any]:
        return {"to": {"table": f"shop.{table}"}, **fields}

    values = [
        record("a", v=1, w=2**53 + 1),
        record("b", v="text", w=0.5, only_b=True),
        record("a", v=2, w=1, deep={"x": 1}),
        record("b", v="more", w=1, deep="deep"),
        record("a", v="odd", w=1),
        record("b", v=7, w=1),
    ]
    async with lake.running(iceberg__tables__evolve___schema___enabled="true", **routing) as sink:
        if is_apart:
            refused = [
                (begin, told) for begin in range(6) for told in await put(sink, values[begin : begin + 1], begin=begin)
            ]
            assert [begin for begin, _ in refused] == [4, 5]
        else:
            assert [row for row, _, _ in await put(sink, values)] == [4, 5]
        assert not await put(sink, values[:4], begin=6)
    tables = [LakeFolder(lake.folder, f"shop.{name}") for name in "ab"]
    assert tables[0].rows("v", "w") == sorted([(1, 2**53 + 1), (2, 1)] * 2, key=repr)
    assert tables[1].rows("v", "w", "only_b", "deep") == sorted(
        [("text", 0.5, True, None), ("more", 1.0, None, "deep")] * 2, key=repr
    )
    assert {*tables[0].table.schema().column_names} == {"to", "to.table", "v", "w", "deep", "deep.x"}
    assert isinstance(tables[0].table.schema().find_type("w"), LongType)


async def test_a_route_that_is_no_text_refuses_its_record_alone(lake: LakeFolder) -> None:
    """Whatever the others have; one without the field is passed over."""
    values: list[Any] = [
        {"to": {"table": table}, "n": n} for n, table in enumerate(["shop.a", 1.5, ["x"], {}, "shop.a"])
    ]
    values += [{"n": 5}, {"to": 7}, 8, {"to": {"table": 9}, "n": 9}]
    async with lake.running(**ROUTING) as sink:
        refused = await put(sink, values)
    told = {row: message.partition(",")[0] for row, _, message in refused}
    no_text, no_table = "field 'to.table'", "'9' names no table as namespace.table"
    assert told == {1: no_text, 2: no_text, 3: no_text, 7: "the payload is no object", 8: no_table}
    assert LakeFolder(lake.folder, "shop.a").rows() == [0, 4]


async def test_a_column_that_identifies_rows_stays_required(lake: LakeFolder) -> None:
    """Though JSON without a schema may lack any field: a record that does is refused, and the table evolves."""
    key = NestedField(1, "n", LongType(), required=True)
    needed = NestedField(2, "t", StringType(), required=True)
    async with lake.running(iceberg__tables__evolve___schema___enabled="true") as sink:
        lake.catalog.create_namespace("shop")
        lake.catalog.create_table(lake.name, Schema(key, needed, identifier_field_ids=[1]))
        refused = await put(sink, [{"n": 1, "t": "x"}, {"t": "y"}, {"n": 3, "more": 0.5}])
    assert [(row, message) for row, _, message in refused] == [
        (1, "field 'n' is null, and the table's column is required")
    ]
    assert lake.rows("n", "t", "more") == [(1, "x", None), (3, None, 0.5)]
    assert lake.table.schema().identifier_field_ids == [1]
