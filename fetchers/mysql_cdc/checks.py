"""What a server must be set to, and a user be allowed: told with the SQL that mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.table_map import TableMap
from fetchers.sdk import Finding, Severity
from fetchers.toolkit.mysql import MySqlConnection
from fetchers.toolkit.name_lists import unmatched_findings

_WANTED = {
    "binlog_format": ("ROW", "changes must be logged as rows"),
    "binlog_row_image": ("FULL", "rows must be logged with all of their columns"),
    "binlog_row_metadata": ("FULL", "the log must name its columns"),
    "binlog_row_value_options": ("", "JSON columns must be logged whole"),
}


def column_findings(config: MySqlCdcConfig, tables: Iterable[TableMap]) -> list[Finding]:
    """Of lists of columns that mean none of these tables' columns."""
    lists = {"column.include.list": config.column_include_list, "column.exclude.list": config.column_exclude_list}
    return unmatched_findings(lists, {f"{table.name}.{column.name}" for table in tables for column in table.columns})


async def settings_findings(
    connection: MySqlConnection, config: MySqlCdcConfig, takes: Callable[[str], bool]
) -> Sequence[Finding]:
    """Of the server's variables, the user's rights and the tables' kinds; raises as its questions do.

    ``takes``: whether a ``database.table`` is read.
    """
    names = ", ".join(f"'{name}'" for name in ("log_bin", "server_id", *_WANTED))
    rows = await connection.rows(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")
    found = {row["variable_name"].lower(): str(row["value"]) for row in rows}
    made = list(_findings(found))
    if found.get("server_id") == str(config.database_server_id):
        told = "That is the server's own number: choose one that no server and no other reader has."
        made.append(Finding("database.server.id", str(config.database_server_id), told))
    made += await _rights(connection, config)
    made += await _cascading(connection, takes)
    return [*made, *await _versioned(connection, takes)] if config.snapshot_mode.startswith("initial") else made


async def _versioned(connection: MySqlConnection, takes: Callable[[str], bool]) -> list[Finding]:
    """Tables of MariaDB that keep their history cannot be read by a snapshot.

    Their log has every old version as a row of its own, under a key with the column of its end (``row_end``), which the
    server's catalogue does not show; rows that are read by the catalogue would have other keys.
    """
    rows = await connection.rows(
        "SELECT table_schema AS d, table_name AS t FROM information_schema.tables WHERE table_type = 'SYSTEM VERSIONED'"
    )
    told = (
        "{0}: the rows of a table WITH SYSTEM VERSIONING cannot be read as its log has them. Leave it out by "
        "table.exclude.list, or run: ALTER TABLE {0} DROP SYSTEM VERSIONING; or set snapshot.mode=no_data: the log is "
        "read alone, in which each old version is a row of its own."
    )
    names = sorted(name for name in (f"{row['d']}.{row['t']}" for row in rows) if takes(name))
    return [Finding("table.include.list", name, told.format(name)) for name in names]


async def _cascading(connection: MySqlConnection, takes: Callable[[str], bool]) -> list[Finding]:
    """Tables whose rows the server itself changes where another table's are deleted or get other keys.

    InnoDB does it below the log, which has the other table's rows alone (the page "Foreign Key Constraints" of MySQL's
    manual; so it is in MariaDB).
    """
    rows = await connection.rows(
        "SELECT constraint_schema AS d, table_name AS t, constraint_name AS n FROM "
        "information_schema.referential_constraints WHERE NOT (update_rule IN ('RESTRICT', 'NO ACTION') "
        "AND delete_rule IN ('RESTRICT', 'NO ACTION'))"
    )
    told = (
        "{0}: what its foreign key {1} does to it (ON DELETE, ON UPDATE: CASCADE, SET NULL) is in no log and never "
        "comes. Let the application change these rows itself, and make the key ON DELETE RESTRICT ON UPDATE RESTRICT"
    )
    found = sorted((f"{row['d']}.{row['t']}", str(row["n"])) for row in rows)
    return [
        Finding("table.include.list", name, told.format(name, key), Severity.WARNING)
        for name, key in found
        if takes(name)
    ]


def _findings(found: Mapping[str, str]) -> Iterator[Finding]:
    if found.get("log_bin", "ON").upper() not in ("ON", "1"):
        yield Finding("database.hostname", None, "The server keeps no log: start it with log_bin=binlog.")
        return
    for name, (wanted, why) in _WANTED.items():
        value = found.get(name)
        if value is not None and value.upper() != wanted:
            told = f"SET GLOBAL {name} = '{wanted}'" if not wanted else f"SET GLOBAL {name} = {wanted}"
            yield Finding("database.hostname", None, f"{name} is {value or 'empty'}, and {why}. Run: {told}")
    if "binlog_row_metadata" not in found:
        yield Finding(
            "database.hostname", None, "The log cannot name its columns before MySQL 8.0.1 and MariaDB 10.5: upgrade."
        )


async def _rights(connection: MySqlConnection, config: MySqlCdcConfig) -> list[Finding]:
    rows = await connection.rows("SHOW GRANTS")
    grants = [str(value).upper() for row in rows for value in row.values()]
    everywhere = " ".join(grant.partition(" ON *.*")[0] for grant in grants if " ON *.*" in grant)
    if "ALL PRIVILEGES" in everywhere or any(" ON " not in grant for grant in grants):
        return []  # rights that come by roles are seen when they are used
    needed = ["REPLICATION SLAVE", "BINLOG MONITOR" if connection.is_mariadb else "REPLICATION CLIENT"]
    takes_rows = config.snapshot_mode.startswith("initial")
    if not connection.is_mariadb and takes_rows and config.snapshot_locking_mode != "none":
        needed.append("RELOAD")
    missing = [right for right in needed if right not in everywhere]
    if not missing:
        return []
    user = str((await connection.rows("SELECT current_user() AS u"))[0]["u"])
    name = "@".join(f"'{part}'" for part in user.split("@"))
    told = f"The user may not read the log. Run: GRANT {', '.join(missing)} ON *.* TO {name}"
    return [Finding("database.user", config.database_user, told)]
