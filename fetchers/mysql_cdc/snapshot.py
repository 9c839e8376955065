"""A snapshot: the rows of all tables as they were at one place of the log, in one transaction.

MariaDB says the place of a consistent snapshot itself (``binlog_snapshot_file``, knowledge base, "START TRANSACTION").
MySQL does not: all writers are stopped for the moment between the beginning of the transaction and the question for the
place (``FLUSH TABLES WITH READ LOCK``).

What is left of an interrupted one is read in stretches of the key beside the log (``stretches``); so each page's place
names the last key, in texts that a later SELECT can be made of.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.geometry import POINT
from fetchers.mysql_cdc.places import GtidSet, Place
from fetchers.mysql_cdc.table_map import (
    BINARY_CHARSET,
    BIT,
    BLOB,
    DATE,
    DATETIME2,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    GEOMETRY,
    INT24,
    JSON,
    LONG,
    LONGLONG,
    NAMED_BYTES,
    SET,
    SHORT,
    STRING,
    TIME2,
    TIMESTAMP2,
    TINY,
    VARCHAR,
    YEAR,
    Column,
    TableMap,
)
from fetchers.mysql_cdc.tables import Tables
from fetchers.sdk import Fatal, Page
from fetchers.toolkit.mysql import LOCK_TIMED_OUT, MySqlConnection, charsets_of
from fetchers.toolkit.mysql_texts import TOLD_AS_THEY_ARE, key_literal, key_of_bytes, key_text, text_literal
from fetchers.toolkit.table_reading import UnseenTableError, order_text, texts_behind

SYSTEM_DATABASES = ("mysql", "information_schema", "performance_schema", "sys")
UTF8MB4 = 45
FIRST_ROWS = 1_000
PAGE_BYTES = 8_000_000
_TYPES = {
    "tinyint": TINY, "smallint": SHORT, "mediumint": INT24, "int": LONG, "bigint": LONGLONG, "float": FLOAT,
    "double": DOUBLE, "decimal": DECIMAL, "date": DATE, "time": TIME2, "datetime": DATETIME2, "timestamp": TIMESTAMP2,
    "year": YEAR, "bit": BIT, "enum": ENUM, "set": SET, "json": JSON, "char": STRING, "varchar": VARCHAR,
    "binary": STRING, "varbinary": VARCHAR,
} | dict.fromkeys(NAMED_BYTES, STRING) | dict.fromkeys(
    ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection",
     "geometrycollection"), GEOMETRY
) | dict.fromkeys(
    ("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob"), BLOB
)  # fmt: skip
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?")
_NUMBER_OF = "CAST({} AS UNSIGNED)"
"""Of ENUM and SET: a SET itself is compared as a double, and with its 64th member as a negative one. Neither server
reads a range of an index for it."""
_ORDERS = dict.fromkeys((TINY, SHORT, INT24, LONG, LONGLONG, DECIMAL, FLOAT, DOUBLE, YEAR, BIT), LONGLONG)
_ORDERS |= dict.fromkeys((VARCHAR, STRING, BLOB), VARCHAR)
"""Types with one order of their values."""
_CHOICE = re.compile(rb"x'(?P<digits>[0-9a-f]*)'|'(?P<text>(?:[^']|'')*)'")
"""A value of ENUM and SET; MySQL writes those as digits that are no text."""


async def tables_at(connection: MySqlConnection, config: MySqlCdcConfig) -> Tables:
    """None yet; with the character sets of the server."""
    connector = "mariadb" if connection.is_mariadb else "mysql"
    return Tables(config, connector=connector, charsets=await charsets_of(connection))


def is_wanted_database(name: str) -> bool:
    """Whether it is none of the server's own."""
    return name.lower() not in SYSTEM_DATABASES


async def log_end(connection: MySqlConnection) -> Place:
    """Where the log ends now; raises ``Fatal`` where there is none."""
    words = ("MASTER STATUS", "BINARY LOG STATUS")
    version = [int(part) for part in re.findall(r"\d+", connection.version)[:2]]
    word = words[0] if connection.is_mariadb or version < [8, 2] else words[1]
    rows = await connection.rows(f"SHOW {word}")
    if not rows:
        raise Fatal("the server keeps no log: start it with log_bin")
    file, position = str(rows[0]["file"]), int(rows[0]["position"])
    return await _with_gtids(connection, file, position, str(rows[0].get("executed_gtid_set") or ""))


async def _with_gtids(connection: MySqlConnection, file: str, position: int, gtids: str) -> Place:
    of = "server_id" if connection.is_mariadb else "server_uuid"
    rows = await connection.rows(f"SELECT @@server_id AS id, @@{of} AS log_of")
    if connection.is_mariadb:
        found = await connection.rows(f"SELECT binlog_gtid_pos('{file}', {position}) AS gtids")
        gtids = str(found[0]["gtids"] or "")
    number, log_of = int(rows[0]["id"]), str(rows[0]["log_of"])
    return Place(file, position, GtidSet(gtids.replace("\n", "")), server_id=number, log_of=log_of)


async def begin(connection: MySqlConnection, *, lock_seconds_max: int | None) -> Place:
    """Begin the transaction, and say at which place of the log it stands; ``lock_seconds_max``: None for no lock.

    A lock that waits stops all writers, also when who asked for it is gone: the server has to give it up by itself.
    """
    await connection.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    if connection.is_mariadb:
        await connection.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        rows = await connection.rows("SHOW STATUS LIKE 'binlog_snapshot_%'")
        told = {row["variable_name"].lower(): row["value"] for row in rows}
        if not told.get("binlog_snapshot_file"):
            raise Fatal("the server keeps no log: start it with log_bin")
        return await _with_gtids(connection, told["binlog_snapshot_file"], int(told["binlog_snapshot_position"]), "")
    if lock_seconds_max is not None:
        await connection.rows(f"SET @waits = @@lock_wait_timeout, SESSION lock_wait_timeout = {lock_seconds_max}")
        await connection.rows("FLUSH TABLES WITH READ LOCK")
    await connection.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    place = await log_end(connection)
    if lock_seconds_max is not None:
        await connection.rows("UNLOCK TABLES")
        await connection.rows("SET SESSION lock_wait_timeout = @waits")
    return place


async def tables_of(
    connection: MySqlConnection, takes: Callable[[str], bool], *, only: tuple[str, str] | None = None
) -> list[TableMap]:
    """All that are wanted, by name, with their columns as they are now; ``only``: a database and a table of it.

    Raises ``UnseenTableError`` where MariaDB leaves out one that is being altered, with a warning and no other word.
    """
    of = (
        f" AND {{0}}.table_schema = {text_literal(only[0])} AND {{0}}.table_name = {text_literal(only[1])}"
        if only
        else ""
    )
    if connection.is_mariadb:  # else it keeps 64 warnings, and may give one for each view that is broken
        await connection.rows("SET SESSION max_error_count = 65535")
    rows = await connection.rows(
        "SELECT c.table_schema AS d, c.table_name AS t, c.column_name AS n, c.data_type AS k, "  # noqa: S608 - literals
        "CONVERT(c.column_type USING binary) AS full, "  # MariaDB sends half of a surrogate pair as it is
        "c.is_nullable AS z, c.numeric_precision AS p, c.numeric_scale AS s, c.datetime_precision AS f, "
        "c.character_maximum_length AS l, c.character_set_name AS cs, c.collation_name AS co "
        "FROM information_schema.columns c JOIN information_schema.tables x ON x.table_schema = c.table_schema "
        "AND x.table_name = c.table_name WHERE x.table_type = 'BASE TABLE' "
        "AND c.table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')"
        f"{of.format('c')}{of.format('x')} ORDER BY c.table_schema, c.table_name, c.ordinal_position"
    )
    if connection.is_mariadb:
        warnings = await connection.rows("SHOW WARNINGS")
        if any(int(row["code"]) == LOCK_TIMED_OUT for row in warnings):
            raise UnseenTableError(f"{connection.host}: a table is being altered, and could not be looked at in time")
    keys = await _keys(connection, of.format("statistics"))
    found: dict[tuple[str, str], list[Column]] = {}
    for row in rows:
        if takes(f"{row['d']}.{row['t']}"):
            found.setdefault((row["d"], row["t"]), []).append(_column(row))
    return [
        TableMap(database, table, tuple(columns), tuple(keys.get((database, table), ())))
        for (database, table), columns in found.items()
    ]


async def _keys(connection: MySqlConnection, condition: str) -> dict[tuple[str, str], list[str]]:
    """Columns of the key of each table, as the log would describe it.

    That is the primary key, or else the first unique index of whole columns of which none may be null, which the
    servers take for one (``primary_key`` of ``TABLE_SHARE``). MariaDB's indexes of hashes are none.
    """
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    unfit = set()
    for row in await connection.rows(
        "SELECT table_schema AS d, table_name AS t, column_name AS n, index_name AS i, index_type AS k, "  # noqa: S608 - literals
        f"nullable AS z, sub_part AS p FROM information_schema.statistics WHERE non_unique = 0{condition} "
        "ORDER BY table_schema, table_name, seq_in_index"
    ):
        table, index = (row["d"], row["t"]), row["i"]
        found.setdefault(table, {}).setdefault(index, []).append(row["n"])
        is_part = row["n"] is None or row["p"] is not None or row["z"] == "YES"
        if index != "PRIMARY" and (is_part or (connection.is_mariadb and row["k"] == "HASH")):
            unfit.add((*table, index))
    keys = {}
    for table, indexes in found.items():
        fit = [index for index in indexes if (*table, index) not in unfit]
        if len(fit) > 1 and "PRIMARY" not in fit:  # in the server's own order, which the catalogue does not have
            rows = await connection.rows(f"SHOW INDEX FROM {_quoted(table[0])}.{_quoted(table[1])}")
            fit = [row["key_name"] for row in rows if row["key_name"] in fit]
        if fit:
            keys[table] = indexes["PRIMARY" if "PRIMARY" in fit else fit[0]]
    return keys


def _column(row: dict[str, Any]) -> Column:
    """As the log would describe it."""
    kind, full = row["k"].lower(), row["full"]
    made = _TYPES.get(kind, -1)
    size = scale = 0
    values: tuple[bytes, ...] = ()
    if made == DECIMAL:
        size, scale = int(row["p"]), int(row["s"])
    elif made == BIT:
        scale = int(row["p"])
        size = (scale + 7) // 8
    elif made in (TIME2, DATETIME2, TIMESTAMP2):
        scale = int(row["f"] or 0)
    elif kind in NAMED_BYTES:
        scale = NAMED_BYTES[kind]
    elif made == STRING:
        scale = int(row["l"] or 0)
    elif made == GEOMETRY:
        scale = POINT if kind == "point" else 0
    elif made in (ENUM, SET):
        values = tuple(
            one["text"].replace(b"''", b"'") if one["digits"] is None else bytes.fromhex(one["digits"].decode())
            for one in _CHOICE.finditer(full)
        )
    charset = UTF8MB4 if row["cs"] is not None else BINARY_CHARSET  # the session's texts are all UTF-8
    named = kind if kind in NAMED_BYTES else ""
    is_unsigned, is_nullable = b"unsigned" in full.lower(), row["z"] == "YES"
    told = [str(row[name] or "") for name in ("cs", "co")] if made in (VARCHAR, STRING, BLOB, ENUM, SET) else []
    return Column(row["n"], made, size, scale, is_unsigned, charset, values, is_nullable, named, *told)


async def pages(
    connection: MySqlConnection,
    tables: Tables,
    wanted: list[TableMap],
    place: Place,
    *,
    rows_max: int,
    now_us: Callable[[], int],
) -> AsyncGenerator[Page, None]:
    """All rows of all these tables, in the transaction that is open.

    ``place``: where the log is to be read from afterwards.
    """
    place = replace(place, is_snapshot=True)
    for table in wanted:
        keys = KeyTexts(tables, table)
        held: pa.RecordBatch | None = None  # the last page of a table says that the table is through
        async with aclosing(connection.read(keys.select(), rows_next=Sizes(rows_max))) as batches:
            async for batch in batches:
                if held is not None:
                    place = replace(place, table=table.name, keys=keys.last(held))
                    yield tables.read(table, held, place=place, handled_us=now_us())
                held = batch
        place = replace(place, tables=(*place.tables, table.name), table="", keys=())
        if held is not None:
            yield tables.read(table, held, place=place, handled_us=now_us())
    await connection.rows("ROLLBACK")


class Sizes:
    """How many rows a batch has: few at first, then as many as fit."""

    def __init__(self, rows_max: int) -> None:
        """``rows_max``: never more than so many."""
        self._rows_max = rows_max

    def __call__(self, batch: pa.RecordBatch | None) -> int:
        """``batch``: the last one; None: there was none yet."""
        if batch is None or not batch.num_rows:
            return min(FIRST_ROWS, self._rows_max)
        fitting = PAGE_BYTES * batch.num_rows // max(1, batch.nbytes)
        return max(1, min(fitting, self._rows_max, 10 * batch.num_rows))


class KeyTexts:
    """The SELECT of a table's rows behind a key, in its order; and the texts of such a key.

    A text stands for its value exactly, and compares as the index does: ENUM and SET are their numbers, bytes are
    written as hexadecimal digits, letters that are not told by their Unicode alone as ``key_text`` has them.
    """

    def __init__(self, tables: Tables, table: TableMap) -> None:
        """Raises ``NotDescribed`` where a column cannot be read."""
        self._name = quoted_name(table.database, table.table)
        kinds = [kind for kind in tables.of(table).kinds if kind is not None]
        self._columns = [kind.expression.format(_quoted(kind.column.name)) for kind in kinds]
        at = {kind.column.name: place for place, kind in enumerate(kinds)}
        self._keys = [kinds[at[name]].column for name in table.key]
        self._order = order_text([_order(column) for column in self._keys])
        self._places = []
        """Of each column of the key, which column of a batch has its text."""
        for column in self._keys:
            if column.type in (ENUM, SET):
                self._places.append(len(self._columns))
                self._columns.append(_NUMBER_OF.format(_quoted(column.name)))
            elif column.told_charset not in TOLD_AS_THEY_ARE:
                self._places.append(len(self._columns))
                self._columns.append(key_text(_quoted(column.name), column.told_charset))
            else:
                self._places.append(at[column.name])

    def select(self, after: Sequence[str] = (), *, rows_max: int = 0) -> str:
        """SQL of all rows, or of ``rows_max`` behind ``after``, as ``last`` tells it, or the texts of the key alone.

        It is of all rows too where the key was altered since then. Raises ``ValueError`` for a text that is none. The
        condition is one that both servers read a range of the index for, as they do not for tuples.
        """
        after = texts_behind(after, self._order, columns=len(self._keys))
        order = ", ".join(_quoted(column.name) for column in self._keys)
        where = f" WHERE {self._behind(after)}" if after else ""
        limit = f" LIMIT {rows_max}" if rows_max else ""
        ordered = f" ORDER BY {order}" if order else ""
        return f"SELECT {', '.join(self._columns)} FROM {self._name}{where}{ordered}{limit}"  # noqa: S608 - quoted

    def _behind(self, after: Sequence[str]) -> str:
        made = ""
        for column, text in reversed(list(zip(self._keys, after, strict=True))):
            name, value = _quoted(column.name), _literal(column, text)
            name = _NUMBER_OF.format(name) if column.type == SET else name
            made = f"{name} >= {value} AND ({name} > {value} OR ({made}))" if made else f"{name} > {value}"
        return made

    def last(self, batch: pa.RecordBatch) -> tuple[str, ...]:
        """Of the last row of a batch: the texts of its key, and one that stands for the key's order.

        An ALTER may give the values another order, in which other rows are behind the same key than were left to read.
        """
        if not self._keys:
            return ()
        told = [batch.column(at)[batch.num_rows - 1].as_py() for at in self._places]
        return (*(_text(column, one) for column, one in zip(self._keys, told, strict=True)), self._order)


def _order(column: Column) -> tuple[object, ...]:
    """What decides the order of a column's values; numbers of all types, and texts of all lengths, have the same."""
    kind = _ORDERS.get(column.type, column.type)
    return (column.name, kind, column.values, column.named, column.told_collation)


def _text(column: Column, value: str | bytes) -> str:
    if isinstance(value, str):
        return value
    if column.charset == BINARY_CHARSET:
        return value.hex()
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return key_of_bytes(value)
    return key_of_bytes(value) if text.startswith("\0") else text


def _literal(column: Column, text: str) -> str:
    if column.named:
        return text_literal(text)
    if column.type in (VARCHAR, STRING, BLOB) and column.charset == BINARY_CHARSET:
        return f"x'{bytes.fromhex(text).hex()}'"
    if column.type in (VARCHAR, STRING, BLOB):
        return key_literal(text, column.told_charset)
    if column.type in (DATE, TIME2, DATETIME2, TIMESTAMP2):
        return text_literal(text)
    if _NUMBER.fullmatch(text) is None:
        message = f"the stored key has no number for {column.name}"
        raise ValueError(message)
    return text


def quoted_name(database: str, table: str) -> str:
    """SQL of a table's name."""
    return f"{_quoted(database)}.{_quoted(table)}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
