"""Tables and columns that get another name while the log is read, on a real MariaDB and a real MySQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fetchers.sdk import Page, SystemClock
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MySql
from tests.integration.mysql_cdc.test_binlog import has_row, read, rows_of, source

pytestmark = pytest.mark.integration


def _told(pages: Sequence[Page]) -> list[tuple[str, str, Any, Any]]:
    """Table, operation, row before and after of each event; tombstones left out."""
    records = [(topic.rpartition(".")[2], value) for topic, _, value in rows_of(pages) if value is not None]
    return [(table, value["op"], value["before"], value["after"]) for table, value in records]


def _columns(page: Page) -> list[str]:
    """Of the rows that a page's schema has."""
    assert page.schema is not None
    fields = {field["name"]: field["type"] for field in json.loads(page.schema.avro)["fields"]}
    return [field["name"] for field in next(kind for kind in fields["before"] if kind != "null")["fields"]]


async def test_renamed_columns_have_their_names_of_each_moment(each_mysql: MySql) -> None:
    """By RENAME COLUMN, CHANGE and a swap of two names, of keys too, from any place on; TRUNCATE has the new ones."""
    await each_mysql.rows("create table t (id int primary key, a int, b varchar(9))")
    context = FakeContext()
    await read(source(each_mysql, **{"snapshot.mode": "no_data"}), context, until=bool)
    stored = dict(context.offsets)
    await each_mysql.rows(
        "insert into t values (1, 10, 'x')",
        "alter table t rename column a to c",
        "update t set c = 11",
        "alter table t change column b d varchar(20) not null default '' first",
        "update t set c = 12",
        "truncate t",
        "alter table t add column e int, drop column d",
        "truncate t",
        "insert into t (id, c, e) values (1, 13, 14)",
        "alter table t rename column c to e, rename column e to c",
        "update t set c = 15",
        "alter table t rename column id to number",
        "update t set e = 16",
        "create table z (id int primary key)",
        "insert into z values (9)",
    )
    keys = {"skipped.operations": "none"}
    pages = await read(source(each_mysql, **keys), context, until=has_row("z", 9))
    expected = [
        ("t", "c", None, {"id": 1, "a": 10, "b": "x"}),
        ("t", "u", {"id": 1, "c": 10, "b": "x"}, {"id": 1, "c": 11, "b": "x"}),
        ("t", "u", {"d": "x", "id": 1, "c": 11}, {"d": "x", "id": 1, "c": 12}),
        ("t", "t", None, None),
        ("t", "t", None, None),
        ("t", "c", None, {"id": 1, "c": 13, "e": 14}),
        ("t", "u", {"id": 1, "e": 13, "c": 14}, {"id": 1, "e": 13, "c": 15}),
        ("t", "u", {"number": 1, "e": 13, "c": 15}, {"number": 1, "e": 16, "c": 15}),
        ("z", "c", None, {"id": 9}),
    ]
    assert _told(pages) == expected
    first = next(page for page in pages if any(value and value["op"] == "t" for _, _, value in rows_of([page])))
    assert _columns(first) == ["d", "id", "c"]
    for cut in range(len(pages) - 1):
        again = FakeContext(offsets=stored)
        for page in pages[: cut + 1]:
            again.commit(page)
        rest = await read(source(each_mysql, **keys), again, until=has_row("z", 9))
        assert _told([*pages[: cut + 1], *rest]) == expected


async def test_renamed_tables_are_meant_by_their_name_of_the_moment(each_mysql: MySql) -> None:
    """Changes before a table gets a name of the lists, and after it has lost it, are left out; those between come."""
    name = each_mysql.name
    await each_mysql.rows(
        *(
            f"create table {table} (id int primary key, {column} int)"
            for table, column in (("shown", "s"), ("hidden", "h"))
        )
    )
    lists = {"table.include.list": f"{name}.shown.*", "skipped.operations": "none"}
    context = FakeContext()
    await read(source(each_mysql, **lists, **{"snapshot.mode": "no_data"}), context, until=bool)
    stored = dict(context.offsets)
    await each_mysql.rows(
        "insert into shown values (1, 1)",
        "insert into hidden values (1, 1)",
        "rename table shown to aside, hidden to shown",
        "insert into shown values (2, 2)",
        "insert into aside values (2, 2)",
        "truncate shown",
        "alter table shown rename to hidden",
        "insert into hidden values (3, 3)",
        "truncate hidden",
        f"alter table aside rename {name}.shown2",
        "insert into shown2 values (4, 4)",
        "rename table shown2 to shown",
        "truncate shown",
        "insert into shown values (9, 9)",
    )
    expected = [
        ("shown", "c", None, {"id": 1, "s": 1}),
        ("shown", "c", None, {"id": 2, "h": 2}),
        ("shown", "t", None, None),
        ("shown2", "c", None, {"id": 4, "s": 4}),
        ("shown", "t", None, None),
        ("shown", "c", None, {"id": 9, "s": 9}),
    ]
    keys = {**lists, "snapshot.mode": "no_data"}
    pages = await read(source(each_mysql, **keys), context, until=has_row("shown", 9))
    by_table = [[one for one in found if one[0] == "shown"] for found in (_told(pages), expected)]
    assert by_table[0] == by_table[1]
    assert sorted(map(str, _told(pages))) == sorted(map(str, expected))
    emptied = [page for page in pages if any(value and value["op"] == "t" for _, _, value in rows_of([page]))]
    assert [_columns(page) for page in emptied] == [["id", "h"], ["id", "s"]]
    again = FakeContext(offsets=stored)
    again.commit(pages[0])
    rest = await read(source(each_mysql, **keys), again, until=has_row("shown", 9))
    assert sorted(map(str, _told([pages[0], *rest]))) == sorted(map(str, expected))


async def test_rows_of_a_table_that_gets_a_name_of_the_lists_are_read(each_mysql: MySql) -> None:
    """Where the name is new, as those of any table that is added; each row once, and under its columns' names."""
    name = each_mysql.name
    await each_mysql.rows("create table shown (id int primary key)", "create table hidden (id int primary key, h int)")
    keys = {"table.include.list": f"{name}.shown.*", "table.poll.interval.ms": "20"}
    context = FakeContext(clock=SystemClock())  # type: ignore[arg-type]
    await read(source(each_mysql, **keys), context, until=lambda pages: "file" in (pages or [_NONE])[-1].offset)
    await each_mysql.rows("insert into hidden values (1, 1), (2, 2)", "rename table hidden to shown2")
    await each_mysql.rows("insert into shown2 values (3, 3)")
    wanted = {1, 2, 3}

    def are_read(pages: list[Page]) -> bool:
        return {value["after"]["id"] for topic, _, value in rows_of(pages) if topic.endswith(".shown2")} >= wanted

    pages = await read(source(each_mysql, **keys), context, until=are_read)
    rows = sorted((value["op"], value["after"]["id"], value["after"]["h"]) for _, _, value in rows_of(pages))
    assert rows == [("c", 3, 3), ("r", 1, 1), ("r", 2, 2)]


_NONE = Page([], {})
