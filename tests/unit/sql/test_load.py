"""A first load in parts: which parts there are, whatever was begun before and however the table is cut now."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk import Offset
from fetchers.sdk.context import partition_key
from fetchers.sdk.testing.context import FakeContext
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Table
from fetchers.sql.fetcher import JdbcSource
from fetchers.sql.load import LOADING, Part, even_ends, load_of, parts_of

TABLE = Table("t")
IDS = st.integers(-50, 50)
MAIN = partition_key({"protocol": "1", "table": "t"})


@given(st.lists(IDS, min_size=1), st.lists(IDS), st.data())
def test_parts_cover_every_id_once_whatever_was_begun_and_however_it_is_cut_now(
    ends: list[int], others: list[int], data: st.DataObject
) -> None:
    """And a task that starts when others have begun some of the parts sees the very same parts as they did."""
    first = parts_of(max(ends), (), ends)
    begun = data.draw(st.sets(st.sampled_from(first)))
    second = parts_of(max(ends), begun, others)
    assert begun <= set(second)
    assert [part.after for part in second] == [None, *(part.to for part in second[:-1])]
    assert second[-1].to == max(ends)
    later = begun | data.draw(st.sets(st.sampled_from(second)))
    assert parts_of(max(ends), later, others) == second


@given(IDS, st.integers(0, 100), st.integers(1, 20))
def test_ends_are_even_and_the_last_is_the_highest(lowest: int, span: int, count: int) -> None:
    """No part is empty, and none has two ids more than another."""
    ends = even_ends(lowest, lowest + span, count)
    sizes = [end - before for before, end in zip((lowest - 1, *ends), ends, strict=False)]
    assert ends[-1] == lowest + span
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("offset", "ends", "to", "unread"),
    [
        ({}, (), None, 0),
        ({}, (10, 20), 20, 2),
        ({"incrementing": 7}, (10, 20), None, 0),
        ({"incrementing": 25, LOADING: 20}, (15, 30), 20, 2),
        ({"incrementing": 25, LOADING: 20}, (), 20, 1),
    ],
    ids=["empty table", "first", "read before", "begun, and split anew", "begun, and not split any more"],
)
def test_a_load_goes_on_as_its_table_says(offset: Offset, ends: tuple[int, ...], to: int | None, unread: int) -> None:
    """What was read without parts, also by another connector, is never loaded again."""
    load = load_of(TABLE, offset, {}, ends)
    assert (load.to if load is not None else None) == to
    assert len(load.unread if load is not None else ()) == unread


def test_an_emptied_offset_of_a_part_is_none_and_other_tables_parts_are_not_this_ones() -> None:
    """What a person has forgotten is read again; a missing offset of the table is told by its parts."""
    offsets: dict[Any, Offset] = {
        partition_key(Part(None, 10).partition(TABLE)): {"incrementing": 10},
        partition_key(Part(10, 20).partition(TABLE)): {},
        partition_key(Part(20, 30).partition(Table("u"))): {"incrementing": 30},
    }
    load = load_of(TABLE, {}, offsets, (5, 15))
    assert load is not None
    assert load.to == 15
    assert load.unread == (Part(10, 15),)


def _source(path: Path, **keys: str) -> JdbcSource:
    properties = {
        "connection.url": f"jdbc:sqlite:{path}",
        "mode": "incrementing",
        "table.whitelist": "t",
        "topic.prefix": "x.",
        "batch.max.rows": "5",
        "load.parts": "6",
    }
    parsed = JdbcConfig.parse(properties | {name.replace("_", "."): value for name, value in keys.items()})
    assert parsed.config is not None, parsed.findings
    return JdbcSource(parsed.config)


async def _tasks(path: Path, tasks_max: int) -> list[dict[str, str]]:
    return [dict(task) for task in await asyncio.to_thread(_source(path).task_configs, tasks_max)]


class RoundsReadError(Exception):
    """Ends a fetch when it has looked twice and found the second time nothing more."""


def _end_after_two(rounds: int) -> None:
    if rounds > 1:
        raise RoundsReadError


async def _read(path: Path, task: dict[str, str], context: FakeContext, *, pages_max: int = 10_000) -> list[int]:
    """Ids that a task commits until it has finished two rounds, or is killed after so many pages."""
    context.on_round = _end_after_two
    source = _source(path, **{name.replace(".", "_"): value for name, value in task.items()})
    found: list[int] = []
    with suppress(RoundsReadError):
        async with aclosing(source.fetch(context)) as pages:
            async for page in pages:
                context.commit(page)
                found += [json.loads(value or b"")["id"] for value in page.values()]
                pages_max -= 1
                if not pages_max:
                    break
    return found


@pytest.mark.parametrize("counts", [(3, 2, 1, 4), (1, 3, 1), (2, 2, 2)])
async def test_each_row_is_read_once_over_kills_other_counts_of_tasks_and_changes(
    tmp_path: Path, counts: tuple[int, ...]
) -> None:
    """In the end the table's offset is as Confluent's connector has it, and nothing is left of the parts."""
    path = tmp_path / "x.db"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("create table t (id integer primary key autoincrement, n int)")
    database.executemany("insert into t (n) values (?)", [(n,) for n in range(300)])
    database.execute("delete from t where id between 95 and 130 or id = 200")
    kept = {row[0] for row in database.execute("select id from t")}
    offsets: dict[Any, Offset] = {}
    found: list[int] = []
    for kill, count in enumerate((*counts, 1)):
        is_last, at_start = kill == len(counts), dict(offsets)
        for task in await _tasks(path, count):
            # A task reads its offsets when it starts, which may be before or after the others have worked.
            seen = dict(offsets) if kill % 2 else at_start
            context = FakeContext(offsets=seen)
            found += await _read(path, task, context, pages_max=10_000 if is_last else 4)
            offsets |= {key: offset for key, offset in context.offsets.items() if seen.get(key) != offset}
        database.execute("insert into t (n) values (-1), (-2)")
        if not is_last:
            kept |= {row[0] for row in database.execute("select id from t where n < 0")}
    assert sorted(found) == sorted(kept)
    assert {key: offset for key, offset in offsets.items() if offset} == {MAIN: {"incrementing": max(kept)}}
    database.close()


async def test_a_table_of_a_few_pages_is_not_split(tmp_path: Path) -> None:
    """Its parts would be less than a page each."""
    path = tmp_path / "x.db"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("create table t (id integer primary key autoincrement)")
    database.execute("create table u (id integer primary key autoincrement)")
    database.execute("insert into t (id) values (1), (29)")
    database.close()
    tasks = await _tasks(path, 2)
    assert [task["load.ends"] for task in tasks] == ["{}", "{}"]
