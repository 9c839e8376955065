# ruff: noqa: S608 - names are quoted, and values are parameters
"""SQLite by Python's own driver. Decimals, dates and times, for which it has no type, are texts."""

from __future__ import annotations

import math
import os
import re
import sqlite3
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from fetchers.sdk import Disconnected, Fatal, FetchError
from fetchers.sdk.reach import AllowedPaths, PathRefusedError
from service.sinks.calendar import FOUR_DIGITS
from service.sinks.jdbc.config import JdbcSinkConfig
from service.sinks.jdbc.database import (
    Family,
    RowsRefused,
    Target,
    TargetChanged,
    TargetColumn,
    columns_sql,
    targets_of,
)
from service.sinks.jdbc.rows import FieldColumn, Rows
from service.sinks.jdbc.texts import time_texts

LOCK_SECONDS_MAX = 5.0
_ROWS = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE}
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_SCHEMA}
_PASSING |= {sqlite3.SQLITE_INTERRUPT}
SQLITE_MENDS = {
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_READONLY: "the file, or its file system, is read-only: mount it to be written, or give the worker's "
    "user the right to write the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "give the worker's user the right to write the file and its folder",
    sqlite3.SQLITE_PERM: "give the worker's user the right to write the file and its folder",
    sqlite3.SQLITE_NOTADB: "connection.url names a file that is no database of SQLite: name another one",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it",
}
"""What a person must do about errors that waiting does not mend."""
_LENGTH = re.compile(r"\(\s*(\d+)\s*\)")


class SqliteTarget:
    """One connection; see ``Database``."""

    calendar = FOUR_DIGITS
    locking = ""
    long_text_type = "TEXT"

    def __init__(self, config: JdbcSinkConfig, paths: AllowedPaths) -> None:
        """``paths``: which files may be opened."""
        self._config = config
        self._paths = paths
        self._file = config.login.url.database
        self._connection: sqlite3.Connection | None = None

    @property
    def text_key_type(self) -> str:
        """Texts of keys are compared byte by byte."""
        return "TEXT"

    def connect(self) -> None:
        """Open the file, which is made where it is missing."""
        if self._connection is not None:
            return
        path = os.path.realpath(self._file)
        try:
            self._paths.check(path)
        except PathRefusedError as error:
            raise Fatal(str(error)) from error
        try:
            made = sqlite3.connect(
                f"file:{quote(path)}?mode=rwc",
                uri=True,
                timeout=LOCK_SECONDS_MAX,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise Fatal(
                f"{self._file}: {error}; make its folder, or give the worker's user the right to write"
            ) from error
        made.execute("pragma foreign_keys = on")
        self._connection = made

    def close(self) -> None:
        """Also in the middle of a transaction, which is then undone."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    def cancel(self) -> None:
        """By ``sqlite3_interrupt``."""
        connection = self._connection  # another thread may close it meanwhile
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.interrupt()

    def run(self, sql: str) -> None:
        """One statement."""
        self._many(sql, None)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Of a SELECT."""
        try:
            return self._open.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise Disconnected(f"{self._file}: the connection was closed")
        return self._connection

    def _many(self, sql: str, rows: list[tuple[Any, ...]] | None) -> None:
        try:
            if rows is None:
                self._open.execute(sql)
            else:
                self._open.executemany(sql, rows)
        except sqlite3.IntegrityError as error:
            raise RowsRefused(str(error)) from error
        except sqlite3.Error as error:
            raise self._failure(error) from error
        except OverflowError as error:
            raise RowsRefused(str(error)) from error

    def _failure(self, error: sqlite3.Error) -> FetchError | RowsRefused:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _ROWS:
            return RowsRefused(str(error))
        if str(error).startswith(("no such table", "no such column", "table ")) and code == sqlite3.SQLITE_ERROR:
            return TargetChanged(f"{self._file}: {error}")
        if code in _PASSING:
            return Disconnected(f"{self._file}: {error}")
        mend = f"; {SQLITE_MENDS[code]}, then restart the task" if code in SQLITE_MENDS else ""
        return Fatal(f"{self._file}: {error}{mend}")

    def quoted(self, name: str) -> str:
        """As the standard does."""
        return '"' + name.replace('"', '""') + '"'

    def literal(self, text: str) -> str:
        """As the standard does."""
        return "'" + text.replace("'", "''") + "'"

    def folded(self, name: str) -> str:
        """Names are found in any case."""
        return name

    def target(self, name: str) -> Target | None:
        """By ``table_info``."""
        schema, _, table = name.rpartition('"."')
        pragma = f'{schema}".table_xinfo("{table})' if schema else f"table_xinfo({name})"
        rows = self.rows(f"pragma {pragma}")
        columns = {row[1]: _column(row, is_only_key=sum(bool(other[5]) for other in rows) == 1) for row in rows}
        return Target(name, columns) if columns else None

    def type_of(self, column: FieldColumn, *, is_key: bool) -> str:
        """By affinity: https://sqlite.org/datatype3.html."""
        del is_key
        kind = column.values.type
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return "INTEGER"
        if pa.types.is_floating(kind):
            return "REAL"
        return "BLOB" if pa.types.is_binary(kind) else "TEXT"

    def default_of(self, value: Any, *, is_added: bool) -> str | None:  # noqa: ARG002 - for MySQL
        """As the values themselves are written: decimals are texts."""
        bound = _bound(value, self._config.db_timezone)[0].as_py()
        if isinstance(bound, bytes):
            return f"x'{bound.hex()}'"
        if isinstance(bound, float):
            return repr(bound) if math.isfinite(bound) else None
        return str(bound) if isinstance(bound, int) else self.literal(str(bound))

    def begin(self) -> None:
        """With the lock of the one writer."""
        self.run("begin immediate")

    def commit(self) -> None:
        """What another process has locked is waited for."""
        self.run("commit")

    def prepare(self, rows: Rows, target: Target) -> None:
        """Nothing."""

    def insert(self, rows: Rows, target: Target, *, mode: str) -> None:
        """Row by row, in the driver."""
        names = [column.name for column in targets_of(rows, target)]
        keys, others = names[: len(rows.keys)], names[len(rows.keys) :]
        if mode == "update":
            changes = ", ".join(f"{self.quoted(name)} = ?" for name in others)
            wanted = " and ".join(f"{self.quoted(name)} = ?" for name in keys)
            if others:
                columns = [*rows.values, *rows.keys]
                self._many(f"update {target.name} set {changes} where {wanted}", self._values(columns))
            return
        marks = ", ".join("?" * len(names))
        sql = f"insert into {target.name} ({columns_sql(self, names)}) values ({marks})"
        if mode == "upsert":
            changes = ", ".join(f"{self.quoted(name)} = excluded.{self.quoted(name)}" for name in others)
            sql += f" on conflict ({columns_sql(self, keys)}) do " + (f"update set {changes}" if others else "nothing")
        self._many(sql, self._values(rows.columns))

    def delete(self, rows: Rows, target: Target) -> None:
        """By key."""
        names = [column.name for column in targets_of(rows, target)][: len(rows.keys)]
        wanted = " and ".join(f"{self.quoted(name)} = ?" for name in names)
        self._many(f"delete from {target.name} where {wanted}", self._values(rows.keys))

    def _values(self, columns: Any) -> list[tuple[Any, ...]]:
        lists = [_bound(column.values, self._config.db_timezone).to_pylist() for column in columns]
        return list(zip(*lists, strict=True))


def _bound(values: Any, zone: str) -> Any:
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if pa.types.is_decimal(values.type):
        return values.cast(pa.string())
    return time_texts(values, zone)


def _column(row: tuple[Any, ...], *, is_only_key: bool) -> TargetColumn:
    """Of ``table_xinfo``: number, name, type, not null, default, place in the key, hidden."""
    _, name, declared, not_null, default, key, _ = row
    kind = (declared or "").upper()
    is_rowid = bool(key) and is_only_key and kind == "INTEGER"
    is_text = any(word in kind for word in ("CHAR", "CLOB", "TEXT"))
    if "INT" in kind:
        family = Family.OTHER
    elif is_text:
        family = Family.TEXT
    else:
        is_binary = "BLOB" in kind or not kind
        # Also NUMERIC: fifteen digits of a decimal are kept, as in a double.
        family = Family.BINARY if is_binary else Family.DOUBLE
    length = _LENGTH.search(kind) if is_text else None
    takes_null = not not_null and not (key and not is_rowid)
    return TargetColumn(
        name, declared or "BLOB", family, length_max=int(length[1]) if length else None,
        takes_null=takes_null, is_needed=not takes_null and default is None and not is_rowid, takes_nan=False,
        reads_texts=family in {Family.OTHER, Family.DOUBLE}, holds_any_text=True,
    )  # fmt: skip
