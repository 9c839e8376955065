"""What ``MySqlCdcSource`` would leave out, or show, against its config is told before it runs."""

from __future__ import annotations

import json

import pytest

from fetchers.sdk import Fatal
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MariaDb, MySql
from tests.integration.mysql_cdc.test_binlog import read, rows_of, source

pytestmark = pytest.mark.integration


async def test_a_table_that_keeps_its_history_is_refused_where_a_snapshot_would_miss_it(mariadb: MariaDb) -> None:
    """Before, its rows were left out of the snapshot without a word. The log alone is as the server has it."""
    await mariadb.rows(
        "create table plain (id int primary key)",
        "create table kept (id int primary key, n int) with system versioning",
        "insert into kept values (1, 1)",
    )
    refused = f"{mariadb.name}.kept: the rows of a table WITH SYSTEM VERSIONING cannot be read"
    (finding,) = await source(mariadb).check(FakeContext())
    assert finding.is_error
    assert refused in finding.message
    with pytest.raises(Fatal, match=refused):
        await read(source(mariadb), FakeContext(), until=bool)
    left_out = {"table.exclude.list": f"{mariadb.name}\\.kept"}
    assert await source(mariadb, **left_out).check(FakeContext()) == []
    log_alone = source(mariadb, **{"snapshot.mode": "no_data"})
    assert await log_alone.check(FakeContext()) == []
    context = FakeContext()
    await read(log_alone, context, until=bool)
    await mariadb.rows("update kept set n = 2")
    found = rows_of(await read(log_alone, context, until=lambda pages: len(rows_of(pages)) > 1))
    assert [(json.loads(key)["id"], value["op"], value["after"]["n"]) for _, key, value in found] == [
        (1, "u", 2),
        (1, "c", 1),
    ]
    assert found[0][1] != found[1][1]  # the old version has a key of its own


async def test_a_column_that_a_list_does_not_meet_is_told(each_mysql: MySql) -> None:
    """What it is to hide would be shown without a word."""
    await each_mysql.rows("create table people (id int primary key, secret text)")
    lists = {"column.exclude.list": f"secret,{each_mysql.name}\\.people\\.secret,{each_mysql.name}\\.people\\.sekret"}
    found = await source(each_mysql, **lists).check(FakeContext())
    assert [(finding.key, finding.value) for finding in found if not finding.is_error] == [
        ("column.exclude.list", "secret"),
        ("column.exclude.list", f"{each_mysql.name}\\.people\\.sekret"),
    ]


async def test_what_a_foreign_key_does_to_rows_is_told(each_mysql: MySql) -> None:
    """No log has it: the row stays in the topic, though it is gone, or has another value."""
    await each_mysql.rows(
        "create table parent (id int primary key)",
        "create table plain (id int primary key, p int, foreign key (p) references parent (id))",
        "create table child (id int primary key, p int, constraint k foreign key (p) references parent (id) "
        "on delete cascade)",
        "create table other (id int primary key, p int, constraint o foreign key (p) references parent (id) "
        "on update set null)",
        "insert into parent values (1), (2)",
        "insert into child values (7, 1)",
    )
    found = await source(each_mysql).check(FakeContext())
    assert [(one.value, one.is_error) for one in found] == [
        (f"{each_mysql.name}.child", False),
        (f"{each_mysql.name}.other", False),
    ]
    assert "foreign key k" in found[0].message
    lists = {"table.include.list": f"{each_mysql.name}\\.(parent|plain)"}
    assert await source(each_mysql, **lists).check(FakeContext()) == []
    log_alone, context = source(each_mysql, **{"snapshot.mode": "no_data"}), FakeContext()
    await read(log_alone, context, until=bool)
    await each_mysql.rows("delete from parent where id = 1", "delete from parent where id = 2")
    assert await each_mysql.rows("select * from child") == []
    pages = await read(log_alone, context, until=lambda pages: len(rows_of(pages)) >= 4)  # with their tombstones
    assert {topic for topic, _, _ in rows_of(pages)} == {f"shop.{each_mysql.name}.parent"}
