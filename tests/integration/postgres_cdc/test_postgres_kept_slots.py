"""``slot.failover`` with two real servers of PostgreSQL 17: the replica that takes over has the slot, and goes on."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fetchers.sdk import Retriable
from tests.databases import Postgres, running_postgres
from tests.integration.postgres_cdc.test_postgres_failover import NAME, Pair
from tests.integration.postgres_cdc.test_postgres_log import is_after_snapshot
from tests.postgres_standby import (
    LOOK_SECONDS,
    SECONDS_MAX,
    keep_slot,
    newer_program,
    running_keeper,
    until_replayed,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def pair(database_folder: Path) -> Iterator[Pair]:
    """Servers of the test's own: one of them dies. The source has the primary keep its slot for replicas."""
    folder = database_folder / uuid.uuid4().hex
    folder.mkdir()
    settings = ("wal_keep_size=256MB", "wal_sender_timeout=0", "autovacuum=off")
    with running_postgres(folder, *settings, program=newer_program(folder, "17")) as primary:
        first = Postgres(primary, NAME)
        first.run(f"create database {NAME}", name="postgres")
        first.run("create table t (id int primary key)", "create table marker (id serial primary key)")
        with running_keeper(folder, primary) as standby:
            made = Pair(first, Postgres(standby, NAME))
            made.followed.properties["slot.failover"] = "true"
            yield made


async def wait_for_replica(primary: Postgres) -> None:
    """From now on the primary tells the source nothing that the replica has not; its copy has not this setting."""
    primary.run("alter system set synchronized_standby_slots = 'standby'", "select pg_reload_conf()")
    async with asyncio.timeout(SECONDS_MAX):
        while primary.rows("select current_setting('synchronized_standby_slots')") != [("standby",)]:
            await asyncio.sleep(LOOK_SECONDS)


async def test_a_replica_that_kept_the_slot_is_gone_on_from_once_it_took_over(pair: Pair) -> None:
    """Each change once, from before the switch to after it; until then nothing is read there, and the slot stays."""
    await pair.followed.read(stops=is_after_snapshot)
    await keep_slot(pair.first, pair.second)
    await wait_for_replica(pair.first)
    assert await pair.added(pair.first, 1, 2) == [("c", 1), ("c", 2)]
    pair.first.run("insert into t values (3)", "update t set id = 4 where id = 3")
    await until_replayed(pair.first, pair.second)
    pair.read_at(pair.second)
    with pytest.raises(Retriable, match="this replica has not taken over: it keeps the slot shop for that"):
        await pair.fail()
    with pytest.raises(Retriable, match="it is a replica, and the slot of its primary would stay"):
        await pair.deleted()
    pair.take_over()
    pair.second.run("delete from t where id = 1")
    assert await pair.added(pair.second, 5) == [("c", 3), ("d", 3), ("c", 4), ("d", 1), ("c", 5)]
    assert await pair.added(pair.second, 6) == [("c", 6)]
    assert await pair.deleted()
    assert pair.slots() == []
