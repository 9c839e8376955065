"""The contract suite's view of ``JdbcSource``: a table of an SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fetchers.sdk.testing import BadConfig, FetcherCase, ScriptedSource
from fetchers.sql.fetcher import JdbcSource

ROWS = 500
SECRET = "pa55-of-the-database-9x"


class CountedCursor(sqlite3.Cursor):
    """Counts the rows that are fetched from it in pieces, as tables are."""

    rows = 0
    """Of all cursors of the process."""

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        """As sqlite3's."""
        found = super().fetchmany(size)
        CountedCursor.rows += len(found)
        return found


class CountedConnection(sqlite3.Connection):
    """Its cursors count."""

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """As sqlite3's."""
        return self.cursor(CountedCursor).execute(sql, parameters)


class GrowingTable(ScriptedSource):
    """Rows with ids that grow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute(
            "create table items (id integer primary key autoincrement, name text not null, n real)"
        )
        self._count = 0
        self._given_before = CountedCursor.rows
        self._extend(ROWS)

    @property
    def properties(self) -> Mapping[str, str]:
        """Small pages, so that there are many offsets."""
        return {
            "connection.url": f"jdbc:sqlite:{self._path}",
            "connection.password": SECRET,
            "mode": "incrementing",
            "table.whitelist": "items",
            "topic.prefix": "test.",
            "batch.max.rows": "20",
        }

    @property
    def expected(self) -> Sequence[bytes]:
        """As dead letters would show them."""
        return tuple(
            f'{{"id":{number},"name":"name {number} ü","n":{number / 2}}}'.encode()
            for number in range(1, self._count + 1)
        )

    async def add(self) -> None:
        """Three rows."""
        self._extend(3)

    async def hang(self) -> None:
        """Hold the lock of all."""
        self._connection.execute("begin exclusive")

    async def wait_until_asked(self) -> None:
        """A lock does not tell who waits for it."""
        await asyncio.sleep(0)

    async def refuse(self) -> None:
        """Drop the table."""
        self._connection.execute("drop table items")

    @property
    def records_given(self) -> int:
        """Rows that the driver has handed out: a database gives no row that nobody has fetched."""
        return CountedCursor.rows - self._given_before

    def close(self) -> None:
        """Give up the lock."""
        self._connection.close()

    def _extend(self, count: int) -> None:
        numbers = range(self._count + 1, self._count + count + 1)
        with self._connection:
            self._connection.executemany(
                "insert into items (name, n) values (?, ?)", [(f"name {number} ü", number / 2) for number in numbers]
            )
        self._count += count


class SqlCase(FetcherCase):
    """``JdbcSource`` on SQLite; PostgreSQL and MariaDB have their own tests."""

    connector = JdbcSource
    secrets = (SECRET,)
    records_ahead_max = 40
    bad_configs = (
        BadConfig({"connection.url": "postgresql://db/x", "mode": "sideways"}, frozenset({"connection.url", "mode"})),
        BadConfig({"mode": "timestamp"}, frozenset({"timestamp.column.name"})),
        BadConfig(
            {"query": "select 1", "query.suffix": "limit 1"},
            frozenset({"query", "incrementing.column.name", "query.suffix"}),
        ),
        BadConfig({"table.blacklist": "x"}, frozenset({"table.blacklist"})),
        BadConfig({"topic.prefix": None}, frozenset({"topic.prefix"})),
    )

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[GrowingTable]:
        """A file of its own."""
        table = GrowingTable(folder / "items.db")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=CountedConnection))
            try:
                yield table
            finally:
                table.close()


CASE = SqlCase()
