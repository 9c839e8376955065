"""``JdbcSource`` on a real PostgreSQL: writers that are hard to see, and those that cannot be seen at all."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from tests.databases import Postgres
from tests.integration.sql.reading import SECONDS_MAX, RealContext, rows_of, source

pytestmark = pytest.mark.integration
BY_TIME = {"mode": "timestamp", "timestamp.column.name": "at", "table.whitelist": "late"}
BY_ID = {"mode": "incrementing", "incrementing.column.name": "id", "table.whitelist": "seen"}


@pytest.mark.parametrize(
    ("role", "application", "changes"),
    [("", "shop", BY_TIME), ("postgres", "headrace", BY_TIME), ("postgres", "shop", BY_ID)],
    ids=["of another role", "named as we are", "of a view's table"],
)
async def test_a_writer_that_is_hard_to_see_is_waited_for(
    postgres: Postgres, role: str, application: str, changes: dict[str, str]
) -> None:
    """Of other roles' sessions an ordinary user sees only that they are there; a view has no locks of its own."""
    reader = f"{postgres.name}_reader"
    postgres.run(
        "create table late (id bigserial primary key, at timestamptz not null)",
        "create view seen as select * from late",
        f"create role {reader} login",
        f"grant usage on schema public to {reader}",
        f"grant select on late, seen to {reader}",
    )
    properties = {
        "connection.url": postgres.url,
        "connection.user": role or reader,
        "table.types": "TABLE,VIEW",
        "validate.non.null": "false",
    } | changes
    context = RealContext()
    try:
        with postgres.connect(autocommit=False) as late, late.cursor() as cursor:
            cursor.execute(f"set application_name = '{application}'")
            cursor.execute("insert into late (at) values (now() - interval '10 seconds')")
            postgres.run("insert into late (at) values (now() - interval '5 seconds')")
            async with asyncio.timeout(SECONDS_MAX), aclosing(source(properties).fetch(context)) as fetched:
                async with asyncio.TaskGroup() as group:
                    first = group.create_task(anext(fetched))
                    looks = group.create_task(context.wait_looks(10))
                    await asyncio.wait({first, looks}, return_when=asyncio.FIRST_COMPLETED)
                    assert not first.done(), "a row was read while an earlier one could still be committed"
                    late.commit()
                pages = [first.result()]
                while sum(map(len, pages)) < 2:
                    pages.append(await anext(fetched))
        assert [row["id"] for row in rows_of(pages)] == [1, 2]
    finally:
        postgres.run(f"drop owned by {reader}", f"drop role {reader}")


async def test_tables_whose_writers_cannot_be_seen_are_told(postgres: Postgres) -> None:
    """A foreign table's are on another server; a materialized view shows commits when it is refreshed."""
    postgres.run(
        "create extension file_fdw",
        "create server files foreign data wrapper file_fdw",
        "create foreign table far (id bigint not null) server files options (filename '/dev/null')",
        "create table near (id bigint not null)",
        "create materialized view kept as select * from near",
    )
    for name, message in (("far", "foreign table"), ("kept", "materialized view")):
        properties = {
            "connection.url": postgres.url,
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "validate.non.null": "false",
            "table.types": "TABLE,VIEW",
            "table.whitelist": name,
        }
        (found,) = await source(properties).check(RealContext())
        assert found.key == "late.commits"
        assert message in found.message
