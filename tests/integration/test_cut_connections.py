# ruff: noqa: S608 - statements of tests
"""Each database source whose connection is cut inside a row, again and again: each row once, and none altered."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing

import pytest

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.fetcher import MySqlCdcSource
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.fetcher import PostgresCdcSource
from fetchers.sdk import Page, Retriable, SystemClock
from fetchers.sdk.testing.context import FakeContext
from fetchers.sql.fetcher import JdbcSource
from tests.databases import MySql, Postgres
from tests.fault_proxy import FaultProxy
from tests.integration.postgres_cdc.test_postgres_log import Followed
from tests.integration.sql.reading import source as jdbc_source

pytestmark = pytest.mark.integration
Source = PostgresCdcSource | MySqlCdcSource | JdbcSource
SECONDS_MAX = 240.0
CUTS = 4
MARK = "cut-here"
HALF = "0123456789" * 700
"""Of a row, on each side of the mark: more than the network brings at once."""


def values(numbers: Sequence[int]) -> str:
    """Rows of SQL; the mark is in the middle of each third one."""
    return ", ".join(f"({n}, '{HALF}{MARK if n % 3 == 0 else 'no mark.'}{HALF}{n}')" for n in numbers)


def expected(count: int) -> list[tuple[int, str]]:
    """What the source is to say of them."""
    return [(n, f"{HALF}{MARK if n % 3 == 0 else 'no mark.'}{HALF}{n}") for n in range(count)]


async def read(
    proxy: FaultProxy, made: Callable[[], Source], context: FakeContext, count: int
) -> list[tuple[int, str]]:
    """The rows of the pages, each committed as the worker would; the source is begun anew where it has failed."""
    proxy.cut_behind, proxy.lost, proxy.losses_max = MARK.encode(), 0, CUTS
    found: list[tuple[int, str]] = []
    async with asyncio.timeout(SECONDS_MAX):
        while len(found) < count:
            connector = made()
            try:
                async with aclosing(connector.fetch(context)) as pages:
                    async for page in pages:
                        found += rows_of(page)
                        context.commit(page)
                        await connector.on_committed(page.partition or {}, page.offset)
                        if len(found) >= count:
                            break
            except Retriable:
                await asyncio.sleep(0.05)
    assert proxy.lost == CUTS
    return found


def rows_of(page: Page) -> list[tuple[int, str]]:
    """Flattened or not."""
    told = [json.loads(value) for value in page.values() if value is not None]
    rows = [value.get("after", value) for value in told]
    return [(row["id"], row["v"]) for row in rows]


async def test_postgresql_by_its_log(postgres: Postgres) -> None:
    """In the snapshot, and in the log."""
    postgres.run("create table t (id int primary key, v text)", f"insert into t values {values(range(30))}")
    async with FaultProxy(postgres.server.port).serving() as proxy:
        followed = Followed(postgres, database_port=str(proxy.port))

        def made() -> PostgresCdcSource:
            parsed = PostgresCdcConfig.parse(followed.properties)
            assert parsed.config is not None, parsed.findings
            return PostgresCdcSource(parsed.config)

        context = followed.context()
        try:
            assert sorted(await read(proxy, made, context, 30)) == expected(30)
            for begin in range(30, 60, 10):
                postgres.run(f"insert into t values {values(range(begin, begin + 10))}")
            assert await read(proxy, made, context, 30) == expected(60)[30:]
        finally:
            await asyncio.to_thread(followed.drop)


async def test_mysql_by_its_log(each_mysql: MySql) -> None:
    """In the snapshot, and in the log."""
    own = each_mysql
    await own.rows("create table t (id int primary key, v longtext)", f"insert into t values {values(range(30))}")
    async with FaultProxy(own.server.port).serving() as proxy:
        parsed = MySqlCdcConfig.parse(
            {
                "database.hostname": "127.0.0.1",
                "database.port": str(proxy.port),
                "database.user": "root",
                "database.server.id": str(random.randrange(1_000, 2**31)),
                "database.include.list": own.name,
                "topic.prefix": "shop",
            }
        )
        config = parsed.config
        assert config is not None, parsed.findings
        context = FakeContext(partition={"server": "shop"}, clock=SystemClock())  # type: ignore[arg-type]
        assert sorted(await read(proxy, lambda: MySqlCdcSource(config), context, 30)) == expected(30)
        for begin in range(30, 60, 10):
            await own.rows(f"insert into t values {values(range(begin, begin + 10))}")
        assert await read(proxy, lambda: MySqlCdcSource(config), context, 30) == expected(60)[30:]


@pytest.fixture(params=["postgres", "mariadb", "mysql"])
def own(request: pytest.FixtureRequest) -> Postgres | MySql:
    """A database in each server."""
    found: Postgres | MySql = request.getfixturevalue(request.param)
    return found


async def test_tables_by_polling(own: Postgres | MySql) -> None:
    """At the first look, and at a later one."""

    async def run(*statements: str) -> None:
        if isinstance(own, Postgres):
            await asyncio.to_thread(own.run, *statements)
        else:
            await own.rows(*statements)

    text = "text" if isinstance(own, Postgres) else "longtext"
    await run(f"create table t (id int primary key, v {text})", f"insert into t values {values(range(30))}")
    async with FaultProxy(own.server.port).serving() as proxy:
        properties = {
            "connection.url": own.url.replace(f":{own.server.port}/", f":{proxy.port}/"),
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": "t",
        }
        context = FakeContext(clock=SystemClock())  # type: ignore[arg-type]
        assert await read(proxy, lambda: jdbc_source(properties), context, 30) == expected(30)
        await run(f"insert into t values {values(range(30, 60))}")
        assert await read(proxy, lambda: jdbc_source(properties), context, 30) == expected(60)[30:]
