"""Columns that the database makes out of others, in snapshot and log of MariaDB and MySQL."""

from __future__ import annotations

import pytest

from fetchers.sdk.testing.context import FakeContext
from tests.databases import MySql
from tests.integration.mysql_cdc.test_binlog import has_row, read, rows_of, source

pytestmark = pytest.mark.integration
COLUMNS = (
    "id int primary key, twice int generated always as (n * 2) virtual, n int, "
    "text varchar(20) generated always as (concat('ü', n)) stored, late int generated always as (n + 1) virtual, v int"
)


async def test_generated_columns_are_the_same_in_snapshot_and_log(each_mysql: MySql) -> None:
    """Stored ones and virtual ones, before, between and behind plain ones; both images of an update have them."""
    await each_mysql.rows(f"create table t ({COLUMNS})", "insert into t (id, n, v) values (1, 10, 0), (2, null, 0)")
    context = FakeContext()
    snapshot = rows_of(await read(source(each_mysql), context, until=has_row("t", 2)))
    await each_mysql.rows(
        "update t set v = 1 where id = 1",
        "update t set n = 11 where id = 1",
        "insert into t (id, n, v) values (3, 3, 3)",
        "delete from t where id = 1",
        "insert into t (id) values (9)",
    )
    logged = rows_of(await read(source(each_mysql), context, until=has_row("t", 9)))
    first = {"id": 1, "twice": 20, "n": 10, "text": "ü10", "late": 11, "v": 0}
    changed = {"id": 1, "twice": 22, "n": 11, "text": "ü11", "late": 12, "v": 1}
    nothing = {"twice": None, "n": None, "text": None, "late": None}
    assert [value["after"] for _, _, value in snapshot] == [first, {"id": 2, **nothing, "v": 0}]
    assert [(value["op"], value["before"], value["after"]) for _, _, value in logged if value] == [
        ("u", first, {**first, "v": 1}),
        ("u", {**first, "v": 1}, changed),
        ("c", None, {"id": 3, "twice": 6, "n": 3, "text": "ü3", "late": 4, "v": 3}),
        ("d", changed, None),
        ("c", None, {"id": 9, **nothing, "v": None}),
    ]
