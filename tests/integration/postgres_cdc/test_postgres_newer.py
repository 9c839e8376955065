# ruff: noqa: S608 - statements of tests
"""``PostgresCdcSource`` at PostgreSQL 17 and 18: slots that replicas keep, and slots that a server gave up."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fetchers.postgres_cdc.captured import CapturedTables
from fetchers.postgres_cdc.replication import FAILOVER_VERSION
from fetchers.postgres_cdc.snapshot import SnapshotReader
from fetchers.postgres_cdc.stretches import PostgresStretches
from fetchers.sdk import Fatal, Severity
from fetchers.toolkit.table_reading import UnseenTableError
from tests.databases import Postgres, own_postgres, running_postgres
from tests.integration.postgres_cdc.test_postgres_log import SECONDS_MAX, Followed, is_after_snapshot
from tests.postgres_standby import newer_program

pytestmark = pytest.mark.integration
LOOK_SECONDS = 0.05


@pytest.fixture(scope="module", params=["17", "18"])
def newer_server(request: pytest.FixtureRequest, database_folder: Path) -> Iterator[Postgres]:
    """A server of each version, out of its jar, with its database ``postgres``."""
    folder = database_folder / uuid.uuid4().hex
    folder.mkdir()
    with running_postgres(folder, program=newer_program(folder, request.param)) as server:
        yield Postgres(server, "postgres")


@pytest.fixture
def newer(newer_server: Postgres) -> Iterator[Followed]:
    """An empty database there, with a table and a marker table."""
    with own_postgres(Postgres(newer_server.server, f"test_{uuid.uuid4().hex[:10]}")) as postgres:
        postgres.run("create table t (id int primary key)", "create table marker (id serial primary key)")
        made = Followed(postgres, slot_failover="true")
        yield made
        made.drop()


async def warnings(followed: Followed) -> list[str]:
    """Of validation, about the key."""
    found = await followed.connector().check(followed.context())
    return [one.message for one in found if one.key == "slot.failover" and one.severity is Severity.WARNING]


def is_kept(followed: Followed) -> bool:
    """Whether replicas keep the slot."""
    ((kept,),) = followed.postgres.rows("select failover from pg_replication_slots")
    return bool(kept)


async def added(followed: Followed, number: int) -> list[tuple[str, int]]:
    """Operations and ids of what is read up to a row that is added now."""
    statement = f"insert into t values ({number})"
    return [(value["op"], key["id"]) for key, value in await followed.read_on(statement)]


async def test_the_slot_is_made_so_that_replicas_keep_it(newer: Followed) -> None:
    """With the snapshot of its moment; validation asks for what keeps the replica from lacking changes."""
    (told,) = await warnings(newer)
    assert "synchronized_standby_slots" in told
    await newer.read(stops=is_after_snapshot)
    assert is_kept(newer)
    assert await added(newer, 1) == [("c", 1)]


async def test_a_slot_that_was_made_without_it_is_altered(newer: Followed) -> None:
    """When its log is opened, and no change is lost by that; without the key a slot is left as it is."""
    newer.properties["slot.failover"] = "false"
    await newer.read(stops=is_after_snapshot)
    assert await added(newer, 1) == [("c", 1)]
    assert not is_kept(newer)
    newer.properties["slot.failover"] = "true"
    assert await added(newer, 2) == [("c", 2)]
    newer.properties["slot.failover"] = "false"
    assert await added(newer, 3) == [("c", 3)]
    assert is_kept(newer)


@pytest.mark.parametrize("newer_server", ["18"], indirect=True)
async def test_a_slot_that_nobody_read_for_too_long_is_told_so(newer: Followed) -> None:
    """The server gives it up, from version 18 on, and what it would have told is lost."""
    await newer.read(stops=is_after_snapshot)
    newer.postgres.run("alter system set idle_replication_slot_timeout = '1s'", "select pg_reload_conf()")
    async with asyncio.timeout(SECONDS_MAX):
        while newer.postgres.rows("select invalidation_reason from pg_replication_slots") != [("idle_timeout",)]:
            newer.postgres.run("insert into t select coalesce(max(id), 0) + 1 from t", "checkpoint")
            await asyncio.sleep(LOOK_SECONDS)
    newer.postgres.run("alter system reset idle_replication_slot_timeout", "select pg_reload_conf()")
    async with asyncio.timeout(SECONDS_MAX):  # for the tests that come after this one
        while newer.postgres.rows("select current_setting('idle_replication_slot_timeout')") != [("0",)]:
            await asyncio.sleep(LOOK_SECONDS)
    with pytest.raises(Fatal, match=r"longer than idle_replication_slot_timeout\. Changes may be missing"):
        await added(newer, 1000)


async def test_changes_that_the_server_leaves_out_are_no_silence(newer: Followed) -> None:
    """Of a publication that was dropped: version 18 only warns of it, and would be read past them for ever."""
    await newer.read(stops=is_after_snapshot)
    assert await added(newer, 1) == [("c", 1)]
    newer.postgres.run("drop publication dbz_publication", "insert into t values (2)")
    newer.postgres.run("create publication dbz_publication for table t, marker")
    with pytest.raises(Fatal, match=r"dbz_publication.* \((42704|55000)\)"):
        await added(newer, 3)
    with pytest.raises(Fatal, match=r"dbz_publication.* \((42704|55000)\)"):
        await added(newer, 4)


async def test_validation_tells_what_the_installed_server_lacks(postgres: Postgres) -> None:
    """Before version 17 the key has no effect but for that, as with Debezium; changes come on every one."""
    postgres.run("create table t (id int primary key)", "create table marker (id serial primary key)")
    followed = Followed(postgres, slot_failover="true")
    (told,) = await warnings(followed)
    is_older = int(postgres.rows("select current_setting('server_version_num')")[0][0]) < FAILOVER_VERSION
    assert ("from PostgreSQL 17 on" if is_older else "synchronized_standby_slots") in told
    await followed.read(stops=is_after_snapshot)
    assert await added(followed, 1) == [("c", 1)]
    followed.drop()


async def test_who_looks_at_a_table_gives_up_a_lock_that_is_not_given(newer: Followed) -> None:
    """These versions tell of a publication only with its tables' locks: the log would not be followed meanwhile."""
    await newer.read(stops=is_after_snapshot)
    connector = newer.connector()
    reader, tables = SnapshotReader(connector.config), CapturedTables(connector.config, connector._form)
    stretches = PostgresStretches(connector.config, tables, reader, newer.context(), read=frozenset)
    with newer.postgres.connect(autocommit=False) as holder, holder.cursor() as cursor:
        cursor.execute("lock table t in access exclusive mode")
        async with asyncio.timeout(SECONDS_MAX / 3):
            held = await stretches.stretch("public.t", ())
            with pytest.raises(UnseenTableError, match="a lock"):
                await stretches.tables()
        holder.rollback()
    reader.close()
    assert held is not None
    assert held.waits_for.startswith("a lock")
