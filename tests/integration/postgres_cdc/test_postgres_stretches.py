# ruff: noqa: S608 - tables and rows are this test's own
"""Snapshots of ``PostgresCdcSource`` beside its log, on a real server: broken off, of added tables, on request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from fetchers.postgres_cdc.snapshot import SnapshotReader
from fetchers.sdk import Page
from metrics.events import TableSnapshotMoved
from tests.databases import Postgres
from tests.integration.postgres_cdc.test_postgres_log import Followed, is_after_snapshot, records

SECONDS_MAX = 300.0
ROWS = 400


@pytest.fixture
def followed(postgres: Postgres) -> Iterator[Followed]:
    """A table of rows whose version only grows."""
    postgres.run(
        "create table t (id int primary key, v int not null)",
        f"insert into t select g, 0 from generate_series(1, {ROWS}) g",
        "create sequence versions",
    )
    made = Followed(postgres, snapshot_fetch_size="20")
    yield made
    made.drop()


def _change(postgres: Postgres, number: int) -> None:
    """Rows of all parts of the table get a newer version, go, and come."""
    key = number * 37 % ROWS + 1
    postgres.run(
        f"update t set v = nextval('versions') where id in ({key}, {ROWS + 1 - key})",
        f"delete from t where id = {key % 50 + 1}",
        f"insert into t values ({ROWS + 1 + number}, nextval('versions'))",
    )


class Shown:
    """What a consumer of topics has seen."""

    def __init__(self) -> None:
        self.state: dict[int, int] = {}
        self.newest: dict[int, int] = {}
        self.read: list[int] = []
        """Keys of rows that a snapshot showed, in their order."""

    def take(self, page: Page) -> None:
        """No row is older than it was shown before."""
        for key, value in records(page) if page.topic == "srv.public.t" else ():
            number = key["id"]
            if value is None or value["op"] == "d":
                self.state.pop(number, None)
                continue
            version = value["after"]["v"]
            assert version >= self.newest.get(number, -1), f"row {number} is shown older than before"
            if value["op"] == "r":
                self.read.append(number)
            self.state[number] = self.newest[number] = version


async def test_a_snapshot_that_is_killed_goes_on_and_shows_nothing_stale_or_twice(followed: Followed) -> None:
    """A writer changes rows while the reader is made anew again and again; then the table is asked for again."""
    postgres, shown = followed.postgres, Shown()
    for page in await followed.read(stops=lambda page: "snapshot_key" in page.offset):
        shown.take(page)
    assert not followed.is_read
    number = 0
    async with asyncio.timeout(SECONDS_MAX):
        while not followed.is_read:
            number += 1
            await asyncio.to_thread(_change, postgres, number)
            seen = 0

            def stops(page: Page) -> bool:
                nonlocal seen
                seen += bool(len(page))
                return seen > 2 or followed.is_read

            for page in await followed.read(stops=stops):
                shown.take(page)
        assert len(shown.read) == len(set(shown.read)), "a row of the snapshot came twice"
        assert sorted(shown.read) == shown.read, "a part that was read came again"
        followed.properties |= {"snapshot.request.id": "again", "snapshot.request.tables": "public\\.t"}
        shown.read.clear()
        for page in await followed.read(stops=lambda _: followed.offsets["tables"].get("request") == "again"):
            shown.take(page)
        assert not followed.is_read
        for page in await followed.read(stops=lambda _: followed.is_read):
            shown.take(page)
        postgres.run("create table marker (id int primary key)", "insert into marker values (1)")
        for page in await followed.read(stops=lambda page: page.topic == "srv.public.marker"):
            shown.take(page)
    assert shown.state == dict(postgres.rows("select id, v from t"))
    assert len(shown.read) > ROWS // 2
    assert set(shown.read) <= set(shown.state)


async def test_tables_are_added_and_asked_for_while_the_log_is_read(followed: Followed) -> None:
    """One that is created with rows, one without a key that waits for a restart; and a request by a changed config."""
    postgres = followed.postgres
    followed.properties |= {"table.poll.interval.ms": "50"}
    await followed.read(stops=is_after_snapshot)
    connector, context, found = followed.connector(), followed.context(), list[Page]()
    async with asyncio.timeout(SECONDS_MAX), aclosing(connector.fetch(context)) as stream:
        postgres.run("update t set v = 1 where id = 1")
        context.commit(await anext(stream))  # the log is read
        postgres.run(
            "create table later (id int primary key)",
            "insert into later values (1), (2)",
            "create table keyless (id int)",
            "insert into keyless values (7)",
        )
        async for page in stream:
            found.append(page)
            context.commit(page)
            if "later" in str(page.topic) and len(page):
                break
        changed = {**followed.properties, "snapshot.request.id": "1", "snapshot.request.tables": "public.later"}
        config = type(connector.config).parse(changed).config
        assert config is not None
        assert connector.takes_over({"snapshot.request.id"})
        assert not connector.takes_over({"snapshot.request.id", "slot.name"})
        await connector.apply_config(config)
        async for page in stream:
            found.append(page)
            context.commit(page)
            if page.topic == "srv.public.later" and page.offset.get("request") == "1" and len(page):
                break
    later = [(value["op"], key["id"]) for page in found for key, value in records(page) if "later" in str(page.topic)]
    assert {key for operation, key in later if operation == "r"} == {1, 2}
    assert later[-2:] == [("r", 1), ("r", 2)]
    told = [(event.table, event.what) for event in context.events if isinstance(event, TableSnapshotMoved)]
    assert ("public.keyless", "waits for a start of the task, because it has no key") in told
    assert ("public.later", "begins") in told
    async with asyncio.timeout(SECONDS_MAX), aclosing(followed.connector().fetch(context)) as stream:
        async for page in stream:
            if "keyless" in str(page.topic):
                assert json.loads(page.original(0)[1] or b"")["after"] == {"id": 7}
                break


async def read_beside(followed: Followed, statement: str) -> list[Page]:
    """A whole snapshot, in which the statement is run when the first rows of ``t`` are there."""
    is_run = False

    def stops(page: Page) -> bool:
        nonlocal is_run
        if page.topic == "srv.public.t" and not is_run:
            followed.postgres.run(statement)
            is_run = True
        return followed.is_read

    return await followed.read(stops=stops)


async def test_a_table_that_is_dropped_before_its_turn_ends_no_snapshot(followed: Followed) -> None:
    """It is not there when what was broken off goes on."""
    followed.postgres.run("create table u (id int primary key)", "insert into u values (1)")
    pages = await read_beside(followed, "drop table u")
    assert "srv.public.u" not in {page.topic for page in pages}
    assert {key["id"] for page in pages for key, _ in records(page)} == set(range(1, ROWS + 1))


async def test_a_table_that_is_written_anew_before_its_turn_is_read(followed: Followed) -> None:
    """To a transaction that began before, PostgreSQL shows it as empty."""
    followed.postgres.run("create table u (id int primary key, n int)", "insert into u values (1, 2)")
    pages = await read_beside(followed, "alter table u alter column n type bigint")
    found = [value["after"] for page in pages if page.topic == "srv.public.u" for _, value in records(page)]
    assert found == [{"id": 1, "n": 2}]


def test_limits_that_a_database_sets_are_not_those_of_a_snapshot(followed: Followed) -> None:
    """A transaction waits between two tables for as long as Kafka takes, and a large table takes its time."""
    limits = ("statement_timeout", "idle_in_transaction_session_timeout")
    followed.postgres.run(*(f"alter database {followed.postgres.name} set {limit} = '1h'" for limit in limits))
    reader = SnapshotReader(followed.connector().config)
    try:
        reader.open(None)
        assert [reader._one(f"select current_setting('{limit}')") for limit in limits] == ["0", "0"]
    finally:
        reader.close()
