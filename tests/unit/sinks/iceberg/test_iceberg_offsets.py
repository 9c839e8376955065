"""Each row once: two owners, tasks side by side, lost answers, other engines, snapshots that are gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from service.sinks.contract import Fatal, StartAnew
from service.sinks.iceberg.sink import IcebergSink
from service.sinks.iceberg.table import COMMIT_TRIES_MAX, offsets_key
from tests.unit.sinks.iceberg.iceberg_runs import CONNECTOR, HERE, LakeFolder, batch_of, numbers

THERE = ("orders", 1)
KEY = offsets_key(CONNECTOR, "orders")


@pytest.fixture
def lake(tmp_path: Path) -> LakeFolder:
    """An empty folder for a warehouse."""
    return LakeFolder(tmp_path)


async def write(sink: IcebergSink, values: range, partition: tuple[str, int] = HERE) -> None:
    """Records whose numbers are their offsets, flushed."""
    await sink.put(batch_of(numbers(values), begin=values.start, partition=partition))
    await sink.flush({partition: values.stop})


def of_another(value: int) -> pa.Table:
    """A row as another engine writes it."""
    return pa.table([pa.array([value], pa.int32())], schema=pa.schema([pa.field("n", pa.int32(), nullable=False)]))


class Answers:
    """What becomes of the next commits, one word each; then all is as it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
        self.words = list(words)
        self.asked = 0
        real = SqlCatalog.commit_table

        def commit_table(catalog: SqlCatalog, table: Any, requirements: Any, updates: Any) -> Any:
            if not any(update.action == "add-snapshot" for update in updates):
                return real(catalog, table, requirements, updates)
            self.asked += 1
            word = self.words.pop(0) if self.words else "well"
            if word == "refused":
                raise CommitFailedException("somebody was faster")
            if word == "unreachable":
                raise requests.ConnectionError("reset by peer")
            made = real(catalog, table, requirements, updates)
            if word == "lost":
                raise CommitStateUnknownException("the answer is lost")
            if word == "refused all the same":  # as a proxy does that sends a request a second time
                raise CommitFailedException("the first of two equal requests was taken")
            return made

        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)


@pytest.mark.parametrize(
    ("words", "asked"),
    [(("lost",), 1), (("refused all the same",), 1), (("unreachable",), 2), (("refused", "unreachable", "lost"), 3)],
)
async def test_a_commit_is_made_once_whatever_its_answer(
    lake: LakeFolder, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], asked: int
) -> None:
    """The table itself says whether it was made; files of one that was are never removed."""
    answers = Answers(monkeypatch, *words)
    async with lake.running() as sink:
        await sink.open({HERE: None})
        await write(sink, range(5))
        assert answers.asked == asked
        await write(sink, range(5, 8))
    assert lake.rows() == list(range(8))


async def test_commits_that_never_succeed_end_the_task(lake: LakeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many tries it begins anew, and nothing is written."""
    monkeypatch.setattr("service.sinks.iceberg.table._WAIT_SECONDS_MAX", 0.001)
    Answers(monkeypatch, *["refused"] * COMMIT_TRIES_MAX)
    async with lake.running() as sink:
        await sink.open({HERE: None})
        with pytest.raises(StartAnew, match="commits in a row have failed"):
            await write(sink, range(5))
        with pytest.raises(StartAnew):
            await sink.put(batch_of(numbers([5]), begin=5))
    assert lake.rows() == []


async def test_of_two_owners_one_commits(lake: LakeFolder) -> None:
    """Both have the same records: who comes second begins anew, behind what is there."""
    async with lake.running() as zombie, lake.running() as owner:
        await zombie.open({HERE: None})
        await owner.open({HERE: None})
        await zombie.put(batch_of(numbers(range(5))))
        await owner.put(batch_of(numbers(range(7))))
        await owner.flush({HERE: 7})
        with pytest.raises(StartAnew, match="another task has written"):
            await zombie.flush({HERE: 5})
        assert lake.rows() == list(range(7))
    async with lake.running() as sink:
        assert await sink.open({HERE: None}) == {HERE: 7}
        await write(sink, range(7, 9))
    assert lake.rows() == list(range(9))


async def test_a_zombie_that_is_faster_takes_nothing_away(lake: LakeFolder) -> None:
    """Its rows are the right ones; the owner finds them."""
    async with lake.running() as zombie, lake.running() as owner:
        await zombie.open({HERE: None})
        await owner.open({HERE: None})
        await owner.put(batch_of(numbers(range(7))))
        await write(zombie, range(5))
        with pytest.raises(StartAnew):
            await owner.flush({HERE: 7})
    async with lake.running() as owner:
        begin = (await owner.open({HERE: None}))[HERE]
        await write(owner, range(begin, 7))
    assert lake.rows() == list(range(7))


async def test_tasks_of_one_table_commit_by_turns(lake: LakeFolder) -> None:
    """A commit that others were faster than is made anew on theirs, and each keeps its own offsets."""
    async with lake.running() as one, lake.running() as other:
        await one.open({HERE: None})
        await other.open({THERE: None})
        for begin in range(0, 9, 3):
            await one.put(batch_of(numbers(range(begin, begin + 3)), begin=begin))
            await other.put(batch_of(numbers(range(begin, begin + 3)), begin=begin, partition=THERE))
            await one.flush({HERE: begin + 3})
            await other.flush({THERE: begin + 3})
    assert lake.rows() == sorted([*range(9)] * 2)
    assert json.loads(lake.table.properties[KEY]) == {"0": 9, "1": 9}


async def test_offsets_outlive_snapshots_and_the_commits_of_others(lake: LakeFolder) -> None:
    """Another engine writes, and all snapshots but its own are gone: the offsets are still there."""
    async with lake.running() as sink:
        await sink.open({HERE: None})
        await write(sink, range(5))
    table = lake.table
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert json.loads(snapshot.summary[KEY] or "") == {"0": 5}
    table.append(of_another(100))
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    assert len(lake.table.snapshots()) == 1
    async with lake.running() as sink:
        assert await sink.open({HERE: None}) == {HERE: 5}
        await write(sink, range(5, 7))
    assert lake.rows() == [*range(7), 100]


async def test_the_group_is_obeyed_where_it_is_further(lake: LakeFolder) -> None:
    """An offset set ahead skips records; records between the group and the table are looked at, and not written."""
    async with lake.running() as sink:
        await sink.open({HERE: None})
        await write(sink, range(5))
    async with lake.running() as sink:
        assert await sink.open({HERE: 2}) == {}
        refused: list[tuple[int, str, str]] = []
        await sink.put(batch_of([{"n": 2}, ["no object"], {"n": 4}, {"n": 5}], begin=2, refused=refused))
        await sink.flush({HERE: 6})
        assert [row for row, _, _ in refused] == [1]
    async with lake.running() as sink:
        assert await sink.open({HERE: 10}) == {}
        await write(sink, range(10, 12))
    assert lake.rows() == [*range(6), 10, 11]


async def test_a_topic_that_was_made_anew_fails_the_task(lake: LakeFolder) -> None:
    """Its offsets are written already, and nobody may take them for records that came before."""
    async with lake.running() as sink:
        await sink.open({HERE: None})
        await write(sink, range(5))

    async def ends(_partitions: object) -> dict[tuple[str, int], int]:
        return {HERE: 3}

    async with lake.running() as sink:
        assert sink._context is not None
        sink._context.ends = ends
        with pytest.raises(Fatal, match=f"remove the property '{KEY}'"):
            await sink.open({HERE: None})
    async with lake.running() as sink:
        await sink.open({HERE: None})
        with pytest.raises(Fatal, match="made anew"):
            await write(sink, range(2))
    assert lake.rows() == list(range(5))


async def test_a_table_that_is_partitioned_anew_begins_the_task_anew(lake: LakeFolder) -> None:
    """Files were written for the folders of before."""
    async with lake.running(buffer__bytes="1048576") as sink:
        await sink.open({HERE: None})
        await write(sink, range(2))
        await sink.put(batch_of(numbers(range(2, 300_000)), begin=2))
        with lake.table.update_spec() as spec:
            spec.add_identity("n")
        lake.table.append(of_another(100))
        with pytest.raises(StartAnew, match="partitioned in another way"):
            await sink.flush({HERE: 300_000})
    assert lake.rows() == [0, 1, 100]


async def test_a_table_that_is_partitioned_anew_is_seen_by_who_evolves_it_too(lake: LakeFolder) -> None:
    """The table is read anew for the new column, and files for the folders of before are waiting still."""
    async with lake.running(iceberg__tables__evolve___schema___enabled="true") as sink:
        await sink.open({HERE: None})
        await write(sink, range(2))
        await sink.put(batch_of(numbers(range(2, 5)), begin=2))
        with lake.table.update_spec() as spec:
            spec.add_identity("n")
        wider = pa.array([{"n": 5, "name": "x"}], pa.struct([("n", pa.int32()), ("name", pa.string())]))
        await sink.put(batch_of(wider, begin=5))
        with pytest.raises(StartAnew, match="partitioned in another way"):
            await sink.flush({HERE: 6})
    assert lake.rows() == [0, 1]
    async with lake.running(iceberg__tables__evolve___schema___enabled="true") as sink:
        begin = (await sink.open({HERE: None}))[HERE]
        await write(sink, range(begin, 5))
        await sink.put(batch_of(wider, begin=5))
        await sink.flush({HERE: 6})
    assert lake.rows("n", "name") == [*((n, None) for n in range(5)), (5, "x")]


@pytest.mark.parametrize("evolves", ["true", "false"])
async def test_a_column_that_another_engine_drops_meanwhile(lake: LakeFolder, evolves: str) -> None:
    """Rows of the column that wait are written without it; with evolution, later ones make it anew."""
    kind = pa.struct([("n", pa.int32()), ("name", pa.string())])

    def batch(begin: int, count: int) -> Any:
        rows = [{"n": n, "name": f"x{n}"} for n in range(begin, begin + count)]
        return batch_of(pa.array(rows, kind), begin=begin)

    async with lake.running(iceberg__tables__evolve___schema___enabled=evolves) as sink:
        await sink.open({HERE: None})
        await sink.put(batch(0, 2))
        await sink.flush({HERE: 2})
        await sink.put(batch(2, 2))
        with lake.table.update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("name")
        await sink.flush({HERE: 4})
        assert lake.rows() == list(range(4))
        await sink.put(batch(4, 2))
        await sink.flush({HERE: 6})
    expected = [*((n, None) for n in range(4)), (4, "x4"), (5, "x5")]
    assert lake.rows(*(("n", "name") if evolves == "true" else ("n",))) == (
        expected if evolves == "true" else list(range(6))
    )


async def test_a_table_that_is_dropped_meanwhile(lake: LakeFolder) -> None:
    """The task begins anew; what was dropped stays so, and what comes after it makes a new table."""
    async with lake.running() as sink:
        await sink.open({HERE: None})
        await write(sink, range(3))
        await sink.put(batch_of(numbers(range(3, 5)), begin=3))
        lake.catalog.drop_table(lake.name)
        with pytest.raises(StartAnew, match="is not there any more"):
            await sink.flush({HERE: 5})
    async with lake.running() as sink:
        assert await sink.open({HERE: 3}) == {}
        await write(sink, range(3, 5))
    assert lake.rows() == [3, 4]
    async with lake.running(iceberg__tables__auto___create___enabled="false") as sink:
        lake.catalog.drop_table(lake.name)
        await sink.open({HERE: 5})
        with pytest.raises(Fatal, match="there is no table"):
            await write(sink, range(5, 6))


async def test_a_table_that_is_dropped_and_made_anew_meanwhile(lake: LakeFolder) -> None:
    """Files that were written for the old one are not added to the new one; each row of it is there once."""
    async with lake.running() as sink:
        await sink.open({HERE: None})
        await write(sink, range(3))
        await sink.put(batch_of(numbers(range(3, 5)), begin=3))
        schema = lake.table.schema()
        lake.catalog.drop_table(lake.name)
        lake.catalog.create_table(lake.name, schema)
        with pytest.raises(StartAnew):
            await sink.flush({HERE: 5})
    assert lake.rows() == []
    async with lake.running() as sink:
        assert await sink.open({HERE: 3}) == {}
        await write(sink, range(3, 5))
    assert lake.rows() == [3, 4]


async def test_a_property_that_is_no_offset_fails_the_task(lake: LakeFolder) -> None:
    """A person has to say what was meant."""
    async with lake.running() as sink:
        await sink.open({HERE: None})
        await write(sink, range(2))
    with lake.table.transaction() as change:
        change.set_properties({KEY: "five"})
    async with lake.running() as sink:
        with pytest.raises(Fatal, match="is no JSON of offsets"):
            await sink.open({HERE: None})


def stopped(lake: LakeFolder, **changes: str) -> IcebergSink:
    """An instance that runs nothing, as the worker asks it."""
    sink = IcebergSink(lake.config(**changes))
    sink.connector_name = CONNECTOR
    return sink


async def test_offsets_that_the_table_has_already_are_not_begun_with_again(lake: LakeFolder) -> None:
    """Nor forgotten; where a table says nothing, or does not have so much, every offset counts."""
    stopped(lake).check_offsets({HERE: 0, THERE: None})
    async with lake.running() as sink:
        await sink.open({HERE: None})
        await write(sink, range(9))
    for offset in (0, 8, None):
        told = rf"partition 0 of topic orders is in the tables to offset 9.*property '{KEY}'"
        with pytest.raises(ValueError, match=told):
            stopped(lake).check_offsets({THERE: 0, HERE: offset})
    stopped(lake).check_offsets({HERE: 9, THERE: 0})
    stopped(lake).check_offsets({HERE: 20})
    other = stopped(lake)
    other.connector_name = "other"
    other.check_offsets({HERE: 0})
    stopped(lake, iceberg__tables="shop.orders,shop.more").check_offsets({HERE: 0})


async def test_a_catalogue_that_cannot_be_asked_refuses_the_change(lake: LakeFolder) -> None:
    """It would be obeyed or not, and nobody could say which."""
    sink = stopped(lake, iceberg__catalog__uri=f"sqlite:///{lake.folder}/none/catalog.db")
    with pytest.raises(ValueError, match=r"cannot be asked.*gone for good, name another in 'iceberg.catalog.\*' first"):
        sink.check_offsets({HERE: 0})
    async with lake.running() as running:
        await running.open({HERE: None})
        await write(running, range(3))
    with lake.table.transaction() as change:
        change.set_properties({KEY: "nonsense"})
    with pytest.raises(ValueError, match="is no JSON of offsets"):
        stopped(lake).check_offsets({HERE: 0})
