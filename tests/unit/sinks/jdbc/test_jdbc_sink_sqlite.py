"""``JdbcSink`` on SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fetchers.sdk import Fatal
from service.sinks.jdbc.sink import TARGETS_MAX
from tests.jdbc_sink_suite import JdbcSinkSuite, batch_of, order


class TestSqlite(JdbcSinkSuite):
    """Every test of the suite, and what is SQLite's own."""

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.file = tmp_path / "shop.db"
        self.url = f"jdbc:sqlite:{self.file}"

    async def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """By a connection of its own."""
        found: list[tuple[Any, ...]] = []
        with closing(sqlite3.connect(self.file)) as connection:
            for statement in statements:
                found = connection.execute(statement).fetchall()
            connection.commit()
        return found

    @pytest.mark.parametrize("column", ["numeric", "integer", "date"])
    async def test_a_text_whose_digits_would_be_lost_is_refused_alone(self, column: str) -> None:
        """A column of numbers makes a double of it; what is no number stays the text that it is."""
        await self.sql(f"create table orders (id integer primary key, v {column})")
        schema = {"type": "record", "name": "O", "fields": [{"name": "v", "type": "string"}]}
        texts = ["2020-01-01", "1.5", "12345678901234567890.5", "word"]
        refused: list[tuple[int, str, str]] = []
        async with self.sink() as sink:
            await sink.put(batch_of([(n, {"v": text}) for n, text in enumerate(texts)], schema, refused=refused))
        assert [row for row, _, _ in refused] == [2]
        assert await self.sql("select v from orders") == [("2020-01-01",), (1.5,), ("word",)]

    async def test_a_folder_that_is_missing_is_told(self) -> None:
        """A person must mend it."""
        self.url = f"jdbc:sqlite:{self.file.parent}/none/shop.db"
        async with self.sink(auto_create="true") as sink:
            with pytest.raises(Fatal, match="make its folder"):
                await sink.put(batch_of([(1, order("a"))]))

    async def test_so_many_tables_are_kept_in_mind(self) -> None:
        """Those that were written to last; in the others each record is as well, and they are looked at anew."""
        topics = [f"day_{number}" for number in range(TARGETS_MAX + 50)]
        made = (f"create table {topic} (id integer primary key, status text, amount integer)" for topic in topics)
        await self.sql("begin", *made)
        async with self.sink() as sink:
            batch = batch_of([(number, order("a")) for number in range(len(topics))])
            records = batch.records.set_column(0, "topic", pa.array(topics))
            await sink.put(replace(batch, records=records))
            assert list(sink._targets) == [f'"{topic}"' for topic in topics[50:]]
            await sink.put(batch_of([(-1, order("b"))], topic="day_60"))
            await sink.put(batch_of([(-1, order("b"))], topic="day_0"))
            assert list(sink._targets) == [f'"{topic}"' for topic in (*topics[51:60], *topics[61:], "day_60", "day_0")]
        selects = [f"select status from {topic} order by 1" for topic in topics]  # noqa: S608 - of the test
        found = [await self.sql(select) for select in selects]
        assert found[0] == found[60] == [("a",), ("b",)]
        assert [rows for number, rows in enumerate(found) if number not in {0, 60}] == [[("a",)]] * (len(topics) - 2)
