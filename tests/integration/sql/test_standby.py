"""``JdbcSource`` on a real standby of PostgreSQL, which does not know who may still commit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fetchers.sdk import Retriable
from tests.databases import Postgres, running_postgres
from tests.integration.sql.reading import RealContext, read_rows, source
from tests.postgres_standby import promote, running_standby, until_replayed

pytestmark = pytest.mark.integration


@pytest.fixture
def pair(database_folder: Path) -> Iterator[tuple[Postgres, Postgres]]:
    """A primary with a table, and its standby."""
    folder = database_folder / uuid.uuid4().hex
    folder.mkdir()
    with running_postgres(folder) as server:
        primary = Postgres(server, "postgres")
        primary.run("create table t (id bigserial primary key)")
        with running_standby(folder, server) as standby:
            yield primary, Postgres(standby, "postgres")


async def test_a_standby_is_waited_for_unless_late_commits_are_ignored(pair: tuple[Postgres, Postgres]) -> None:
    """What a transaction of the primary commits late would be lost there: nothing of it is seen, not even a lock."""
    primary, standby = pair
    properties = {"connection.url": standby.url, "mode": "incrementing", "table.whitelist": "t"}
    late = primary.connect(autocommit=False)
    with late, late.cursor() as cursor:
        cursor.execute("insert into t default values")
        primary.run("insert into t default values")
        await until_replayed(primary, standby)
        with pytest.raises(Retriable, match=r"standby, which cannot tell .* late\.commits=ignore"):
            await anext(source(properties).fetch(RealContext()))
        ignoring = RealContext()
        assert await read_rows({**properties, "late.commits": "ignore"}, 1, ignoring) == [{"id": 2}]
        late.commit()
    await until_replayed(primary, standby)
    primary.server.kill()
    promote(standby)
    standby.run("insert into t default values")
    (found, *_) = await read_rows({**properties, "late.commits": "ignore"}, 1, ignoring)
    assert found["id"] > 2  # the row that was committed late is never read
    assert [row["id"] for row in await read_rows(properties, 3)] == [1, 2, found["id"]]
