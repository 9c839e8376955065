"""Who may still commit is asked of a server that knows it: a standby of PostgreSQL does not."""

from __future__ import annotations

from typing import Any

import pytest

from fetchers.sdk import Retriable
from fetchers.sdk.reach import AllowedAddresses
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Range, Relation, Table
from fetchers.sql.fetcher import InThisThread
from fetchers.sql.postgresql import PostgresDatabase

IDS = Range(Relation("t", '"public"."t"', (), Table("t", "public")), '"id"', None, identity_column="id")


class Server(PostgresDatabase):
    """One that nobody writes to, in recovery at first; counts how often it is asked for that."""

    is_standby = True
    asked = 0

    def _select(self, sql: str) -> list[dict[str, Any]]:
        if "pg_is_in_recovery" not in sql:
            return []
        self.asked += 1
        return [{"it": self.is_standby}]


async def test_a_standby_is_waited_for_until_it_takes_over() -> None:
    """Without locks of its primary every range would seem settled. What has taken over is not asked again."""
    properties = {"connection.url": "jdbc:postgresql://db/shop", "mode": "incrementing", "topic.prefix": "t."}
    config = JdbcConfig.parse({**properties, "incrementing.column.name": "id"}).config
    assert config is not None
    server = Server(config, InThisThread(), AllowedAddresses())
    with pytest.raises(Retriable, match=r"db: The server is a standby, which cannot tell .* late\.commits=ignore"):
        await server.holders(IDS)
    server.is_standby = False
    assert (await server.holders(IDS), await server.holders(IDS), server.asked) == (frozenset(), frozenset(), 2)
