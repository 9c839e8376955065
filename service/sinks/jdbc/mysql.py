# ruff: noqa: S608 - names are quoted, and values are literals
"""MySQL and MariaDB by asyncmy: statements of many rows, whose literals are made in columns.

The session is strict, whatever the server is: a value that does not fit is refused and not cut, a nought stays one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import asyncmy.errors
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import Disconnected, Fatal, FetchError
from fetchers.sdk.reach import AllowedAddresses
from fetchers.toolkit.databases import connect_mysql, mysql_error
from service.sinks.calendar import FOUR_DIGITS
from service.sinks.jdbc.config import JdbcSinkConfig
from service.sinks.jdbc.database import (
    NUMBERS,
    Family,
    RowsRefused,
    Target,
    TargetChanged,
    TargetColumn,
    columns_sql,
    targets_of,
)
from service.sinks.jdbc.rights import mysql_mend
from service.sinks.jdbc.rows import FieldColumn, Rows
from service.sinks.jdbc.texts import literals, time_texts
from service.sinks.json_columns import joined, text

T = TypeVar("T")
ANSWER_SECONDS_MAX = 120.0
IDLE_SECONDS_MAX = 30
"""The server ends a session that says nothing for so long within a transaction: a worker that is frozen or cut off
would hold its locks, and with them its successor, for as long as it lives. MariaDB has a limit for that
(https://mariadb.com/kb/en/transaction-timeouts/). MySQL has one for silence of any kind
(https://dev.mysql.com/doc/refman/8.4/en/server-system-variables.html#sysvar_wait_timeout), so there it is set for the
length of each transaction."""
_COLLATIONS = ("utf8mb4_0900_bin", "utf8mb4_0900_as_cs", "utf8mb4_bin")
"""Of text keys in MySQL, the best first: that of 8.0.17 and later compares bytes, that of earlier 8.0 takes texts that
Unicode calls equal for one, that of 5.7 passes over spaces at the end."""
STATEMENT_BYTES = 1024 * 1024
"""About so long is a statement of many rows."""
_BYTES_PER_LETTER = 4
_MODE = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_MODE += ",NO_AUTO_VALUE_ON_ZERO"
_ROWS = {1048, 1062, 1169, 1216, 1217, 1264, 1265, 1292, 1364, 1365, 1366, 1367, 1369, 1390, 1406, 1411}
_ROWS |= {1441, 1451, 1452, 1467, 1526, 1557, 1586, 1644, 1690, 1748, 1761, 1762, 3140, 3819, 3903, 4025, 4078}
"""What rows hold (server error reference): nulls, duplicates, ranges, foreign keys, checks, partitions, triggers."""
_ROWS -= {1114}
_FATAL = {1005, 1021, 1036, 1060, 1064, 1067, 1071, 1114, 1118, 1136, 1142, 1143, 1166, 1170, 1227, 1267, 1290, 1370}
_FATAL |= {1044, 1045, 1049, 1059, 1102, 1103, 1698, 1792, 3159}
_CHANGED = {1054, 1146}
_NO_RIGHT = {1142, 1143, 1044, 1227, 1370}
_WHOLE = {"tinyint", "smallint", "mediumint", "int", "bigint", "year", "decimal"}
_FAMILIES = dict.fromkeys(_WHOLE, Family.EXACT) | {"float": Family.REAL, "double": Family.DOUBLE, "date": Family.DATE}
_FAMILIES |= dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), Family.TEXT)
_FAMILIES |= dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Family.BINARY)
_FAMILIES |= dict.fromkeys(("time", "datetime", "timestamp"), Family.TIME)
_PLAIN_NUMBER = "^[+-]?[0-9]+([.][0-9]+)?$"
_DIGITS_MAX = 65


class MySqlTarget:
    """One connection; see ``Database``. The driver's coroutines run in an event loop of the sink's thread."""

    calendar = FOUR_DIGITS
    locking = " for update"
    long_text_type = "LONGTEXT"

    def __init__(self, config: JdbcSinkConfig, addresses: AllowedAddresses) -> None:
        """Nothing is opened yet; ``addresses``: what may be connected to."""
        self._config = config
        self._addresses = addresses
        self._host = config.login.url.host
        self._connection: Any = None
        self._runner: asyncio.Runner | None = None
        self._task: asyncio.Task[Any] | None = None
        """The statement that runs."""
        self._is_mariadb = True
        self._collation = "utf8mb4_nopad_bin"
        self._packet_bytes = STATEMENT_BYTES

    @property
    def text_key_type(self) -> str:
        """Without a collation of bytes, ``a`` and ``A`` would be one key."""
        return f"VARCHAR(255) CHARACTER SET utf8mb4 COLLATE {self._collation}"

    def connect(self) -> None:
        """The session's zone is UTC."""
        if self._connection is not None:
            return
        self._runner = asyncio.Runner()
        first = f"SET time_zone = '+00:00', sql_mode = '{_MODE}'"
        self._connection = self._done(connect_mysql(self._config.login, addresses=self._addresses, first_command=first))
        self._is_mariadb = "mariadb" in str(self._connection.get_server_info()).lower()
        if self._is_mariadb:
            self.run(f"SET idle_transaction_timeout = {IDLE_SECONDS_MAX}")
        else:
            there = {name for (name,) in self.rows("select collation_name from information_schema.collations")}
            self._collation = next(name for name in _COLLATIONS if name in there)
        self._packet_bytes = int(self.rows("select @@max_allowed_packet")[0][0])

    def close(self) -> None:
        """The server undoes what was not committed."""
        if self._connection is not None:
            with suppress(asyncmy.errors.Error, OSError, RuntimeError):
                self._connection.close()
        if self._runner is not None:
            self._runner.close()
        self._connection = self._runner = None

    def cancel(self) -> None:
        """By leaving its answer alone; what was not committed is undone with its connection."""
        runner, task = self._runner, self._task
        if runner is not None and task is not None:
            with suppress(RuntimeError):
                runner.get_loop().call_soon_threadsafe(task.cancel)

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            work.close()
            raise Disconnected(f"{self._host}: the connection was closed")

        async def limited() -> T:
            self._task = asyncio.current_task()
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await work

        try:
            return self._runner.run(limited())
        except asyncmy.errors.Error as error:
            raise self._failure(error) from error
        except asyncio.CancelledError as error:
            raise Disconnected(f"{self._host}: the statement was cancelled") from error
        except TimeoutError as error:
            raise Disconnected(f"{self._host}: no answer in time") from error
        except (OSError, EOFError) as error:
            raise Disconnected(f"{self._host}: the connection broke ({type(error).__name__})") from error
        finally:
            self._task = None

    def _failure(self, error: BaseException) -> FetchError | RowsRefused:
        told = mysql_error(error, self._host)
        code, message = int(told.state), f"{self._host}: {told.text} ({told.state})"
        if code in _ROWS:
            return RowsRefused(f"{told.text} ({told.state})")
        if code in _CHANGED:
            return TargetChanged(message)
        if code in _NO_RIGHT:
            login = self._config.login
            return Fatal(f"{message}; {mysql_mend(told.text, login.name or '<user>', str(login.url.database))}")
        return Fatal(message) if code in _FATAL else told.failure

    def run(self, sql: str) -> None:
        """One statement."""
        self.rows(sql)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Of a SELECT, as the server's texts."""
        if self._connection is None:
            raise Disconnected(f"{self._host}: the connection was closed")
        return self._done(_rows(self._connection, sql))

    def quoted(self, name: str) -> str:
        """By its own quotes."""
        return "`" + name.replace("`", "``") + "`"

    def literal(self, text: str) -> str:
        """With the backslashes that it takes for signs."""
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    def folded(self, name: str) -> str:
        """Names are found by the server's own rule."""
        return name

    def target(self, name: str) -> Target | None:
        """By ``information_schema``; a name with a dot is of another database."""
        database, _, table = name.rpartition("`.`")
        where = f"table_name = {self.literal(table.strip('`').replace('``', '`'))} and table_schema = "
        where += self.literal(database.strip("`")) if database else "database()"
        columns = self.rows(
            "select column_name, data_type, column_type, is_nullable, column_default, extra, numeric_scale, "
            f"datetime_precision, character_maximum_length from information_schema.columns where {where} "
            "order by ordinal_position"
        )
        if not columns:
            return None
        indices: dict[str, set[str]] = {}
        for index, column, length in self.rows(
            "select index_name, column_name, sub_part from information_schema.statistics "
            f"where {where} and non_unique = 0"
        ):
            indices.setdefault(index, set()).add(column if column and length is None else f"{column}({length})")
        made = {row[0] for row in columns if "GENERATED" in str(row[5]).upper().replace("DEFAULT_GENERATED", "")}
        found = {row[0]: _column(*row) for row in columns if row[0] not in made}
        made |= {row[0] for row in columns if _is_constant(default=row[4], extra=str(row[5]))}
        made |= {part for index in indices.values() for part in index if part.endswith(")")}
        engines = self.rows(
            "select t.engine from information_schema.tables t join information_schema.engines e on e.engine = t.engine "
            f"where {where} and e.transactions = 'NO'"
        )
        unique = tuple(map(frozenset, indices.values()))
        return Target(name, found, unique, frozenset(made), engine="".join(engine for (engine,) in engines))

    def type_of(self, column: FieldColumn, *, is_key: bool) -> str:  # noqa: PLR0911 - one line a type
        """As Confluent's connector has it, but for texts and bytes of any length and the digits of finer times."""
        kind = column.values.type
        if pa.types.is_boolean(kind) or kind == pa.int8():
            return "TINYINT"
        if pa.types.is_integer(kind):
            return {pa.int16(): "SMALLINT", pa.int32(): "INT"}.get(kind, "BIGINT")
        if pa.types.is_floating(kind):
            return "FLOAT" if kind == pa.float32() else "DOUBLE"
        if pa.types.is_decimal(kind):
            return f"DECIMAL({min(kind.precision, _DIGITS_MAX)},{kind.scale})"
        if pa.types.is_binary(kind):
            return "VARBINARY(255)" if is_key else "LONGBLOB"
        if pa.types.is_date(kind):
            return "DATE"
        if pa.types.is_time(kind) or pa.types.is_timestamp(kind):
            return f"{'TIME' if pa.types.is_time(kind) else 'DATETIME'}({6 if kind.unit == 'us' else 3})"
        return self.text_key_type if is_key else "LONGTEXT CHARACTER SET utf8mb4"

    def default_of(self, value: Any, *, is_added: bool) -> str | None:
        """Texts and bytes as an expression: their types take no other default (MySQL 8.0.13, MariaDB 10.2.1).

        A text is spelt in hexadecimal digits: MariaDB keeps expressions in an encoding without letters beyond the
        basic plane. MySQL refuses a column that is added with an expression where it keeps GTIDs
        (https://dev.mysql.com/doc/refman/8.0/en/replication-gtids-restrictions.html), so it is added without.
        """
        kind = value.type
        if pa.types.is_floating(kind) and not pc.is_finite(value)[0].as_py():
            return None
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            return str(literals(value, self._config.db_timezone, escape=_escaped)[0].as_py())
        if is_added and not self._is_mariadb:
            return None
        if pa.types.is_binary(kind):
            return f"(x'{value[0].as_py().hex()}')"
        return f"(CONVERT(x'{value[0].as_py().encode().hex()}' USING utf8mb4))"

    def begin(self) -> None:
        """At the level that the server has."""
        if not self._is_mariadb:
            self.run(f"SET wait_timeout = {IDLE_SECONDS_MAX}")
        self.run("start transaction")

    def commit(self) -> None:
        """Also where the session is lost behind it: then the next transaction has another one."""
        self.run("commit")
        if not self._is_mariadb:
            try:
                self.run("SET wait_timeout = DEFAULT")
            except FetchError:
                self.close()

    def prepare(self, rows: Rows, target: Target) -> None:
        """See to it that the row that is replaced is the one of the key; raises Fatal."""
        if target.engine and self._config.insert_mode == "insert":
            raise Fatal(
                f"{target.name} is kept by {target.engine}, which has no transactions: rows of a put that fails would "
                f"stay, and come again. Run: ALTER TABLE {target.name} ENGINE=InnoDB"
            )
        if self._config.insert_mode != "upsert":
            return
        columns = [column.name for column in targets_of(rows, target)]
        keys, written = frozenset(columns[: len(rows.keys)]), frozenset(columns)
        if keys not in target.unique:
            told = columns_sql(self, sorted(keys))
            raise Fatal(
                f"upserts need a unique index of exactly pk.fields; run: ALTER TABLE {target.name} ADD UNIQUE ({told})"
            )
        other = next((index for index in target.unique if not keys <= index and index <= written | target.alike), None)
        if other is not None:
            raise Fatal(
                f"{target.name} has another unique index ({columns_sql(self, sorted(other))}), by which an upsert "
                "would change the row of another key: drop it, or name its columns in pk.fields"
            )

    def insert(self, rows: Rows, target: Target, *, mode: str) -> None:
        """By statements of many rows; updates are one for each row."""
        columns = targets_of(rows, target)
        names = [column.name for column in columns]
        keys, others = names[: len(rows.keys)], names[len(rows.keys) :]
        values = [self._literals(own, column) for own, column in zip(rows.columns, columns, strict=True)]
        if mode == "update":
            if others:
                changes = _assigned([self.quoted(name) for name in others], values[len(keys) :], ", ")
                wanted = _assigned([self.quoted(name) for name in keys], values[: len(keys)], " and ")
                statements: Any = joined(text(f"update {target.name} set "), changes, text(" where "), wanted)
                for statement in statements.to_pylist():
                    self._run_within(statement)
            return
        ending = ""
        if mode == "upsert":
            changed = others or keys[:1]
            assigned = ", ".join(f"{self.quoted(name)} = values({self.quoted(name)})" for name in changed)
            ending = f" on duplicate key update {assigned}"
        self._many(f"insert into {target.name} ({columns_sql(self, names)}) values ", values, ending)

    def delete(self, rows: Rows, target: Target) -> None:
        """By lists of keys."""
        columns = targets_of(rows, target)[: len(rows.keys)]
        values = [self._literals(own, column) for own, column in zip(rows.keys, columns, strict=True)]
        names = columns_sql(self, [column.name for column in columns])
        self._many(f"delete from {target.name} where ({names}) in (", values, ")")

    def _literals(self, own: FieldColumn, column: TargetColumn) -> Any:
        # A TIMESTAMP is an instant, which the session's zone tells; others are local times of db.timezone.
        zone = "UTC" if column.kind == "timestamp" else self._config.db_timezone
        values, is_text = own.values, pa.types.is_string(own.values.type)
        if is_text and column.family in NUMBERS and pc.all(pc.match_substring_regex(values, _PLAIN_NUMBER)).as_py():
            # Between quotes it is compared with the numbers of other rows as a double.
            return pc.fill_null(values, "NULL")
        if column.family in {Family.TEXT, Family.BINARY} and not (is_text or pa.types.is_binary(values.type)):
            # Without quotes 1 is the same as the texts 01, 1.0 and 1x.
            values = time_texts(values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values, zone)
            values = values.cast(pa.string())
        return literals(values, zone, escape=_escaped)

    def _many(self, beginning: str, values: Sequence[Any], ending: str) -> None:
        tuples: Any = joined(text("("), pc.binary_join_element_wise(*values, text(",")), text(")"))
        for piece in _pieces(tuples):
            self._run_within(f"{beginning}{','.join(piece.to_pylist())}{ending}")

    def _run_within(self, statement: str) -> None:
        if len(statement) * _BYTES_PER_LETTER >= self._packet_bytes and len(statement.encode()) >= self._packet_bytes:
            raise RowsRefused(f"longer than max_allowed_packet of the server, {self._packet_bytes} bytes")
        self.run(statement)


async def _rows(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    async with connection.cursor() as cursor:
        await cursor.execute(sql)
        return list(await cursor.fetchall()) if cursor.description else []


def _assigned(names: Sequence[str], values: Sequence[Any], divider: str) -> Any:
    pieces = [joined(text(f"{name} = "), each) for name, each in zip(names, values, strict=True)]
    return pc.binary_join_element_wise(*pieces, text(divider))


def _pieces(tuples: Any) -> Iterator[Any]:
    ends = np.cumsum(pc.binary_length(tuples).to_numpy().astype(np.int64))
    begin = 0
    while begin < len(tuples):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + STATEMENT_BYTES, side="right")))
        yield tuples[begin:end]
        begin = end


def _escaped(texts: Any) -> Any:
    return pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "'", "''")


def _column(  # noqa: PLR0913, PLR0917 - a row
    name: str, kind: str, full: str, nullable: str, default: Any, extra: str, scale: Any, digits: Any, length: Any
) -> TargetColumn:
    kind = kind.lower()
    family = _FAMILIES.get(kind, Family.OTHER)
    takes_null = nullable == "YES"
    is_numbered = "auto_increment" in extra.lower()
    found = None
    if family is Family.EXACT:
        found = int(scale or 0) if kind == "decimal" else 0
    elif family is Family.TIME:
        found = int(digits or 0)
    elif family in NUMBERS and scale is not None:
        found = int(scale)  # FLOAT(7,2)
    length_max = int(length) if length is not None and family in {Family.TEXT, Family.BINARY} else None
    if kind in {"tinytext", "text", "mediumtext"}:
        length_max = None  # of bytes, which the server counts
    return TargetColumn(
        name, full if kind != "timestamp" else kind, family, found, length_max,
        takes_null=takes_null, is_needed=not takes_null and default is None and not is_numbered, takes_nan=False,
        reads_texts=family is not Family.OTHER or kind in {"enum", "set"},
        size_bytes=length_max if kind == "binary" else None,
    )  # fmt: skip


def _is_constant(*, default: Any, extra: str) -> bool:
    """Whether it is the same for every row. MariaDB writes the default as SQL, MySQL a constant without quotes."""
    text = "NULL" if default is None else str(default).upper()
    return text != "NULL" and "(" not in text and "CURRENT_TIMESTAMP" not in text and "GENERATED" not in extra
