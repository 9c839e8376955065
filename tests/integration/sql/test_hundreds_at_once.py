# ruff: noqa: S608 - statements of tests
"""``JdbcSource`` beside hundreds of transactions that are open at once and end in another order than they began."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import psycopg
import pytest

from fetchers.sdk import Page
from tests.databases import MySql, Postgres
from tests.integration.sql.reading import RealContext, rows_of, source

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
OPEN, GENERATIONS, AT_ONCE = 220, 2, 20
"""Transactions that are open together, how many each session has, and how many end together."""
ROLLED_BACK = 0.25
PAGES_OF_A_LIFE = 20
"""Then the source begins anew at its committed offset."""
LOOKS = 5
"""Behind so many sleeps of the source there was a whole round."""
SECONDS_MAX = 600.0
LAST = -1
"""Who has written the last row."""
MODES = ("incrementing", "timestamp", "timestamp+incrementing")
Run = Callable[[str], Awaitable[Any]]


@asynccontextmanager
async def sessions(database: Postgres | MySql, count: int) -> AsyncIterator[Sequence[Run]]:
    """Each runs statements of its own connection; what is not committed in the end is not."""
    async with AsyncExitStack() as stack:
        opened: list[Run] = []
        for _ in range(count):
            if isinstance(database, Postgres):
                told = f"postgresql://postgres@127.0.0.1:{database.server.port}/{database.name}"
                connection = await psycopg.AsyncConnection.connect(told, autocommit=True)
                stack.push_async_callback(connection.close)
                opened.append(connection.execute)
            else:
                session = await database.connect()
                stack.push_async_callback(session.ensure_closed)
                opened.append(session.cursor().execute)
        yield opened


class Load:
    """Transactions that get their ids and times early, and how many of them the server knows to be open."""

    def __init__(self, database: Postgres | MySql, opened: Sequence[Run]) -> None:
        self.database = database
        self.opened = opened
        self.dice = random.Random(14)
        self._left = dict.fromkeys(range(len(opened)), GENERATIONS)

    async def begin(self, who: int) -> None:
        """A transaction with a row or two, which is left open."""
        await self.opened[who]("begin")
        for _ in range(self.dice.randrange(1, 3)):
            await self.insert(who)

    async def insert(self, who: int) -> None:
        """One row, by whatever transaction the session is in."""
        await self.opened[who](f"insert into busy (who) values ({who})")

    async def end(self, who: int) -> None:
        """The session's transaction gets a last row, and ends; the next one begins at once, while there is one."""
        if self.dice.random() < ROLLED_BACK:
            for statement in ("savepoint s", f"insert into busy (who) values ({who})", "rollback to savepoint s"):
                await self.opened[who](statement)
        await self.insert(who)
        await self.opened[who]("rollback" if self.dice.random() < ROLLED_BACK else "commit")
        self._left[who] -= 1
        if self._left[who]:
            await self.begin(who)

    async def count(self) -> int:
        """Transactions with rows that are not committed, as the server tells it; MySQL renews its list now and then."""
        if isinstance(self.database, Postgres):
            written = "from pg_stat_activity where datname = current_database() and backend_xid is not null"
            return int((await asyncio.to_thread(self.database.rows, f"select count(*) {written}"))[0][0])
        written = "select count(*) from information_schema.innodb_trx where trx_rows_modified > 0"
        return int((await self.database.rows(written))[0][0])

    async def wait_open(self) -> None:
        """Return when all sessions are seen to be in a transaction at the same time."""
        while await self.count() != len(self.opened):
            await asyncio.sleep(0.05)


class Reading:
    """What a source reads that is stopped and begun anew all the time, up to the last row."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.properties = properties
        self.context = RealContext()
        self.pages: list[Page] = []

    async def run(self) -> None:
        """Return when the last row was read."""
        while True:
            async with aclosing(source(self.properties).fetch(self.context)) as fetched:
                async for page in fetched:
                    self.pages.append(page)
                    self.context.commit(page)
                    if any(row["who"] == LAST for row in rows_of([page])):
                        return
                    if len(self.pages) % PAGES_OF_A_LIFE == 0:
                        break

    async def wait_moved(self) -> None:
        """Return when it has read a page, or has looked in vain."""
        clock: Any = self.context.clock
        before = clock.count + len(self.pages)
        while clock.count + len(self.pages) == before:
            await asyncio.sleep(0.005)

    async def wait_page(self) -> None:
        """Return when it has ever read one."""
        while not self.pages:
            await asyncio.sleep(0.02)

    async def demand_nothing_more(self) -> None:
        """Begun anew behind the last row, it finds nothing."""
        async with aclosing(source(self.properties).fetch(self.context)) as fetched, asyncio.TaskGroup() as group:
            page = group.create_task(anext(fetched), name="page")
            await self.context.wait_looks(LOOKS)
            assert not page.done(), rows_of([page.result()])
            page.cancel()


async def demand_each_row_once(database: Postgres | MySql, properties: dict[str, str]) -> None:
    """The table ``busy`` is empty; in the end its rows were read, each once, and no other."""
    reading = Reading(properties | {"connection.url": database.url, "table.whitelist": "busy", "batch.max.rows": "7"})
    async with (
        asyncio.timeout(SECONDS_MAX),
        sessions(database, OPEN) as opened,
        sessions(database, 1) as (alone,),
        asyncio.TaskGroup() as group,
    ):
        load = Load(database, opened)
        await alone("insert into busy (who, at) values (-2, '2000-01-01')")
        for who in range(OPEN):
            await load.begin(who)
        await load.wait_open()
        group.create_task(reading.run(), name="reading")
        await reading.context.wait_looks(LOOKS)
        for generation in range(GENERATIONS):
            order = load.dice.sample(range(OPEN), OPEN)
            for at in range(0, OPEN, AT_ONCE):
                async with asyncio.TaskGroup() as ending:
                    for who in order[at : at + AT_ONCE]:
                        ending.create_task(load.end(who), name=f"end {who}")
                await alone("insert into busy (who) values (-2)")
                await reading.wait_moved()
            if generation < GENERATIONS - 1:  # the first ones have ended, and as many others are open
                await load.wait_open()
                await reading.wait_page()
        await alone(f"insert into busy (who) values ({LAST})")
    async with asyncio.timeout(SECONDS_MAX):
        await reading.demand_nothing_more()
    told = "select id from busy order by id"
    rows = database.rows(told) if isinstance(database, Postgres) else await database.rows(told)
    found, expected = [row["id"] for row in rows_of(reading.pages)], [int(row[0]) for row in rows]
    assert len(expected) > OPEN * GENERATIONS
    assert sorted(found) == expected
    if properties["mode"] == "incrementing":
        assert found == expected


@pytest.mark.parametrize("mode", MODES)
async def test_of_postgresql(postgres: Postgres, mode: str) -> None:
    """Times are those of the transactions' beginnings."""
    postgres.run("create table busy (id bigserial primary key, at timestamptz not null default now(), who int)")
    await demand_each_row_once(postgres, {"mode": mode, **_times(mode)})


@pytest.mark.parametrize("mode", MODES)
async def test_of_mysql_and_mariadb(each_mysql: MySql, mode: str) -> None:
    """Times are those of the statements."""
    at = "at timestamp(6) not null default now(6)"
    await each_mysql.rows(f"create table busy (id bigint unsigned primary key auto_increment, {at}, who int)")
    await demand_each_row_once(each_mysql, {"mode": mode, **_times(mode)})


def _times(mode: str) -> dict[str, str]:
    return {"timestamp.column.name": "at"} if "timestamp" in mode else {}
