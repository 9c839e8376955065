# ruff: noqa: S608 - tables and rows are this test's own
"""What the server hears of its log's reader: nothing that is not in Kafka, and always in time."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from fetchers.postgres_cdc import fetcher
from fetchers.postgres_cdc.fetcher import PostgresCdcSource
from fetchers.postgres_cdc.log import readable
from fetchers.postgres_cdc.place import Origin, Place
from fetchers.postgres_cdc.replication import Replication
from fetchers.sdk import Fatal, Page, Retriable
from tests.apis.rest.certificates import Authority
from tests.databases import DatabaseServer, Postgres, running_postgres
from tests.integration.postgres_cdc.test_postgres_log import Followed, is_after_snapshot, records

SECONDS_MAX = 300.0
LOOK_SECONDS = 0.02
LARGE_BYTES = 30_000_000
TIMEOUT_SECONDS = 30
"""``wal_sender_timeout`` of these databases. A reader that a busy machine leaves standing for so long, but for the
quarter after which it gives a sign of life by itself, is taken for dead, as it should be."""
QUICK_SECONDS = 10
"""The same where nobody answers: the server asks for a sign of life after half of it."""
_SLOT = "select (confirmed_flush_lsn - '0/0')::int8, active_pid from pg_replication_slots where slot_name = '{}'"
_LOG_END = "select (pg_current_wal_flush_lsn() - '0/0')::int8"
_SENDER = """
select (sent_lsn - '0/0')::int8, extract(epoch from reply_time)::float8 from pg_stat_replication where pid = {}"""


class Reading:
    """A task that reads, of which the test says what of its pages is taken, and what is in Kafka."""

    def __init__(self, followed: Followed, pages: AsyncGenerator[Page, None], connector: PostgresCdcSource) -> None:
        self._followed = followed
        self._pages = pages
        self._connector = connector

    async def page(self) -> Page:
        """The next one with rows; nothing runs before the next call."""
        async for page in self._pages:
            if len(page):
                return page
        raise AssertionError

    async def commit(self, page: Page) -> None:
        """Say that the page is in Kafka."""
        self._followed.offsets["log"] = page.offset
        await self._connector.on_committed(self._connector.partition(), page.offset)

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Pages without rows are taken, and are not in Kafka yet."""
        async with asyncio.TaskGroup() as group:
            taking = group.create_task(self.page())
            yield
            taking.cancel()


@asynccontextmanager
async def reading(followed: Followed) -> AsyncIterator[Reading]:
    """A task that begins at the stored offsets."""
    connector = followed.connector()
    async with asyncio.timeout(SECONDS_MAX), aclosing(connector.fetch(followed.context())) as pages:
        yield Reading(followed, pages, connector)


@pytest.fixture
def followed(postgres: Postgres) -> Iterator[Followed]:
    """A database with a marker table and a table that nobody reads, whose server is quick to ask for a sign of life."""
    postgres.run(
        "create table marker (id serial primary key)",
        "create table unread (id serial primary key, v text)",
        f"alter database {postgres.name} set wal_sender_timeout = '{TIMEOUT_SECONDS}s'",
    )
    made = Followed(postgres, table_include_list=r"public\.(marker|t)")
    yield made
    made.drop()


def slot(followed: Followed) -> tuple[int, int | None]:
    """What is confirmed, and the server's process that has a reader."""
    ((confirmed, pid),) = followed.postgres.rows(_SLOT.format(followed.postgres.name))
    return confirmed, pid


def sender(followed: Followed, pid: int | None) -> tuple[int, float]:
    """How far the server has sent its log, and when it last heard of the reader."""
    ((sent, heard),) = followed.postgres.rows(_SENDER.format(pid))
    return sent, heard


async def test_nothing_is_confirmed_that_is_not_in_kafka(followed: Followed) -> None:
    """Though the server's log goes on with what nobody reads, and the server asks; the next task finds its log."""
    postgres = followed.postgres
    await followed.read(stops=is_after_snapshot)
    async with reading(followed) as task:
        postgres.run("insert into marker default values")
        await task.commit(await task.page())
        stored = int(str(followed.offset["lsn_commit"]))
        async with task.going_on():
            while slot(followed)[0] < stored:
                await asyncio.sleep(LOOK_SECONDS)
            pid = slot(followed)[1]
            postgres.run("insert into unread (v) select repeat('x', 100) from generate_series(1, 1000)")
            ((end,),) = postgres.rows(_LOG_END)
            while sender(followed, pid)[0] < end:
                await asyncio.sleep(LOOK_SECONDS)
            first = sender(followed, pid)[1]
            while sender(followed, pid)[1] < first + TIMEOUT_SECONDS / 2:
                assert slot(followed) == (stored, pid)
                await asyncio.sleep(LOOK_SECONDS)
    assert stored < end
    assert slot(followed)[0] == stored
    assert await followed.read_on("insert into marker default values") == []


async def test_a_reader_that_waits_for_kafka_is_not_taken_for_dead(followed: Followed) -> None:
    """For longer than ``wal_sender_timeout``: the server hears of it, though more waits than its socket holds."""
    postgres = followed.postgres
    postgres.run("create table t (id int primary key, v text)")
    await followed.read(stops=is_after_snapshot)
    stored = int(str(followed.offset["lsn_commit"]))
    async with reading(followed) as task:
        # Beside the loop, which tells the server of the reader: on a busy machine it may take longer than the timeout.
        await asyncio.to_thread(
            postgres.run,
            "insert into marker default values",
            "insert into t select g, repeat(md5(g::text), 100) from generate_series(1, 10000) g",
        )
        await task.page()  # its taker waits for Kafka
        pid = slot(followed)[1]
        first = sender(followed, pid)[1]
        while sender(followed, pid)[1] < first + TIMEOUT_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
        assert slot(followed) == (stored, pid)
        count = 0
        while count < 10_000:
            count += len(await task.page())
        assert (count, slot(followed)) == (10_000, (stored, pid))


@pytest.fixture
def own_server(database_folder: Path) -> Iterator[DatabaseServer]:
    """A server that the test may shut down and configure."""
    folder = database_folder / uuid.uuid4().hex
    folder.mkdir()
    with running_postgres(folder) as server:
        yield server


async def test_a_server_that_is_shut_down_waits_for_nobody(own_server: DatabaseServer) -> None:
    """It asks until all that it has sent is flushed, which Kafka alone may say; and sends it again to the next task."""
    postgres = Postgres(own_server, "postgres")
    postgres.run("create table marker (id serial primary key)")
    followed = Followed(postgres)
    await followed.read(stops=is_after_snapshot)
    async with reading(followed) as task:
        postgres.run("insert into marker default values")
        await task.commit(await task.page())
        stored = int(str(followed.offset["lsn_commit"]))
        postgres.run("insert into marker default values")
        await task.page()
        os.kill(own_server.pid, own_server.stop_signal)
        with pytest.raises(Retriable):
            await task.page()
    process = own_server.process
    assert process is not None
    with process:
        assert await asyncio.to_thread(process.wait, SECONDS_MAX) == 0
    own_server.start()
    assert slot(followed)[0] <= stored
    (page,) = await followed.read(stops=lambda page: len(page) > 0)
    assert [key["id"] for key, _ in records(page)] == [2]


async def test_the_log_comes_over_tls(own_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``database.sslmode`` and libpq's variables have it; a large value and many messages."""
    authority = Authority(own_server.folder)
    authority.sign("server")
    if os.getuid() == 0:
        shutil.chown(own_server.folder / "server.key", "nobody", "nogroup")
    monkeypatch.setenv("PGSSLROOTCERT", str(authority.certificate))
    postgres = Postgres(own_server, "postgres")
    postgres.run(
        f"alter system set ssl_cert_file = '{own_server.folder}/server.crt'",
        f"alter system set ssl_key_file = '{own_server.folder}/server.key'",
        "alter system set ssl = on",
        "select pg_reload_conf()",
        "create table marker (id serial primary key)",
        "create table t (id int primary key, v text)",
    )
    followed = Followed(postgres, database_sslmode="verify-full")
    async with asyncio.timeout(SECONDS_MAX):
        while postgres.rows("select current_setting('ssl')") != [("on",)]:
            await asyncio.sleep(LOOK_SECONDS)
    await followed.read(stops=is_after_snapshot)
    async with reading(followed) as task:
        postgres.run(
            f"insert into t values (0, repeat('x', {LARGE_BYTES}))",
            "insert into t select g, repeat('y', 100) from generate_series(1, 20000) g",
        )
        page = await task.page()
        _, pid = slot(followed)
        assert postgres.rows(f"select ssl from pg_stat_ssl where pid = {pid}") == [(True,)]
        ((_, value),) = records(page)
        assert len(value["after"]["v"]) == LARGE_BYTES
        count = 0
        while count < 20_000:
            count += len(await task.page())
        assert count == 20_000


async def test_an_error_in_the_stream_is_what_it_is_elsewhere(followed: Followed) -> None:
    """Of one that passes, and of one that a person must mend."""
    await followed.read(stops=is_after_snapshot)
    async with reading(followed) as task:
        followed.postgres.run("insert into marker default values")
        await task.page()
        followed.postgres.run(f"select pg_terminate_backend({slot(followed)[1]})")
        with pytest.raises(Retriable, match="57P01"):
            await task.page()
    async with reading(followed) as task:
        await task.page()
        followed.postgres.run("drop publication dbz_publication", "insert into marker default values")
        with pytest.raises(Fatal, match=r"does not exist \(42704\)"):
            await task.page()


@pytest.mark.parametrize(("before", "between"), [(0, 0), (3, 0), (0, 3)])
async def test_the_servers_reason_survives_what_cannot_be_sent(followed: Followed, before: int, between: int) -> None:
    """It stands behind a question that is answered too late, or is read after statuses that reach nobody."""
    followed.postgres.run(f"alter database {followed.postgres.name} set wal_sender_timeout = '{QUICK_SECONDS}s'")
    await followed.read(stops=is_after_snapshot)
    position = int(str(followed.offset["lsn_commit"]))
    async with asyncio.timeout(SECONDS_MAX):
        while slot(followed)[1] is not None:
            await asyncio.sleep(LOOK_SECONDS)
        stream = Replication(followed.connector().config, Place(position), Origin())
        with closing(stream), socket.socket(fileno=os.dup(stream.fileno())) as peeked:
            while not is_asked(peeked):
                await asyncio.sleep(LOOK_SECONDS)
            pid = slot(followed)[1]
            followed.postgres.run(f"select pg_terminate_backend({pid})")
            while followed.postgres.rows(f"select 1 from pg_stat_activity where pid = {pid}"):
                await asyncio.sleep(LOOK_SECONDS)
            await told(stream, position, times=before)
            with pytest.raises(Retriable, match="57P01"):
                await received_for_ever(stream, position, between)


async def received_for_ever(stream: Replication, position: int, between: int) -> None:
    """Take what comes, and send statuses between two looks."""
    while True:
        stream.receive(count_max=1000, bytes_max=1 << 20)
        await told(stream, position, times=between)


def is_asked(peeked: socket.socket) -> bool:
    """Whether the last that has come, and that nobody has read, is a keepalive that asks for an answer."""
    with suppress(BlockingIOError):
        found = peeked.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return found[-23:-17] == b"d\0\0\0\x16k" and found[-1:] == b"\x01"
    return False


async def told(stream: Replication, position: int, *, times: int) -> None:
    """Send statuses; between two of them the peer's kernel may answer that nobody is there."""
    for _ in range(times):
        stream.tell(position)
        await asyncio.sleep(LOOK_SECONDS)


def rolled(server: DatabaseServer) -> list[Path]:
    """Fill and end segments of the server's log: those behind which it writes now."""
    postgres = Postgres(server, "postgres")
    for _ in range(3):
        postgres.run("insert into unread (v) values ('x')", "select pg_switch_wal()")
    postgres.run("checkpoint")
    ((current,),) = postgres.rows("select pg_walfile_name(pg_current_wal_lsn())")
    return [file for file in (server.folder / "data" / "pg_wal").glob("[0-9A-F]" * 24) if file.name < current]


async def test_a_segment_that_was_removed_by_hand_is_a_hole(own_server: DatabaseServer) -> None:
    """The view of slots does not know of it: to try again would be to try for ever."""
    postgres = Postgres(own_server, "postgres")
    postgres.run("create table marker (id serial primary key)", "create table unread (v text)")
    followed = Followed(postgres, table_include_list=r"public\.marker")
    await followed.read(stops=is_after_snapshot)
    for file in rolled(own_server):
        file.unlink()
    with pytest.raises(Fatal, match=r"already been removed \(58P01\).* snapshot.mode=initial"):
        await followed.read_on("insert into marker default values")


async def test_log_that_is_purged_under_its_reader_is_a_hole(own_server: DatabaseServer) -> None:
    """The server ends the session, which may pass; what the next one finds does not."""
    postgres = Postgres(own_server, "postgres")
    postgres.run(
        "create table marker (id serial primary key)",
        "create table unread (v text)",
        "alter system set max_slot_wal_keep_size = '1MB'",
        "select pg_reload_conf()",
    )
    async with asyncio.timeout(SECONDS_MAX):
        while postgres.rows("select current_setting('max_slot_wal_keep_size')") != [("1MB",)]:
            await asyncio.sleep(LOOK_SECONDS)
    followed = Followed(postgres, table_include_list=r"public\.marker")
    await followed.read(stops=is_after_snapshot)
    async with reading(followed) as task:
        postgres.run("insert into marker default values")
        await task.page()
        rolled(own_server)
        with pytest.raises(Retriable, match="57P01"):
            await task.page()
    with pytest.raises(Fatal, match=r"removed log that the slot .* snapshot.mode=initial"):
        await followed.read_on("insert into marker default values")


async def test_a_transaction_that_ends_without_a_row_keeps_nobody_waiting(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left over of it has none, and the next transaction has come together with it: the server is silent."""
    waits = []

    async def waiting(*arguments: Any) -> None:
        waits.append(arguments)
        await readable(*arguments)

    monkeypatch.setattr(fetcher, "readable", waiting)
    followed.properties["max.batch.size"] = "10"
    followed.postgres.run("create table t (id int primary key)")
    await followed.read(stops=is_after_snapshot)
    async with reading(followed) as task:
        followed.postgres.run("insert into marker default values")
        await task.page()
        followed.postgres.run(
            "insert into t select generate_series(1, 20)",
            "insert into t select generate_series(101, 120)",
            "insert into marker default values",
        )
        ((end,),) = followed.postgres.rows(_LOG_END)
        while sender(followed, slot(followed)[1])[0] < end:
            await asyncio.sleep(LOOK_SECONDS)
        first = await task.page()
        waits.clear()
        assert [len(first), len(await task.page()), waits] == [20, 20, []]
