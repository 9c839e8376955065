"""What ``IcebergSink`` holds stays bounded, in bytes of Arrow's memory and in data files that wait for their commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.sinks.iceberg import sink as iceberg_sink
from service.sinks.iceberg import table as iceberg_table
from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder, batch_of, put

BUFFER_BYTES = 1 << 20
ROWS, PUTS = 10_000, 5
PEAK_FACTOR = 3
"""Rows as they came, as they fit the table, and as the writer of a file holds them."""


@pytest.fixture
def memory() -> Iterator[Any]:
    """Arrow's memory, counted from here on."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    yield pool
    pa.set_memory_pool(before)


def rows(places: list[str]) -> Any:
    """Records of about 300 bytes; each place has as many as the next."""
    kind = pa.struct([pa.field("place", pa.string()), pa.field("text", pa.string())])
    return pa.array([{"place": places[n % len(places)], "text": "x" * 300} for n in range(ROWS)], kind)


@pytest.mark.parametrize("is_by_tables", [False, True], ids=["partitions", "tables"])
async def test_many_places_in_one_put_stay_within_bounds(tmp_path: Path, memory: Any, *, is_by_tables: bool) -> None:
    """Many partitions, or tables, are written one file at a time; nothing piles up over puts."""
    lake = LakeFolder(tmp_path)
    keys: dict[str, Any] = {"iceberg__tables__default___partition___by": "place"}
    places = [f"p{number}" for number in range(60)]
    if is_by_tables:
        keys = {"iceberg__tables__dynamic___enabled": "true", "iceberg__tables__route___field": "place"}
        keys["iceberg__tables"] = ""
        places = [f"shop.t{number}" for number in range(10)]
    async with lake.running(buffer__bytes=str(BUFFER_BYTES), **keys) as sink:
        await sink.open({HERE: None})
        values = rows(places)
        for number in range(PUTS):
            await sink.put(batch_of(values, begin=number * ROWS))
            assert sum(table.held_bytes for table in sink._tables.values()) <= BUFFER_BYTES
        assert memory.max_memory() < PEAK_FACTOR * (values.nbytes + BUFFER_BYTES) < PUTS * values.nbytes
        await sink.flush({HERE: PUTS * ROWS})
    names = places if is_by_tables else [lake.name]
    assert sum(lake.catalog.load_table(name).scan().count() for name in names) == PUTS * ROWS


async def test_tables_that_rest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those written to last are kept. Others are loaded anew, count as before, and have each of their records once."""
    monkeypatch.setattr(iceberg_sink, "TABLES_MAX", 2)
    keys: dict[str, Any] = {
        "iceberg__tables": "",
        "iceberg__tables__dynamic___enabled": "true",
        "iceberg__tables__dynamic___max": "4",
        "iceberg__tables__route___field": "kind",
    }
    lake = LakeFolder(tmp_path)
    async with lake.running(**keys) as sink:
        assert not await put(sink, [{"n": n, "kind": f"shop.{letter}"} for n, letter in enumerate("abcd")])
        assert list(sink._tables) == ["shop.c", "shop.d"]
        assert sink._forgotten == {"shop.a", "shop.b"}
        again = [{"n": n, "kind": f"shop.{letter}"} for n, letter in enumerate("aed", 4)]
        refused = await put(sink, again, begin=4)
        assert [(row, message) for row, _, message in refused] == [
            (1, "its table would be one more than iceberg.tables.dynamic-max, 4")
        ]
        assert list(sink._tables) == ["shop.a", "shop.d"]
        # As after a commit of the group that was lost: what the tables have is not written again.
        assert not await put(sink, [again[0], {"n": 7, "kind": "shop.b"}], begin=4)
        odd = {"n": "text", "kind": "shop.c"}
        assert [row for row, _, _ in await put(sink, [odd, {"n": 8, "kind": "shop.c"}], begin=7)] == [0]
    found = {letter: LakeFolder(tmp_path, f"shop.{letter}").rows() for letter in "abcd"}
    assert found == {"a": [0, 4], "b": [1, 7], "c": [2, 8], "d": [3, 6]}


async def test_data_files_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is remembered with the bounds of its columns until its commit: a commit is asked for when they are many."""
    monkeypatch.setattr(iceberg_sink, "FILES_MAX", 100)
    lake = LakeFolder(tmp_path)
    asked: list[int] = []
    async with lake.running(buffer__bytes=str(BUFFER_BYTES), iceberg__tables__default___partition___by="place") as sink:
        assert sink._context is not None
        sink._context.request_flush = lambda: asked.append(len(asked))
        await sink.open({HERE: None})
        await sink.put(batch_of(rows([f"p{number}" for number in range(60)])))
        assert not asked
        await sink.put(batch_of(rows([f"p{number}" for number in range(60)]), begin=ROWS))
        assert asked
        await sink.flush({HERE: 2 * ROWS})
        await sink.put(batch_of(rows(["p0"]), begin=2 * ROWS))
        assert len(asked) == 1


async def test_types_of_records_that_are_remembered_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON without a schema, a record at a time: each may have other fields than the ones before."""
    monkeypatch.setattr(iceberg_table, "FITTED_MAX", 4)
    lake = LakeFolder(tmp_path)
    async with lake.running(iceberg__tables__evolve___schema___enabled="true") as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of([{f"f{number}": 1 for number in range(6)}]))
        for number in range(1, 40):
            await sink.put(batch_of([{f"f{bit}": 1 for bit in range(6) if number >> bit & 1}], begin=number))
            assert len(sink._tables[lake.name]._fitted) <= 4
        await sink.flush({HERE: 40})
    assert lake.table.scan().count() == 40
