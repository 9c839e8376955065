# ruff: noqa: S608 - names are quoted, values are literals, and a query is the config's own
"""SQLite by Python's own driver.

There is one writer at a time, and its lock says whether it is there: while we hold the lock for a moment, every number
and every time that was written is committed ("File Locking And Concurrency In SQLite Version 3").
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pyarrow as pa

from fetchers.sdk import Disconnected, Fatal
from fetchers.sdk.reach import AllowedPaths, PathRefusedError
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import (
    FIRST_ROWS,
    WHOLE_DAYS,
    Blocking,
    NoTableError,
    Range,
    Relation,
    Table,
    next_rows,
    wrapped,
)
from fetchers.sql.kinds import BOOLEAN, BYTES, DATE, FLOAT64, INT64, STRING, ColumnPlan, Kind, column_of, exact, instant
from fetchers.sql.places import earliest_to_come
from fetchers.sql.settling import Holder
from fetchers.toolkit.exclusive_calls import ExclusiveCalls

T = TypeVar("T")
LOCK_SECONDS_MAX = 1.0
_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_NUMBERS = (INT64, FLOAT64, BOOLEAN)  # no set: the form of other kinds has no hash
_LITERAL = re.compile(r"X?'|cast\(x'[0-9A-F]*' as text\)$|-?[0-9.]+(e[+-]?[0-9]+)?$")
_INFINITE = {"Inf": "9e999", "-Inf": "-9e999"}
"""What ``quote`` makes of them in some releases of SQLite, and no release reads."""
_DAY_LETTERS = len("2024-01-31")
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_SCHEMA)


class SqliteDatabase:
    """One connection; see ``Database``."""

    settling_ms = 0

    def __init__(self, config: JdbcConfig, blocking: Blocking, paths: AllowedPaths) -> None:
        """``paths``: which files may be opened."""
        self._config = config
        self._blocking = blocking
        self._paths = paths
        self._connection: sqlite3.Connection | None = None
        self._calls = ExclusiveCalls(self._release, interrupt=self._interrupt)

    async def open(self) -> None:
        """Open the file; it must be there."""
        await self._call(self._connect)

    def _connect(self) -> None:
        path = os.path.realpath(self._config.url.database)
        try:
            self._paths.check(path)
        except PathRefusedError as error:
            raise Fatal(str(error)) from error
        if not os.path.isfile(path):  # noqa: PTH113 - as the rest of the check: texts
            raise Fatal(f"there is no database file {self._config.url.database}")
        self._connection = sqlite3.connect(
            f"file:{quote(path)}?mode=rw",
            uri=True,
            timeout=LOCK_SECONDS_MAX,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection.execute("pragma query_only = on")

    def close(self) -> None:
        """At once, or at the end of the call that runs."""
        self._calls.close()

    def _interrupt(self) -> None:
        connection = self._connection  # the call that runs may release it meanwhile
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.interrupt()

    def _release(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    async def _call(self, call: Callable[[], T]) -> T:
        def guarded() -> T:
            try:
                with self._calls.call():
                    return call()
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code in _PASSING:
                    raise Disconnected(f"{self._config.url.database}: {error}") from error
                raise Fatal(f"{self._config.url.database}: {error}") from error

        return await self._blocking.run_blocking(guarded, subject="database")

    def _select(self, sql: str) -> list[tuple[Any, ...]]:
        assert self._connection is not None  # noqa: S101 - open() was called
        with closing(self._connection.execute(sql)) as cursor:
            return cursor.fetchall()

    async def tables(self, *, types: Sequence[str], schema_pattern: str | None) -> list[Table]:
        """Of the file."""
        del schema_pattern
        kinds = ",".join(f"'{word.lower()}'" for word in types if word in {"TABLE", "VIEW"}) or "null"
        sql = f"select name from sqlite_master where type in ({kinds}) and name not glob 'sqlite_*' order by 1"
        return [Table(row[0]) for row in await self._call(lambda: self._select(sql))]

    async def relation(self, table: Table) -> Relation:
        """By ``table_xinfo``, and the declared types."""
        rows = await self._call(lambda: self._select(f"pragma table_xinfo({self.quoted(table.name)})"))
        if not rows:
            raise NoTableError(f"there is no table {table.name}")
        keys = [row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5]]
        is_rowid = len(keys) == 1 and any(row[1] == keys[0] and row[2].lower() == "integer" for row in rows)
        tied = keys if self._config.mode == "timestamp" and not is_rowid else []
        orders = {name: await self._call(partial(self._order, table, name)) for name in tied}
        columns = tuple(
            replace(
                self._column(row[1], row[2], is_nullable=not row[3] and not (is_rowid and row[1] == keys[0])),
                order=f"{_affinity(row[2])} {orders[row[1]]}" if row[1] in orders else "",
            )
            for row in rows
            if row[6] != 1
        )
        if None in orders.values():
            keys = []
        return Relation(
            table.name,
            self.quoted(table.name),
            columns,
            table,
            tuple(keys),
            keys[0] if is_rowid else None,
            precisions={column.name: WHOLE_DAYS if column.kind is DATE else 0 for column in columns},
        )

    def _order(self, table: Table, name: str) -> str | None:
        """By which rule the texts of a column are compared; None: it holds nulls, as a primary key's may.

        No PRAGMA tells a column's collation. The first SELECT of a UNION decides it for all ("SELECT", section 3.3).
        """
        column, source = self.quoted(name), self.quoted(table.name)
        if self._select(f"select 1 from {source} where {column} is null limit 1"):
            return None
        one = f"select {column} as k from {source} where false union all select 'a'"
        (found,) = self._select(f"select k = 'A', k = 'a ' from ({one})")
        return f"{found}"

    async def query(self, text: str) -> Relation:
        """A query's columns have no declared types: they are told by its first row, and are text where it has none."""
        source = f"{wrapped(text)} as query"
        names, row = await self._call(partial(self._first, f"select * from {source} limit 1"))
        types = {int: "integer", float: "real", bytes: "blob"}
        columns = tuple(
            self._column(name, types.get(type(value), "text"), is_nullable=True)
            for name, value in zip(names, row, strict=True)
        )
        return Relation(self._config.topic_prefix, source, columns, precisions=dict.fromkeys(names, 0))

    def _first(self, sql: str) -> tuple[list[str], tuple[Any, ...]]:
        assert self._connection is not None  # noqa: S101 - open() was called
        with closing(self._connection.execute(sql)) as cursor:
            names = [entry[0] for entry in cursor.description]
            return names, cursor.fetchone() or (None,) * len(names)

    def _column(self, name: str, declared: str, *, is_nullable: bool) -> ColumnPlan:
        kind = self._kind(declared)
        expression = self.quoted(name)
        return ColumnPlan(name, expression, kind, is_nullable, kind in _NUMBERS)

    def _kind(self, declared: str) -> Kind:
        """By the words of the declared type, as SQLite's own affinities, and a few more that people write."""
        word = declared.lower()
        digits = _DECIMAL.search(word)
        if digits is not None:
            return exact(int(digits[1]), int(digits[2] or 0), self._config.numeric_mapping)
        by_word = (
            (("bool",), BOOLEAN),
            (("datetime", "timestamp"), instant(self._config.timestamp_granularity, self._config.db_timezone)),
            (("date",), DATE),
            (("int",), INT64),
            (("char", "clob", "text"), STRING),
            (("blob",), BYTES),
            (("real", "floa", "doub"), FLOAT64),
        )
        return next((kind for words, kind in by_word if any(part in word for part in words)), STRING)

    def quoted(self, name: str) -> str:
        """As the standard does."""
        return '"' + name.replace('"', '""') + '"'

    def text_of(self, expression: str, relation: Relation, column: str) -> str:
        """A literal of SQL: a column may hold texts and numbers. ``quote`` ends a text at its first letter zero."""
        del relation, column
        cut = f"typeof({expression}) = 'text' and instr({expression}, char(0))"
        whole = f"'cast(x' || quote(hex({expression})) || ' as text)'"
        return f"case when {cut} then {whole} else nullif(quote({expression}), 'NULL') end"

    def literal_of(self, text: str, relation: Relation, column: str) -> str:
        """As ``text_of`` has it, or a text from another connector's offset."""
        del relation, column
        if text in _INFINITE:
            return _INFINITE[text]
        return text if _LITERAL.match(text) else "'" + text.replace("'", "''") + "'"

    async def bound(self, wanted: Range) -> str | None:
        """Taken while we hold the writers' lock, if the file can be written; the clock in whole seconds."""
        return await self._call(partial(self._bound, wanted))

    def _bound(self, wanted: Range) -> str | None:
        is_locked = self._config.late_commits == "wait" and self._lock()
        try:
            if wanted.time is None:
                found = self._select(f"select max({wanted.identity}) from {wanted.relation.source}")[0][0]
                return None if found is None else str(int(found))
            newest = self._select(f"select max({wanted.time}) from {wanted.relation.source}")[0][0]
            if newest is None:
                return None
            seconds = int(self._select("select strftime('%s', 'now')")[0][0]) - wanted.delay_ms // 1000
            if isinstance(newest, int | float):
                return str(seconds * 1000)
            moment = datetime.fromtimestamp(seconds, UTC)
            local = earliest_to_come(moment, ZoneInfo(self._config.db_timezone))
            if wanted.precision == WHOLE_DAYS or len(str(newest)) <= _DAY_LETTERS:
                return f"'{local.date().isoformat()}'"
            return "'" + local.isoformat("T" if "T" in str(newest) else " ") + "'"
        finally:
            if is_locked:
                self._select("rollback")
                self._select("pragma query_only = on")

    def _lock(self) -> bool:
        try:
            self._select("pragma query_only = off")
            self._select("begin immediate")
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
                return False
            raise
        return True

    async def holders(self, wanted: Range) -> frozenset[Holder]:
        """Nobody: the bound was taken while nobody wrote."""
        del wanted
        return frozenset()

    async def read(self, sql: str, *, rows_max: int) -> AsyncGenerator[pa.RecordBatch, None]:
        """In steps of ``rows_max``."""
        cursor = await self._call(partial(self._execute, sql))
        names = [f"c{at}" for at in range(len(cursor.description))]
        count = min(FIRST_ROWS, rows_max)
        while rows := await self._call(partial(cursor.fetchmany, count)):
            columns = [column_of(values) for values in zip(*rows, strict=True)]
            batch = pa.RecordBatch.from_arrays(columns, names=names)
            count = next_rows(batch, rows_max=rows_max)
            yield batch

    def _execute(self, sql: str) -> sqlite3.Cursor:
        assert self._connection is not None  # noqa: S101 - open() was called
        return self._connection.execute(sql)

    async def counter(self, wanted: Range) -> int | None:
        """By ``sqlite_sequence``, where the table was made with AUTOINCREMENT."""
        table = wanted.relation.table
        known = await self._call(lambda: self._select("select 1 from sqlite_master where name = 'sqlite_sequence'"))
        if table is None or not known:
            return None
        name = table.name.replace("'", "''")
        rows = await self._call(lambda: self._select(f"select seq from sqlite_sequence where name = '{name}'"))
        return int(rows[0][0]) if rows else None

    async def trouble(self, wanted: Range) -> str | None:
        """There is none."""
        del wanted
        return None


def _affinity(declared: str) -> str:
    """What a column makes of texts that are numbers, and so which values it compares ("Datatypes In SQLite", 3.1)."""
    word = declared.upper()
    if "INT" in word:
        return "numbers"
    if any(part in word for part in ("CHAR", "CLOB", "TEXT")):
        return "texts"
    return "as they are" if not word or "BLOB" in word else "numbers"
