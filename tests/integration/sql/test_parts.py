# ruff: noqa: S608 - statements of tests
"""A first load in parts on real servers: several tasks at once, killed, counted anew, while others write and delete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

import pytest

from fetchers.sdk import Offset, Page
from fetchers.sdk.context import partition_key
from tests.databases import MySql, Postgres
from tests.integration.sql.reading import SECONDS_MAX, RealContext, rows_of, source

pytestmark = pytest.mark.integration
KEYS = {"mode": "incrementing", "table.whitelist": "big", "batch.max.rows": "40", "load.parts": "7"}
LATE, LAST = 1234, 3000
"""Id of a row whose transaction is open when the work is split, and the highest id then."""


class Generations:
    """Tasks that run side by side until all of them are killed, and what they have committed."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.properties = properties
        self.offsets: dict[Any, Offset] = {}
        self.pages: list[Page] = []
        self.contexts: list[RealContext] = []

    @property
    def rows(self) -> int:
        """Committed up to now."""
        return sum(map(len, self.pages))

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of the load but the table's own offset, as Confluent's connector has it."""
        kept = [offset for offset in self.offsets.values() if offset]
        return len(kept) == 1 and set(kept[0]) == {"incrementing"}

    async def run(
        self, count: int, is_enough: Callable[[], bool], meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Split the work, and run so many tasks until it is enough."""
        tasks = await asyncio.to_thread(source(self.properties).task_configs, count)
        assert len(tasks) == count
        at_start, enough = dict(self.offsets), asyncio.Event()
        self.contexts = [RealContext(offsets=at_start) for _ in tasks]
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
            running = [
                group.create_task(self._run(dict(task), context, enough, is_enough))
                for task, context in zip(tasks, self.contexts, strict=True)
            ]
            if meanwhile is not None:
                await meanwhile()
            await enough.wait()
            for each in running:
                each.cancel()

    async def _run(
        self, task: dict[str, str], context: RealContext, enough: asyncio.Event, is_enough: Callable[[], bool]
    ) -> None:
        async with aclosing(source(self.properties | task).fetch(context)) as pages:
            async for page in pages:
                assert page.partition is not None
                self.pages.append(page)
                self.offsets[partition_key(page.partition)] = page.offset
                context.commit(page)
                if is_enough():
                    enough.set()
                await asyncio.sleep(0)


async def _load(
    url: str, *, commit_late: Callable[[], Awaitable[None]], change: Callable[[], Awaitable[None]]
) -> list[int]:
    """Ids of all that came, over generations of other counts, each of which is killed."""
    generations = Generations({"connection.url": url, **KEYS})

    async def late() -> None:
        for context in generations.contexts:
            await context.wait_looks(2)
        assert not generations.rows, "rows were read while one among them could still be committed"
        await commit_late()

    await generations.run(2, lambda: generations.rows >= 500, late)
    for count, rows in ((1, 1300), (3, 2100)):
        await generations.run(count, lambda rows=rows: generations.rows >= rows)  # type: ignore[misc]
        await change()
    await generations.run(1, lambda: generations.is_over)
    return [row["id"] for row in rows_of(generations.pages)]


async def test_each_row_of_a_postgresql_table_comes_once(postgres: Postgres) -> None:
    """One that was committed late among them; those that are deleted meanwhile are no hindrance."""
    postgres.run(
        "create table big (id bigserial primary key, name text)",
        f"insert into big (name) select 'a' from generate_series(1, {LATE - 1})",
    )
    with postgres.connect(autocommit=False) as late, late.cursor() as cursor:
        cursor.execute("insert into big (name) values ('late')")
        postgres.run(f"insert into big (name) select 'b' from generate_series({LATE} + 1, {LAST})")

        async def commit_late() -> None:
            late.commit()

        async def change() -> None:
            postgres.run("insert into big (name) select 'c' from generate_series(1, 10)")

        found = await _load(postgres.url, commit_late=commit_late, change=change)
    assert sorted(found) == list(range(1, LAST + 21))


async def test_each_row_of_a_mysql_table_comes_once(each_mysql: MySql) -> None:
    """The rows with the last id of a part are deleted before they are read."""

    def values(name: str, ids: Iterable[int | str]) -> str:
        return ", ".join(f"({number}, '{name}')" for number in ids)

    await each_mysql.rows(
        "create table big (id bigint unsigned auto_increment primary key, name text)",
        f"insert into big (id, name) values {values('a', range(1, LATE))}",
    )
    late = await each_mysql.connect(autocommit=False)
    try:
        async with late.cursor() as cursor:
            await cursor.execute(f"insert into big (id, name) values ({LATE}, 'late')")
        await each_mysql.rows(f"insert into big (id, name) values {values('b', range(LATE + 1, LAST + 1))}")

        async def change() -> None:
            added = f"insert into big (id, name) values {values('c', ['default'] * 10)}"
            await each_mysql.rows(added, f"delete from big where id = {LAST}")

        found = await _load(each_mysql.url, commit_late=late.commit, change=change)
    finally:
        await late.ensure_closed()
    assert set(range(1, LAST)) <= set(found)
    assert len(found) == len(set(found))
    assert {int(row[0]) for row in await each_mysql.rows("select id from big")} <= set(found)
