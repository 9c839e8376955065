"""``JdbcSink`` and what MySQL, MariaDB and PostgreSQL do with values that are not of the column's type.

A text that is compared with a number is read as far as it is one, a unique index of something else than the key decides
which row an upsert replaces, a table without transactions keeps what was undone: each time without a word.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fetchers.sdk import Fatal
from service.sinks.contract import Form, SinkBatch, ValueType
from service.sinks.jdbc.sink import JdbcSink
from tests.databases import MariaDb, MySql, Postgres
from tests.jdbc_sink_suite import HERE, batch_of, running

pytestmark = pytest.mark.integration
GREAT = 2**53
Refused = list[tuple[int, str, str]]


def schema(kind: str = "string") -> dict[str, Any]:
    """Of values with one field, ``v``."""
    return {"type": "record", "name": "O", "fields": [{"name": "v", "type": ["null", kind]}]}


def keyed(texts: list[str], value: dict[str, Any] | None, refused: Refused | None = None) -> SinkBatch:
    """Records with texts as keys."""
    batch = batch_of([(0, value)] * len(texts), schema(), refused=refused)
    place = batch.records.schema.get_field_index("key")
    return replace(batch, records=batch.records.set_column(place, "key", pa.array(texts)), key=ValueType(Form.TEXT))


class OtherRows:
    """Subclasses give the database."""

    url: str
    widened: str
    """What lets the column ``v`` take more."""
    sql: Callable[..., Awaitable[list[tuple[Any, ...]]]]
    """Rows of the last statement, run by somebody else than the sink."""

    def sink(self, **changes: str) -> AbstractAsyncContextManager[JdbcSink]:
        """A started sink; ``_`` in names stands for a dot."""
        own = {"connection.url": self.url, "insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}
        return running(own | {name.replace("_", "."): value for name, value in changes.items()})

    async def table(self, columns: str, *values: str, more: str = "") -> None:
        """Make the table, with rows in it."""
        rows = (f"insert into orders values {each}" for each in values)  # noqa: S608 - of the tests
        await self.sql(f"create table orders ({columns}){more}", *rows)

    async def found(self, columns: str = "id") -> list[tuple[str, ...]]:
        """What stands in the table, as texts."""
        rows = await self.sql(f"select {columns} from orders order by 1")  # noqa: S608 - of the tests
        return [tuple(str(each) for each in row) for row in rows]

    async def test_a_number_deletes_and_changes_the_row_of_just_its_text(self) -> None:
        """In a column of texts, where 1 is not 01, nor a number of 17 digits its neighbour."""
        rows = f"('1', 'a'), ('01', 'b'), ('1.0', 'c'), ('{GREAT + 1}', 'd'), ('{GREAT}', 'e')"
        await self.table("id varchar(20) primary key, v varchar(5)", rows)
        async with self.sink(insert_mode="update", delete_enabled="true") as sink:
            await sink.put(batch_of([(1, {"v": "n"}), (GREAT + 1, None)], schema()))
        assert await self.found("id, v") == [("01", "b"), ("1", "n"), ("1.0", "c"), (str(GREAT), "e")]

    async def test_a_column_that_is_widened_takes_what_it_had_refused(self) -> None:
        """From then on, in the task that runs; it needs no restart."""
        await self.table("id int primary key, v varchar(3)")
        refused: Refused = []
        async with self.sink() as sink:
            await sink.put(batch_of([(1, {"v": "long"}), (2, {"v": "ok"})], schema(), refused=refused))
            assert [row for row, _, _ in refused] == [0]
            await self.sql(f"alter table orders {self.widened}")
            await sink.put(batch_of([(3, {"v": "long"}), (4, {"v": "longer still"})], schema(), refused=refused))
        assert [row for row, _, _ in refused] == [0, 1]
        assert await self.found("id, v") == [("2", "ok"), ("3", "long")]


class TextsAsValues(OtherRows):
    """What MySQL and MariaDB have in common."""

    widened = "modify v varchar(5)"

    async def test_a_text_deletes_and_changes_the_row_of_just_its_number(self) -> None:
        """``abc`` is no 0, and of two great numbers each is itself."""
        for kind in ("int", "bigint", "decimal(30,2)", "double"):
            rows = "(0, 'a'), (1, 'b'), (2, 'c')" + (
                f", ({GREAT}, 'd'), ({GREAT + 1}, 'e')" if kind == "decimal(30,2)" else ""
            )
            await self.sql("drop table if exists orders")
            await self.table(f"id {kind} primary key, v varchar(5)", rows)
            refused: Refused = []
            great = [str(GREAT)] if kind == "decimal(30,2)" else []
            async with self.sink(delete_enabled="true") as sink:
                await sink.put(keyed(["abc", "", "1x", "2", "+5", *great], None, refused))
            assert [row for row, _, _ in refused] == [0, 1, 2], kind
            kept = [int(Decimal(number)) for (number,) in await self.found()]
            assert kept == [0, 1, *([GREAT + 1] if great else [])], kind

    @pytest.mark.parametrize(
        ("column", "kept", "changed"),
        [
            ("decimal(10,2)", ["12.30", " 1.5 ", "1e2"], ["12.345", "1e-3"]),
            ("int", ["007", "-5", "5.0"], ["1.5"]),
            ("double", ["0.1", "1e300"], ["9007199254740993"]),
            ("datetime", ["2020-01-01 10:00:00.0", "2020-01-01"], ["2020-01-01 10:00:00.6"]),
            ("datetime(3)", ["2020-01-01 10:00:00.123"], ["2020-01-01 10:00:00.1234"]),
            ("date", ["2020-01-01", "2020-01-01 00:00:00"], ["2020-01-01 10:00:00"]),
            ("time", ["10:00:00"], ["2020-01-01 10:00:00", "10:00:00.5"]),
            ("enum('a','b','7')", ["a", "7"], ["2"]),
        ],
    )
    async def test_a_text_that_would_become_another_value_is_refused_alone(
        self, column: str, kept: list[str], changed: list[str]
    ) -> None:
        """Where the server rounds, cuts, or takes a number for a word's, with a note at most."""
        await self.table(f"id int primary key, v {column}")
        refused: Refused = []
        rows = [(number, {"v": text}) for number, text in enumerate([*kept, *changed])]
        async with self.sink() as sink:
            await sink.put(batch_of(rows, schema(), refused=refused))
        assert [row for row, _, _ in refused] == list(range(len(kept), len(rows)))
        assert [int(number) for (number,) in await self.found()] == list(range(len(kept)))

    @pytest.mark.parametrize(
        ("column", "kind", "kept", "changed"),
        [
            ("float(7,2)", "float", [0.5, 1.25], [0.125]),
            ("double(7,2)", "double", [1.25, 1.23], [1.234]),
            ("float", "double", [0.5], [0.1]),
            ("year", "int", [1999, 2155], [5, 70]),
            ("binary(4)", "bytes", [b"abcd"], [b"ab", b"abcde"]),
        ],
    )
    async def test_a_value_that_would_become_another_one_is_refused_alone(
        self, column: str, kind: str, kept: list[Any], changed: list[Any]
    ) -> None:
        """The server rounds, takes 5 for the year 2005, and fills up bytes."""
        await self.table(f"id int primary key, v {column}")
        refused: Refused = []
        rows = [(number, {"v": value}) for number, value in enumerate([*kept, *changed])]
        async with self.sink() as sink:
            await sink.put(batch_of(rows, schema(kind), refused=refused))
        assert [row for row, _, _ in refused] == list(range(len(kept), len(rows)))
        assert [int(number) for (number,) in await self.found()] == list(range(len(kept)))

    @pytest.mark.parametrize(
        ("columns", "told"),
        [
            ("id bigint primary key, v varchar(20), c int not null default 0, unique (c)", "another unique index"),
            ("id bigint primary key, v varchar(20), c int as (length(v)) stored, unique (c)", "another unique index"),
            ("id bigint primary key, v varchar(20), unique (v(3))", "another unique index"),
            ("id bigint, v varchar(20), unique (id)", None),
            ("id bigint primary key, v varchar(20), c int not null default 0, unique (c, id)", None),
            ("id bigint primary key, v varchar(20), c int, unique (c)", None),
            ("id bigint primary key, v varchar(20), c int not null auto_increment, unique (c)", None),
        ],
    )
    async def test_an_upsert_changes_no_row_of_another_key(self, columns: str, told: str | None) -> None:
        """By an index in which the two are alike, though nothing of it is written."""
        await self.table(columns)
        rows = [(1, {"v": "abcdef"}), (2, {"v": "abcxyz"})]
        async with self.sink() as sink:
            if told is None:
                await sink.put(batch_of(rows, schema()))
            else:
                with pytest.raises(Fatal, match=told):
                    await sink.put(batch_of(rows, schema()))
        assert len(await self.found()) == (2 if told is None else 0)

    async def test_an_index_of_the_keys_beginning_is_none_of_the_key(self) -> None:
        """Two keys that begin alike would be one row."""
        await self.table("v varchar(20), unique (v(3))")
        async with self.sink(pk_mode="record_value", pk_fields="v") as sink:
            with pytest.raises(Fatal, match="ADD UNIQUE"):
                await sink.put(batch_of([(1, {"v": "abcdef"}), (2, {"v": "abcxyz"})], schema()))
        assert await self.found("v") == []

    async def test_a_table_without_transactions_takes_no_inserts(self) -> None:
        """Rows before a bad one would stay when the statement is undone, and come again with each half."""
        await self.table("id bigint primary key, v varchar(5)", "(3, 'old')", more=" engine=MyISAM")
        rows = [(number, {"v": "n"}) for number in range(5)]
        refused: Refused = []
        async with self.sink(insert_mode="insert") as sink:
            with pytest.raises(Fatal, match=r"MyISAM, which has no transactions.*ENGINE=InnoDB"):
                await sink.put(batch_of(rows, schema(), refused=refused))
        assert (refused, await self.found()) == ([], [("3",)])
        async with self.sink() as sink:  # what is put again is the same row
            await sink.put(batch_of(rows, schema(), refused=refused))
        assert (refused, len(await self.found())) == ([], 5)

    async def test_a_table_without_transactions_keeps_no_offsets(self) -> None:
        """They would be there without the rows, or the rows without them."""
        async with self.sink(offsets_table="places", auto_create="true") as sink:
            await sink.open({HERE: None})
            await self.sql("alter table places drop primary key, engine=MyISAM")
            with pytest.raises(Fatal, match=r"MyISAM, which has no transactions.*ENGINE=InnoDB"):
                await sink.open({HERE: None})

    async def test_as_many_refusals_as_a_put_has_records_are_kept(self) -> None:
        """Beside the offsets, until their dead letters are written."""
        await self.table("v varchar(5) not null")
        begin, count = 10**15, 5000
        once = {"insert_mode": "insert", "pk_mode": "none", "pk_fields": "", "offsets_table": "places"}
        refused: Refused = []
        async with self.sink(**once) as sink:
            await sink.open({HERE: begin})
            await sink.put(batch_of([(None, {"v": None})] * count, schema(), begin=begin, refused=refused))
            assert len(refused) == count
            assert await sink.open({HERE: begin}) == {HERE: begin}


class TestMariaDb(TextsAsValues):
    """MariaDB."""

    @pytest.fixture(autouse=True)
    def _database(self, mariadb: MariaDb) -> None:
        self.url, self.sql = mariadb.url, mariadb.rows


class TestMySql(TextsAsValues):
    """MySQL."""

    @pytest.fixture(autouse=True)
    def _database(self, mysql: MySql) -> None:
        self.url, self.sql = mysql.url, mysql.rows


class TestPostgres(OtherRows):
    """PostgreSQL, which compares a number with no text unless it is told to."""

    widened = "alter v type varchar(5)"

    @pytest.fixture(autouse=True)
    def _database(self, postgres: Postgres) -> None:
        self.database, self.url = postgres, postgres.url

    async def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """By a session of its own."""
        self.database.run(*statements[:-1])
        if statements[-1].startswith("select"):
            return self.database.rows(statements[-1])
        self.database.run(statements[-1])
        return []

    async def test_whole_numbers_are_not_rounded(self) -> None:
        """A column of whole hundreds takes these alone."""
        await self.table("id bigint primary key, v numeric(5, -2)")
        refused: Refused = []
        async with self.sink() as sink:
            await sink.put(batch_of([(1, {"v": 12345}), (2, {"v": 12300})], schema("int"), refused=refused))
        assert [row for row, _, _ in refused] == [0]
        assert await self.found("id, v") == [("2", "12300")]
