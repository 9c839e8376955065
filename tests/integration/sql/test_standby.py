# ruff: noqa: S608 - statements of tests
"""``JdbcSource`` on a real standby of PostgreSQL: what it cannot know, and what the primary does to its statements."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from fetchers.sdk import Retriable
from tests.databases import Postgres, running_postgres
from tests.integration.sql.reading import SECONDS_MAX, RealContext, read_until, rows_of, source
from tests.postgres_standby import LOOK_SECONDS, promote, running_standby, until_replayed

pytestmark = pytest.mark.integration
ROWS = 60_000
"""Of a kilobyte: more than what lies between server and client, so that the statement runs while pages are taken."""
WAITS = "select 1 from pg_stat_activity where backend_type = 'startup' and wait_event = 'RecoveryConflictSnapshot'"


@pytest.fixture
def pair(database_folder: Path) -> Iterator[tuple[Postgres, Postgres]]:
    """A primary with a table, and its standby, where no statement holds up what the primary has done."""
    folder = database_folder / uuid.uuid4().hex
    folder.mkdir()
    with running_postgres(folder, "max_standby_streaming_delay=0", "autovacuum=off") as server:
        primary = Postgres(server, "postgres")
        filled = f"insert into t (v) select repeat('x', 1000) from generate_series(1, {ROWS})"
        primary.run("create table t (id bigserial primary key, v text)", filled)
        with running_standby(folder, server) as standby:
            yield primary, Postgres(standby, "postgres")


async def test_a_standby_does_not_tell_who_may_still_commit(pair: tuple[Postgres, Postgres]) -> None:
    """It is waited for until it takes over. Statements that it ends are tried again."""
    primary, standby = pair
    await until_replayed(primary, standby)
    properties = {"connection.url": standby.url, "mode": "incrementing", "table.whitelist": "t"}
    context = RealContext()
    with pytest.raises(Retriable, match=r"standby, which cannot tell .* late\.commits=ignore"):
        await anext(source(properties).fetch(context))
    ignoring = {**properties, "late.commits": "ignore"}
    seen: list[int] = []

    async def read() -> None:
        """Page after page; in the middle of the statement the primary does away with a row that it sees."""
        async with asyncio.timeout(SECONDS_MAX), aclosing(source(ignoring).fetch(context)) as pages:
            async for page in pages:
                if not seen:
                    primary.run("delete from t where id = 1", "vacuum t")
                    while not standby.rows(WAITS):
                        await asyncio.sleep(LOOK_SECONDS)
                seen.extend(row["id"] for row in rows_of([page]))
                context.commit(page)

    with pytest.raises(Retriable, match=r"conflict with recovery \((40001|57014)\)"):
        await read()
    rest = await read_until(ignoring, lambda pages: len(seen) + sum(map(len, pages)) >= ROWS, context)
    assert seen + [row["id"] for row in rows_of(rest)] == list(range(1, ROWS + 1))
    primary.server.kill()
    promote(standby)
    found = await read_until(properties, lambda pages: sum(map(len, pages)) >= ROWS - 1)
    assert sum(map(len, found)) == ROWS - 1
