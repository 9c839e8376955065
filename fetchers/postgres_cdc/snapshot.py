"""The tables as they are, in the order of their keys, streamed by ADBC in one transaction.

A snapshot that is begun with the slot sees exactly what was committed where the slot's log begins. One that was broken
off goes on behind the last key that is delivered, in a later transaction, while the log still begins where it did: what
happened in between comes by the log, over rows that may show it already, so that nothing is lost and nothing stale
stays (the same as between the watermarks of DBLog, https://arxiv.org/abs/2010.12597).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from fetchers.postgres_cdc.columns import SESSION
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.events import CapturedTable
from fetchers.sdk import Disconnected, Fatal, FetchError, Retriable

BATCH_BYTES = 4 * 1024 * 1024
_PASSING = ("40", "53", "55", "57", "58", "08")


class SnapshotReader:
    """One session in one read-only transaction; calls block, one at a time."""

    def __init__(self, config: PostgresCdcConfig) -> None:
        """Nothing is connected yet."""
        self._config = config
        self._connection: Any = None
        self._cursor: Any = None
        self._reader: Any = None
        self._lock = threading.Lock()
        self._is_closed = False

    def open(self, snapshot: str | None) -> None:
        """Begin to see what ``snapshot`` saw, an exported one; None: what is committed now."""
        parts = {**self._config.session, "options": SESSION}
        told = " ".join(f"{name}={_setting(value)}" for name, value in parts.items())
        with self._lock:
            try:
                self._connection = adbc.connect(told, autocommit=True)
                self._cursor = self._connection.cursor()
                self._cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if snapshot is not None:
                    self._cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
                else:
                    self._cursor.execute("SELECT 1")  # the first statement takes the snapshot
                    self._cursor.fetchall()
            except adbc.Error as error:
                raise self._failure(error) from error

    def start(self, sql: str) -> None:
        """Begin to read a SELECT."""
        with self._lock:
            if self._is_closed:
                raise Disconnected("the connection was closed")
            try:
                self._cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
                self._cursor.execute(sql)
                self._reader = self._cursor.fetch_record_batch()
            except adbc.Error as error:
                raise self._failure(error) from error

    def next(self) -> pa.RecordBatch | None:
        """The next rows; None at the end."""
        with self._lock:
            if self._is_closed:
                raise Disconnected("the connection was closed")
            try:
                batch: pa.RecordBatch = self._reader.read_next_batch()
            except StopIteration:
                return None
            except (adbc.Error, OSError) as error:
                raise self._failure(error) from error
            return batch

    def close(self) -> None:
        """Let go of the connection: at once, or after the call that runs."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                for owned in (self._cursor, self._connection):
                    if owned is not None:
                        with suppress(adbc.Error, RuntimeError):
                            owned.close()
            finally:
                self._lock.release()
        elif self._connection is not None:
            with suppress(adbc.Error):
                self._connection.adbc_cancel()

    def _failure(self, error: Exception) -> FetchError:
        text = str(error).partition("Query was:")[0]
        message = next((part.strip() for part in text.split("ERROR:")[1:]), text).splitlines()[0]
        state = getattr(error, "sqlstate", None) or ""
        host = self._config.database_hostname
        if state and not state.startswith(_PASSING):
            return Fatal(f"{host}: {message} ({state})")
        return Retriable(f"{host}: {message} ({state})") if state else Disconnected(f"{host}: {message}")


def select(table: CapturedTable, quoted: Callable[..., str], after: Sequence[str]) -> str:
    """SQL of a table's rows behind the key ``after``: its columns, then the texts of its key.

    ``quoted``: names as SQL.
    """
    columns = [f"r.{quoted(name)}{'' if kind.selects else '::text'}" for name, kind in table.kinds.items()]
    keys = [f"r.{quoted(key)}" for key in table.keys]  # a bare name would be that of a text that is selected
    columns += [f"{key}::text" for key in keys]
    where = f" where ({', '.join(keys)}) > ({', '.join(map(_literal, after))})" if after else ""
    order = f" order by {', '.join(keys)}" if keys else ""
    source = quoted(table.relation.schema, table.relation.name)
    return f"select {', '.join(columns)} from {source} as r{where}{order}"  # noqa: S608 - names are quoted, values literals


def _literal(text: str) -> str:
    quoted = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f"E{quoted}" if "\\" in text else quoted


def _setting(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
