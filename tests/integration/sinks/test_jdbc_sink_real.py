"""``JdbcSink`` on a real PostgreSQL and a real MariaDB."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from fetchers.sdk import Fatal, Retriable
from tests.databases import MariaDb, Postgres
from tests.jdbc_sink_suite import HERE, JdbcSinkSuite, batch_of, order

pytestmark = pytest.mark.integration
LOOK_SECONDS = 0.02
ONCE = {"insert_mode": "insert", "pk_mode": "none", "pk_fields": "", "offsets_table": "headrace_offsets"}


class TestPostgres(JdbcSinkSuite):
    """Every test of the suite, and what is PostgreSQL's own."""

    @pytest.fixture(autouse=True)
    def _database(self, postgres: Postgres) -> None:
        self.database = postgres
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

    async def test_a_server_that_is_killed_and_comes_back(self) -> None:
        """No record is refused for it."""
        server = self.database.server
        async with self.sink(auto_create="true") as sink:
            await sink.put(batch_of([(1, order("a"))]))
            server.kill()
            try:
                refused: list[tuple[int, str, str]] = []
                with pytest.raises(Retriable):
                    await sink.put(batch_of([(2, order("b"))], begin=1, refused=refused))
            finally:
                server.start()
            await sink.put(batch_of([(2, order("b"))], begin=1))
            assert refused == []
        assert await self.orders() == [(1, "a", 1), (2, "b", 1)]

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
        async with self.sink(connection_user=role, insert_mode="insert") as sink:
            with pytest.raises(Fatal, match=f"GRANT .* TO {role}"):
                await sink.put(batch_of([(1, order("a"))]))
        await self.sql("drop table orders", f"drop role {role}")


class TestMariaDb(JdbcSinkSuite):
    """Every test of the suite, and what is MariaDB's own."""

    @pytest.fixture(autouse=True)
    def _database(self, mariadb: MariaDb) -> None:
        self.database = mariadb
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


async def _retriable(sink: Any, rows: list[tuple[Any, Any]]) -> bool:
    with pytest.raises(Retriable):
        await sink.put(batch_of(rows, begin=1))
    return True
