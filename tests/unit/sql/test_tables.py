"""Tables of a config, dealt over its tasks."""

from __future__ import annotations

from collections.abc import Sequence

from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Table
from fetchers.sql.tables import listed_tables, missing_tables

TABLES = [Table("a", "public"), Table("b", "public"), Table("c", "public")]


def _of_task(number: int, tables: Sequence[Table], names: str = "a,b,c") -> list[str]:
    properties = {"connection.url": "jdbc:postgresql://db/x", "mode": "incrementing", "topic.prefix": "t."}
    config = JdbcConfig.parse(properties | {"table.whitelist": names}).config
    assert config is not None
    return [table.name for table, at in listed_tables(config.table_whitelist, tables).items() if at % 2 == number]


def test_a_table_that_is_gone_moves_no_other_to_another_task() -> None:
    """Each task looks by itself, at its own time: a table that moved would be read by two, or by none."""
    assert [_of_task(number, TABLES) for number in (0, 1)] == [["a", "c"], ["b"]]
    assert [_of_task(number, TABLES[1:]) for number in (0, 1)] == [["c"], ["b"]]


def test_a_table_with_two_names_is_read_by_one_task() -> None:
    """Names are those of the config, and may mean the same table."""
    assert [_of_task(number, TABLES, "a,public.a,b") for number in (0, 1)] == [["a", "b"], []]


def test_a_name_with_a_quote_in_it_means_its_table() -> None:
    """As it is recommended; quotes that only SQL needs are none of a name."""
    tables = [Table('Cust"omers', "public"), Table("back`tick"), Table("Customers", "public")]
    listed = ['Cust"omers', "`Customers`", "back`tick", '"public"."Customers"', 'public.Cust"omers']
    assert list(listed_tables(listed, tables)) == [tables[0], tables[2], tables[1]]
    assert list(listed_tables(listed, tables).values()) == [0, 1, 2]
    properties = {"connection.url": "jdbc:postgresql://db/x", "mode": "bulk", "topic.prefix": "t."}
    config = JdbcConfig.parse(properties | {"table.whitelist": ",".join(listed)}).config
    assert config is not None
    assert missing_tables(config, tables) == []
