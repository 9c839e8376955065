"""``JdbcSink`` on a real PostgreSQL and a real MariaDB."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from fetchers.sdk import Fatal, Retriable
from service.sinks.jdbc import mysql, postgresql
from tests.databases import DatabaseServer, MariaDb, Postgres
from tests.fault_proxy import FaultProxy
from tests.jdbc_sink_suite import HERE, JdbcSinkSuite, batch_of, order

pytestmark = pytest.mark.integration
LOOK_SECONDS = 0.02
FROZEN_SECONDS = 6
"""How long a transaction of one that is to be frozen may be silent. Who is well may be held up for longer: where that
costs its session, what was put comes again, as from a worker (``until_taken``)."""
MORE = {"type": "record", "name": "O", "fields": [{"name": "more", "type": ["null", "int"]}]}
ONCE = {"insert_mode": "insert", "pk_mode": "none", "pk_fields": "", "offsets_table": "headrace_offsets"}


class RealDatabaseSuite(JdbcSinkSuite):
    """What a server behind a network adds: connections that break, and sessions that stay behind."""

    server: DatabaseServer
    commit: tuple[bytes, bytes]
    """How a commit is asked for, and what of its answer says that it was made."""

    def through(self, proxy: FaultProxy) -> str:
        """The database's URL, by way of a door."""
        return self.url.replace(f":{self.server.port}/", f":{proxy.port}/")

    @pytest.mark.parametrize("mode", ["upsert", "offsets"])
    async def test_a_commit_whose_answer_is_lost(self, mode: str) -> None:
        """The rows are there, the sink cannot know, and the put comes again: each row is there once."""
        await self.sql("create table orders (status varchar(20) primary key, amount int)")
        keys = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "status"}
        if mode == "offsets":  # a primary key would hide a row that is written twice
            await self.sql("drop table orders", "create table orders (status varchar(20), amount int)")
            keys = ONCE
        rows = [(None, order("a")), (None, order("b"))]
        async with (
            FaultProxy(self.server.port).serving() as proxy,
            self.sink(connection_url=self.through(proxy), **keys) as sink,
        ):
            await sink.open({HERE: None})
            proxy.lose_after, proxy.lose_at = self.commit
            refused: list[tuple[int, str, str]] = []
            with pytest.raises(Retriable):
                await sink.put(batch_of(rows, refused=refused))
            assert await self.sql("select status from orders order by 1") == [("a",), ("b",)]
            await sink.put(batch_of(rows, refused=refused))
        assert (proxy.lost, refused) == (1, [])
        assert await self.sql("select status from orders order by 1") == [("a",), ("b",)]

    async def test_a_server_that_is_restarted(self) -> None:
        """Put while it is away, records come again; none is refused, and each row is there once."""
        async with self.sink(auto_create="true", **ONCE) as sink:
            await sink.open({HERE: None})
            await sink.put(batch_of([(None, order("a"))]))
            await asyncio.to_thread(self.server.stop)
            refused: list[tuple[int, str, str]] = []
            try:
                with pytest.raises(Retriable):
                    await sink.put(batch_of([(None, order("b"))], begin=1, refused=refused))
            finally:
                await asyncio.to_thread(self.server.start)
            await sink.put(batch_of([(None, order("a")), (None, order("b"))], refused=refused))
            assert refused == []
        assert await self.sql("select status from orders order by 1") == [("a",), ("b",)]

    @pytest.mark.parametrize("mode", ["upsert", "insert"])
    async def test_a_server_that_is_restarted_in_mid_batch(self, mode: str) -> None:
        """Without ``offsets.table``, when rows are written and the commit has not arrived: all of it comes again.

        Upserts are as if they were written once, inserts are there at least once; no record is refused.
        """
        key = " primary key" if mode == "upsert" else ""
        await self.sql(f"create table orders (status varchar(20){key}, amount int)")
        keys = {"insert_mode": mode} | ({} if key else {"pk_mode": "none", "pk_fields": ""})
        keys |= {"pk_mode": "record_value", "pk_fields": "status"} if key else {}
        refused: list[tuple[int, str, str]] = []
        rows = [(None, order("a", 2)), (None, order("b", 2))]
        async with (
            FaultProxy(self.server.port).serving() as proxy,
            self.sink(connection_url=self.through(proxy), **keys) as sink,
        ):
            await sink.open({HERE: None})
            await until_taken(lambda: sink.put(batch_of([(None, order("a", 1))])))
            proxy.keep = self.commit[0]
            async with asyncio.TaskGroup() as group:
                cut = group.create_task(_frozen(sink, rows, proxy))
                await proxy.kept.wait()
                await asyncio.to_thread(self.server.stop)
                await asyncio.to_thread(self.server.start)
                proxy.may_go.set()
            assert cut.result()
            found = await self.orders("status, amount")
            assert set(found) == {("a", 1)}, "what was not committed is undone"
            await until_taken(lambda: sink.put(batch_of(rows, begin=1, refused=refused)))
        found = sorted(await self.orders("status, amount"))
        if mode == "upsert":
            assert found == [("a", 2), ("b", 2)]
        else:
            assert set(found) == {("a", 1), ("a", 2), ("b", 2)}
        assert refused == []

    async def test_a_worker_that_freezes_within_its_transaction_holds_up_nobody(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server ends its session, so that the successor gets the row of offsets; what it had written is undone."""
        for module in (postgresql, mysql):
            monkeypatch.setattr(module, "IDLE_SECONDS_MAX", FROZEN_SECONDS)
        await self.sql("create table orders (status varchar(20), amount int)")
        async with (
            FaultProxy(self.server.port).serving() as proxy,
            self.sink(connection_url=self.through(proxy), **ONCE) as zombie,
            self.sink(**ONCE) as sink,
        ):
            await until_taken(lambda: zombie.open({HERE: None}))
            await until_taken(lambda: zombie.put(batch_of([(None, order("a"))])))
            proxy.keep = b"release savepoint"
            async with asyncio.TaskGroup() as group:
                frozen = group.create_task(_frozen(zombie, [(None, order("b"))], proxy))
                await proxy.kept.wait()
                monkeypatch.undo()
                assert await sink.open({HERE: None}) == {HERE: 1}
                await sink.put(batch_of([(None, order("b"))], begin=1))
                proxy.may_go.set()
            assert frozen.result()
        assert await self.sql("select status from orders order by 1") == [("a",), ("b",)]


class TestPostgres(RealDatabaseSuite):
    """Every test of the suite, and what is PostgreSQL's own."""

    commit = b"commit\0", b"COMMIT\0"

    @pytest.fixture(autouse=True)
    def _database(self, postgres: Postgres) -> None:
        self.database = postgres
        self.server = postgres.server
        self.url = postgres.url

    async def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """By a session of its own."""
        self.database.run(*statements[:-1])
        if statements[-1].startswith("select"):
            return self.database.rows(statements[-1])
        self.database.run(statements[-1])
        return []

    async def test_a_connection_that_is_cut_between_write_and_commit(self) -> None:
        """What was written of the put is undone; the next try writes all of it, once."""
        await self.sql("create table orders (status text primary key, amount int)")
        other = self.database.connect(autocommit=False)
        async with self.sink(**ONCE) as sink:
            await sink.open({HERE: None})
            await sink.put(batch_of([(None, order("a"))]))
            with other, other.cursor() as cursor:  # the next put waits for whether this row is there
                cursor.execute("insert into orders values ('c', 0)")
                async with asyncio.TaskGroup() as group:
                    put = group.create_task(_retriable(sink, [(None, order("b")), (None, order("c"))]))
                    while not self.database.rows("select 1 from pg_locks where not granted"):
                        await asyncio.sleep(LOOK_SECONDS)
                    self.database.run(
                        "select pg_terminate_backend(pid) from pg_stat_activity "
                        "where datname = current_database() and wait_event_type = 'Lock'"
                    )
                assert put.result()
                other.rollback()
            assert await self.sql("select status from orders") == [("a",)]
            await sink.put(batch_of([(None, order("b")), (None, order("c"))], begin=1))
            assert await self.sql("select status from orders order by 1") == [("a",), ("b",), ("c",)]

    async def test_texts_go_to_types_that_have_no_other_form(self) -> None:
        """uuid, json, an enum, an instant; one that is none is refused."""
        await self.sql(
            "create type mood as enum ('good', 'bad')",
            "create table orders (id bigint primary key, status mood, amount int, who uuid, doc jsonb)",
        )
        own = {"name": "who", "type": "string"}, {"name": "doc", "type": "string"}
        schema = {"type": "record", "name": "O", "fields": [{"name": "status", "type": "string"}, *own]}
        who = "6ecd8c99-4036-403d-bf84-cf8400f67836"
        refused: list[tuple[int, str, str]] = []
        rows = [(1, {"status": "good", "who": who, "doc": "{}"}), (2, {"status": "so so", "who": who, "doc": "{}"})]
        async with self.sink() as sink:
            await sink.put(batch_of(rows, schema, refused=refused))
        assert await self.sql("select id, status::text, who::text, doc::text from orders") == [(1, "good", who, "{}")]
        assert [row for row, _, _ in refused] == [1]

    async def test_a_text_that_the_server_has_no_letters_for_is_refused_alone(self) -> None:
        """The rows are on their way to the temporary table then; the others are written."""
        refused: list[tuple[int, str, str]] = []
        async with self.sink(auto_create="true") as sink:
            await sink.put(batch_of([(1, order("a")), (2, order("b\0c")), (3, order("d"))], refused=refused))
        assert await self.orders() == [(1, "a", 1), (3, "d", 1)]
        assert [row for row, _, _ in refused] == [1]

    async def test_keys_that_are_one_to_the_database_alone_are_written_in_their_order(self) -> None:
        """One statement must not write a row twice: each is written by itself then."""
        await self.sql("create extension citext", "create table orders (status citext primary key, amount int)")
        refused: list[tuple[int, str, str]] = []
        rows = [(None, order(status, amount)) for amount, status in enumerate(("a", "b", "A"))]
        async with self.sink(insert_mode="upsert", pk_mode="record_value", pk_fields="status") as sink:
            await sink.put(batch_of(rows, refused=refused))
        assert refused == []
        assert await self.sql("select status::text, amount from orders order by 1") == [("a", 2), ("b", 1)]

    async def test_instants_stay_instants(self) -> None:
        """``db.timezone`` counts for columns without a zone alone, with its daylight saving."""
        await self.sql("create table orders (id bigint primary key, here timestamp, there timestamptz)")
        kind = {"type": "long", "logicalType": "timestamp-millis"}
        schema = {"type": "record", "name": "O", "fields": [{"name": name, "type": kind} for name in ("here", "there")]}
        moment = 1_720_000_000_000
        async with self.sink(db_timezone="Europe/Berlin") as sink:
            await sink.put(batch_of([(1, {"here": moment, "there": moment})], schema))
        ((here, there),) = await self.sql("select here::text, extract(epoch from there)::bigint from orders")
        assert here == "2024-07-03 11:46:40"
        assert there == datetime(2024, 7, 3, 9, 46, 40, tzinfo=UTC).timestamp()

    async def test_missing_rights_and_keys_are_told_with_their_statements(self) -> None:
        """A person must mend them."""
        await self.sql("create table orders (id bigint, status text, amount int)")
        async with self.sink() as sink:
            with pytest.raises(Fatal, match="ADD PRIMARY KEY"):
                await sink.put(batch_of([(1, order("a"))]))
        role = f"writer_{self.database.name}"
        await self.sql(f"create role {role} login", f"grant select on orders to {role}")
        own = {"connection_user": role, "insert_mode": "insert", "auto_create": "true", "auto_evolve": "true"}
        try:
            async with self.sink(**own) as sink:
                with pytest.raises(Fatal, match=f"GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO {role}"):
                    await sink.put(batch_of([(1, order("a"))]))
                with pytest.raises(Fatal, match=f"ALTER TABLE orders OWNER TO {role}.*or run: ALTER TABLE"):
                    await sink.put(batch_of([(1, {"more": 1})], MORE))
        finally:
            await self.sql("drop table orders", f"drop role {role}")


class TestMariaDb(RealDatabaseSuite):
    """Every test of the suite, and what is MariaDB's own."""

    commit = b"\x03commit", b""

    @pytest.fixture(autouse=True)
    def _database(self, mariadb: MariaDb) -> None:
        self.database = mariadb
        self.server = mariadb.server
        self.url = mariadb.url

    async def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """By a session of its own."""
        return await self.database.rows(*statements)

    async def test_upserts_need_an_index_of_the_key_and_no_other(self) -> None:
        """The server would change the row of another key, or write a row twice."""
        await self.sql("create table orders (id bigint, status varchar(20) unique, amount int)")
        async with self.sink() as sink:
            with pytest.raises(Fatal, match="ADD UNIQUE"):
                await sink.put(batch_of([(1, order("a"))]))
            await self.sql("alter table orders add primary key (id)")
            with pytest.raises(Fatal, match="another unique index"):
                await sink.put(batch_of([(1, order("a"))]))

    async def test_a_statement_that_waits_is_left_when_the_sink_stops(self) -> None:
        """Nobody waits for the lock of somebody else; nothing of it is written."""
        await self.sql("create table orders (status varchar(20), amount int)")
        other = await self.database.connect(autocommit=False)
        try:
            async with other.cursor() as cursor, self.sink(pk_mode="none", insert_mode="insert", pk_fields="") as sink:
                await cursor.execute("lock tables orders write")
                async with asyncio.TaskGroup() as group:
                    put = group.create_task(_retriable(sink, [(None, order("a"))]))
                    while not await self.sql(
                        "select 1 from information_schema.processlist where db = database() and state like '%lock%'"
                    ):
                        await asyncio.sleep(LOOK_SECONDS)
                    await sink.stop()
                assert put.result()
                await cursor.execute("unlock tables")
        finally:
            await other.ensure_closed()
        assert await self.sql("select status from orders") == []

    async def test_a_right_that_is_taken_away(self) -> None:
        """In mid-topic: the task fails and names the statement; no record is refused, and none is written twice."""
        user = f"w{self.database.name[-8:]}"
        await self.sql(
            "create table orders (status varchar(20), amount int)",
            f"create user {user}@'127.0.0.1'",
            f"grant all on {self.database.name}.* to {user}@'127.0.0.1'",
        )
        refused: list[tuple[int, str, str]] = []
        rows = [(None, order("a")), (None, order("b"))]
        try:
            async with self.sink(connection_user=user, **ONCE) as sink:
                await sink.open({HERE: None})
                await sink.put(batch_of(rows[:1]))
                await self.sql(f"revoke insert on {self.database.name}.* from {user}@'127.0.0.1'")
            async with self.sink(connection_user=user, **ONCE) as sink:
                await sink.open({HERE: None})
                with pytest.raises(Fatal, match=f"GRANT .* TO {user}"):
                    await sink.put(batch_of(rows, refused=refused))
                assert refused == []
                await self.sql(f"grant insert on {self.database.name}.* to {user}@'127.0.0.1'")
            async with self.sink(connection_user=user, **ONCE) as sink:
                await sink.open({HERE: None})
                await sink.put(batch_of(rows))
            assert await self.sql("select status from orders order by 1") == [("a",), ("b",)]
        finally:
            await self.sql(f"drop user {user}@'127.0.0.1'")

    async def test_tables_that_the_user_may_not_make(self) -> None:
        """A person must mend it, and is told how."""
        user = f"w{self.database.name[-8:]}"
        await self.sql(
            "create table orders (id bigint primary key, status varchar(20), amount int)",
            f"create user {user}@'127.0.0.1'",
            f"grant select, insert on {self.database.name}.* to {user}@'127.0.0.1'",
        )
        try:
            own = {"connection_user": user, "insert_mode": "insert", "auto_create": "true", "auto_evolve": "true"}
            async with self.sink(**own) as sink:
                told = rf"GRANT CREATE ON `{self.database.name}`\.\* TO {user}.*or run: CREATE TABLE"
                with pytest.raises(Fatal, match=told):
                    await sink.put(batch_of([(1, order("a"))], topic="others"))
        finally:
            await self.sql(f"drop user {user}@'127.0.0.1'")

    async def test_keys_that_differ_in_case_alone_are_two(self) -> None:
        """Also in a server whose own collation takes them for one."""
        schema = {"type": "record", "name": "O", "fields": [{"name": "name", "type": "string"}]}
        async with self.sink(auto_create="true", pk_mode="record_value", pk_fields="name") as sink:
            await sink.put(batch_of([(None, {"name": name}) for name in ("a", "A", "a ")], schema))
        assert len(await self.sql("select name from orders")) == 3

    async def test_a_connection_that_is_cut(self) -> None:
        """The next try connects anew, and writes what is not there."""
        async with self.sink(auto_create="true", **ONCE) as sink:
            await sink.open({HERE: None})
            await sink.put(batch_of([(None, order("a"))]))
            for (number,) in await self.sql(
                "select id from information_schema.processlist where db = database() and id <> connection_id()"
            ):
                await self.sql(f"kill {number}")
            with pytest.raises(Retriable):
                await sink.put(batch_of([(None, order("b"))], begin=1))
            await sink.put(batch_of([(None, order("a")), (None, order("b"))]))
        assert await self.sql("select status from orders order by 1") == [("a",), ("b",)]


async def until_taken(call: Callable[[], Awaitable[object]]) -> None:
    """Ask it of a sink again, as a worker does, where the server has ended a session that was held up."""
    while True:
        with suppress(Retriable):
            await call()
            return


async def _frozen(sink: Any, rows: list[tuple[Any, Any]], proxy: FaultProxy) -> bool:
    """Put until a request of it is kept; whether that put then failed for a while."""
    while not proxy.kept.is_set():
        with suppress(Retriable):
            await sink.put(batch_of(rows, begin=1))
            return False
    return True


async def _retriable(sink: Any, rows: list[tuple[Any, Any]]) -> bool:
    with pytest.raises(Retriable):
        await sink.put(batch_of(rows, begin=1))
    return True
