"""Polls of tables with nothing new: one statement for many, and no table is left out that has news."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from fetchers.sdk import Fatal, Page
from fetchers.sdk.testing.context import FakeContext
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Database
from fetchers.sql.fetcher import JdbcSource
from fetchers.sql.idle import TABLES_MAX


class RoundsReadError(Exception):
    """Ends a fetch after its last round."""


class Counted:
    """A database with the questions that it was asked, by their names."""

    def __init__(self, database: Database, asked: Counter[str]) -> None:
        self._database, self._asked = database, asked

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._database, name)
        if name not in {"quoted", "text_of", "literal_of", "open", "close"}:
            self._asked[name] += 1
        return found


class CountedSource(JdbcSource):
    """A source whose database is counted."""

    asked: Counter[str]

    def _database(self, context: Any) -> Any:
        return Counted(super()._database(context), self.asked)


async def rounds(
    url: str, between: Sequence[Callable[[], None]], **keys: str
) -> tuple[list[list[Page]], list[Counter[str]]]:
    """The pages of each round, and what was asked in it; one round more than there are things to do between them."""
    properties = {"connection.url": url, "mode": "incrementing", "topic.prefix": "x."}
    properties |= {"poll.interval.ms": "1"} | {name.replace("_", "."): value for name, value in keys.items()}
    parsed = JdbcConfig.parse(properties)
    assert parsed.config is not None, parsed.findings
    source, context = CountedSource(parsed.config), FakeContext()
    source.asked = Counter()
    pages: list[list[Page]] = [[]]
    asked: list[Counter[str]] = []
    waiting = list(between)

    def on_round(_: int) -> None:
        asked.append(Counter(source.asked))
        source.asked.clear()
        if not waiting:
            raise RoundsReadError
        waiting.pop(0)()
        pages.append([])

    context.on_round = on_round
    with suppress(RoundsReadError):
        async with aclosing(source.fetch(context)) as fetched:
            async for page in fetched:
                pages[-1].append(page)
                context.commit(page)
    return pages, asked


def made(path: Path, tables: int) -> sqlite3.Connection:
    """A database with so many tables, of a row each."""
    database = sqlite3.connect(path, isolation_level=None)
    for number in range(tables):
        database.execute(f"create table t{number} (id integer primary key autoincrement not null, v text)")
        database.execute(f"insert into t{number} (v) values ('first')")  # noqa: S608 - a test's own names
    return database


def _run(database: sqlite3.Connection, statement: str) -> None:
    database.execute(statement)


def topics(pages: Sequence[Page]) -> list[str | None]:
    """Of pages that have rows."""
    return [page.topic for page in pages if len(page)]


async def test_an_idle_round_is_one_statement_for_many_tables(tmp_path: Path) -> None:
    """And the round after a row has come reads its table alone."""
    count = TABLES_MAX + 3
    database = made(tmp_path / "x.db", count)
    insert = "insert into t7 (v) values ('second')"
    pages, asked = await rounds(f"jdbc:sqlite:{tmp_path}/x.db", [lambda: None, lambda: _run(database, insert)])
    database.close()
    assert len(topics(pages[0])) == count
    assert not pages[1]
    assert asked[1] == {"read": 2}
    assert topics(pages[2]) == ["x.t7"]
    assert asked[2] == {"read": 3, "relation": 2, "bound": 1, "holders": 1}


async def test_empty_tables_are_idle_until_their_first_row(tmp_path: Path) -> None:
    """There is no highest id in them."""
    database = made(tmp_path / "x.db", 0)
    database.execute("create table t (id integer primary key autoincrement not null)")
    pages, asked = await rounds(
        f"jdbc:sqlite:{tmp_path}/x.db", [lambda: None, lambda: _run(database, "insert into t values (null)")]
    )
    database.close()
    assert (pages[1], asked[1]) == ([], {"read": 1})
    assert topics(pages[2]) == ["x.t"]


async def test_a_table_that_is_gone_hides_no_news_of_the_others(tmp_path: Path) -> None:
    """The statement over all of them fails; then each is asked alone, as at first."""
    database = made(tmp_path / "x.db", 3)

    def change() -> None:
        database.execute("drop table t1")
        database.execute("insert into t2 (v) values ('second')")

    pages, _ = await rounds(f"jdbc:sqlite:{tmp_path}/x.db", [lambda: None, change, lambda: None])
    database.close()
    assert [topics(each) for each in pages[1:]] == [[], ["x.t2"], []]


async def test_a_counter_that_was_set_back_is_told_as_before(tmp_path: Path) -> None:
    """An emptied table is not taken for an idle one."""
    database = made(tmp_path / "x.db", 2)

    def change() -> None:
        database.execute("delete from t1")
        database.execute("update sqlite_sequence set seq = 0 where name = 't1'")

    with pytest.raises(Fatal, match="t1: the last number given out is 0"):
        await rounds(f"jdbc:sqlite:{tmp_path}/x.db", [change])
    database.close()


async def test_rounds_by_time_leave_nothing_out(tmp_path: Path) -> None:
    """There the end of a range is the clock, which a look at the table does not tell."""
    database = made(tmp_path / "x.db", 0)
    database.execute("create table t (at timestamp not null)")
    _, asked = await rounds(
        f"jdbc:sqlite:{tmp_path}/x.db", [lambda: None], mode="timestamp", timestamp_column_name="at"
    )
    database.close()
    assert asked[1]["relation"]
