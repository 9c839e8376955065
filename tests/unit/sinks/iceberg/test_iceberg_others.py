"""What stands when others touch a table between two commits: another table of its name, branches, tags, answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pydantic
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from service.sinks.contract import Fatal, StartAnew
from service.sinks.iceberg.table import offsets_key
from tests.unit.sinks.iceberg.iceberg_runs import CONNECTOR, HERE, LakeFolder, batch_of, numbers, put

EVOLVES: dict[str, Any] = {"iceberg__tables__evolve___schema___enabled": "true"}
WORDS = pa.struct([("n", pa.int64()), ("word", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> LakeFolder:
    """An empty folder for a warehouse."""
    return LakeFolder(tmp_path)


def made(lake: LakeFolder, *columns: NestedField) -> None:
    """A table of somebody else, in the place of the one that is there."""
    if lake.catalog.table_exists(lake.name):
        lake.catalog.drop_table(lake.name)
    else:
        lake.catalog.create_namespace("shop")
    lake.catalog.create_table(lake.name, Schema(*columns))


N = NestedField(1, "n", LongType(), required=False)
WORD = NestedField(2, "word", StringType(), required=False)


async def test_files_of_a_table_that_was_made_anew_are_not_the_new_one_s(lake: LakeFolder) -> None:
    """Its columns have other numbers, by which files are read; the task sees it though it evolves the table first."""
    made(lake, N, WORD)
    async with lake.running(**EVOLVES) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(pa.array([{"n": 1, "word": "one"}], WORDS)))
        made(lake, WORD.model_copy(update={"field_id": 1}), N.model_copy(update={"field_id": 2}))
        more = pa.array([{"n": 2, "word": "two", "more": 3}], pa.struct([*WORDS, ("more", pa.int64())]))
        with pytest.raises(StartAnew, match="is another one since its files were written"):
            await sink.put(batch_of(more, begin=1))
    assert lake.table.scan().count() == 0
    async with lake.running(**EVOLVES) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(pa.array([{"n": 1, "word": "one"}], WORDS)))
        await sink.put(batch_of(more, begin=1))
        await sink.flush({HERE: 2})
    assert lake.rows("n", "word", "more") == [(1, "one", None), (2, "two", 3)]


async def test_a_table_that_was_made_anew_gets_its_columns_anew(lake: LakeFolder) -> None:
    """The task has nothing that waits, and takes the new table when its partitions are given out again."""
    rows = pa.array([{"n": 1, "word": "one"}], WORDS)
    made(lake, N, WORD)
    async with lake.running(**EVOLVES) as sink:
        assert not await put(sink, rows)
        await sink.close([HERE])
        made(lake, N)
        await sink.open({HERE: 1})
        assert not await put(sink, rows, begin=1)
    assert lake.rows("n", "word") == [(1, "one")]


async def test_a_branch_keeps_what_is_said_of_its_snapshots(lake: LakeFolder) -> None:
    """How long they are kept, which whoever made it has said; each commit moves it, and changes nothing else of it.

    With ``write.wap.enabled`` too, by which Spark would write elsewhere if its session said so.
    """
    async with lake.running(iceberg__tables__auto___create___props__write__wap__enabled="true") as sink:
        await put(sink, numbers([1]))
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None
    kept: dict[str, Any] = {"max_ref_age_ms": 10**12, "max_snapshot_age_ms": 10**11, "min_snapshots_to_keep": 7}
    lake.table.manage_snapshots().create_branch(snapshot.snapshot_id, "audit", **kept).commit()
    for begin in (1, 2):
        async with lake.running(iceberg__tables__default___commit___branch="audit") as sink:
            await sink.open({HERE: None if begin == 1 else begin})
            await put(sink, numbers([begin]), begin=begin)
    found = lake.table.metadata.refs["audit"]
    assert found.snapshot_id != snapshot.snapshot_id
    assert {name: getattr(found, name) for name in kept} == kept
    assert lake.table.scan().use_ref("audit").to_arrow().num_rows == 1 + len((1, 2))
    assert lake.rows() == [1]


async def test_a_tag_is_no_branch(lake: LakeFolder) -> None:
    """It stands for one snapshot, for ever: a person has to name another one."""
    async with lake.running() as sink:
        await put(sink, numbers([1]))
    lake.table.manage_snapshots().create_tag(lake.table.current_snapshot().snapshot_id, "audit").commit()  # type: ignore[union-attr]
    async with lake.running(iceberg__tables__default___commit___branch="audit") as sink:
        with pytest.raises(Fatal, match=r"'audit' of table shop\.orders is a tag"):
            await put(sink, numbers([1]))


def test_no_two_connectors_share_an_offset() -> None:
    """Names of connectors, topics and branches have dots; each place has a property of its own."""
    places = [
        ("lake", "shop.orders", "main"),
        ("lake.shop", "orders", "main"),
        ("lake%2Eshop", "orders", "main"),
        ("lake", "orders", "main"),
        ("lake", "orders", "shop"),
        ("shop", "lake.orders", "main"),
        ("shop.lake", "orders", "main"),
        ("lake.orders", "orders", "shop"),
        ("lake", "orders", "shop.lake"),
    ]
    assert len({offsets_key(*place) for place in places}) == len(places)


async def test_connectors_whose_names_have_dots_write_each_record(lake: LakeFolder, monkeypatch: Any) -> None:
    """One of ``lake`` and ``shop.orders``, the other of ``lake.shop`` and ``orders``: both into one table."""
    for name, topic in (("lake", "shop.orders"), ("lake.shop", "orders")):
        monkeypatch.setattr("tests.unit.sinks.iceberg.iceberg_runs.CONNECTOR", name)
        async with lake.running() as sink:
            await sink.open({(topic, 0): None})
            await sink.put(batch_of(numbers([1, 2]), partition=(topic, 0)))
            await sink.flush({(topic, 0): 2})
    assert lake.rows() == [1, 1, 2, 2]


async def test_which_property_is_to_be_removed_of_a_branch(lake: LakeFolder) -> None:
    """Where a topic was made anew: that of the branch, which has its own offsets."""
    branch: dict[str, Any] = {"iceberg__tables__default___commit___branch": "audit"}
    async with lake.running() as sink:
        await put(sink, numbers([1]))
    lake.table.manage_snapshots().create_branch(lake.table.current_snapshot().snapshot_id, "audit").commit()  # type: ignore[union-attr]
    async with lake.running(**branch) as sink:
        await put(sink, numbers([1, 2]))
    key = offsets_key(CONNECTOR, "orders", "audit")
    assert json.loads(lake.table.properties[key]) == {"0": 2}
    async with lake.running(**branch) as sink:
        await sink.open({HERE: None})
        with pytest.raises(Fatal, match=f"remove the property '{key}'"):
            await sink.put(batch_of(numbers([1])))


@pytest.mark.parametrize(
    "answer",
    [NoSuchTableError("no such table"), pydantic.ValidationError.from_exception_data("page", [])],
    ids=["404", "a page of a proxy"],
)
@pytest.mark.parametrize("is_made", [False, True])
async def test_an_answer_to_a_commit_that_says_nothing(
    lake: LakeFolder, monkeypatch: pytest.MonkeyPatch, answer: Exception, *, is_made: bool
) -> None:
    """The table says whether it was made, also where a gateway answers with the wrong word; each row is there once."""
    real, answers = SqlCatalog.commit_table, [answer]

    def commit_table(catalog: SqlCatalog, table: Any, requirements: Any, updates: Any) -> Any:
        if not answers or not any(update.action == "add-snapshot" for update in updates):
            return real(catalog, table, requirements, updates)
        if is_made:
            real(catalog, table, requirements, updates)
        raise answers.pop()

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    async with lake.running() as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(numbers([1, 2])))
        await sink.flush({HERE: 2})
    assert not answers
    assert lake.rows() == [1, 2]


async def test_old_metadata_is_removed_where_the_table_says_so(lake: LakeFolder) -> None:
    """As after the commits of other engines; else each commit would leave a file for ever."""
    properties = "iceberg__tables__auto___create___props__write__metadata__"
    kept: dict[str, Any] = {f"{properties}delete-after-commit__enabled": "true"}
    kept[f"{properties}previous-versions-max"] = "2"
    async with lake.running(**kept) as sink:
        for begin in range(6):
            await put(sink, numbers([begin]), begin=begin)
    assert lake.rows() == list(range(6))
    assert len(list((lake.folder / "lake").rglob("*.metadata.json"))) == 1 + 2
