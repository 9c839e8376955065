# ruff: noqa: S608 - names are quoted
"""PostgreSQL by ADBC: rows are copied into a temporary table, and go to theirs by one statement."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from fetchers.sdk import Disconnected, Fatal, FetchError
from fetchers.sdk.reach import AllowedAddresses
from fetchers.toolkit.databases import connect_postgresql, postgresql_error
from fetchers.toolkit.postgres_texts import text_literal
from service.sinks.calendar import Calendar
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
from service.sinks.jdbc.rights import postgresql_mend
from service.sinks.jdbc.rows import FieldColumn, Rows
from service.sinks.jdbc.texts import time_texts

_CHANGED = {"42P01", "42703"}
_ROWS = ("21", "22", "23", "P0001", "44000")
"""SQLSTATE of what rows hold: keys that are one to the database alone, data exceptions, constraints, what triggers
raise, views' check options."""
_NO_RIGHT, _NO_KEY, _READ_ONLY, _FULL = "42501", "42P10", "25006", "53100"
_FAMILIES = {"int2": Family.EXACT, "int4": Family.EXACT, "int8": Family.EXACT, "numeric": Family.EXACT}
_FAMILIES |= {"float4": Family.REAL, "float8": Family.DOUBLE, "text": Family.TEXT, "varchar": Family.TEXT}
_FAMILIES |= {"bpchar": Family.TEXT, "bytea": Family.BINARY, "date": Family.DATE}
_FAMILIES |= dict.fromkeys(("time", "timetz", "timestamp", "timestamptz"), Family.TIME)
_COLUMNS = """
select a.attname::text, b.typname::text, case when t.typtype = 'd' then t.typtypmod else a.atttypmod end,
  (a.attnotnull or t.typnotnull), (a.atthasdef or a.attidentity <> '')
from pg_attribute a join pg_type t on t.oid = a.atttypid
  join pg_type b on b.oid = case t.typtype when 'd' then t.typbasetype else t.oid end
where a.attrelid = to_regclass({name})::oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
order by a.attnum"""
_CALENDAR = Calendar((-2_440_588, 2_145_042_905), (-210_866_803_200_000_000, 2**63 - 1))
"""Dates to the year 5874897, timestamps as far as microseconds go, both from 4714 BC
(https://www.postgresql.org/docs/current/datatype-datetime.html)."""
NAME_BYTES_MAX = 63
_STAGES_MAX = 16
IDLE_SECONDS_MAX = 30
"""The server ends a session that says nothing for so long within a transaction: a worker that is frozen or cut off
would hold its locks, and with them its successor, for as long as it lives."""


class PostgresTarget:
    """One connection; see ``Database``."""

    calendar = _CALENDAR
    locking = " for update"
    long_text_type = "TEXT"

    def __init__(self, config: JdbcSinkConfig, addresses: AllowedAddresses) -> None:
        """Nothing is opened yet; ``addresses``: what may be connected to."""
        self._config = config
        self._addresses = addresses
        self._host = config.login.url.host
        self._connection: Any = None
        self._stages: dict[Any, str] = {}
        """Temporary tables by the types of their columns."""
        self._stages_made = 0

    @property
    def text_key_type(self) -> str:
        """Texts of keys are compared byte by byte."""
        return "TEXT"

    def connect(self) -> None:
        """The session's zone is ``db.timezone``: the server casts instants to times without a zone by it."""
        if self._connection is None:
            try:
                self._connection = connect_postgresql(
                    self._config.login,
                    addresses=self._addresses,
                    program="headrace",
                    zone=self._config.db_timezone,
                )
            except adbc.Error as error:
                raise self._failure(error) from error
            self.run(f"set idle_in_transaction_session_timeout = '{IDLE_SECONDS_MAX}s'")

    def close(self) -> None:
        """The server undoes what was not committed."""
        if self._connection is not None:
            with suppress(adbc.Error, RuntimeError):
                self._connection.close()
        self._connection = None
        self._stages.clear()

    def cancel(self) -> None:
        """By a cancel request."""
        connection = self._connection  # another thread may close it meanwhile
        if connection is not None:
            with suppress(adbc.Error, RuntimeError):
                connection.adbc_cancel()

    @property
    def _open(self) -> Any:
        if self._connection is None:
            raise Disconnected(f"{self._host}: the connection was closed")
        return self._connection

    def run(self, sql: str) -> None:
        """One statement."""
        try:
            with self._open.cursor() as cursor:
                cursor.execute(sql)
        except adbc.Error as error:
            raise self._failure(error) from error

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Of a SELECT."""
        try:
            with self._open.cursor() as cursor:
                cursor.execute(sql)
                found: list[tuple[Any, ...]] = cursor.fetchall()
                return found
        except adbc.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: Any) -> FetchError | RowsRefused:
        told = postgresql_error(error, self._host)
        text = f"{self._host}: {told.text} ({told.state})"
        if told.state.startswith(_ROWS):
            return RowsRefused(f"{told.text} ({told.state})")
        if told.state in _CHANGED:
            return TargetChanged(text)
        mends = {
            _NO_RIGHT: postgresql_mend(told.text, self._config.login.name or "<user>"),
            _NO_KEY: "run: ALTER TABLE <table> ADD PRIMARY KEY (<pk.fields>), or set pk.fields to its key",
            _FULL: "the disk of the server is full: make room, then restart the task",
        }
        if told.state in mends:
            return Fatal(f"{text}; {mends[told.state]}")
        if told.state == _READ_ONLY:
            return Disconnected(f"{text}; the server is a standby, or about to be the primary")
        return told.failure

    def quoted(self, name: str) -> str:
        """As the standard does. Raises Fatal where the server would cut the name, and may take another one for it."""
        if len(name.encode()) > NAME_BYTES_MAX:
            raise Fatal(
                f"'{name}' is longer than the {NAME_BYTES_MAX} bytes that PostgreSQL has for a name: shorten it"
            )
        return '"' + name.replace('"', '""') + '"'

    def literal(self, text: str) -> str:
        """As the standard does."""
        return text_literal(text)

    def folded(self, name: str) -> str:
        """Lower case."""
        return name.lower()

    def target(self, name: str) -> Target | None:
        """By the catalogue."""
        rows = self.rows(_COLUMNS.format(name=self.literal(name)))
        return Target(name, {row[0]: _column(*row) for row in rows}) if rows else None

    def type_of(self, column: FieldColumn, *, is_key: bool) -> str:  # noqa: PLR0911 - one line a type
        """As Confluent's connector has it; finer times keep their digits, and lists and maps are JSON."""
        del is_key
        kind = column.values.type
        if column.is_json:
            return "JSON"
        if pa.types.is_boolean(kind):
            return "BOOLEAN"
        if kind in {pa.int8(), pa.int16()}:
            return "SMALLINT"
        if pa.types.is_integer(kind):
            return "INT" if kind == pa.int32() else "BIGINT"
        if pa.types.is_floating(kind):
            return "REAL" if kind == pa.float32() else "DOUBLE PRECISION"
        if pa.types.is_decimal(kind):
            return "DECIMAL"
        if pa.types.is_binary(kind):
            return "BYTEA"
        if pa.types.is_date(kind):
            return "DATE"
        if pa.types.is_time(kind):
            return "TIME"
        return "TIMESTAMP" if pa.types.is_timestamp(kind) else "TEXT"

    def default_of(self, value: Any, *, is_added: bool) -> str | None:  # noqa: ARG002 - for MySQL
        """Numbers stand between quotes too, as NaN must; instants are local times of the session's zone."""
        if pa.types.is_binary(value.type):
            return self.literal(f"\\x{value[0].as_py().hex()}")
        if pa.types.is_boolean(value.type):
            return str(value[0].as_py()).upper()
        return self.literal(time_texts(value, self._config.db_timezone).cast(pa.string())[0].as_py())

    def begin(self) -> None:
        """At the level that the server has."""
        self.run("begin")

    def commit(self) -> None:
        """Deferred constraints are looked at here."""
        self.run("commit")

    def prepare(self, rows: Rows, target: Target) -> None:
        """Make the temporary tables: within a transaction they would go with what is undone."""
        del target
        for columns in (rows.columns, rows.keys):
            shape = _shape(columns)
            if columns and shape not in self._stages:
                if len(self._stages) >= _STAGES_MAX:
                    oldest = next(iter(self._stages))
                    self.run(f"drop table pg_temp.{self._stages.pop(oldest)}")
                self._stages_made += 1
                name = f"headrace_stage_{self._stages_made}"
                self._ingest(name, _staged(columns).slice(0, 0), mode="create")
                self._stages[shape] = name

    def _ingest(self, name: str, table: pa.Table, *, mode: Any) -> None:
        try:
            with self._open.cursor() as cursor:
                cursor.adbc_ingest(name, table, mode=mode, temporary=True)
        except adbc.Error as error:
            raise self._failure(error) from error

    def _stage(self, columns: tuple[FieldColumn, ...]) -> str:
        name = self._stages[_shape(columns)]
        self.run(f"truncate pg_temp.{name}")
        self._ingest(name, _staged(columns), mode="append")
        return f"pg_temp.{name}"

    def insert(self, rows: Rows, target: Target, *, mode: str) -> None:
        """By one statement."""
        stage = self._stage(rows.columns)
        columns = targets_of(rows, target)
        names = [column.name for column in columns]
        values = [
            _cast(f"s.c{place}", column, own)
            for place, (column, own) in enumerate(zip(columns, rows.columns, strict=True))
        ]
        keys, others = names[: len(rows.keys)], names[len(rows.keys) :]
        if mode == "update":
            changes = [
                f"{self.quoted(name)} = {value}" for name, value in zip(others, values[len(keys) :], strict=True)
            ]
            wanted = self._wanted(rows, columns)
            if others:
                self.run(f"update {target.name} t set {', '.join(changes)} from {stage} s where {' and '.join(wanted)}")
            return
        sql = f"insert into {target.name} ({columns_sql(self, names)}) select {', '.join(values)} from {stage} s"
        if mode == "upsert":
            changes = [f"{self.quoted(name)} = excluded.{self.quoted(name)}" for name in others]
            action = f"update set {', '.join(changes)}" if others else "nothing"
            sql += f" on conflict ({columns_sql(self, keys)}) do {action}"
        self.run(sql)

    def delete(self, rows: Rows, target: Target) -> None:
        """By one statement."""
        stage = self._stage(rows.keys)
        wanted = self._wanted(rows, targets_of(rows, target))
        self.run(f"delete from {target.name} t using {stage} s where {' and '.join(wanted)}")

    def _wanted(self, rows: Rows, columns: Sequence[TargetColumn]) -> list[str]:
        """What is compared with the key. A number is written to a text by itself, but compared with it only as one."""
        made: list[str] = []
        for place, (column, own) in enumerate(zip(columns, rows.keys, strict=False)):
            value = _cast(f"s.c{place}", column, own)
            is_text = column.family is Family.TEXT and not pa.types.is_string(own.values.type)
            made.append(f"t.{self.quoted(column.name)} = {value}{'::text' if is_text else ''}")
        return made


def _shape(columns: tuple[FieldColumn, ...]) -> Any:
    return tuple(column.values.type for column in columns)


def _staged(columns: tuple[FieldColumn, ...]) -> pa.Table:
    return pa.table({f"c{place}": _plain(column.values) for place, column in enumerate(columns)})


def _plain(values: Any) -> Any:
    """What ADBC writes: it knows no decimals of more than 38 digits, and no times of milliseconds."""
    kind = values.type
    if pa.types.is_decimal256(kind):
        return values.cast(pa.string())
    return values.cast(pa.time64("us")) if kind == pa.time32("ms") else values


def _cast(value: str, column: TargetColumn, own: FieldColumn) -> str:
    """Texts go to uuid, json or enums by a cast; to a type with a length there is none, because it would cut."""
    kind = own.values.type
    if pa.types.is_decimal256(kind):
        return f"{value}::numeric"
    is_text = pa.types.is_string(kind)
    return f"{value}::{column.kind}" if is_text and column.family is Family.OTHER else value


def _column(name: str, kind: str, modifier: int, *flags: bool) -> TargetColumn:
    family = _FAMILIES.get(kind, Family.OTHER)
    is_not_null, has_default = flags
    digits = length = None
    if family is Family.EXACT:
        digits = 0
        if kind == "numeric":
            digits = None if modifier < 0 else (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    elif family is Family.TIME:
        digits = None if modifier < 0 else modifier
    elif family is Family.TEXT and modifier >= 0:
        length = modifier - 4
    return TargetColumn(
        name, kind if family is not Family.OTHER else f'"{kind}"', family, digits, length,
        takes_null=not is_not_null, is_needed=is_not_null and not has_default,
    )  # fmt: skip
