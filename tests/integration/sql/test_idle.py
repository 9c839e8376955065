"""Idle polls of real servers: one statement over all tables, and a row that commits late is no less seen."""

from __future__ import annotations

import pytest

from tests.databases import MySql, Postgres
from tests.unit.sql.test_idle import rounds, topics

pytestmark = pytest.mark.integration


async def test_a_row_that_commits_while_its_table_is_idle_is_read(postgres: Postgres) -> None:
    """Its id was taken before a round that found nothing new; tables whose names must be quoted are asked too."""
    postgres.run(
        'create table "T 0" (id bigserial primary key, v text)', "create table t1 (id bigserial primary key, v text)"
    )
    postgres.run("""insert into "T 0" (v) values ('first')""")
    with postgres.connect() as connection, connection.cursor() as cursor:

        def take_an_id() -> None:
            cursor.execute("begin")
            cursor.execute("""insert into "T 0" (v) values ('late')""")

        between = [take_an_id, lambda: cursor.execute("commit")]
        pages, asked = await rounds(postgres.url, between, schema_pattern="public")
    assert topics(pages[0]) == ["x.T 0"]
    assert (pages[1], asked[1]) == ([], {"read": 1})
    assert topics(pages[2]) == ["x.T 0"]


async def test_idle_tables_of_mysql_are_asked_in_one_statement(each_mysql: MySql) -> None:
    """Also ids that need all 64 bits."""
    await each_mysql.rows(
        "create table `t 0` (id bigint unsigned primary key auto_increment, v text)",
        "insert into `t 0` values (18446744073709551614, 'x')",
        "create table t1 (id int primary key auto_increment, v text)",
    )
    pages, asked = await rounds(each_mysql.url, [lambda: None])
    assert topics(pages[0]) == ["x.t 0"]
    assert (pages[1], asked[1]) == ([], {"read": 1})
