"""A snapshot: the rows of all tables as they were at one place of the log, in one transaction.

MariaDB says the place of a consistent snapshot itself (``binlog_snapshot_file``, knowledge base, "START TRANSACTION").
MySQL does not: all writers are stopped for the moment between the beginning of the transaction and the question for the
place (``FLUSH TABLES WITH READ LOCK``).

An interrupted snapshot goes on with the table that it stood in, in a new transaction. Its place in the log stays that
of the first one: what happened since then to tables that were through comes from the log alone; of the others it comes
both in their rows and from the log, whose later events bring every row to its last state.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pyarrow as pa

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
from fetchers.toolkit.mysql import MySqlConnection

SYSTEM_DATABASES = ("mysql", "information_schema", "performance_schema", "sys")
UTF8MB4 = 45
FIRST_ROWS = 1_000
PAGE_BYTES = 8_000_000
_TYPES = {
    "tinyint": TINY, "smallint": SHORT, "mediumint": INT24, "int": LONG, "bigint": LONGLONG, "float": FLOAT,
    "double": DOUBLE, "decimal": DECIMAL, "date": DATE, "time": TIME2, "datetime": DATETIME2, "timestamp": TIMESTAMP2,
    "year": YEAR, "bit": BIT, "enum": ENUM, "set": SET, "json": JSON, "char": STRING, "varchar": VARCHAR,
    "binary": STRING, "varbinary": VARCHAR, "geometry": GEOMETRY,
} | dict.fromkeys(
    ("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob"), BLOB
)  # fmt: skip
_CHOICE = re.compile(r"'((?:[^']|'')*)'")


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
    rows = await connection.rows("SELECT @@server_id AS id")
    if connection.is_mariadb:
        found = await connection.rows(f"SELECT binlog_gtid_pos('{file}', {position}) AS gtids")
        gtids = str(found[0]["gtids"] or "")
    return Place(file, position, GtidSet(gtids.replace("\n", "")), server_id=int(rows[0]["id"]))


async def begin(connection: MySqlConnection, *, locks: bool) -> Place:
    """Begin the transaction, and say at which place of the log it stands."""
    await connection.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    if connection.is_mariadb:
        await connection.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        rows = await connection.rows("SHOW STATUS LIKE 'binlog_snapshot_%'")
        told = {row["variable_name"].lower(): row["value"] for row in rows}
        if not told.get("binlog_snapshot_file"):
            raise Fatal("the server keeps no log: start it with log_bin")
        return await _with_gtids(connection, told["binlog_snapshot_file"], int(told["binlog_snapshot_position"]), "")
    if locks:
        await connection.rows("FLUSH TABLES WITH READ LOCK")
    await connection.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    place = await log_end(connection)
    if locks:
        await connection.rows("UNLOCK TABLES")
    return place


async def tables_of(connection: MySqlConnection, takes: Callable[[str], bool]) -> list[TableMap]:
    """All that are wanted, by name, with their columns as they are now."""
    rows = await connection.rows(
        "SELECT c.table_schema AS d, c.table_name AS t, c.column_name AS n, c.data_type AS k, c.column_type AS full, "
        "c.is_nullable AS z, c.numeric_precision AS p, c.numeric_scale AS s, c.datetime_precision AS f, "
        "c.character_maximum_length AS l, c.character_set_name AS cs, c.column_key AS ck "
        "FROM information_schema.columns c JOIN information_schema.tables x ON x.table_schema = c.table_schema "
        "AND x.table_name = c.table_name WHERE x.table_type = 'BASE TABLE' "
        "AND c.table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') "
        "ORDER BY c.table_schema, c.table_name, c.ordinal_position"
    )
    keys: dict[str, list[str]] = {}
    for row in await connection.rows(
        "SELECT table_schema AS d, table_name AS t, column_name AS n FROM information_schema.statistics "
        "WHERE index_name = 'PRIMARY' ORDER BY table_schema, table_name, seq_in_index"
    ):
        keys.setdefault(f"{row['d']}.{row['t']}", []).append(row["n"])
    found: dict[tuple[str, str], list[Column]] = {}
    for row in rows:
        if takes(f"{row['d']}.{row['t']}"):
            found.setdefault((row["d"], row["t"]), []).append(_column(row))
    return [
        TableMap(database, table, tuple(columns), tuple(keys.get(f"{database}.{table}", ())))
        for (database, table), columns in found.items()
    ]


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
    elif made == STRING:
        scale = int(row["l"] or 0)
    elif made in (ENUM, SET):
        values = tuple(one.replace("''", "'").encode() for one in _CHOICE.findall(full))
    charset = UTF8MB4 if row["cs"] is not None else BINARY_CHARSET  # the session's texts are all UTF-8
    is_nullable = row["z"] == "YES"
    return Column(row["n"], made, size, scale, "unsigned" in full.lower(), charset, values, is_nullable)


async def pages(
    connection: MySqlConnection,
    tables: Tables,
    wanted: list[TableMap],
    place: Place,
    *,
    rows_max: int,
    now_us: Callable[[], int],
) -> AsyncGenerator[Page, None]:
    """All rows of all tables that are not through, in the transaction that is open; the last page says that it is over.

    ``place``: where the log is to be read from afterwards.
    """
    place = replace(place, is_snapshot=True)
    for table in wanted:
        if table.name in place.tables:
            continue
        held: pa.RecordBatch | None = None  # the last page of a table says that the table is through
        async with aclosing(connection.read(_select(tables, table), rows_next=_Sizes(rows_max))) as batches:
            async for batch in batches:
                if held is not None:
                    yield tables.read(table, held, place=place, handled_us=now_us())
                held = batch
        place = replace(place, tables=(*place.tables, table.name))
        if held is not None:
            yield tables.read(table, held, place=place, handled_us=now_us())
    await connection.rows("ROLLBACK")
    yield Page([], place.at(place.file, place.position, place.gtids).offset(), partition=tables.partition)


class _Sizes:
    """How many rows a batch has: few at first, then as many as fit."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max

    def __call__(self, batch: pa.RecordBatch | None) -> int:
        if batch is None:
            return min(FIRST_ROWS, self._rows_max)
        fitting = PAGE_BYTES * batch.num_rows // max(1, batch.nbytes)
        return max(1, min(fitting, self._rows_max, 10 * batch.num_rows))


def _select(tables: Tables, table: TableMap) -> str:
    kinds = [kind for kind in tables.of(table).kinds if kind is not None]
    columns = ", ".join(kind.expression.format(_quoted(kind.column.name)) for kind in kinds)
    order = ", ".join(map(_quoted, table.key))
    return (
        f"SELECT {columns} FROM {_quoted(table.database)}.{_quoted(table.table)}"  # noqa: S608 - quoted names
        f"{f' ORDER BY {order}' if order else ''}"
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
