# ruff: noqa: S608 - statements of tests
"""``PostgresCdcSource`` at a real replica that took over: it goes on where that has all that was read, or stops."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fetchers.sdk import Fatal, Retriable
from tests.databases import Postgres, running_postgres
from tests.integration.postgres_cdc.test_postgres_log import Followed, is_after_snapshot, records
from tests.postgres_standby import LOOK_SECONDS, SECONDS_MAX, copy_slot, promote, running_standby, until_replayed

pytestmark = pytest.mark.integration
NAME = "shop"
CHOICES = r"Changes may be missing.* snapshot\.mode=initial.* snapshot\.mode=no_data"


class Pair:
    """A primary whose log is read, and its standby."""

    def __init__(self, first: Postgres, second: Postgres) -> None:
        self.first = first
        self.second = second
        self.followed = Followed(first, table_include_list=r"public\.(t|marker)")

    async def begin(self) -> None:
        """Read the snapshot and a row of the log."""
        await self.followed.read(stops=is_after_snapshot)
        assert await self.added(self.first, 1) == [("c", 1)]

    async def added(self, server: Postgres, *ids: int) -> list[tuple[str, int]]:
        """Operations and ids of what is read there, up to rows that are added now."""
        self.read_at(server)
        rows = "insert into t values " + ", ".join(f"({number})" for number in ids) if ids else "select 1"
        return [(value["op"], key["id"]) for key, value in await self.followed.read_on(rows) if value]

    def read_at(self, server: Postgres) -> None:
        """As if the address led there from now on."""
        self.followed.postgres = server
        self.followed.properties["database.port"] = str(server.server.port)

    async def fail(self) -> None:
        """Read until that is over, and try nothing again."""
        async with asyncio.timeout(SECONDS_MAX):
            async for _ in self.followed.connector().fetch(self.followed.context()):
                pass

    async def deleted(self) -> bool:
        """As when the connector is deleted; its last reader has gone already, or lets go of the slot soon."""
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                try:
                    return await self.followed.connector().on_deleted(self.followed.context(), ())
                except Retriable as error:
                    if "it is being read" not in str(error):
                        raise
                    await asyncio.sleep(LOOK_SECONDS)

    def take_over(self) -> None:
        """The primary dies, and the standby is promoted with what it has."""
        self.first.server.kill()
        promote(self.second)

    def make_slot(self) -> None:
        """Of the connector's name, where the log of the new primary is now."""
        self.second.run(f"select pg_create_logical_replication_slot('{NAME}', 'pgoutput')")

    def slots(self) -> list[tuple[str, ...]]:
        """Of the new primary."""
        return self.second.rows("select slot_name from pg_replication_slots")


@pytest.fixture
def pair(database_folder: Path) -> Iterator[Pair]:
    """Servers of the test's own: one of them dies."""
    folder = database_folder / uuid.uuid4().hex
    folder.mkdir()
    with running_postgres(folder, "wal_keep_size=256MB", "wal_sender_timeout=0", "autovacuum=off") as primary:
        first = Postgres(primary, NAME)
        first.run(f"create database {NAME}", name="postgres")
        first.run("create table t (id int primary key)", "create table marker (id serial primary key)")
        with running_standby(folder, primary) as standby:
            yield Pair(first, Postgres(standby, NAME))


async def test_a_replica_that_took_over_without_the_slot_is_a_hole(pair: Pair) -> None:
    """Also where somebody makes the slot anew: it begins later. What a person chooses is done, and nothing else."""
    await pair.begin()
    await until_replayed(pair.first, pair.second)
    pair.read_at(pair.second)
    with pytest.raises(Retriable, match="is a replica, and has no slot shop"):
        await pair.fail()
    with pytest.raises(Retriable, match="it is a replica"):
        await pair.deleted()
    pair.take_over()
    with pytest.raises(Fatal, match=rf"slot shop is needed .*replica that took over without it\. {CHOICES}"):
        await pair.added(pair.second, 2)
    assert pair.slots() == []
    pair.make_slot()
    with pytest.raises(Fatal, match=rf"slot shop begins at .* is needed.* {CHOICES}"):
        await pair.added(pair.second, 3)
    pair.second.run(f"select pg_drop_replication_slot('{NAME}')")
    pair.followed.offsets.clear()
    pages = await pair.followed.read(stops=is_after_snapshot)
    found = [(value["op"], key["id"]) for page in pages for key, value in records(page) if page.topic == "srv.public.t"]
    assert found == [("r", 1), ("r", 2), ("r", 3)]
    assert await pair.added(pair.second, 4) == [("c", 4)]


async def test_a_replica_that_lacks_what_was_read_is_never_gone_on_from(pair: Pair) -> None:
    """Its log has other changes at the same positions, which would be left out without a word."""
    await pair.begin()
    await until_replayed(pair.first, pair.second)
    pair.second.server.stop()
    assert await pair.added(pair.first, 2) == [("c", 2)]
    pair.first.run("create table filler as select g, repeat('x', 500) from generate_series(1, 5000) g")
    assert await pair.added(pair.first, 3) == [("c", 3)]
    pair.first.server.kill()
    pair.second.server.start()
    promote(pair.second)
    pair.make_slot()
    pair.second.run("create table filler as select g, repeat('x', 500) from generate_series(1, 9000) g")
    before = dict(pair.followed.offsets)
    with pytest.raises(Fatal, match=rf"timeline 1 .* has others in their place\. {CHOICES}"):
        await pair.added(pair.second, 4)
    assert pair.followed.offsets == before


async def test_a_replica_that_took_over_with_the_slot_is_gone_on_from(pair: Pair) -> None:
    """Each change once, from before the switch to after it, once it has; the old primary, if it comes back, is not."""
    await pair.begin()
    copy_slot(pair.first, pair.second.server, NAME)
    pair.first.run("insert into t values (2)")
    assert await pair.added(pair.first, 3) == [("c", 2), ("c", 3)]
    pair.first.run("insert into t values (4)", "update t set id = 5 where id = 4")
    await until_replayed(pair.first, pair.second)
    pair.read_at(pair.second)
    with pytest.raises(Retriable, match="this replica has not taken over"):
        await pair.fail()
    with pytest.raises(Retriable, match="it is a replica, and the slot of its primary would stay"):
        await pair.deleted()
    pair.take_over()
    pair.second.run("delete from t where id = 1")
    found = await pair.added(pair.second, 6)
    assert found == [("c", 4), ("d", 4), ("c", 5), ("d", 1), ("c", 6)]
    assert await pair.added(pair.second, 7) == [("c", 7)]
    pair.first.server.start()
    with pytest.raises(Fatal, match=rf"timeline 2 .* {CHOICES}"):
        await pair.added(pair.first, 8)
    with pytest.raises(Fatal, match="this is another server than"):
        await pair.deleted()
    pair.read_at(pair.second)
    assert await pair.deleted()
    assert pair.slots() == []
