"""The tables as they are, in the order of their keys, read by ADBC.

A snapshot that is begun with the slot is one transaction, which sees exactly what was committed where the slot's log
begins. One that was broken off, and tables that come later, are read in stretches beside the log
(``fetchers.toolkit.table_reading``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import pyarrow as pa

from fetchers.postgres_cdc.columns import SESSION
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.events import CapturedTable
from fetchers.sdk import Disconnected, Fatal, FetchError, Retriable

BATCH_BYTES = 4 * 1024 * 1024
_BITS = 0xFFFFFFFF
STRETCH_BYTES = 16 * 1024 * 1024
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WATERMARK = (
    "select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() - '0/0' "
    "else pg_logical_emit_message(true, 'headrace', '') - '0/0' end"
)
"""Where the log is now. The message is read by nobody: its commit brings the log before it to the disk, from where
alone the server sends it on."""
_ALTERED = {"42P01", "42703"}
"""No such table, no such column."""
_PASSING = ("40", "53", "55", "57", "58", "08")


@dataclass(frozen=True)
class Seen:
    """Which transactions a snapshot sees, as ``pg_snapshot`` says it."""

    oldest: int
    """All before this one have ended."""
    next: int
    """This one and all behind it are not seen."""
    running: tuple[int, ...]
    """Those between that are not seen either."""

    def unseen(self, transactions: Sequence[int]) -> list[int]:
        """Those among transactions of the log that are not seen; the log tells the lower 32 bits of their numbers."""
        numbers = np.asarray(transactions, np.uint32)
        is_later = (numbers - np.uint32(self.next & _BITS)) < np.uint32(1 << 31)
        is_running = np.isin(numbers, np.asarray([one & _BITS for one in self.running], np.uint32))
        return [int(one) for one in numbers[is_later | is_running]]


def read_seen(text: str) -> Seen:
    """The text of a ``pg_snapshot``: ``xmin:xmax:xip,xip``."""
    oldest, following, running = text.split(":")
    return Seen(int(oldest), int(following), tuple(int(one) for one in running.split(",") if one))


class SnapshotReader:
    """One session, in one read-only transaction or in one for each stretch; calls block, one at a time."""

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
        with self._lock:
            try:
                self._connect()
                self._cursor.execute(_BEGIN)
                if snapshot is not None:
                    self._cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
                else:
                    self._cursor.execute("SELECT 1")  # the first statement takes the snapshot
                    self._cursor.fetchall()
            except adbc.Error as error:
                raise self._failure(error) from error

    def _connect(self) -> None:
        if self._connection is None:
            parts = {**self._config.session, "options": SESSION}
            told = " ".join(f"{name}={_setting(value)}" for name, value in parts.items())
            self._connection = adbc.connect(told, autocommit=True)
            self._cursor = self._connection.cursor()

    @property
    def is_open(self) -> bool:
        """Whether a snapshot was begun."""
        return self._connection is not None

    def stretch(self, sql: str) -> tuple[Seen, pa.RecordBatch, int, int]:
        """Rows of a SELECT in a transaction of its own: what it sees, rows, where the log has told all of it.

        At most ``STRETCH_BYTES`` of rows are kept, and a batch. Last comes how many rows there were.
        """
        with self._lock:
            if self._is_closed:
                raise Disconnected("the connection was closed")
            try:
                self._connect()
                self._cursor.execute(_BEGIN)
                seen = read_seen(str(self._one("select pg_current_snapshot()::text")))
                self._cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
                self._cursor.execute(sql)
                reader = self._cursor.fetch_record_batch()
                kept, size, count = [], 0, 0
                for batch in reader:
                    count += batch.num_rows
                    if size < STRETCH_BYTES:
                        kept.append(batch)
                        size += batch.nbytes
                rows = pa.Table.from_batches(kept, reader.schema).combine_chunks().to_batches()
                self._cursor.execute("COMMIT")
                end = int(str(self._one(_WATERMARK)))
            except (adbc.Error, OSError) as error:
                failure = self._failure(error)
                state = getattr(error, "sqlstate", None)
                raise Retriable(str(failure)) if state in _ALTERED else failure from error
            return seen, rows[0] if rows else pa.RecordBatch.from_pylist([], reader.schema), end, count

    def _one(self, sql: str) -> object:
        self._cursor.execute(sql)
        return self._cursor.fetchall()[0][0]

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


def select(table: CapturedTable, quoted: Callable[..., str], after: Sequence[str] = (), rows_max: int = 0) -> str:
    """SQL of a table's rows behind the key ``after``: its columns, then the texts of its key.

    ``quoted``: names as SQL. ``rows_max``: how many of them; 0: all.
    """
    columns = [f"r.{quoted(name)}{'' if kind.selects else '::text'}" for name, kind in table.kinds.items()]
    keys = [f"r.{quoted(key)}" for key in table.keys]  # a bare name would be that of a text that is selected
    columns += [f"{key}::text" for key in keys]
    where = f" where ({', '.join(keys)}) > ({', '.join(map(_literal, after))})" if after else ""
    order = f" order by {', '.join(keys)}" if keys else ""
    source = quoted(table.relation.schema, table.relation.name)
    limit = f" limit {rows_max}" if rows_max else ""
    return f"select {', '.join(columns)} from {source} as r{where}{order}{limit}"  # noqa: S608 - names are quoted, values literals


def _literal(text: str) -> str:
    quoted = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f"E{quoted}" if "\\" in text else quoted


def _setting(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
