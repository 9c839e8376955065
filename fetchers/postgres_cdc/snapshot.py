"""The tables as they are, in the order of their keys, read by ADBC.

A snapshot that is begun with the slot is one transaction, which sees exactly what was committed where the slot's log
begins. One that was broken off, and tables that come later, are read in stretches beside the log
(``fetchers.toolkit.table_reading``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import pyarrow as pa

from fetchers.postgres_cdc.catalogue import Catalogue
from fetchers.postgres_cdc.columns import SESSION
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.events import CapturedTable
from fetchers.sdk import Retriable
from fetchers.toolkit.databases import batches_of, cancel_postgresql, close_postgresql, postgresql_error
from fetchers.toolkit.exclusive_calls import ExclusiveCalls
from fetchers.toolkit.postgres_texts import KEY_ORDER, key_literal, key_text, takes_any_bytes, text_literal
from fetchers.toolkit.table_reading import UnseenTableError, order_text, texts_behind

BATCH_BYTES = 4 * 1024 * 1024
_BITS = 0xFFFFFFFF
STRETCH_BYTES = 16 * 1024 * 1024
LOCK_MS = 100
"""How long a stretch waits for the lock of its table: the log is not followed meanwhile."""
_LOCK_NOT_AVAILABLE = "55P03"
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WATERMARK = (
    "select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() - '0/0' "
    "else pg_logical_emit_message(true, 'headrace', '') - '0/0' end"
)
"""Where the log is now. The message is read by nobody: its commit brings the log before it to the disk, from where
alone the server sends it on."""
_ANEW = """
select c.oid::regclass::text from pg_class c
where c.oid in (select {oid}::oid union select relid::oid from pg_partition_tree({oid}::oid::regclass))
  and c.relfilenode <> 0 and c.relfilenode <> pg_relation_filenode(c.oid) limit 1"""
"""Where the rows of a table were and are: ``pg_class`` is read as the transaction sees it, the function tells of now.
A table that an ALTER TABLE has written anew since is empty to the transaction, where it was not
(https://www.postgresql.org/docs/current/mvcc-caveats.html); none is, from its first row to the transaction's end."""
_ORDERS = f"""
select a.attname::text as name, {KEY_ORDER} as sorted from pg_attribute a join pg_type t on t.oid = a.atttypid
  join pg_type b on b.oid = case t.typtype when 'd' then t.typbasetype else t.oid end where a.attrelid = %s"""  # noqa: S608 - our own text
_ALTERED = {"42P01", "42703"}
"""No such table, no such column: one was dropped after the catalogue was asked, and is not asked for again."""


class LockedError(UnseenTableError):
    """Another statement alters the table, or waits until it may."""

    def __init__(self) -> None:
        super().__init__("a lock that a statement has which alters the table")


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
        self._oid = 0
        """Of the table whose rows the reader has."""
        self._calls = ExclusiveCalls(self._release, interrupt=self._cancel)

    def open(self, snapshot: str | None) -> None:
        """Begin to see what ``snapshot`` saw, an exported one; None: what is committed now."""
        with self._called():
            self._connect()
            self._cursor.execute(_BEGIN)
            if snapshot is not None:
                self._cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            else:
                self._cursor.execute("SELECT 1")  # the first statement takes the snapshot
                self._cursor.fetchall()

    @contextmanager
    def _called(self) -> Iterator[None]:
        """Around each call on the connection: errors of the driver are raised as ``Retriable`` or ``Fatal``."""
        try:
            with self._calls.call():
                yield
        except (adbc.Error, OSError) as error:
            told = postgresql_error(error, self._config.database_hostname)
            raise (Retriable(str(told.failure)) if told.state in _ALTERED else told.failure) from error

    def _connect(self) -> None:
        if self._connection is None:
            parts = {**self._config.session, "options": SESSION}
            told = " ".join(f"{name}={_setting(value)}" for name, value in parts.items())
            self._connection = adbc.connect(told, autocommit=True)
            takes_any_bytes(self._connection)
            self._cursor = self._connection.cursor()

    @property
    def is_open(self) -> bool:
        """Whether a snapshot was begun."""
        return self._connection is not None

    def begin(self, source: str) -> Seen:
        """Begin a transaction for a stretch of a table: what it sees. Nobody can alter the table until it ends.

        Its rows may be older than its columns: see `_ANEW`. Raises `LockedError`.
        """
        with self._called():
            self._connect()
            self._cursor.execute(_BEGIN)
            seen = read_seen(str(self._one("select pg_current_snapshot()::text")))
            self._cursor.execute(f"SET LOCAL lock_timeout = {LOCK_MS}")
            try:
                self._cursor.execute(f"select 1 from {source} limit 0")  # noqa: S608 - by `Catalogue.source`
                self._cursor.fetchall()
            except adbc.Error as error:
                if error.sqlstate != _LOCK_NOT_AVAILABLE:
                    raise
                self._cursor.execute("ROLLBACK")
                raise LockedError from error
            self._cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
        return seen

    def end(self) -> None:
        """End the transaction where no stretch is read."""
        with self._called():
            self._cursor.execute("ROLLBACK")

    def stretch(self, sql: str, oid: int) -> tuple[pa.RecordBatch, int, int]:
        """Rows of a table's SELECT, after which the transaction ends, and where the log has told all of them.

        At most ``STRETCH_BYTES`` of rows are kept, and a batch. Last comes how many rows there were.
        """
        with self._called():
            self._execute(sql)
            reader = batches_of(self._cursor)
            kept, size, count = [], 0, 0
            for batch in reader:
                count += batch.num_rows
                if size < STRETCH_BYTES:
                    kept.append(batch)
                    size += batch.nbytes
            rows = pa.Table.from_batches(kept, reader.schema).combine_chunks().to_batches()
            self._refuse_anew(oid)
            self._cursor.execute("COMMIT")
            end = int(str(self._one(_WATERMARK)))
        return rows[0] if rows else pa.RecordBatch.from_pylist([], reader.schema), end, count

    def _execute(self, sql: str) -> None:
        self._cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        self._cursor.execute(sql)

    def _one(self, sql: str) -> object:
        self._cursor.execute(sql)
        return self._cursor.fetchall()[0][0]

    def _refuse_anew(self, oid: int) -> None:
        self._cursor.execute(_ANEW.format(oid=oid))
        for (name,) in self._cursor.fetchall():
            message = f"{self._config.database_hostname}: {name} was written anew before it was read; it is read again"
            raise Retriable(message)

    def start(self, sql: str, oid: int) -> None:
        """Begin to read a table's SELECT."""
        with self._called():
            self._oid = oid
            self._execute(sql)
            self._reader = batches_of(self._cursor)

    def next(self) -> pa.RecordBatch | None:
        """The next rows; None at the end."""
        with self._called():
            batch = next(self._reader, None)
            if batch is None:
                self._refuse_anew(self._oid)
            return batch

    def close(self) -> None:
        """Let go of the connection: at once, or after the call that runs."""
        self._calls.close()

    def _cancel(self) -> None:
        cancel_postgresql(self._connection)

    def _release(self) -> None:
        close_postgresql(self._cursor, self._connection)
        self._cursor = self._connection = None


def select(
    table: CapturedTable, server: Catalogue, after: Sequence[str] = (), *, rows_max: int = 0, order: str = ""
) -> str:
    """SQL of a table's rows behind the place ``after``: its columns, then the texts of its key.

    ``rows_max``: how many of them; 0: all. ``order``: `key_order`; all rows are behind a place of another one.
    """
    quoted = server.quoted
    columns = [f"r.{quoted(name)}{'' if kind.selects else '::text'}" for name, kind in table.kinds.items()]
    keys = [f"r.{quoted(key)}" for key in table.keys]  # a bare name would be that of a text that is selected
    columns += [key_text(f"{key}::text") if server.takes_any_bytes else f"{key}::text" for key in keys]
    literal = key_literal if server.takes_any_bytes else text_literal
    after = texts_behind(after, order, columns=len(keys))
    where = f" where ({', '.join(keys)}) > ({', '.join(map(literal, after))})" if after else ""
    ordered = f" order by {', '.join(keys)}" if keys else ""
    source = server.source(table.relation.schema, table.relation.name)
    limit = f" limit {rows_max}" if rows_max else ""
    return f"select {', '.join(columns)} from {source}{where}{ordered}{limit}"  # noqa: S608 - names are quoted, values literals


def key_order(table: CapturedTable, server: Catalogue) -> str:
    """The text that stands for the order of a table's key, and for the table; empty where it has none.

    Behind a place of another table of the name there may be rows that neither the log has nor a snapshot.

    As it is now: it is that of the rows of a SELECT only where this has begun, for so long nobody can alter the table.
    """
    if not table.keys:
        return ""
    orders = {row["name"]: row["sorted"] for row in server.rows(_ORDERS, (table.relation.oid,))}
    return order_text([table.relation.oid, *((key, orders.get(key)) for key in table.keys)])


def place_in(table: CapturedTable, batch: pa.RecordBatch, order: str) -> tuple[str, ...]:
    """Behind the last row of a batch of `select`: the texts of its key, then its `key_order`; none without a key."""
    first = len(table.kinds)
    texts = [str(batch.column(first + at)[-1].as_py()) for at in range(len(table.keys))]
    return (*texts, order) if texts else ()


def _setting(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
