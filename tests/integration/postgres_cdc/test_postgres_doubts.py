# ruff: noqa: S608 - tables and rows are this test's own
"""What users of change data capture lost rows by, tried on a real PostgreSQL: odd tables, servers, publications."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from fetchers.postgres_cdc.log import Framing, Log
from fetchers.postgres_cdc.place import Origin, Place
from fetchers.sdk import Fatal, Page
from tests.databases import Postgres
from tests.integration.postgres_cdc.test_postgres_log import SECONDS_MAX, Followed, is_after_snapshot, records

MADE = "create table t (id int primary key, v int)"
ADDED = "alter publication dbz_publication add table t"


@pytest.fixture
def followed(postgres: Postgres) -> Iterator[Followed]:
    """A database with a marker table."""
    postgres.run("create table marker (id serial primary key)")
    made = Followed(postgres)
    yield made
    made.drop()


def told(pages: list[Page]) -> list[tuple[str | None, dict[str, Any]]]:
    """Topic and row of each event."""
    return [(page.topic, value["after"]) for page in pages for _, value in records(page)]


async def test_a_large_key_that_has_not_changed_stays_the_rows_key(followed: Followed) -> None:
    """The log has it in the row before alone: a placeholder would be a delete of the row, and another one."""
    followed.postgres.run("create table t (id text primary key, n int)", "alter table t alter id set storage external")
    await followed.read(stops=is_after_snapshot)
    ((made, _),) = await followed.read_on(
        "insert into t select string_agg(md5(g::text), ''), 1 from generate_series(1, 80) g"
    )
    ((key, value),) = await followed.read_on("update t set n = 2")
    assert (key, value["op"], value["after"]) == (made, "u", {"id": made["id"], "n": 2})


async def test_a_snapshot_has_no_rows_of_tables_that_inherit(followed: Followed) -> None:
    """They are rows of their own table, in the log too."""
    followed.postgres.run(
        "create table p (id int primary key)",
        "create table c (primary key (id)) inherits (p)",
        "insert into p values (1)",
        "insert into c values (2)",
    )
    found = told(await followed.read(stops=is_after_snapshot))
    assert sorted(found, key=str) == [("srv.public.c", {"id": 2}), ("srv.public.p", {"id": 1})]


async def test_a_snapshot_has_the_rows_and_columns_that_the_publication_has(followed: Followed) -> None:
    """As the log: other rows would never change again, and other columns may be nobody's business."""
    followed.postgres.run(
        "create table t (id int primary key, a int, secret int)",
        "insert into t values (1, 1, 1), (2, 2, 2)",
        "create publication dbz_publication for table t (id, a) where (id > 1), marker",
    )
    pages = await followed.read(stops=is_after_snapshot)
    assert told(pages) == [("srv.public.t", {"id": 2, "a": 2})]
    found = await followed.read_on("insert into t values (0, 0, 0), (3, 3, 3)")
    assert [value["after"] for _, value in found] == [{"id": 3, "a": 3}]


async def test_row_level_security_ends_a_snapshot_that_would_lack_rows(followed: Followed) -> None:
    """And is a finding before."""
    role = followed.postgres.name
    followed.postgres.run(
        f"create role {role} login replication",
        "create table t (id int primary key)",
        "insert into t values (1), (2)",
        f"grant select on all tables in schema public to {role}",
        "alter table t enable row level security",
        "create policy one on t using (id = 1)",
        "create publication dbz_publication for all tables",
    )
    followed.properties |= {"database.user": role, "publication.autocreate.mode": "disabled"}
    found = [finding.message for finding in await followed.connector().check(followed.context())]
    assert ["BYPASSRLS" in message for message in found] == [True]
    with pytest.raises(Fatal, match="row-level security"):
        await followed.read(stops=is_after_snapshot)
    followed.postgres.run(f"drop owned by {role}", f"drop role {role}")


async def test_items_of_an_array_stay_apart_as_their_type_has_it(followed: Followed) -> None:
    """Those of ``box`` have commas in them."""
    followed.postgres.run("create table t (id int primary key, b box[])")
    await followed.read(stops=is_after_snapshot)
    boxes = "array['((1,1),(0,0))'::box, null, '((3,3),(2,2))']"
    ((_, value),) = await followed.read_on(f"insert into t values (1, {boxes})")
    assert value["after"]["b"] == ["(1,1),(0,0)", None, "(3,3),(2,2)"]


async def test_an_interval_that_is_too_long_is_rejected_alone(followed: Followed) -> None:
    """As microseconds it has no room in 64 bits: one row must not end the task."""
    followed.postgres.run("create table t (id int primary key, i interval)")
    await followed.read(stops=is_after_snapshot)
    followed.postgres.run("insert into t values (1, '170000000 years'), (2, '1 day')", "insert into marker values (1)")
    pages = await followed.read(stops=lambda page: page.topic == "srv.public.marker")
    ((page, rejection),) = [(page, rejection) for page in pages for rejection in page.rejections]
    assert (rejection.index, "too long" in rejection.message) == (0, True)
    assert records(page)[1][1]["after"] == {"id": 2, "i": 86_400_000_000}


async def test_a_server_whose_log_ends_before_the_offset_is_refused(followed: Followed) -> None:
    """A failover or a backup went back in time: until there it would send nothing, and leave out all of it."""
    await followed.read(stops=is_after_snapshot)
    followed.offsets["log"] = {"lsn_commit": int(str(followed.offset["lsn_commit"])) + (1 << 40)}
    with pytest.raises(Fatal, match=r"log ends at .* older backup"):
        await followed.read_on("insert into marker default values")


async def test_a_publication_that_is_gone_is_a_hole(followed: Followed) -> None:
    """It is not made anew without a word."""
    await followed.read(stops=is_after_snapshot)
    followed.postgres.run("drop publication dbz_publication")
    with pytest.raises(Fatal, match=r"no publication .* snapshot.mode=initial"):
        await followed.read_on("insert into marker default values")


async def test_a_table_that_is_made_again_is_read_again(followed: Followed) -> None:
    """Its first rows are not in the log: it was not yet in the publication, of which the old one was a part."""
    followed.properties["table.poll.interval.ms"] = "10"
    followed.postgres.run("create table t (id int primary key)", "insert into t values (7)")
    await followed.read(stops=is_after_snapshot)
    followed.postgres.run("drop table t", "create table t (id int primary key)", "insert into t values (1), (2)")
    seen = await followed.read(stops=lambda page: page.topic == "srv.public.t" and len(page) > 0)
    found = [record for page in seen for record in records(page)] + await followed.read_on("insert into t values (3)")
    assert [(value["op"], key["id"]) for key, value in found] == [("r", 1), ("r", 2), ("c", 3)]


async def test_a_table_that_was_left_out_for_a_while_is_read_again(followed: Followed) -> None:
    """What happened to it meanwhile was passed over in the log."""
    followed.postgres.run("create table t (id int primary key)")
    await followed.read(stops=is_after_snapshot)
    followed.properties["table.include.list"] = "public.marker"
    assert await followed.read_on("insert into t values (1)") == []
    followed.properties["table.include.list"] = "public\\..*"
    pages = await followed.read(stops=lambda page: page.topic == "srv.public.t" and len(page) > 0)
    assert [(value["op"], key["id"]) for page in pages for key, value in records(page)] == [("r", 1)]


REPLACED = {
    "made again": ("drop table t", MADE, "insert into t values (1, 0), (2, 0)", ADDED),
    "left out": ("alter publication dbz_publication drop table t", "update t set v = 1", ADDED),
    "swapped": (
        "create table copy (id int primary key, v int)",
        "insert into copy values (1, 1), (2, 1)",
        "alter publication dbz_publication add table copy",
        "do $$ begin alter table t rename to was; alter table copy rename to t; end $$",
    ),
    "filtered otherwise": ("alter publication dbz_publication set table marker, t where (id > 0)",),
}
"""What somebody does between two looks to a table, and to a publication of his own: the log does not tell it."""


@pytest.mark.parametrize("name", REPLACED)
async def test_a_table_that_is_another_one_at_the_next_look_is_read_again(followed: Followed, name: str) -> None:
    """Though a table of its name is there as before."""
    followed.properties |= {"publication.autocreate.mode": "disabled", "table.include.list": "public.(t|marker)"}
    row_filter = " where (id > 1)" if name == "filtered otherwise" else ""
    publication = f"create publication dbz_publication for table marker, t{row_filter}"
    followed.postgres.run(MADE, "insert into t values (1, 0), (2, 0)", publication)
    await followed.read(stops=is_after_snapshot)
    await followed.read_on("insert into t values (3, 0)")
    followed.postgres.run(*REPLACED[name])
    pages = await followed.read(stops=lambda page: page.topic == "srv.public.t" and len(page) > 0)
    found = [(value["op"], key["id"], value["after"]["v"]) for page in pages for key, value in records(page)]
    rows = followed.postgres.rows("select id, v from t order by id")
    assert found == [("r", *row) for row in rows]
    assert await followed.read_on("update t set v = 9 where id = 2") != []
    await followed.read(stops=lambda _: followed.is_read)
    again = await followed.read_on("delete from t where id = 1")
    assert [value["op"] for _, value in again if value] == ["d"]  # and is read again once


async def test_a_table_that_is_made_again_before_it_was_read_whole_is_read_from_its_beginning(
    followed: Followed,
) -> None:
    """Keys up to the place where reading stood may have come back."""
    followed.properties |= {"publication.autocreate.mode": "disabled", "snapshot.fetch.size": "2"}
    publication = "create publication dbz_publication for table marker, t"
    followed.postgres.run(MADE, "insert into t select n, 0 from generate_series(1, 9) n", publication)
    followed.properties["snapshot.mode"] = "no_data"
    await followed.read(stops=lambda page: "tables_read" in page.offset)
    followed.properties |= {"snapshot.request.id": "1", "snapshot.request.tables": "public.t"}
    await followed.read(stops=lambda page: page.topic == "srv.public.t" and "key" in page.offset)
    followed.postgres.run("drop table t", MADE, "insert into t values (1, 1), (2, 1), (3, 1)", ADDED)
    followed.properties["snapshot.mode"] = "initial"
    pages = await followed.read(stops=lambda _: followed.is_read)
    rows = {key["id"]: value["after"]["v"] for page in pages for key, value in records(page)}
    assert rows == {1: 1, 2: 1, 3: 1}


async def test_a_table_that_nobody_had_published_is_read_where_others_left_offsets(followed: Followed) -> None:
    """Debezium's offsets have no list of tables: what the publication has counts as read, and nothing else."""
    followed.postgres.run("create table t (id int primary key)", "insert into t values (1)")
    await followed.read(stops=is_after_snapshot)
    del followed.offsets["tables"]
    followed.postgres.run("create table later (id int primary key)", "insert into later values (1)")
    pages = await followed.read(stops=lambda page: page.topic == "srv.public.later" and len(page) > 0)
    assert told(pages) == [("srv.public.later", {"id": 1})]


async def test_two_tables_of_one_topic_are_refused(followed: Followed) -> None:
    """Their keys would be each other's: letters that no topic may have are underscores in it."""
    followed.postgres.run('create table "顧客" (id int primary key)', 'create table "注文" (id int primary key)')
    with pytest.raises(
        Fatal, match=r"public.(顧客|注文) and public.(顧客|注文) would both be told in the topic srv.public.__"
    ):
        await followed.read(stops=is_after_snapshot)


async def test_partitions_that_a_publication_shows_as_their_root_are_one_table(followed: Followed) -> None:
    """Named by the lists as what it is; at later starts nothing is added to the publication."""
    followed.properties["table.include.list"] = "public.(t|marker)"
    followed.postgres.run(
        "create table t (id int primary key) partition by range (id)",
        "create table t1 partition of t for values from (0) to (10)",
        "create table t2 partition of t for values from (10) to (20)",
        "insert into t values (1), (11)",
        "create publication dbz_publication for table t, marker with (publish_via_partition_root)",
    )
    assert await followed.connector().check(followed.context()) == []
    rows = told(await followed.read(stops=is_after_snapshot))
    assert rows == [("srv.public.t", {"id": 1}), ("srv.public.t", {"id": 11})]
    moves = ("update t set id = 14 where id = 1", "update t set id = 2 where id = 14")
    for wanted, move in zip((r"public.(t|marker)", r"public\..*"), moves, strict=True):
        followed.properties["table.include.list"] = wanted
        found = await followed.read_on(move)
        assert [value and (value["source"]["table"], value["op"]) for _, value in found] == [
            ("t", "d"),
            None,
            ("t", "c"),
        ]


class Proxy:
    """Stands before the server, and keeps its answer to START_REPLICATION back until it is told to give it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        answers, server = await asyncio.open_connection("127.0.0.1", self.port)

        async def ask() -> None:
            while data := await reader.read(65536):
                if b"START_REPLICATION" in data:
                    self.is_asked.set()
                server.write(data)
            server.close()

        async def answer() -> None:
            while data := await answers.read(65536):
                if self.is_asked.is_set():
                    await self.may_answer.wait()
                writer.write(data)
            writer.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(ask())
            group.create_task(answer())


async def test_a_connection_that_is_closed_while_it_is_made_frees_its_slot(followed: Followed) -> None:
    """When the call that runs in a thread has ended; else the next reader of the slot would wait for a collection."""
    await followed.read(stops=is_after_snapshot)
    proxy = Proxy(followed.postgres.server.port)
    active = f"select active from pg_replication_slots where slot_name = '{followed.postgres.name}'"
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as server, asyncio.timeout(SECONDS_MAX):
        while followed.postgres.rows(active) != [(False,)]:
            await asyncio.sleep(0.05)
        followed.properties["database.port"] = str(server.sockets[0].getsockname()[1])
        config = followed.connector().config
        place = Place(int(str(followed.offset["lsn_commit"])))
        log = Log(config, Framing(place, rows_max=10, takes=lambda _relation: True), Origin())
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(log.open))
            await proxy.is_asked.wait()
            while followed.postgres.rows(active) != [(True,)]:  # the server is asked, and may not be that far
                await asyncio.sleep(0.05)
            log.close()
            assert followed.postgres.rows(active) == [(True,)]
            proxy.may_answer.set()
        while followed.postgres.rows(active) != [(False,)]:
            await asyncio.sleep(0.05)
        log.close()


async def test_a_slot_that_another_reads_while_it_is_waited_for_is_a_hole(followed: Followed) -> None:
    """The server goes on from where the slot stands, without a word: so it is looked at where it is read."""
    await followed.read(stops=is_after_snapshot)
    name, place = followed.postgres.name, Place(int(str(followed.offset["lsn_commit"])))
    async with asyncio.timeout(SECONDS_MAX):
        while followed.postgres.rows(f"select active from pg_replication_slots where slot_name = '{name}'")[0][0]:
            await asyncio.sleep(0.05)
    followed.postgres.run(
        "insert into marker default values", f"select pg_replication_slot_advance('{name}', pg_current_wal_lsn())"
    )
    framing = Framing(place, rows_max=10, takes=lambda _relation: True)
    with (
        closing(Log(followed.connector().config, framing, Origin())) as log,
        pytest.raises(Fatal, match=r"slot .* begins at .* somebody else has read it.* snapshot\.mode=initial"),
    ):
        log.open()


def test_a_server_that_is_gone_without_a_word_is_noticed(followed: Followed) -> None:
    """By the machine's own means, which are off or take hours otherwise."""
    with closing(psycopg.connect(**followed.connector().config.session)) as connection:
        own = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        with closing(own):
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
