# ruff: noqa: S608 - names are quoted, values are literals, and a query is the config's own
"""MySQL and MariaDB by asyncmy, with each value as the server's own text, of which Arrow makes columns.

Who may still commit is read from ``information_schema``: transactions that have changed rows (``INNODB_TRX``) and
statements that run (``PROCESSLIST``), because a number is given out a moment before InnoDB has begun the transaction.
``INNODB_TRX`` is a copy that the server renews at most ten times a second (manual, "InnoDB INFORMATION_SCHEMA
Transaction and Locking Information", chapter on persistence and consistency): our own query, with a mark, must be in
it before it is believed.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from fetchers.sdk import BackOff, Fatal, FetchError, Retriable
from fetchers.sdk.reach import AllowedAddresses
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import FIRST_ROWS, WHOLE_DAYS, NoTableError, Range, Relation, Table, next_rows, wrapped
from fetchers.sql.kinds import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
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
from fetchers.sql.places import earliest_to_come
from fetchers.sql.settling import Holder
from fetchers.toolkit.mysql import ANSWER_SECONDS_MAX, MySqlConnection, charsets_of, number_of, told
from fetchers.toolkit.mysql_texts import TOLD_AS_THEY_ARE, key_literal, key_text, shown

FRESH_TRIES = 20
FRESH = BackOff(first_seconds=0.11, cap_seconds=2.0, jitter_seconds=0.3)
"""The server's copy of its transactions is renewed when nobody has read it for a tenth of a second: several tasks that
asked at one pace would keep it from each other for ever."""
_MARK = "/* headrace */"
_APPLIER = "system user"
"""Whose the threads are that fetch and apply another server's log (manual, "Replication Threads")."""
_REPLICA = (
    "The server is a replica, which cannot tell which transactions of the server that it follows are open: name that "
    "one, or set late.commits=ignore, and rows may be lost."
)
_SIGNED = {"tinyint": INT8, "smallint": INT16, "mediumint": INT32, "int": INT32, "bigint": INT64, "year": INT32}
_UNSIGNED = {"tinyint": INT16, "smallint": INT32, "mediumint": INT64, "int": INT64}
_WHOLE = {1: "tinyint", 2: "smallint", 3: "int", 8: "bigint", 9: "mediumint", 13: "year"}
_OTHERS = {0: "decimal", 246: "decimal", 4: "float", 5: "double", 7: "timestamp", 10: "date", 11: "time"}
_OTHERS |= {12: "datetime", 16: "bit", 249: "blob", 250: "blob", 251: "blob", 252: "blob"}
_TYPES = _WHOLE | _OTHERS
_BINARY_CHARSET = 63
_OF_THE_SERVER = (1, 3, 4)
"""Thousands of its errors: those of MySQL, of MySQL since 5.7, of MariaDB; 2000 and more are the client's."""
_PASSING = {1040, 1053, 1203, 1205, 1213, 1226, 1317, 1412, 1927, 1969, 3024, 3168}
"""Those that say nothing of the statement: too many sessions, shutdown, locks, kills, limits of time."""
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_CHOICES = {"enum", "set"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", *_CHOICES}
_BIT_WIDTH_OF_INT64 = 63
_EXACT = {
    "float": "({} + 0e0)",  # as a float it is shown with six digits
    "bit": "({} + 0)",
    **dict.fromkeys(_CHOICES, "cast({} as unsigned)"),  # a SET of 64 members is compared as a double, even a signed one
}


class MySqlDatabase:
    """One connection; see ``Database``."""

    settling_ms = 0

    def __init__(self, config: JdbcConfig, addresses: AllowedAddresses) -> None:
        """Nothing is opened yet; ``addresses``: what may be connected to."""
        self._config = config
        self._addresses = addresses
        self._connection = MySqlConnection(config.url.host)
        self._charsets: dict[int, str] | None = None
        """Of the server, once a query was asked for."""

    async def open(self) -> None:
        """Connect; the session's zone is UTC, and it sees committed rows alone, whatever the server's default is."""
        await self._connection.open(self._config.login, self._addresses)
        await self._rows("set session transaction isolation level repeatable read")

    def close(self) -> None:
        """At once; the server notices that nobody reads any more."""
        self._connection.close()

    async def _rows(self, sql: str) -> list[dict[str, Any]]:
        return await self._connection.rows(sql)

    async def tables(self, *, types: Sequence[str], schema_pattern: str | None) -> list[Table]:
        """Of the URL's database; MySQL's schemas are its databases."""
        del schema_pattern
        known = (("TABLE", "'BASE TABLE','SYSTEM VERSIONED'"), ("VIEW", "'VIEW'"))
        kinds = [kind for word, kind in known if word in types]
        rows = await self._rows(
            "select table_schema as s, table_name as n from information_schema.tables "
            f"where table_schema = database() and table_type in ({','.join(kinds) or 'null'}) order by 2"
        )
        return [Table(row["n"], None, row["s"]) for row in rows]

    async def relation(self, table: Table) -> Relation:
        """By ``information_schema``."""
        rows = await self._rows(
            "select column_name as name, data_type as type, is_nullable as nullable, "
            "numeric_precision as p, numeric_scale as s, datetime_precision as d, extra as extra, "
            "if(character_set_name is null, column_default, null) as fallback, column_comment as remark, "
            "character_set_name as charset, if(data_type in ('enum', 'set'), '', column_type) as full, "
            "if(data_type in ('enum', 'set'), md5(column_type), coalesce(collation_name, '')) as sorted, "
            f"(select table_type from information_schema.tables where table_schema = database() "
            f"and table_name = {self._literal(table.name)}) as table_type "
            f"from information_schema.columns where table_schema = database() "
            f"and table_name = {self._literal(table.name)} order by ordinal_position"
        )
        if not rows:
            raise NoTableError(f"there is no table {table.name} that this user may read")
        keys = await self._rows(
            "select column_name as name from information_schema.statistics where table_schema = database() "
            f"and table_name = {self._literal(table.name)} and index_name = 'PRIMARY' order by seq_in_index"
        )
        columns = []
        for row in rows:
            numbers = (int(row["p"] or 0), int(row["s"] or 0))
            columns.append(
                replace(
                    self._column(
                        row["name"], row["type"].lower(), row["full"].lower(), numbers, charset=row["charset"]
                    ),
                    is_nullable=row["nullable"] == "YES",
                    order=row["sorted"],
                )
            )
        return Relation(
            table.name,
            self.quoted(table.name),
            tuple(columns),
            table,
            tuple(row["name"] for row in keys),
            next((row["name"] for row in rows if "auto_increment" in row["extra"].lower()), None),
            rows[0]["table_type"] == "VIEW",
            frozenset(row["name"] for row in rows if row["type"].lower() == "timestamp"),
            {row["name"]: WHOLE_DAYS for row in rows if row["type"].lower() == "date"}
            | {row["name"]: int(row["d"]) for row in rows if row["d"] is not None},
            {
                row["name"]: self._not_null(row)
                for row in rows
                if row["nullable"] == "YES" and not re.search(r"(?<!DEFAULT_)GENERATED|PERSISTENT", row["extra"])
            },
        )

    def _not_null(self, row: dict[str, Any]) -> str:
        """A column with all that MODIFY would take from it, such as ON UPDATE, by which new rows are told."""
        fallback, extra = row["fallback"], row["extra"]
        if fallback is not None and not self._connection.is_mariadb:  # which tells SQL, and NULL as a word
            is_clock = fallback.upper().startswith("CURRENT_TIMESTAMP")
            is_sql = "DEFAULT_GENERATED" in extra and not is_clock
            fallback = f"({fallback})" if is_sql else fallback if is_clock else self._literal(fallback)
        default = "" if fallback in {None, "NULL"} else f" DEFAULT {fallback}"
        renewed = re.search(r"on update \S+", extra, re.IGNORECASE)
        remark = f" COMMENT {self._literal(row['remark'])}" if row["remark"] else ""
        on_update = f" {renewed[0].upper()}" if renewed else ""
        return f"{self.quoted(row['name'])} {row['full']} NOT NULL{default}{on_update}{remark}"

    async def query(self, text: str) -> Relation:
        """By what the server says of the query's columns."""
        source = f"{wrapped(text)} as query"
        if self._charsets is None:
            self._charsets = await charsets_of(self._connection)
        try:
            await self._rows("set character_set_results = null")  # else the results' character set is told, not the own
            async with told(self._config.url.host, ANSWER_SECONDS_MAX), self._connection.driver.cursor() as cursor:
                await cursor.execute(f"select {_MARK} * from {source} limit 0")
                fields = list(cursor._result.fields)  # noqa: SLF001 - asyncmy shows signs and charsets nowhere else
            await self._rows("set character_set_results = utf8mb4")
        except FetchError as error:
            code = number_of(error)
            if code not in _PASSING and code // 1000 in _OF_THE_SERVER:
                raise Fatal(f"the query cannot be read: {error}") from error
            raise
        columns = []
        for item in fields:
            is_text = item.charsetnr != _BINARY_CHARSET
            kind = _TYPES.get(item.type_code, "char" if is_text else "varbinary")
            kind = "text" if kind == "blob" and is_text else kind
            unsigned = " unsigned" if item.flags & 32 else ""
            scale = item.scale
            precision = item.length - (1 if scale else 0) - (0 if unsigned else 1)
            width = f"({item.length})" if kind == "bit" else ""
            charset = self._charsets.get(item.charsetnr)
            columns.append(
                self._column(item.name, kind, f"{kind}{width}{unsigned}", (precision, scale), charset=charset)
            )
        zoned = frozenset(item.name for item in fields if _TYPES.get(item.type_code) == "timestamp")
        # A time may have passed through any expression: no digits are sure.
        seconds = {item.name: WHOLE_DAYS if _TYPES.get(item.type_code) == "date" else 0 for item in fields}
        return Relation(self._config.topic_prefix, source, tuple(columns), zoned=zoned, precisions=seconds)

    def _column(self, name: str, kind: str, full: str, numbers: tuple[int, int], *, charset: str | None) -> ColumnPlan:
        charset = charset if charset and kind in _TEXTS else ""
        texts = shown(charset)
        expression, made = self._kind(self.quoted(name), kind, full, numbers)
        if texts is not None:
            expression, made = texts.expression.format(expression), _text_kind(charset)
        is_numeric = kind in {*_SIGNED, "decimal", "float", "double", "bit", *_CHOICES}
        is_whole = kind in _SIGNED or (kind == "decimal" and numbers[1] == 0)
        is_time = kind in {"timestamp", "datetime", "date"}
        tells: Any = "numbers" if is_whole else "times" if is_time else "neither"
        return ColumnPlan(
            name,
            expression,
            made,
            is_nullable=True,
            is_numeric=is_numeric,
            tells=tells,
            charset=charset,
            exact=_EXACT.get(kind, "{}"),
        )

    def _kind(self, column: str, kind: str, full: str, numbers: tuple[int, int]) -> tuple[str, Kind]:
        granularity, zone = self._config.timestamp_granularity, self._config.db_timezone
        if kind in _SIGNED and "unsigned" in full and kind != "year":
            return column, _UNSIGNED.get(kind, exact(20, 0, "none"))
        if kind == "bit":
            width = int(next(iter(re.findall(r"\d+", full)), "1"))
            wide = INT64 if width <= _BIT_WIDTH_OF_INT64 else exact(20, 0, "none")
            return _EXACT["bit"].format(column), BOOLEAN if width == 1 else wide
        if kind == "decimal":
            return column, exact(*numbers, self._config.numeric_mapping)
        found = {
            "float": (_EXACT["float"].format(column), FLOAT32),
            "double": (column, FLOAT64),
            "date": (column, DATE),
            "datetime": (column, instant(granularity, zone)),
            "timestamp": (column, instant(granularity, "UTC")),
            "time": (column, time_of_day(granularity)),
            "geometry": (f"st_astext({column})", STRING),
            "point": (f"st_astext({column})", STRING),
        }
        if kind in _SIGNED:
            return column, _SIGNED[kind]
        return found.get(kind, (column, BYTES if kind in _BYTES else STRING))

    def quoted(self, name: str) -> str:
        """With backticks."""
        return "`" + name.replace("`", "``") + "`"

    def text_of(self, expression: str, relation: Relation, column: str) -> str:
        """A cast; hexadecimal digits of bytes, which need not be a text; the number of ENUM and SET, their order."""
        plan = relation.column(column)
        if plan.kind is BYTES:
            return f"hex({expression})"
        if plan.charset not in TOLD_AS_THEY_ARE and not plan.is_numeric:
            return key_text(expression, plan.charset)
        return f"cast({plan.exact.format(expression)} as char)"

    def literal_of(self, text: str, relation: Relation, column: str) -> str:
        """Numbers without quotes, because a text would be compared as a double; bytes by their digits."""
        plan = relation.column(column)
        if plan.kind is BYTES and re.fullmatch("(?:[0-9A-F]{2})*", text):
            return f"x'{text}'"
        if plan.is_numeric and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", text):
            return text
        return self._literal(text) if plan.charset in TOLD_AS_THEY_ARE else key_literal(text, plan.charset)

    def _literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    async def bound(self, wanted: Range) -> str | None:
        """By ``max`` over the index, or the server's clock in the column's zone."""
        if wanted.time is None:
            rows = await self._rows(
                f"select cast(max({wanted.identity}) as char) as bound from {wanted.relation.source}"
            )
            found: str | None = rows[0]["bound"]
            return found
        rows = await self._rows("select cast(utc_timestamp(6) as char) as bound")
        moment = datetime.fromisoformat(rows[0]["bound"]) - timedelta(milliseconds=wanted.delay_ms)
        if not wanted.is_zoned:
            moment = earliest_to_come(moment.replace(tzinfo=UTC), ZoneInfo(self._config.db_timezone))
        if wanted.precision == WHOLE_DAYS:
            return moment.date().isoformat()
        step = 10 ** (6 - wanted.precision)
        return moment.replace(microsecond=moment.microsecond // step * step).isoformat(" ", "microseconds")

    async def holders(self, wanted: Range) -> frozenset[Holder]:
        """Statements first: one that is in neither list has ended before its transaction could be seen to."""
        del wanted
        running = await self._running()
        if any(row["applies"] == "1" for row in running):
            raise Retriable(f"{self._config.url.host}: {_REPLICA}")  # it may be about to take over
        mine = {row["id"]: row["number"] for row in running}
        open_now = await self._transactions()
        found = []
        for row in open_now:
            thread = row["thread"]
            if thread == "0":
                found.append(Holder(f"xa {row['id']}", heir_of="transactions", told="a prepared XA transaction"))
            elif int(row["changed"]) or thread in mine:
                name = f"transaction {thread} {row['started']}"
                told = f"connection {thread}, transaction since {row['started']} UTC"
                found.append(Holder(name, "transactions", f"thread {thread}", told))
        begun = {row["thread"] for row in open_now}
        for thread, query in mine.items():
            if thread not in begun:
                found.append(Holder(f"statement {thread} {query}", f"thread {thread}", told=f"connection {thread}"))
        return frozenset(found)

    async def _running(self) -> list[dict[str, Any]]:
        number = "query_id" if self._connection.is_mariadb else "md5(info)"
        return await self._rows(
            f"select {_MARK} id, {number} as number, user = '{_APPLIER}' as applies "
            "from information_schema.processlist where id <> connection_id() "
            "and command not in ('Sleep', 'Daemon', 'Binlog Dump', 'Binlog Dump GTID') "
            f"and coalesce(info, '') not like '%{_MARK}%'"
        )

    async def _transactions(self) -> list[dict[str, Any]]:
        """The server's list, when it is younger than our question; ours is left out."""
        await self._rows("start transaction with consistent snapshot")
        try:
            for attempt in range(1, FRESH_TRIES + 1):
                mark = uuid.uuid4().hex
                rows = await self._rows(
                    f"select {_MARK} trx_id as id, trx_mysql_thread_id as thread, trx_started as started, "
                    "trx_rows_modified as changed, trx_query as query, connection_id() as mine "
                    f"from information_schema.innodb_trx /* {mark} */"
                )
                if any(mark in (row["query"] or "") for row in rows):
                    ours = rows[0]["mine"]
                    others = [row for row in rows if row["thread"] != ours]
                    return [row for row in others if _MARK not in (row["query"] or "")]
                await asyncio.sleep(FRESH.wait_seconds(attempt))
        finally:
            await self._rows("rollback")
        raise Retriable("INNODB_TRX is read by somebody else ten times a second, so that the server does not renew it")

    async def read(self, sql: str, *, rows_max: int) -> AsyncGenerator[pa.RecordBatch, None]:
        """Row by row from the socket, never the whole result; texts as they come."""

        def rows_next(batch: pa.RecordBatch | None) -> int:
            return min(FIRST_ROWS, rows_max) if batch is None else next_rows(batch, rows_max=rows_max)

        marked = sql.replace("select ", f"select {_MARK} ", 1)
        async with aclosing(self._connection.read(marked, rows_next=rows_next)) as batches:
            async for batch in batches:
                yield batch

    async def counter(self, wanted: Range) -> int | None:
        """The table's AUTO_INCREMENT, which the server may tell from a copy of a day's age: asked anew."""
        table, name = wanted.relation.table, wanted.relation.auto_increment
        if table is None or name is None or wanted.identity != self.quoted(name):
            return None
        if not self._connection.is_mariadb:
            await self._rows("set session information_schema_stats_expiry = 0")
        rows = await self._rows(
            "select auto_increment as next from information_schema.tables where table_schema = database() "
            f"and table_name = {self._literal(table.name)}"
        )
        return int(rows[0]["next"]) - 1 if rows and rows[0]["next"] is not None else None

    async def trouble(self, wanted: Range) -> str | None:
        """Without PROCESS the server shows our own transactions alone, or none; a replica shows its own."""
        del wanted
        user = (await self._rows("select current_user() as u"))[0]["u"]
        name = "@".join(f"'{part}'" for part in user.split("@"))
        try:
            await self._transactions()
        except Fatal:
            return f"Open transactions cannot be seen. Run: GRANT PROCESS ON *.* TO {name}"
        return _REPLICA if any(row["applies"] == "1" for row in await self._running()) else None


@cache
def _text_kind(charset: str) -> Kind:
    """One for each, so that a table's columns are seen to be the same."""
    texts = shown(charset)
    if texts is None:
        return STRING
    # A column of a batch that has nulls alone is one of texts.
    return Kind(STRING.form, STRING.arrow, judge=lambda values: texts.column(values.cast(pa.binary())))
