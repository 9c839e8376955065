"""A primary key that is changed while the log is read, where the log's own description of the table stays the same.

Of rows that are logged whole (``REPLICA IDENTITY FULL``) the log marks every column, and of a key it does not tell the
order of its columns.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fetchers.sdk import Page
from tests.databases import Postgres
from tests.integration.postgres_cdc.test_postgres_log import SECONDS_MAX, Followed, is_after_snapshot

pytestmark = pytest.mark.integration
KEYS = {
    "full": ("replica identity full", "id", "other"),
    "default": ("replica identity default", "id, other", "other, id"),
}


@pytest.fixture
def followed(postgres: Postgres) -> Iterator[Followed]:
    """A database whose log is read."""
    made = Followed(postgres)
    yield made
    made.drop()


def texts(page: Page) -> list[tuple[str, Any]]:
    """Keys as they are, and values."""
    found = [page.original(at) for at in range(len(page))]
    return [((key or b"").decode(), value and json.loads(value)) for key, value in found]


def transact(postgres: Postgres, *statements: str) -> None:
    """All in one transaction."""
    host, port = "127.0.0.1", postgres.server.port
    with psycopg.connect(host=host, port=port, user="postgres", dbname=postgres.name) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.mark.parametrize("is_one", [True, False], ids=["one-transaction", "two-transactions"])
@pytest.mark.parametrize("identity", list(KEYS))
async def test_rows_behind_a_change_of_the_key_have_the_new_one(
    followed: Followed, identity: str, *, is_one: bool
) -> None:
    """And those that were read before it the old one."""
    told, before, after = KEYS[identity]
    followed.postgres.run(f"create table t (id int, other int, n int, primary key ({before}))", f"alter table t {told}")
    await followed.read(stops=is_after_snapshot)
    altered = ["alter table t drop constraint t_pkey", f"alter table t add primary key ({after})"]
    steps = [["insert into t values (1, 10, 0)"], [*altered, "insert into t values (2, 20, 0)"]]
    if is_one:
        steps = [steps[0], ["insert into t values (3, 30, 0)", *steps[1], "update t set n = 1 where id = 2"]]
    steps.append(["insert into t values (4, 40, 0)"])
    found: list[tuple[str, Any]] = []
    transact(followed.postgres, *steps.pop(0))
    async with asyncio.timeout(SECONDS_MAX):
        async for page in followed.pages(
            stops=lambda page: any("40" in key or '"id":4' in key for key, _ in texts(page))
        ):
            found += texts(page)
            if len(page) and steps:
                transact(followed.postgres, *steps.pop(0))
    keys = {value["after"]["id"]: key for key, value in found if value}

    def key(columns: str, number: int) -> str:
        names = columns.split(", ")
        return json.dumps({name: number * (10 if name == "other" else 1) for name in names}, separators=(",", ":"))

    assert (keys[1], keys[2], keys[4]) == (key(before, 1), key(after, 2), key(after, 4))
