"""A record that failed the task, or whose dead letter was not written, behind which files are committed already.

Its offset is the group's: it comes again, and is in a file where it is fit by then.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sinks.filesystem.files_runs import (
    HERE,
    DiedError,
    DyingStore,
    batch_of,
    config_of,
    found,
    running,
)

ROWS: list[Any] = [{"n": number, "t": 1000} for number in range(9)]
for _row in (2, 4, 5):
    del ROWS[_row]["t"]
MOMENTS_MAX = 200
DAILY = {"partitioner__class": "DailyPartitioner", "timezone": "UTC", "timestamp__field": "t"}
BY_FIELD, BY_RECORD = DAILY | {"timestamp__extractor": "RecordField"}, DAILY | {"timestamp__extractor": "Record"}
"""Keys by which rows without the field are refused, and what a person makes of them to have these rows too."""


async def _run(  # noqa: PLR0917 - of tests
    folder: Path, group: int | None, config: Mapping[str, str], flush_size: str = "1", store: DyingStore | None = None
) -> list[int]:
    """Put all from the group's offset on; which were refused."""
    refused: list[tuple[int, str, str]] = []
    async with running(config_of(folder, flush__size=flush_size, **config), store=store) as sink:
        begin = (await sink.open({HERE: group})).get(HERE, 0)
        for start in range(begin, len(ROWS), 4):
            heard: list[tuple[int, str, str]] = []
            await sink.put(batch_of(ROWS[start : start + 4], begin=start, refused=heard))
            refused += [(start + row, reason, message) for row, reason, message in heard]
        sink._partitions[HERE].commit()
    return [row for row, *_ in refused]


def _written(folder: Path) -> Counter[int]:
    return Counter(row["n"] for rows in found(folder).values() for row in rows)


@pytest.mark.parametrize("flush_size", ["1", "2", "100"])
async def test_a_record_that_failed_the_task_is_written_by_the_config_that_takes_it(
    flush_size: str, tmp_path: Path
) -> None:
    """Once, however often it comes; files behind it had been committed by the put that refused it."""
    assert await _run(tmp_path, None, BY_FIELD, flush_size) == [2, 4, 5]
    assert await _run(tmp_path, 2, BY_FIELD, flush_size) == [2, 4, 5]
    for _ in range(2):
        assert await _run(tmp_path, 2, BY_RECORD, flush_size) == []
        assert _written(tmp_path) == Counter(range(len(ROWS)))


async def test_what_the_group_has_passed_is_not_written(tmp_path: Path) -> None:
    """It has its dead letter, or a person has skipped it."""
    await _run(tmp_path, None, BY_FIELD)
    await _run(tmp_path, 5, BY_RECORD)
    assert _written(tmp_path) == Counter({0, 1, 3, 5, 6, 7, 8})


@pytest.mark.parametrize("flush_size", ["1", "100"])
async def test_killed_at_many_moments(flush_size: str, tmp_path: Path) -> None:
    """While it is refused, and while it is written: each record is in one file at the end."""
    for moments in range(0, MOMENTS_MAX, 5):
        folder = tmp_path / str(moments)
        is_dead = False
        for config in (BY_FIELD, BY_RECORD):
            store = DyingStore(folder, moments)
            try:
                await _run(folder, 0, config, flush_size, store)
            except DiedError:
                is_dead = True
            finally:
                store.close()
        await _run(folder, 0, BY_RECORD, flush_size)
        assert _written(folder) == Counter(range(len(ROWS)))
        if not is_dead:
            return
    pytest.fail("there is no end")


async def test_what_has_its_dead_letter_is_forgotten(tmp_path: Path) -> None:
    """Else the log would name every record that was ever refused."""
    async with running(config_of(tmp_path, flush__size="1", **BY_FIELD)) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(ROWS, refused=[]))
        assert _noted(tmp_path) == [2, 4, 5]
        await sink.committed({HERE: 5})
        await sink.put(batch_of([{"n": 9, "t": 1000}], begin=9))
        assert _noted(tmp_path) == [5]


def _noted(folder: Path) -> list[int]:
    (entry,) = folder.glob("logs/orders/0/*.commit")
    refused: list[int] = json.loads(entry.read_text())["refused"]
    return refused
