"""Which tables a config means."""

from __future__ import annotations

from collections.abc import Sequence

import re2

from fetchers.sdk import Fatal
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Table
from fetchers.toolkit.name_lists import error_text


def selected_tables(config: JdbcConfig, tables: Sequence[Table]) -> list[Table]:
    """Those of the lists, in the order of ``table.whitelist``, else by name; raises ``Fatal``."""
    if config.table_whitelist:
        return list(listed_tables(config.table_whitelist, tables))
    chosen = sorted(tables, key=lambda table: table.full_name)
    if config.table_blacklist:
        left_out = [_named(name, tables) for name in config.table_blacklist]
        return [table for table in chosen if table not in left_out]
    if config.table_include_list:
        return [table for table in chosen if _matches(config.table_include_list, table)]
    return [table for table in chosen if not _matches(config.table_exclude_list, table)]


def listed_tables(names: Sequence[str], tables: Sequence[Table]) -> dict[Table, int]:
    """Tables that are named, each with the position of the first of its names, which no other table moves."""
    found: dict[Table, int] = {}
    for at, name in enumerate(names):
        if (table := _named(name, tables)) is not None:
            found.setdefault(table, at)
    return found


def missing_tables(config: JdbcConfig, tables: Sequence[Table]) -> list[str]:
    """Names of ``table.whitelist`` that no table has."""
    return [name for name in config.table_whitelist if _named(name, tables) is None]


def _named(name: str, tables: Sequence[Table]) -> Table | None:
    """As it is written, else in any case: databases fold names that are not quoted, each in its way.

    Quotes may be of SQL, and may be of the name itself, as which it is recommended.
    """
    for wanted in (name, name.replace('"', "").replace("`", "")):
        for fold in (str, str.lower):
            for table in tables:
                if fold(wanted) in {fold(known) for known in table.names}:
                    return table
    return None


def _matches(patterns: Sequence[str], table: Table) -> bool:
    try:
        return any(re2.fullmatch(pattern, name) is not None for pattern in patterns for name in table.names)
    except re2.error as error:
        raise Fatal(f"a table list is no regular expression of RE2: {error_text(error)}") from error
