# ruff: noqa: S608 - names are quoted, values are literals, and a query is the config's own
"""PostgreSQL by ADBC: rows come as Arrow, streamed by COPY.

Who may still commit is read from ``pg_locks``: whoever has written to a table, or has taken a number of its sequence,
holds ``RowExclusiveLock`` on it until the end of its transaction (chapter "Explicit Locking" of the manual). A lock is
taken before the number is, so that a bound taken first, and locks looked at next, leave nobody out.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from fetchers.sdk import Fatal, FetchError, Retriable
from fetchers.sdk.reach import AllowedAddresses
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import (
    BATCH_BYTES,
    WHOLE_DAYS,
    Blocking,
    MistypedError,
    NoTableError,
    Range,
    Relation,
    Table,
    wrapped,
)
from fetchers.sql.kinds import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    ColumnPlan,
    Kind,
    exact,
    instant,
    time_of_day,
)
from fetchers.sql.postgresql_catalogue import COLUMNS, FAMILY, SEQUENCES, SUBSCRIPTIONS, bound_by_clock
from fetchers.sql.settling import Holder
from fetchers.toolkit.databases import (
    batches_of,
    cancel_postgresql,
    close_postgresql,
    connect_postgresql,
    postgresql_error,
)
from fetchers.toolkit.exclusive_calls import ExclusiveCalls
from fetchers.toolkit.postgres_texts import key_literal, key_text, takes_any_bytes, text_literal, utf8

T = TypeVar("T")
SETTLING_MS = 1000
"""A transaction takes its time a moment before it can be seen; so much older are the timestamps that are read."""
_PLAIN = {"int2": INT16, "int4": INT32, "int8": INT64, "float4": FLOAT32, "float8": FLOAT64, "bool": BOOLEAN}
_PLAIN |= {"bpchar": STRING, "varchar": STRING, "text": STRING, "bytea": BYTES, "date": DATE}
_NUMBERS = {"int2", "int4", "int8", "oid", "numeric", "float4", "float8"}
_ANY_BYTES = Kind(STRING.form, STRING.arrow, judge=utf8)
"""Texts of a database without an encoding."""
_STANDBY = (
    "The server is a standby, which cannot tell which transactions of its primary are open: name the primary, "
    "or set late.commits=ignore, and rows may be lost."
)
_SUBSCRIBED = "s"
_UNSEEN = {
    "f": "Writers of a foreign table are on its own server, and are not seen here: read it there",
    _SUBSCRIBED: "A subscription writes into it, and open transactions of its publisher are not seen: read it there",
    "m": "A materialized view shows a late commit when it is refreshed: read a table or a plain view",
}
"""Kinds of relations whose late commits cannot be waited for, and what writes into a table like that."""
_OR_IGNORE = "or set late.commits=ignore, and rows may be lost."
_RELKINDS = {"TABLE": "rpf", "VIEW": "vm", "PARTITIONED TABLE": "p", "FOREIGN TABLE": "f", "MATERIALIZED VIEW": "m"}
_WRITING = "'RowExclusiveLock','ShareRowExclusiveLock','ExclusiveLock','AccessExclusiveLock'"
_CHANGED = ("42P01", "42703", "42804", "0A000")
_MISTYPED = ("22P02", "42883", "XX000")
"""A text that its type does not take, an operator that two types have not, a type that is not there any more."""
_NAME = f"headrace {uuid.uuid4().hex[:12]}"
"""What sessions of this process are called: they only read. A writer may be called as it likes, also ``headrace``."""
_OTHER = f"a.application_name is distinct from '{_NAME}'"


class _ChangedError(Retriable):
    """What was read is not there any more, or not as it was."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}; what was read has changed meanwhile")
        self.text = text


class PostgresDatabase:
    """One connection; see ``Database``."""

    settling_ms = SETTLING_MS

    def __init__(self, config: JdbcConfig, blocking: Blocking, addresses: AllowedAddresses) -> None:
        """``blocking``: where the driver's calls are made; ``addresses``: what may be connected to."""
        self._config = config
        self._addresses = addresses
        self._blocking = blocking
        self._connection: Any = None
        self._cursor: Any = None
        """Of the rows that are being read."""
        self._is_primary = False
        """Whether the server is known to be no standby; none becomes one while it runs."""
        self._takes_any_bytes = False
        """Whether the database has no encoding."""
        self._calls = ExclusiveCalls(self._release, interrupt=self._cancel)

    async def open(self) -> None:
        """Connect."""
        await self._call(self._connect)

    def _connect(self) -> None:
        self._connection = connect_postgresql(self._config.login, addresses=self._addresses, program=_NAME)
        self._takes_any_bytes = takes_any_bytes(self._connection)

    def close(self) -> None:
        """At once, or at the end of the call that runs."""
        self._calls.close()

    def _cancel(self) -> None:
        cancel_postgresql(self._connection)

    def _release(self) -> None:
        close_postgresql(self._cursor, self._connection)
        self._cursor = self._connection = None

    async def _call(self, call: Callable[[], T]) -> T:
        def guarded() -> T:
            try:
                with self._calls.call():
                    return call()
            except adbc.Error as error:
                raise _failure(error, self._config.url.host) from error

        return await self._blocking.run_blocking(guarded, subject="database")

    def _select(self, sql: str) -> list[dict[str, Any]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            found: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
            return found

    async def tables(self, *, types: Sequence[str], schema_pattern: str | None) -> list[Table]:
        """Tables, partitioned ones as one table, and views; single partitions where tables are listed."""
        kinds = sorted({f"'{kind}'" for word in types for kind in _RELKINDS.get(word, "")})
        whole = "true" if self._config.table_whitelist else "not c.relispartition"
        where = f"n.nspname like {text_literal(schema_pattern)}" if schema_pattern else "true"
        rows = await self._call(
            lambda: self._select(
                "select n.nspname::text as schema, c.relname::text as name from pg_class c "
                "join pg_namespace n on n.oid = c.relnamespace "
                f"where c.relkind in ({','.join(kinds) or 'null'}) and {whole} "
                "and n.nspname <> 'information_schema' and n.nspname !~ '^pg_' "
                f"and {where} and has_table_privilege(c.oid, 'SELECT') order by 1, 2"
            )
        )
        return [Table(row["name"], row["schema"], database=self._config.url.database) for row in rows]

    async def relation(self, table: Table) -> Relation:
        """By the catalogue."""
        oid = f"to_regclass({text_literal(self._source(table))})::oid"
        rows = await self._call(lambda: self._select(COLUMNS.format(oid=oid)))
        if not rows:
            raise NoTableError(f"there is no table {table.schema_name}, or it has no columns")
        keyed = sorted((row["key_at"], row["name"]) for row in rows if row["key_at"] >= 0)
        return Relation(
            table.name,
            self._source(table),
            tuple(
                self._column(row["name"], row["type"], row["modifier"], not_null=row["not_null"], order=row["sorted"])
                for row in rows
            ),
            table,
            tuple(name for _, name in keyed),
            next((row["name"] for row in rows if row["is_numbered"]), None),
            rows[0]["is_view"],
            frozenset(row["name"] for row in rows if row["type"] == "timestamptz"),
            {
                row["name"]: row["modifier"]
                for row in rows
                if row["type"].startswith("timestamp") and row["modifier"] >= 0
            }
            | {row["name"]: WHOLE_DAYS for row in rows if row["type"] == "date"},
        )

    async def query(self, text: str) -> Relation:
        """By what the server says of the query's columns."""
        source = f"{wrapped(text)} as query"
        try:
            schema = await self._call(partial(self._schema, f"select * from {source} limit 0"))
        except _ChangedError as error:
            raise Fatal(f"the query cannot be read: {error.text}") from error
        found = [
            (field.name, *(field.metadata or {}).get(b"POSTGRESQL:type", b"").decode().split(), _modifier(field))
            for field in schema
        ]
        names = [name for name, *_ in found]
        if twice := [name for at, name in enumerate(names) if name in names[:at]]:
            raise Fatal(f"the query has several columns {twice[0]}: give each a name of its own by AS")
        return Relation(
            self._config.topic_prefix,
            source,
            tuple(self._column(name, kind, modifier, not_null=False) for name, kind, modifier in found),
            zoned=frozenset(name for name, kind, _ in found if kind == "timestamptz"),
        )

    def _schema(self, sql: str) -> Any:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetch_arrow_table().schema

    def _column(self, name: str, kind: str, modifier: int, *, not_null: bool, order: str = "") -> ColumnPlan:
        expression, made = self._kind(self.quoted(name), kind, modifier)
        if made is STRING and self._takes_any_bytes:
            made = _ANY_BYTES
        numeric = kind in _NUMBERS
        is_whole = numeric and kind not in {"float4", "float8"} and (kind != "numeric" or _scale(modifier) <= 0)
        is_time = kind in {"timestamp", "timestamptz", "date"}
        tells: Any = "numbers" if is_whole else "times" if is_time else "neither"
        order = "" if numeric else order  # numbers of all types have the same
        return ColumnPlan(name, expression, made, not not_null, numeric, tells, order=order)

    def _kind(self, column: str, kind: str, modifier: int) -> tuple[str, Kind]:
        config = self._config
        if kind in _PLAIN:
            return column, _PLAIN[kind]
        if kind == "numeric" and modifier >= 0:
            precision = (modifier - 4) >> 16 & 0xFFFF
            return f"{column}::text", exact(precision, _scale(modifier), config.numeric_mapping)
        granularity = config.timestamp_granularity
        found = {
            "timestamp": (column, instant(granularity, config.db_timezone)),
            "timestamptz": (column, instant(granularity, None)),
            "time": (column, time_of_day(granularity)),
            "oid": (f"{column}::bigint", INT64),
        }
        if kind == "bit" and modifier == 1:
            return f"({column}::int = 1)", BOOLEAN
        return found.get(kind, (f"{column}::text", STRING))

    def _source(self, table: Table) -> str:
        return ".".join(self.quoted(part) for part in (table.schema, table.name) if part)

    def quoted(self, name: str) -> str:
        """As the standard does."""
        return '"' + name.replace('"', '""') + '"'

    def text_of(self, expression: str, relation: Relation, column: str) -> str:
        """A cast."""
        text = f"({expression})::text"
        return key_text(text) if relation.column(column).kind is _ANY_BYTES else text

    def literal_of(self, text: str, relation: Relation, column: str) -> str:
        """A literal without a type, which takes the column's."""
        return key_literal(text) if relation.column(column).kind is _ANY_BYTES else text_literal(text)

    async def bound(self, wanted: Range) -> str | None:
        """By ``max`` over the index, or the server's clock."""
        if wanted.time is None:
            sql = f"select max({wanted.identity})::text as bound from {wanted.relation.source}"
        else:
            moment = f"clock_timestamp() - interval '{wanted.delay_ms + SETTLING_MS} milliseconds'"
            sql = bound_by_clock(wanted, f"({moment})", None if wanted.is_zoned else self._config.db_timezone)
        found: str | None = (await self._call(lambda: self._select(sql)))[0]["bound"]
        return found

    async def _is_standby(self) -> bool:
        return bool((await self._call(lambda: self._select("select pg_is_in_recovery() as it")))[0]["it"])

    async def holders(self, wanted: Range) -> frozenset[Holder]:
        """By ids: transactions that hold a lock for writing: on the table; on any where it is a view.

        By time: every open transaction. An ordinary user does not see the type of other roles' sessions.
        """
        if not self._is_primary and await self._is_standby():
            raise Retriable(f"{self._config.url.host}: {_STANDBY}")  # it may be about to take over
        self._is_primary = True
        here = "l.database = (select oid from pg_database where datname = current_database())"
        locks = f"l.locktype = 'relation' and l.mode in ({_WRITING}) and {here}"
        family = subscribed = ""
        oid = f"to_regclass({text_literal(wanted.relation.source)})::oid"
        if wanted.relation.table is not None:
            family = FAMILY.format(oid=oid)
            subscribed = f" union all select '{_SUBSCRIBED}', null where exists ({SUBSCRIPTIONS})"
        if wanted.time is not None:
            mine = f"l.locktype = 'virtualxid' and a.datname = current_database() and {_OTHER}"
            busy = "a.usesysid is not null and coalesce(a.backend_type, '') not in ('walsender', 'parallel worker')"
            locks = f"(({mine} and {busy}) or ({locks} and l.pid is null))"
        elif wanted.relation.table is not None:
            is_table = f"exists (select from pg_class where oid = {oid} and relkind in ('r', 'p'))"
            locks += f" and (not {is_table} or l.relation in (select oid from tree union {SEQUENCES}))"
        sql = (
            f"{family} select distinct l.virtualtransaction as name, l.pid from pg_locks l "
            f"left join pg_stat_activity a on a.pid = l.pid where l.granted and {locks} "
            f"and l.pid is distinct from pg_backend_pid(){subscribed}"
        )
        rows = await self._call(lambda: self._select(sql))
        if any(row["name"] == _SUBSCRIBED for row in rows):
            raise Retriable(
                f"{self._config.url.host}: {_UNSEEN[_SUBSCRIBED]}; {_OR_IGNORE}"
            )  # it may be about to take over
        return frozenset(
            Holder(row["name"], "transactions", told=f"process {row['pid']}")
            if row["pid"] is not None
            else Holder(row["name"], heir_of="transactions", told=f"prepared transaction {row['name']}")
            for row in rows
        )

    async def read(self, sql: str, *, rows_max: int) -> AsyncGenerator[pa.RecordBatch, None]:
        """Streamed by COPY, in pieces of a few megabytes, cut to at most ``rows_max`` rows."""
        reader = await self._call(partial(self._start, sql))
        while (batch := await self._call(partial(_next, reader))) is not None:
            for start in range(0, batch.num_rows, rows_max):
                yield batch.slice(start, rows_max)

    def _start(self, sql: str) -> Any:
        if self._cursor is not None:
            self._cursor.close()
        self._cursor = self._connection.cursor()
        self._cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        self._cursor.execute(sql)
        return batches_of(self._cursor)

    async def counter(self, wanted: Range) -> int | None:
        """By the sequence, where the user may read it."""
        table = wanted.relation.table
        if table is None or wanted.identity is None:
            return None
        name = wanted.identity.replace('""', '"')[1:-1]
        rows = await self._call(
            lambda: self._select(
                "select last_value from pg_sequences where format('%I.%I', schemaname, sequencename) = "
                f"pg_get_serial_sequence({text_literal(wanted.relation.source)}, {text_literal(name)})"
            )
        )
        return rows[0]["last_value"] if rows else None

    async def trouble(self, wanted: Range) -> str | None:
        """A standby does not know of its primary's transactions, and a sequence with a cache gives old numbers late."""
        if await self._is_standby():
            return _STANDBY
        if wanted.relation.table is None:
            return None
        oid = f"to_regclass({text_literal(wanted.relation.source)})::oid"
        kinds = (
            f"{FAMILY.format(oid=oid)} select relkind::text as kind from pg_class join tree using (oid) "
            f"union all select '{_SUBSCRIBED}' where exists ({SUBSCRIPTIONS})"
        )
        for row in await self._call(lambda: self._select(kinds)):
            if row["kind"] in _UNSEEN:
                return f"{_UNSEEN[row['kind']]}; {_OR_IGNORE}"
        if wanted.time is not None:
            return None
        rows = await self._call(
            lambda: self._select(
                f"{FAMILY.format(oid=oid)} select seqrelid::regclass::text as name from pg_sequence "
                f"where seqcache > 1 and seqrelid in ({SEQUENCES})"
            )
        )
        if not rows:
            return None
        name = rows[0]["name"]
        return f"Sequence {name} keeps numbers back for later transactions. Run: ALTER SEQUENCE {name} CACHE 1"


def _scale(modifier: int) -> int:
    """Of a NUMERIC; 0 where none is declared."""
    return (((modifier - 4) & 0x7FF) ^ 1024) - 1024 if modifier >= 0 else 0


def _modifier(field: Any) -> int:
    return int((field.metadata or {}).get(b"POSTGRESQL:typmod", b"-1"))


def _next(reader: Any) -> Any:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


def _failure(error: Any, host: str) -> FetchError:
    told = postgresql_error(error, host)
    if told.state in _CHANGED:
        return _ChangedError(f"{host}: {told.text} ({told.state})")
    return MistypedError(str(told.failure)) if told.state in _MISTYPED else told.failure
