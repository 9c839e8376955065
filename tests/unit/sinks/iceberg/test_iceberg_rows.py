"""What becomes of values: types, schemas that change, rows that no column can hold, tables that are chosen and made."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from sqlalchemy import make_url

from fetchers.sdk.reach import AllowedAddresses, AllowedPaths
from service.sinks.contract import Fatal
from service.sinks.iceberg.config import IcebergSinkConfig
from service.sinks.iceberg.sink import IcebergSink
from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder, batch_of, put

AT = dt.datetime(2026, 11, 24, 12, 30, 1, 500_000, tzinfo=dt.UTC)


@pytest.fixture
def lake(tmp_path: Path) -> LakeFolder:
    """An empty folder for a warehouse."""
    return LakeFolder(tmp_path)


def struct(**fields: Any) -> Any:
    """An Arrow type; a tuple is a type that is required."""
    made = [
        pa.field(name, kind[0], nullable=False) if isinstance(kind, tuple) else pa.field(name, kind)
        for name, kind in fields.items()
    ]
    return pa.struct(made)


def make(lake: LakeFolder, *fields: NestedField) -> None:
    """A table as a person has made it."""
    lake.catalog.create_namespace_if_not_exists("shop")
    lake.catalog.create_table("shop.orders", Schema(*fields))


async def test_every_type_keeps_its_value(lake: LakeFolder) -> None:
    """Records as Avro makes them: nested, optional, with decimals and times."""
    kind = struct(
        id=(pa.int64(),), small=pa.int32(), ok=pa.bool_(), ratio=pa.float32(), size=pa.float64(), name=pa.string(),
        raw=pa.binary(), four=pa.binary(4), amount=pa.decimal128(10, 2), day=pa.date32(), clock=pa.time32("ms"),
        at=pa.timestamp("ms", "UTC"), local=pa.timestamp("us"), tags=pa.list_(pa.string()),
        prices=pa.map_(pa.string(), pa.decimal128(6, 2)), lines=pa.list_(struct(sku=(pa.string(),), count=pa.int32())),
        address=struct(city=pa.string(), geo=struct(lat=pa.float64())), nothing=pa.null(),
    )  # fmt: skip
    row: dict[str, Any] = {
        "id": 2**60, "small": -5, "ok": True, "ratio": 0.5, "size": 1e300, "name": "ä🙂", "raw": b"\0\xff",
        "four": b"abcd", "amount": Decimal("12345678.90"), "day": dt.date(2026, 2, 28),
        "clock": dt.time(23, 59, 59, 999_000), "at": AT, "local": AT.replace(tzinfo=None), "tags": ["a", None],
        "prices": [("eur", Decimal("1.50"))], "lines": [{"sku": "x", "count": 2}],
        "address": {"city": "Köln", "geo": {"lat": 50.9}}, "nothing": None,
    }  # fmt: skip
    empty = dict.fromkeys(row) | {"id": 1}
    async with lake.running() as sink:
        assert not await put(sink, pa.array([row, empty], kind))
    first, second = sorted(lake.table.scan().to_arrow().to_pylist(), key=lambda each: -each["id"])
    del row["nothing"], empty["nothing"]
    assert first == row
    second["lines"] = second["lines"] or None  # PyIceberg reads null lists of structs as empty ones
    assert second == empty
    assert lake.table.schema().find_field("id").required


async def test_json_with_a_schema_makes_the_same_columns(lake: LakeFolder) -> None:
    """Connect's types, defaults and logical types; a payload that is not of its schema is refused by itself."""
    schema = (
        '{"type":"struct","fields":[{"field":"n","type":"int32","optional":false},'
        '{"field":"at","type":"int64","name":"org.apache.kafka.connect.data.Timestamp","optional":true}]}'
    )
    async with lake.running() as sink:
        refused = await put(sink, [{"n": 1, "at": 1764000000000}, {"n": "x"}, {"n": 3, "at": None}], schema=schema)
    assert [row for row, _, _ in refused] == [1]
    at = dt.datetime.fromtimestamp(1764000000, tz=dt.UTC)
    assert lake.rows("n", "at") == [(1, at), (3, None)]
    assert isinstance(lake.table.schema().find_type("at"), TimestamptzType)


async def test_a_table_follows_its_records(lake: LakeFolder) -> None:
    """Columns are added, also within structs and lists; types get wider; required columns become optional."""
    line = struct(a=pa.int32())
    first = struct(n=(pa.int32(),), ratio=pa.float32(), amount=pa.decimal128(5, 2), part=line, parts=pa.list_(line))
    wide = struct(a=pa.int64(), b=pa.string())
    second = struct(
        n=pa.int64(), ratio=pa.float64(), amount=pa.decimal128(9, 2), part=wide, parts=pa.list_(wide), more=pa.date32()
    )
    row = {"n": 1, "ratio": 0.5, "amount": Decimal("1.25"), "part": {"a": 1}, "parts": [{"a": 1}]}
    later = {
        "n": 2**40, "ratio": 1e300, "amount": Decimal("1234567.25"), "part": {"a": 2**40, "b": "x"},
        "parts": [{"a": 2**40, "b": "y"}], "more": dt.date(2026, 1, 1),
    }  # fmt: skip
    async with lake.running(iceberg__tables__evolve___schema___enabled="true") as sink:
        assert not await put(sink, pa.array([row], first))
        assert not await put(sink, pa.array([later, {"n": None}], second), begin=1)
        assert not await put(sink, pa.array([row], first), begin=3)
    found = sorted(lake.table.scan().to_arrow().to_pylist(), key=lambda each: each["n"] or 0)
    found[0]["parts"] = found[0]["parts"] or None  # PyIceberg reads null lists of structs as empty ones
    old = row | {"part": {"a": 1, "b": None}, "parts": [{"a": 1, "b": None}], "more": None}
    assert found == [dict.fromkeys(later), old, old, later]
    schema = lake.table.schema()
    assert [type(schema.find_type(name)) for name in ("n", "ratio")] == [LongType, DoubleType]
    assert schema.find_type("amount") == DecimalType(9, 2)
    assert not schema.find_field("n").required


async def test_two_tasks_evolve_one_table(lake: LakeFolder) -> None:
    """Who comes second finds the column there, or adds its own beside it."""
    evolving: dict[str, Any] = {"iceberg__tables__evolve___schema___enabled": "true"}
    async with lake.running(**evolving) as one, lake.running(**evolving) as other:
        await put(one, pa.array([{"n": 1}], struct(n=pa.int32())))
        await other.open({("orders", 1): None})
        added = pa.array([{"n": 2, "x": 1}], struct(n=pa.int32(), x=pa.int32()))
        await other.put(batch_of(added, partition=("orders", 1)))
        await put(one, pa.array([{"n": 3, "x": 2, "y": 3}], struct(n=pa.int32(), x=pa.int32(), y=pa.int32())), begin=1)
        await other.flush({("orders", 1): 1})
    assert lake.rows("n", "x", "y") == [(1, None, None), (2, 1, None), (3, 2, 3)]


async def test_a_table_that_stays_as_it_is(lake: LakeFolder) -> None:
    """Numbers that fit go to a narrower column, others are refused by themselves; unknown fields are dropped."""
    make(
        lake,
        NestedField(1, "n", IntegerType(), required=True),
        NestedField(2, "key", UUIDType()),
        NestedField(3, "s", StructType(NestedField(4, "a", IntegerType(), required=True))),
    )
    kind = struct(n=pa.int64(), key=pa.string(), s=struct(a=pa.int64()), other=pa.string())
    known = uuid.uuid4()
    values = [
        {"n": 1, "key": str(known), "other": "x"}, {"n": 2**40}, {"n": None}, {"n": 4, "key": "no uuid"},
        {"n": 5, "s": {"a": None}}, {"n": 6, "s": {"a": 2**40}}, {"n": 7, "s": {"a": 7}},
    ]  # fmt: skip
    async with lake.running() as sink:
        refused = await put(sink, pa.array(values, kind))
    assert sorted(row for row, _, _ in refused) == [1, 2, 3, 4, 5]
    assert "field 's.a' does not fit" in "".join(message for row, _, message in refused if row == 5)
    assert lake.rows("n", "key", "s") == [(1, known, None), (7, None, {"a": 7})]


async def test_a_type_that_has_no_way_to_its_column_is_refused(lake: LakeFolder) -> None:
    """All records of the batch, with both types in the words; the next batch is another matter."""
    make(lake, NestedField(1, "n", IntegerType()))
    async with lake.running(iceberg__tables__evolve___schema___enabled="true") as sink:
        refused = await put(sink, pa.array([{"n": "a"}, {"n": "b"}], struct(n=pa.string())))
        assert [row for row, _, _ in refused] == [0, 1]
        assert refused[0][2] == "field 'n' is string, and the table's column int32"
        assert not await put(sink, pa.array([{"n": 3}], struct(n=pa.int32())), begin=2)
    assert lake.rows() == [3]


async def test_whole_numbers_go_to_decimals_of_any_scale(lake: LakeFolder) -> None:
    """Also where Arrow would ask for more digits than such a column can have; one that is too large is refused."""
    make(lake, NestedField(1, "n", IntegerType()), NestedField(2, "price", DecimalType(38, 30)))
    async with lake.running() as sink:
        refused = await put(sink, [{"n": 1, "price": 12_345_678}, {"n": 2, "price": 123_456_789}])
    assert [(row, message) for row, _, message in refused] == [
        (1, "field 'price' does not fit the table's column, decimal128(38, 30)")
    ]
    assert lake.rows("n", "price") == [(1, Decimal(12_345_678))]


async def test_items_that_do_not_fit_are_told_by_their_row(lake: LakeFolder) -> None:
    """Also behind null lists and in a slice of a larger column."""
    narrow = struct(n=pa.int32(), items=pa.list_(struct(a=pa.int32())), prices=pa.map_(pa.string(), pa.int32()))
    wide = struct(n=pa.int32(), items=pa.list_(struct(a=pa.int64())), prices=pa.map_(pa.string(), pa.int64()))
    rows: list[Any] = [
        {"n": 0}, {"n": 1, "items": [{"a": 1}, {"a": 2}]}, {"n": 2, "items": None, "prices": [("x", 1)]},
        {"n": 3, "items": [{"a": 1}, {"a": 2**40}]}, {"n": 4, "items": []}, {"n": 5, "prices": [("y", 2**40)]},
        {"n": 6, "items": [None, {"a": None}], "prices": []},
    ]  # fmt: skip
    async with lake.running() as sink:
        assert not await put(sink, pa.array([{"n": 100}], narrow))
        refused = await put(sink, pa.array([{"n": -1}, *rows], wide)[1:], begin=1)
    assert [row for row, _, _ in refused] == [3, 5]
    paths: list[Any] = lake.table.inspect.files().column("file_path").to_pylist()
    found = {row["n"]: row for path in paths for row in pq.read_table(path.removeprefix("file://")).to_pylist()}
    assert found[1]["items"] == [{"a": 1}, {"a": 2}]
    assert found[2] == {"n": 2, "items": None, "prices": [("x", 1)]}
    assert found[6] == {"n": 6, "items": [None, {"a": None}], "prices": []}
    assert sorted(found) == [0, 1, 2, 4, 6, 100]


async def test_texts_and_numbers_go_to_columns_of_times(lake: LakeFolder) -> None:
    """As JSON without a schema brings them: ISO 8601, or milliseconds; what is neither is refused by itself."""
    make(
        lake,
        NestedField(1, "at", TimestamptzType()),
        NestedField(2, "local", TimestampType()),
        NestedField(3, "day", DateType()),
    )
    values = [
        {"at": "2026-11-24T13:30:01.5+01:00", "local": "2026-11-24T12:30:01.5", "day": "2026-11-24"},
        {"at": "yesterday"}, {"local": "2026-11-24T12:30:01Z"}, {"day": "2026-02-30"},
    ]  # fmt: skip
    async with lake.running() as sink:
        refused = await put(sink, values)
        assert not await put(sink, [{"at": 1795523401500}], begin=4)
    assert sorted(row for row, _, _ in refused) == [1, 2, 3]
    assert lake.rows("at", "local", "day") == [
        (AT, None, None),
        (AT, AT.replace(tzinfo=None), dt.date(2026, 11, 24)),
    ]


async def test_every_table_gets_all_without_a_route(lake: LakeFolder) -> None:
    """As with Apache's sink."""
    async with lake.running(iceberg__tables="shop.orders,shop.copy") as sink:
        assert not await put(sink, [{"n": 1}])
    assert lake.rows() == LakeFolder(lake.folder, "shop.copy").rows() == [1]


async def test_a_name_that_is_no_table_refuses_its_records_alone(lake: LakeFolder) -> None:
    """The others of the batch are written once, and not refused."""
    routing: dict[str, Any] = {
        "iceberg__tables__dynamic___enabled": "true",
        "iceberg__tables__route___field": "kind",
        "iceberg__tables": "",
    }
    async with lake.running(**routing) as sink:
        refused = await put(sink, [{"n": 0, "kind": "shop.orders"}, {"n": 1, "kind": "nothing"}])
    assert [row for row, _, _ in refused] == [1]
    assert lake.rows() == [0]


async def test_null_values_are_passed_over_or_refused(lake: LakeFolder) -> None:
    """By `behavior.on.null.values`; the others are written."""
    async with lake.running() as sink:
        assert not await put(sink, [{"n": 1}, None])
    async with lake.running(behavior__on__null__values="fail") as sink:
        await sink.open({HERE: None})
        refused = await put(sink, [None, {"n": 3}], begin=2)
        assert [(row, reason) for row, reason, _ in refused] == [(0, "null_value")]
    assert lake.rows() == [1, 3]


async def test_records_go_where_their_field_says(lake: LakeFolder) -> None:
    """Dynamic tables, made as they come, up to their number; a record without the field's value is passed over."""
    routing: dict[str, Any] = {
        "iceberg__tables__dynamic___enabled": "true",
        "iceberg__tables__route___field": "kind",
        "iceberg__tables__dynamic___max": "2",
        "iceberg__tables": "",
    }
    values = [{"n": number, "kind": kind} for number, kind in enumerate(["Shop.A", "shop.b", None, "shop.a", "shop.c"])]
    async with lake.running(**routing) as sink:
        refused = await put(sink, values)
    assert [(row, message) for row, _, message in refused] == [
        (4, "its table would be one more than iceberg.tables.dynamic-max, 2")
    ]
    assert LakeFolder(lake.folder, "shop.a").rows() == [0, 3]
    assert LakeFolder(lake.folder, "shop.b").rows() == [1]


async def test_records_go_to_the_tables_whose_pattern_they_meet(lake: LakeFolder) -> None:
    """To each of them; to none, and they are passed over."""
    routing: dict[str, Any] = {
        "iceberg__tables": "shop.orders,shop.all",
        "iceberg__tables__route___field": "kind",
        "iceberg__table__shop__orders__route___regex": "order|refund",
        "iceberg__table__shop__all__route___regex": "[a-z]+",
    }
    async with lake.running(**routing) as sink:
        kinds = ["order", "visit", "refund", "X"]
        assert not await put(sink, [{"n": number, "kind": kind} for number, kind in enumerate(kinds)])
    assert lake.rows() == [0, 2]
    assert LakeFolder(lake.folder, "shop.all").rows() == [0, 1, 2]


async def test_tables_are_made_with_partitions_and_properties(lake: LakeFolder) -> None:
    """Rows go to the folders of their transforms."""
    changes: dict[str, Any] = {
        "iceberg__tables__default___partition___by": "days(at), bucket(n, 4), name",
        "iceberg__tables__auto___create___props__owner": "shop",
        "iceberg__tables__write___props__write.parquet.compression-codec": "gzip",
    }
    kind = struct(n=pa.int32(), at=pa.timestamp("ms", "UTC"), name=pa.string())
    async with lake.running(**changes) as sink:
        await put(sink, pa.array([{"n": 1, "at": AT, "name": "x"}, {"n": 2, "at": AT, "name": "y"}], kind))
    assert lake.rows() == [1, 2]
    assert [str(field.transform) for field in lake.table.spec().fields] == ["day", "bucket[4]", "identity"]
    assert lake.table.properties["owner"] == "shop"
    assert lake.table.inspect.files().num_rows == 2


@pytest.mark.parametrize("text", ["week(at)", "bucket(n)", "nothing_of_the_name"])
async def test_partitions_that_cannot_be_fail_the_task(lake: LakeFolder, text: str) -> None:
    """And no table is left behind."""
    async with lake.running(iceberg__tables__default___partition___by=text) as sink:
        with pytest.raises(Fatal, match="cannot be partitioned"):
            await put(sink, [{"n": 1}])
    with pytest.raises(NoSuchTableError):
        lake.catalog.load_table(lake.name)


async def test_a_missing_table_is_made_only_where_that_is_wanted(lake: LakeFolder) -> None:
    """Else the task fails, and says what to do."""
    async with lake.running(iceberg__tables__auto___create___enabled="false") as sink:
        with pytest.raises(Fatal, match=r"there is no table shop\.orders: make it, or set"):
            await put(sink, [{"n": 1}])


async def test_rows_of_a_branch(lake: LakeFolder) -> None:
    """They are not on the main branch, and the offsets are the branch's own."""
    async with lake.running() as sink:
        await put(sink, [{"n": 1}])
    lake.table.manage_snapshots().create_branch(lake.table.current_snapshot().snapshot_id, "audit").commit()  # type: ignore[union-attr]
    async with lake.running(iceberg__tables__default___commit___branch="audit") as sink:
        await put(sink, [{"n": 1}, {"n": 2}])
    assert lake.rows() == [1]
    branch: list[Any] = lake.table.scan().use_ref("audit").to_arrow().column("n").to_pylist()
    assert sorted(branch) == [1, 1, 2]


async def test_places_that_connectors_may_not_reach(lake: LakeFolder, tmp_path: Path) -> None:
    """The catalogue's file, the warehouse, a catalogue within the worker's network, the worker's own identity."""
    elsewhere = AllowedPaths((str(tmp_path / "elsewhere"),))
    strangers = AllowedAddresses().for_strangers
    with pytest.raises(Fatal, match=r"connector\.allowed\.paths"):
        async with lake.running(paths=elsewhere):
            pass
    rest: dict[str, Any] = {"iceberg__catalog__type": "rest", "iceberg__catalog__uri": "http://127.0.0.1:1/"}
    with pytest.raises(Fatal, match="internal address"):
        async with lake.running(addresses=strangers, **rest):
            pass
    with pytest.raises(Fatal, match="own identity"):
        async with lake.running(addresses=strangers, iceberg__catalog__warehouse="s3://bucket/lake"):
            pass


def test_keys_of_apache_s_sink_are_taken_as_they_are() -> None:
    """Java's names of catalogues and of their keys; secrets are shown nowhere."""
    parsed = IcebergSinkConfig.parse(
        {
            "iceberg.tables": "db.a",
            "iceberg.catalog": "prod",
            "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "iceberg.catalog.uri": "jdbc:postgresql://db:5432/lake",
            "iceberg.catalog.jdbc.user": "me",
            "iceberg.catalog.jdbc.password": "hu/sh@:#",
            "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "iceberg.catalog.s3.path-style-access": "true",
            "iceberg.control.topic": "control",
            "iceberg.kafka.security.protocol": "SSL",
        }
    )
    assert parsed.config is not None
    assert not list(parsed.config.own_findings())
    assert parsed.config.catalog_name == "prod"
    assert parsed.config.catalog == {
        "type": "sql",
        "uri": "postgresql+psycopg://me:hu%2Fsh%40%3A%23@db:5432/lake",
        "s3.path-style-access": "true",
        "s3.force-virtual-addressing": "false",
    }
    assert make_url(parsed.config.catalog["uri"]).password == "hu/sh@:#"
    assert "hu/sh" not in str(parsed.config.texts())


def test_texts_are_no_columns() -> None:
    """Values without fields make no rows: the config is refused before it runs."""
    assert {form.value for form in IcebergSink.accepts} == {"json", "record"}
