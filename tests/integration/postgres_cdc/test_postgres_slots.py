"""Whose the slot of ``PostgresCdcSource`` is: of a task that was replaced, of another connector, of nobody any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import count

import pytest

from fetchers.postgres_cdc.fetcher import QUIET_SECONDS
from fetchers.postgres_cdc.log import Batch, Log
from fetchers.sdk import Fatal, Page, Retriable
from fetchers.sdk.context import partition_key
from fetchers.sdk.testing import FakeContext
from tests.integration.postgres_cdc import test_postgres_log
from tests.integration.postgres_cdc.test_postgres_log import (
    SECONDS_MAX,
    SERVER,
    TABLES,
    Followed,
    is_after_snapshot,
    records,
)

pytestmark = pytest.mark.integration
followed = test_postgres_log.followed


async def rows_of(pages: AsyncIterator[Page]) -> Page:
    """The next page that has rows; those before it are taken."""
    async for page in pages:
        if len(page):
            return page
    raise AssertionError


async def test_a_task_that_does_not_know_of_its_end_is_waited_for_and_gone_on_from(followed: Followed) -> None:
    """It has stored and confirmed what its successor did not read at its start: nothing is lost, or wrong."""
    postgres = followed.postgres
    postgres.run("create table t (id int primary key)")
    await followed.read(stops=is_after_snapshot)
    context, replaced = followed.context(), followed.connector()
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        async with aclosing(replaced.fetch(followed.context())) as pages:
            postgres.run("insert into t values (1)")
            page = await rows_of(pages)
            followed.offsets["log"] = page.offset
            await replaced.on_committed(SERVER, page.offset)
            going_on = group.create_task(rows_of(pages))
            await until_confirmed(followed, int(str(page.offset["lsn_commit"])))
            context.stored[partition_key(SERVER)] = page.offset
            with pytest.raises(Retriable, match="an earlier task of this connector has read the slot up to"):
                await rows_of(followed.connector().fetch(context))
            following = group.create_task(rows_of(followed.connector().fetch(context)))
            while not context.retries:
                await asyncio.sleep(0.05)
            assert "is another connector on it" in str(context.retries[0][0])
            going_on.cancel()
            await asyncio.wait([going_on])
        postgres.run("insert into t values (2)")
        assert [(value["op"], key["id"]) for key, value in records(await following)] == [("c", 2)]


async def test_a_slot_that_is_waited_for_is_no_quiet_log(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its last reader takes to let go: a round is over when the log was read, or has been silent."""
    drain, looks = Log.drain, count()

    def drained(log: Log, confirmed: int) -> Batch | None:
        """Nothing has come when it is first looked at."""
        return drain(log, confirmed) if next(looks) else None

    followed.postgres.run("create table t (id int primary key)")
    await followed.read(stops=is_after_snapshot)
    context = FakeContext(partition=SERVER)  # in virtual time, by which it waits for long
    for partition in (SERVER, TABLES):
        context.commit(Page([], followed.context().offset_of(partition), partition=partition))

    async def first_rows() -> Page:
        async with aclosing(followed.connector().fetch(context)) as pages:
            return await rows_of(pages)

    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        async with aclosing(followed.connector().fetch(followed.context())) as pages:
            followed.postgres.run("insert into t values (1)")
            await rows_of(pages)
            monkeypatch.setattr(Log, "drain", drained)
            following = group.create_task(first_rows())
            while sum(seconds for _, seconds in context.retries) < 2 * QUIET_SECONDS:
                await asyncio.sleep(0.05)
        assert [key["id"] for key, _ in records(await following)] == [1]
    assert context.rounds == 0


async def until_confirmed(followed: Followed, position: int) -> None:
    """Wait until the server has heard that this is in Kafka; the slot stays there."""
    confirmed = "select (confirmed_flush_lsn - '0/0')::int8 from pg_replication_slots where slot_name = '{}'"
    while followed.postgres.rows(confirmed.format(followed.postgres.name))[0][0] < position:
        await asyncio.sleep(0.05)


SLOTS = "select 1 from pg_replication_slots where slot_name = '{}'"
PUBLICATIONS = "select pubname from pg_publication"


async def deleted(followed: Followed, *others: dict[str, str]) -> bool:
    """What is said when the connector is deleted, once its last reader has let go of the slot."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                return await followed.connector().on_deleted(followed.context(), others)
            except Retriable:  # it is still being read
                await asyncio.sleep(0.05)


async def test_a_deleted_connector_drops_its_slot_and_its_publication(followed: Followed) -> None:
    """Again and again, as where a leader dies in between; then a new one begins with a snapshot."""
    postgres = followed.postgres
    postgres.run("create table t (id int primary key)", "insert into t values (1)")
    await followed.read(stops=is_after_snapshot)
    assert postgres.rows(SLOTS.format(postgres.name))
    for _ in range(2):
        assert await deleted(followed)
        assert not postgres.rows(SLOTS.format(postgres.name))
        assert not postgres.rows(PUBLICATIONS)
    followed.offsets = {}
    pages = await followed.read(stops=is_after_snapshot)
    assert [value["op"] for page in pages for _, value in records(page)] == ["r"]


async def test_a_slot_that_may_be_somebody_elses_stays_and_the_sql_is_told(followed: Followed) -> None:
    """Read by another connector, read further than the offset says, never begun here, or wanted to stay."""
    postgres = followed.postgres
    postgres.run("create publication dbz_publication for all tables")
    await followed.read(stops=is_after_snapshot)
    sql = rf"SELECT pg_drop_replication_slot\('{postgres.name}'\)"
    with pytest.raises(Fatal, match=f"connector twin reads it too.*{sql}"):
        await deleted(followed, {**followed.properties, "name": "twin"})
    stored = followed.offsets
    followed.offsets = {}
    with pytest.raises(Fatal, match=f"nothing says.*{sql}"):
        await deleted(followed)
    followed.offsets = {"log": {"lsn_commit": 1}}
    with pytest.raises(Fatal, match=f"somebody else.*{sql}"):
        await deleted(followed)
    for other in (
        {"log_of": "4711"},
        {"timeline": 7, "timeline_begin": 4711},
    ):  # an address that leads elsewhere by now
        followed.offsets = {"log": {**stored["log"], **other}}
        with pytest.raises(Fatal, match=f"this is another server than.*{sql}"):
            await deleted(followed)
    followed.offsets = stored
    followed.properties["slot.drop.on.delete"] = "false"
    assert not await deleted(followed)
    followed.properties |= {"slot.drop.on.delete": "true", "database.port": "1"}
    with pytest.raises(Retriable, match=sql):
        await followed.connector().on_deleted(followed.context(), ())
    followed.properties["database.port"] = str(postgres.server.port)
    assert postgres.rows(SLOTS.format(postgres.name))
    assert await deleted(followed, {**followed.properties, "database.hostname": "elsewhere"})
    assert not postgres.rows(SLOTS.format(postgres.name))
    assert postgres.rows(PUBLICATIONS) == [("dbz_publication",)]
    followed.offsets = {"log": {**stored["log"], "log_of": "4711"}}
    with pytest.raises(Fatal, match=f"this is another server than.*{sql}"):  # where the slot is there still
        await deleted(followed)
