"""``TimeBasedPartitioner`` through the whole sink, into real files: record times, late records, a silent topic."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fetchers.sdk.reach import AllowedPaths
from service.sinks.filesystem.stores import LocalStore
from tests.unit.sinks.filesystem.files_runs import HERE, FixedClock, batch_of, commits, config_of, feed, found, running

MINUTE = 60_000
BEGIN = 1_774_749_000_000
"""29 March 2026, 01:50 UTC: in Dublin the clocks were put ahead an hour before, so it is 02:50 there."""
QUARTERS = {
    "partitioner__class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
    "partition__duration__ms": str(15 * MINUTE),
    "path__format": "'day'=YYYY-MM-dd/'at'=HHmm",
    "timezone": "Europe/Dublin",
    "timestamp__extractor": "Record",
    "flush__size": "100",
}
FOLDER = "orders/day=2026-03-29"


def rows_at(*minutes: int, begin: int = 0) -> Any:
    """A record for each, so many minutes after `BEGIN`."""
    rows = [{"n": begin + number} for number in range(len(minutes))]
    return batch_of(rows, begin=begin, times_ms=[BEGIN + minute * MINUTE for minute in minutes])


def numbers_in(folder: Path) -> dict[str, list[int]]:
    """The records of each file."""
    return {path: [row["n"] for row in rows] for path, rows in found(folder).items()}


async def test_folders_of_a_quarter_and_files_that_end_by_record_time(tmp_path: Path) -> None:
    """A late record goes to the folder of its own time; what is too late for its file begins another one there.

    Who comes next, with the same records in other batches, makes the same files.
    """
    first = tmp_path / "first"
    for folder, batches in (
        (first, [rows_at(0, 9, 11), rows_at(5, 31, 6, begin=3), rows_at(62, begin=6)]),
        (tmp_path / "second", [rows_at(0), rows_at(9, 11, 5, 31, begin=1), rows_at(6, 62, begin=5)]),
    ):
        config = config_of(folder, **QUARTERS, rotate__interval__ms=str(30 * MINUTE))
        async with running(config, store=LocalStore(folder, AllowedPaths())) as sink:
            await sink.open({HERE: None})
            for batch in batches:
                await sink.put(batch)
            assert await sink.flush({HERE: 7}) == {HERE: 6}
    assert commits(first) == 2
    assert numbers_in(first) == {
        f"{FOLDER}/at=0245/orders+0+0000000000+0000000003.json": [0, 1, 3],
        f"{FOLDER}/at=0300/orders+0+0000000002+0000000002.json": [2],
        f"{FOLDER}/at=0315/orders+0+0000000004+0000000004.json": [4],
        f"{FOLDER}/at=0245/orders+0+0000000005+0000000005.json": [5],
    }
    assert numbers_in(tmp_path / "second") == numbers_in(first)


async def test_a_silent_topic(tmp_path: Path) -> None:
    """No record comes that could end the files of the last folders: the clock does, and the next begin new ones."""
    clock = FixedClock(datetime.fromtimestamp(BEGIN / 1000, UTC))
    config = config_of(tmp_path, **QUARTERS, rotate__interval__ms=str(30 * MINUTE), rotate__idle__interval__ms="60000")
    async with running(config, store=LocalStore(tmp_path, AllowedPaths()), clock=clock) as sink:
        await sink.open({HERE: None})
        await sink.put(rows_at(0, 12))
        clock.go_on(59)
        assert await sink.flush({HERE: 2}) == {}
        clock.go_on(1)
        assert await sink.flush({HERE: 2}) == {HERE: 2}
        await sink.put(rows_at(13, begin=2))
        clock.go_on(60)
        assert await sink.flush({HERE: 3}) == {HERE: 3}
    assert numbers_in(tmp_path) == {
        f"{FOLDER}/at=0245/orders+0+0000000000+0000000000.json": [0],
        f"{FOLDER}/at=0300/orders+0+0000000001+0000000001.json": [1],
        f"{FOLDER}/at=0300/orders+0+0000000002+0000000002.json": [2],
    }


async def test_a_record_without_a_time_is_refused_alone(tmp_path: Path) -> None:
    """And none is written to a folder of another time."""
    refused: list[tuple[int, str, str]] = []
    rows = [{"n": n} for n in range(3)]
    batch = batch_of(rows, times_ms=[BEGIN, -1, BEGIN], refused=refused)
    async with running(config_of(tmp_path, **{**QUARTERS, "flush__size": "2"})) as sink:
        await sink.open({HERE: None})
        await sink.put(batch)
    assert [(row, reason) for row, reason, _ in refused] == [(1, "missing_timestamp")]
    assert numbers_in(tmp_path) == {f"{FOLDER}/at=0245/orders+0+0000000000+0000000002.json": [0, 2]}


async def test_null_and_an_empty_text_are_one_folder(tmp_path: Path) -> None:
    """Whose file is named by the first and the last record of both."""
    rows: list[dict[str, Any]] = [{"kind": ""}, {"kind": None}, {"kind": None}, {"kind": ""}]
    for number, order in enumerate((rows, rows[1:3] + rows[:2], rows[::-1])):
        folder = tmp_path / str(number)
        config = config_of(
            folder, partitioner__class="FieldPartitioner", partition__field__name="kind", flush__size="4"
        )
        async with running(config) as sink:
            await feed(sink, order)
        assert found(folder) == {
            "orders/kind=__HIVE_DEFAULT_PARTITION__/orders+0+0000000000+0000000003.json": order,
        }
