"""What ``JdbcSink`` must do on every database: the same tests run on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, Retriable, SystemClock
from metrics.events import discard
from service.sinks.avro_columns import avro_shape
from service.sinks.contract import Form, Partition, SinkBatch, SinkContext, ValueType
from service.sinks.jdbc.sink import JdbcSink

HERE: Partition = ("orders", 0)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "status", "type": ["null", "string"]}, {"name": "amount", "type": ["null", "int"]}],
}
_LOGICAL = [
    ("day", {"type": "int", "logicalType": "date"}),
    ("noon", {"type": "int", "logicalType": "time-millis"}),
    ("moment", {"type": "long", "logicalType": "timestamp-millis"}),
    ("exact", {"type": "long", "logicalType": "timestamp-micros"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}),
]
_PLAIN = ["boolean", "int", "long", "float", "double", "string", "bytes"]
TYPES = {
    "type": "record",
    "name": "Types",
    "fields": [
        *({"name": f"a_{kind}", "type": ["null", kind]} for kind in _PLAIN),
        *({"name": name, "type": ["null", kind]} for name, kind in _LOGICAL),
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
FULL = {
    "a_boolean": True, "a_int": -(2**31), "a_long": 2**63 - 1, "a_float": 0.5, "a_double": 0.1,
    "a_string": "a'\\ä€🙂\n",
    "a_bytes": b"\x00'\xff", "day": 19_000, "noon": 43_200_001, "moment": 1_700_000_000_123,
    "exact": 1_700_000_000_123_456, "price": Decimal("1234567890123456.7891"), "tags": ["x", "y"],
}  # fmt: skip
EMPTY = dict.fromkeys(FULL) | {"tags": []}


HOSTILE = "a'); drop table orders; --\\' \\\\ \" ` $1 %s ?  ''ä€🙂\n/*"
DEFAULTS = {
    "a_boolean": True, "a_long": 2**63 - 1, "a_float": 0.5, "a_double": 0.1, "a_string": HOSTILE,
    "a_bytes": "\x00'\xff", "a_int": -(2**31), "day": 19_000, "noon": 43_200_001, "moment": 1_700_000_000_123,
    "exact": 1_700_000_000_123_456, "price": "\x01\x00",
}  # fmt: skip
"""As Avro writes them; the price is 0.0256. The first six are of the new table, the others are added later."""
_KINDS = {**{f"a_{kind}": kind for kind in _PLAIN}, **dict(_LOGICAL)}
_DEFAULTED = [{"name": name, "type": [_KINDS[name], "null"], "default": each} for name, each in DEFAULTS.items()]


def batch_of(
    rows: Sequence[tuple[Any, Mapping[str, Any] | None]],
    schema: Mapping[str, Any] = ORDER,
    *,
    begin: int = 0,
    topic: str = "orders",
    refused: list[tuple[int, str, str]] | None = None,
) -> SinkBatch:
    """Records with numbers as keys and Avro records as values, as a worker hands them to a sink."""
    text = json.dumps(schema)
    shape = avro_shape(text)
    count = len(rows)
    numbers, places = pa.array([0] * count, pa.int32()), pa.array(range(begin, begin + count), pa.int64())
    topics = pa.array([topic] * count, pa.string())
    columns = {
        "topic": topics,
        "partition": numbers,
        "offset": places,
        "key": pa.array([key for key, _ in rows], pa.int64()),
        "value": shape.column([value for _, value in rows]),
        "original_topic": topics,
    }
    heard = [] if refused is None else refused
    key, value = ValueType(Form.RECORD, '"long"'), ValueType(Form.RECORD, text)
    return SinkBatch(pa.table(columns), key, value, lambda *told: heard.append(told))


def order(status: str | None, amount: int | None = 1) -> dict[str, Any]:
    """A value."""
    return {"status": status, "amount": amount}


@asynccontextmanager
async def running(properties: Mapping[str, str]) -> AsyncIterator[JdbcSink]:
    """A started sink."""
    parsed = JdbcSink.config_class.parse(properties)
    assert parsed.config is not None, parsed.findings
    made = JdbcSink(parsed.config)  # type: ignore[arg-type]
    async with shared_http() as http:
        await made.start(SinkContext("shop", 0, SystemClock(), discard, http))
        try:
            yield made
        finally:
            await made.stop()


class JdbcSinkSuite:
    """Subclasses give ``place``: the address, and a way to run statements there."""

    url: str

    async def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Rows of the last statement, run by somebody else than the sink."""
        raise NotImplementedError

    def properties(self, **changes: str) -> dict[str, str]:
        """A config; ``_`` in names stands for a dot."""
        own = {"connection.url": self.url, "insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}
        return own | {name.replace("_", "."): value for name, value in changes.items()}

    @asynccontextmanager
    async def sink(self, **changes: str) -> AsyncIterator[JdbcSink]:
        """A started sink."""
        async with running(self.properties(**changes)) as made:
            yield made

    async def orders(self, columns: str = "id, status, amount") -> list[tuple[Any, ...]]:
        """What stands in the table, numbers as numbers."""
        rows = await self.sql(f"select {columns} from orders order by 1")  # noqa: S608 - of the tests
        return [tuple(int(each) if str(each).lstrip("-").isdigit() else each for each in row) for row in rows]

    async def test_every_type_is_read_back(self) -> None:
        """In a table made by the sink, with extreme values and with none."""
        async with self.sink(auto_create="true", db_timezone="Europe/Berlin") as sink:
            await sink.put(batch_of([(1, FULL), (2, EMPTY)], TYPES))
        names = ", ".join(FULL)
        full, empty = await self.sql(f"select {names} from orders order by id")  # noqa: S608 - of the tests
        found = dict(zip(FULL, full, strict=True))
        assert int(found["a_boolean"]) == 1
        assert [int(found["a_int"]), int(found["a_long"])] == [-(2**31), 2**63 - 1]
        assert [float(found["a_float"]), float(found["a_double"])] == [0.5, 0.1]
        assert found["a_string"] == "a'\\ä€🙂\n"
        assert bytes(found["a_bytes"]) == b"\x00'\xff"
        assert str(found["day"]) == "2022-01-08"
        assert str(found["noon"]).startswith("12:00:00.001")
        assert str(found["moment"]).startswith("2023-11-14 23:13:20.123")
        assert str(found["exact"]).startswith("2023-11-14 23:13:20.123456")
        assert str(found["price"]) == "1234567890123456.7891"
        tags = found["tags"]
        assert (json.loads(tags) if isinstance(tags, str) else tags) == ["x", "y"]
        assert set(empty[:-1]) == {None}

    async def test_defaults_of_the_schema_are_those_of_new_columns_and_stand_for_nulls(self) -> None:
        """Whatever is in them; what the database puts there is what the sink writes. Nulls stay where that is told."""
        names = ", ".join(DEFAULTS)
        first, every = ({"type": "record", "name": "D", "fields": _DEFAULTED[:count]} for count in (6, None))
        async with self.sink(auto_create="true", auto_evolve="true", db_timezone="Europe/Berlin") as sink:
            await sink.put(batch_of([(1, dict.fromkeys(list(DEFAULTS)[:6]))], first))
            await sink.put(batch_of([(2, dict.fromkeys(DEFAULTS))], every, begin=1))
        async with self.sink(replace_null_with_default="false") as sink:
            await sink.put(batch_of([(3, dict.fromkeys(DEFAULTS))], every, begin=2))
        await self.sql("insert into orders (id) values (9)")
        rows = await self.sql(f"select {names} from orders order by id")  # noqa: S608 - of the tests
        assert rows[0] == rows[1] == rows[3]
        assert set(rows[2]) == {None}
        found = dict(zip(DEFAULTS, rows[3], strict=True))
        assert (found["a_string"], bytes(found["a_bytes"]), str(found["price"])) == (HOSTILE, b"\x00'\xff", "0.0256")
        assert (str(found["moment"])[:23], int(found["a_long"])) == ("2023-11-14 23:13:20.123", 2**63 - 1)

    async def test_writes_and_deletes_of_one_put_are_as_if_done_one_after_another(self) -> None:
        """The last of a key wins; what is made anew after a delete has none of the old row's other columns."""
        await self.sql(
            "create table orders (id bigint not null primary key, status varchar(20), amount int, note varchar(20))",
            "insert into orders values (1, 'old', 1, 'kept'), (2, 'old', 1, 'gone'), (3, 'old', 1, 'gone')",
        )
        rows = [(1, order("a")), (2, None), (3, None), (4, order("x")), (2, order("b")), (1, order("c", 2)), (4, None)]
        async with self.sink(delete_enabled="true") as sink:
            await sink.put(batch_of(rows))
            await sink.put(batch_of(rows))
        assert await self.orders("id, status, amount, note") == [(1, "c", 2, "kept"), (2, "b", 1, None)]

    async def test_inserts_in_order_with_deletes_between(self) -> None:
        """``insert.mode=insert``: the same key again is a row that the database refuses."""
        refused: list[tuple[int, str, str]] = []
        rows = [(1, order("a")), (1, None), (1, order("b")), (2, order("c")), (2, order("d"))]
        async with self.sink(insert_mode="insert", delete_enabled="true", auto_create="true") as sink:
            await sink.put(batch_of(rows, refused=refused))
        assert await self.orders() == [(1, "b", 1), (2, "c", 1)]
        assert [row for row, _, _ in refused] == [4]

    async def test_updates_change_only_what_is_there(self) -> None:
        """``insert.mode=update``."""
        await self.sql(
            "create table orders (id bigint not null primary key, status varchar(20), amount int)",
            "insert into orders values (1, 'old', 1)",
        )
        async with self.sink(insert_mode="update") as sink:
            await sink.put(batch_of([(1, order("a")), (2, order("b")), (1, order(None, 7))]))
        assert await self.orders() == [(1, None, 7)]

    async def test_exactly_the_bad_rows_are_refused(self) -> None:
        """A null where none may be, a text too long, what a check forbids; the others are written once."""
        await self.sql(
            "create table orders (id bigint not null primary key, status varchar(5) not null, "
            "amount int check (amount < 1000))"
        )
        rows: list[tuple[Any, Any]] = [(number, order("ok", number)) for number in range(40)]
        rows[3] = (3, order(None))
        rows[17] = (17, order("too long"))
        rows[21] = rows[38] = (21, order("ok", 5000))
        rows[30] = (None, order("ok"))
        rows[31] = (31, None)
        refused: list[tuple[int, str, str]] = []
        async with self.sink() as sink:
            await sink.put(batch_of(rows, refused=refused))
        assert sorted(row for row, _, _ in refused) == [3, 17, 21, 30, 31, 38]
        assert [row[0] for row in await self.orders()] == [
            number for number in range(40) if number not in {3, 17, 21, 30, 31, 38}
        ]
        assert all(message for _, _, message in refused)

    @pytest.mark.parametrize("kind", ["date", "timestamp-millis", "timestamp-micros", "time-millis"])
    async def test_a_date_outside_the_range_of_the_database_is_refused_alone(self, kind: str) -> None:
        """Never is another one, or a text that is none, written in its stead; the others are."""
        whole = "int" if kind in {"date", "time-millis"} else "long"
        schema = {
            "type": "record",
            "name": "D",
            "fields": [{"name": "day", "type": {"type": whole, "logicalType": kind}}],
        }
        greatest = 2**31 - 1 if whole == "int" else 2**63 - 1
        refused: list[tuple[int, str, str]] = []
        rows = [(1, {"day": 1}), (2, {"day": greatest}), (3, {"day": -greatest}), (4, {"day": 2})]
        async with self.sink(auto_create="true") as sink:
            await sink.put(batch_of(rows, schema, refused=refused))
        found = dict(await self.sql("select id, cast(day as char(40)) from orders"))
        kept = {int(number) for number in found}
        assert {1, 4} <= kept
        assert sorted(kept | {row + 1 for row, _, _ in refused}) == [1, 2, 3, 4]
        assert len(kept) + len(refused) == 4
        assert all(message for _, _, message in refused)
        extremes = {int(number): str(day).strip() for number, day in found.items() if int(number) in {2, 3}}
        if kind == "timestamp-micros" and extremes:  # PostgreSQL has the year 294247
            assert extremes == {2: "294247-01-10 04:00:54.775807"}
        else:
            assert extremes == {}

    async def test_what_the_database_says_of_a_row_is_left_out(self) -> None:
        """``trim.sensitive.log``: databases repeat values, so only their code is told."""
        await self.sql(
            "create table orders (id bigint not null primary key, status varchar(5), amount int check (amount < 9))"
        )
        refused: list[tuple[int, str, str]] = []
        async with self.sink(trim_sensitive_log="true") as sink:
            await sink.put(batch_of([(1, order("ok")), (2, order("ok", 10))], refused=refused))
        ((row, _, message),) = refused
        assert row == 1
        assert re.fullmatch(r".?orders.?: refused by the database( \(\w+\))?", message), message
        assert await self.orders() == [(1, "ok", 1)]

    async def test_nothing_is_rounded(self) -> None:
        """A number with more digits than its column has is refused, where databases round without a word."""
        schema = {"type": "record", "name": "Price", "fields": [{"name": "price", "type": _LOGICAL[-1][1]}]}
        await self.sql("create table orders (id bigint not null primary key, price decimal(20, 2))")
        refused: list[tuple[int, str, str]] = []
        rows = [(1, {"price": Decimal("1.2300")}), (2, {"price": Decimal("1.2345")})]
        if self.url.startswith("jdbc:sqlite"):
            rows[1] = (2, {"price": Decimal("1234567890123456.7891")})  # whose numbers have 15 digits
        async with self.sink() as sink:
            await sink.put(batch_of(rows, schema, refused=refused))
        assert [(row, reason) for row, reason, _ in refused] == [(1, "out_of_range")]
        assert [float(row[0]) for row in await self.sql("select price from orders")] == [1.23]

    async def test_new_fields_get_columns(self) -> None:
        """With ``auto.evolve``, in mid-topic; without, the statement that makes them is told."""
        fields: list[Any] = [*ORDER["fields"], {"name": "note", "type": "string"}]
        wider = ORDER | {"fields": fields}
        async with self.sink(auto_create="true") as sink:
            await sink.put(batch_of([(1, order("a"))]))
            with pytest.raises(Fatal, match=r"auto\.evolve=true, or run: ALTER TABLE .orders. ADD .note."):
                await sink.put(batch_of([(2, order("b") | {"note": "n"})], wider))
        async with self.sink(auto_evolve="true") as sink:
            await sink.put(batch_of([(2, order("b") | {"note": "n"})], wider))
            await sink.put(batch_of([(3, order("c"))]))
        assert await self.orders("id, status, note") == [(1, "a", None), (2, "b", "n"), (3, "c", None)]

    async def test_a_missing_table_is_told_with_its_statement(self) -> None:
        """And that statement makes it."""
        async with self.sink() as sink:
            with pytest.raises(Fatal, match=r"set auto\.create=true, or run: CREATE TABLE") as told:
                await sink.put(batch_of([(1, order("a"))]))
            await self.sql(str(told.value).partition("or run: ")[2])
            await sink.put(batch_of([(1, order("a"))]))
        assert await self.orders() == [(1, "a", 1)]

    async def test_a_list_that_leaves_no_field_makes_no_table(self) -> None:
        """A misprint in ``fields.whitelist`` without a key is told, and nothing is made or written."""
        changes = {"insert_mode": "insert", "pk_mode": "none", "pk_fields": "", "fields_whitelist": "stauts"}
        async with self.sink(auto_create="true", **changes) as sink:
            for _ in range(2):
                with pytest.raises(Fatal, match=r"no field of the records is to be written to .*fields\.whitelist"):
                    await sink.put(batch_of([(1, order("a"))]))
        async with self.sink(auto_create="true") as sink:
            await sink.put(batch_of([(1, order("a"))]))
        assert await self.orders() == [(1, "a", 1)]

    async def test_a_table_that_is_dropped_meanwhile_is_made_again(self) -> None:
        """The put comes again, and finds the table as it is."""
        async with self.sink(auto_create="true") as sink:
            await sink.put(batch_of([(1, order("a"))]))
            await self.sql("drop table orders")
            with pytest.raises(Retriable):
                await sink.put(batch_of([(2, order("b"))]))
            await sink.put(batch_of([(2, order("b"))]))
        assert await self.orders() == [(2, "b", 1)]

    async def test_offsets_in_the_same_transaction(self) -> None:
        """Inserts without any key are written once, whatever comes again."""
        once = {"insert_mode": "insert", "pk_mode": "none", "pk_fields": "", "auto_create": "true"}
        once |= {"offsets_table": "headrace_offsets"}
        rows: list[tuple[Any, Any]] = [(None, order(str(number))) for number in range(4)]
        async with self.sink(**once) as sink:
            assert await sink.open({HERE: None}) == {}
            await sink.put(batch_of(rows[:2]))
            await sink.put(batch_of(rows[:3]))
        async with self.sink(**once) as sink:
            assert await sink.open({HERE: None}) == {HERE: 3}
            await sink.put(batch_of(rows))
            await sink.committed({HERE: 4})
            assert await sink.open({HERE: 4}) == {HERE: 4}
            assert await sink.open({HERE: 2}) == {}  # altered by hand: written again from there
            await sink.put(batch_of(rows[2:], begin=2))
        assert [row[0] for row in await self.sql("select status from orders order by 1")] == [
            "0",
            "1",
            "2",
            "2",
            "3",
            "3",
        ]

    async def test_a_refused_record_is_not_forgotten_before_its_dead_letter(self) -> None:
        """A worker killed before the commit begins at the refused record again, and writes no other twice."""
        await self.sql("create table orders (status varchar(20), amount int not null)")
        once = {"insert_mode": "insert", "pk_mode": "none", "pk_fields": "", "offsets_table": "headrace_offsets"}
        rows = [(None, order("a")), (None, order("b", None)), (None, order("c"))]
        begins: Any = {}
        for _ in range(2):
            refused: list[tuple[int, str, str]] = []
            async with self.sink(**once) as sink:
                begins = await sink.open({HERE: None})
                begin = begins.get(HERE, 0)
                await sink.put(batch_of(rows[begin:], begin=begin, refused=refused))
            assert len(refused) == 1
        assert begins == {HERE: 1}
        async with self.sink(**once) as sink:
            await sink.open({HERE: None})
            await sink.committed({HERE: 3})
            assert await sink.open({HERE: 3}) == {HERE: 3}
        assert [row[0] for row in await self.sql("select status from orders order by 1")] == ["a", "c"]

    async def test_two_own_a_partition_for_a_moment(self) -> None:
        """The later owner is right; what the earlier one puts changes nothing, and is not done."""
        once = {"insert_mode": "insert", "pk_mode": "none", "pk_fields": "", "auto_create": "true"}
        once |= {"offsets_table": "headrace_offsets"}
        async with self.sink(**once) as zombie, self.sink(**once) as sink:
            await zombie.open({HERE: None})
            await zombie.put(batch_of([(None, order("a"))]))
            await sink.open({HERE: None})
            with pytest.raises(Retriable, match="another task has taken over partition 0 of orders"):
                await zombie.put(batch_of([(None, order("b"))], begin=1))
            await sink.put(batch_of([(None, order("b"))], begin=1))
        assert [row[0] for row in await self.sql("select status from orders order by 1")] == ["a", "b"]

    async def test_without_offsets_a_zombie_puts_an_older_row_over_a_newer_one(self) -> None:
        """As the guide says of it: a database has no versions. The key's next record mends it."""
        async with self.sink(auto_create="true") as zombie, self.sink() as sink:
            await zombie.put(batch_of([(1, order("first"))]))
            await sink.put(batch_of([(1, order("second")), (1, order("third"))], begin=1))
            await zombie.put(batch_of([(1, order("second"))], begin=1))
            assert await self.orders() == [(1, "second", 1)]
            await sink.put(batch_of([(1, order("fourth"))], begin=3))
        assert await self.orders() == [(1, "fourth", 1)]

    @pytest.mark.parametrize("name", ["a.b.c.d", "x" * 300, ".", "no\x00name"])
    async def test_an_illegal_name_fails_the_task(self, name: str) -> None:
        """No record is refused for the name of its table; what to do is told."""
        refused: list[tuple[int, str, str]] = []
        async with self.sink(auto_create="true", table_name_format=name) as sink:
            if self.url.startswith("jdbc:sqlite") and name == "x" * 300:
                await sink.put(batch_of([(1, order("a"))], refused=refused))  # it takes any
                return
            with pytest.raises(Fatal) as told:
                await sink.put(batch_of([(1, order("a"))], refused=refused))
        assert str(told.value)
        assert refused == []
