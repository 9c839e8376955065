"""``JdbcSink`` on SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fetchers.sdk import Fatal
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

    async def test_a_folder_that_is_missing_is_told(self) -> None:
        """A person must mend it."""
        self.url = f"jdbc:sqlite:{self.file.parent}/none/shop.db"
        async with self.sink(auto_create="true") as sink:
            with pytest.raises(Fatal, match="make its folder"):
                await sink.put(batch_of([(1, order("a"))]))
