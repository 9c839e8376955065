"""``JdbcSource`` and columns that the database makes out of others."""

from __future__ import annotations

import pytest

from tests.databases import MySql, Postgres
from tests.integration.sql.reading import RealContext, read_rows

pytestmark = pytest.mark.integration
ROWS = [{"id": number, "n": number, "twice": 2 * number, "text": f"n{number}"} for number in (1, 2, 3)]


async def test_of_mysql_and_mariadb(each_mysql: MySql) -> None:
    """Stored ones and virtual ones, and one of them may order the rows."""
    await each_mysql.rows(
        "create table t (id int primary key auto_increment, n int not null, "
        "twice int generated always as (n * 2) stored, text varchar(20) generated always as (concat('n', n)) virtual)",
        "insert into t (n) values (1), (2)",
    )
    properties = {"connection.url": each_mysql.url, "mode": "incrementing", "table.whitelist": "t"}
    assert await read_rows(properties, 2) == ROWS[:2]
    ordered = properties | {"incrementing.column.name": "twice", "validate.non.null": "false"}
    context = RealContext()
    await read_rows(ordered, 2, context)
    await each_mysql.rows("insert into t (n) values (3)")
    assert await read_rows(ordered, 1, context) == ROWS[2:]


async def test_of_postgresql(postgres: Postgres) -> None:
    """Stored ones, one of which may order the rows."""
    postgres.run(
        "create table t (id bigserial primary key, n int not null, twice int not null generated always as (n * 2) "
        "stored, text text generated always as ('n' || n::text) stored)",
        "insert into t (n) values (1), (2)",
    )
    properties = {"connection.url": postgres.url, "mode": "incrementing", "table.whitelist": "t"}
    assert await read_rows(properties, 2) == ROWS[:2]
    ordered = properties | {"incrementing.column.name": "twice"}
    context = RealContext()
    await read_rows(ordered, 2, context)
    postgres.run("insert into t (n) values (3)")
    assert await read_rows(ordered, 1, context) == ROWS[2:]
