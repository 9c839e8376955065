"""Statements for Hive beside the files: what they say, when they are written, and that they are written once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.sinks.avro_columns import avro_shape
from service.sinks.batch import Form, ValueType
from service.sinks.contract import Fatal
from service.sinks.filesystem.hive import HiveStatements
from service.sinks.filesystem.sink import FileSystemSink
from service.sinks.shapes import shape_of
from tests.unit.sinks.filesystem.files_runs import HERE, QuickStore, batch_of, config_of, running

FIELDS: list[dict[str, Any]] = [
    {"name": "n", "type": "int"},
    {"name": "kind", "type": ["null", "string"], "default": None},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "by_name", "type": {"type": "map", "values": "long"}},
    {"name": "inner", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "double"}]}},
]
ROW = {"n": 1, "kind": "a/b", "price": 1, "at": 0, "tags": [], "by_name": {}, "inner": {"x": 1.0}}
SETTINGS = {
    "format__class": "ParquetFormat",
    "schema__compatibility": "BACKWARD",
    "partitioner__class": "FieldPartitioner",
    "partition__field__name": "kind",
    "flush__size": "1",
    "hive__integration": "true",
    "hive__database": "shop",
    "hive__table__name": "raw-${topic}",
}


async def put(sink: FileSystemSink, row: dict[str, Any], *more: dict[str, Any], begin: int = 0) -> None:
    """One record, which is one file."""
    schema = json.dumps({"type": "record", "name": "Row", "fields": [*FIELDS, *more]})
    column = pa.array([row], avro_shape(schema).type)
    await sink.put(batch_of(column, begin=begin, schema=schema, form=Form.RECORD))


def statements(folder: Path) -> dict[str, str]:
    """By the names of their files."""
    return {file.name: file.read_text() for file in sorted((folder / "hive").rglob("*.sql"))}


async def test_what_the_statements_say(tmp_path: Path) -> None:
    """The table with every type, the folder with its escaped name, and later the column that was added."""
    async with running(config_of(tmp_path, **SETTINGS)) as sink:
        await sink.open({HERE: None})
        await put(sink, ROW)
        await put(sink, ROW | {"more": "x"}, {"name": "more", "type": ["null", "string"], "default": None}, begin=1)
    place = f"file://{tmp_path}/topics/orders"
    assert [file.name for file in (tmp_path / "hive").iterdir()] == ["shop.raw_orders"]
    found = statements(tmp_path)
    assert found["1-table.sql"] == (
        "CREATE EXTERNAL TABLE IF NOT EXISTS `shop`.`raw_orders` (\n  `n` INT,\n  `price` DECIMAL(9,2),\n"
        "  `at` TIMESTAMP,\n  `tags` ARRAY<STRING>,\n  `by_name` MAP<STRING,BIGINT>,\n  `inner` STRUCT<`x`:DOUBLE>\n)\n"
        f"PARTITIONED BY (`kind` STRING)\nSTORED AS PARQUET\nLOCATION '{place}';\n"
    )
    assert found["2-column-more.sql"] == "ALTER TABLE `shop`.`raw_orders` ADD COLUMNS (`more` STRING);\n"
    (folder,) = (text for name, text in found.items() if name.startswith("3-"))
    added = "ALTER TABLE `shop`.`raw_orders` ADD IF NOT EXISTS PARTITION"
    assert folder == f"{added} (`kind`='a/b') LOCATION '{place}/kind=a%2Fb';\n"


async def test_another_task_tells_nothing_twice(tmp_path: Path) -> None:
    """A column that was there when the table was made, by whomever, is not added; one that was added is not again."""
    config = config_of(tmp_path, **SETTINGS)
    more = {"name": "more", "type": ["null", "string"], "default": None}
    async with running(config) as sink:
        await sink.open({HERE: None})
        await put(sink, ROW)
        await put(sink, ROW, more, begin=1)
    before = statements(tmp_path)
    async with running(config) as sink:
        await sink.open({HERE: None})
        await put(sink, ROW, more, begin=2)
    assert statements(tmp_path) == before


class WatchedStore(QuickStore):
    """Says in which order files come to be."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.made: list[str] = []

    def put_new(self, path: str, content: bytes) -> bool:
        """Note it."""
        self.made.append(path.partition("/")[0])
        return super().put_new(path, content)

    def move(self, source: str, target: str) -> None:
        """Note it, where it is a file of records."""
        if target.startswith("topics/orders/"):
            self.made.append("data")
        super().move(source, target)


async def test_statements_come_before_the_files_that_need_them(tmp_path: Path) -> None:
    """Whenever it dies: what readers see has its table and its folder told before its commit."""
    store = WatchedStore(tmp_path)
    async with running(config_of(tmp_path, **SETTINGS), store=store) as sink:
        await sink.open({HERE: None})
        await put(sink, ROW)
    assert store.made == ["logs", "hive", "hive", "logs", "data"]


class CountingStatements(QuickStore):
    """Counts how often each statement was asked to be made."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: Counter[str] = Counter()

    def put_new(self, path: str, content: bytes) -> bool:
        """Count it."""
        self.asked[path] += 1
        return super().put_new(path, content)


def test_what_was_told_is_remembered_within_bounds(tmp_path: Path) -> None:
    """A topic by the hour has folders without end: those of late are told once, and memory stays as it is."""
    store = CountingStatements(tmp_path)
    hive = HiveStatements(store, config_of(tmp_path, **SETTINGS), 8, lambda: None)
    shape = shape_of(ValueType(Form.RECORD, json.dumps({"type": "record", "name": "Row", "fields": FIELDS})), "parquet")
    for hour in range(200):
        for _ in range(3):
            hive.tell((f"orders/kind={each}" for each in ("always", hour, hour + 1)), shape)
    assert set(store.asked.values()) == {1}
    assert len(store.asked) == 1 + 202
    assert len(hive._told) + len(hive._first) <= 2 * 8
    hive.tell(["orders/kind=0"], shape)
    assert [count for path, count in store.asked.items() if path.endswith("kind=0.sql")] == [2]
    assert len(statements(tmp_path)) == 1 + 202


def test_topics_that_a_router_makes_without_end_are_remembered_within_bounds(tmp_path: Path) -> None:
    """One by the day has a table each day."""
    store = CountingStatements(tmp_path)
    hive = HiveStatements(store, config_of(tmp_path, **SETTINGS), 8, lambda: None)
    shape = shape_of(ValueType(Form.RECORD, json.dumps({"type": "record", "name": "Row", "fields": FIELDS})), "parquet")
    for day in range(50):
        for _ in range(3):
            hive.tell([f"orders-{day}/kind=a"], shape)
    assert set(store.asked.values()) == {1}
    assert len(hive._told) + len(hive._first) <= 2 * 8


@pytest.mark.parametrize(("first", "second"), [("a-b", "a.b"), ("orders", "Orders")])
@pytest.mark.parametrize("is_one_connector", [True, False])
async def test_two_topics_with_one_name_in_hive_are_refused(
    tmp_path: Path, first: str, second: str, *, is_one_connector: bool
) -> None:
    """Within a connector and over two: nothing of the second is written, and what can be done is told."""
    schema = json.dumps({"type": "record", "name": "Row", "fields": FIELDS})
    column: Any = pa.array([ROW], avro_shape(schema).type)

    async def written(sink: FileSystemSink, topic: str) -> None:
        """A router may have made the topic of it; one partition has both then."""
        begin = 0 if topic == first else 1
        await sink.put(batch_of(column, schema=schema, form=Form.RECORD, topic=topic, begin=begin))

    async with running(config_of(tmp_path, **SETTINGS)) as sink, running(config_of(tmp_path, **SETTINGS)) as other:
        await sink.open({HERE: None})
        await written(sink, first)
        await other.open({HERE: 1})
        with pytest.raises(Fatal, match="Give this topic a connector with another") as refused:
            await written(sink if is_one_connector else other, second)
    assert f"file://{tmp_path}/topics/{first}'" in str(refused.value)
    written_to = {topic for topic in (first, second) if list((tmp_path / "topics" / topic).rglob("kind=*/*.parquet"))}
    assert written_to == {first}
    assert len(list((tmp_path / "hive").iterdir())) == 1


async def test_a_table_is_met_again_by_its_own_topic(tmp_path: Path) -> None:
    """After a restart, and with an upper case name, its statements are known."""
    for begin in range(2):
        async with running(config_of(tmp_path, **(SETTINGS | {"hive__table__name": "RAW_${topic}"}))) as sink:
            await sink.open({HERE: begin or None})
            await put(sink, ROW, begin=begin)
    assert [file.name for file in (tmp_path / "hive").iterdir()] == ["shop.raw_orders"]
    assert "`shop`.`RAW_orders`" in statements(tmp_path)["1-table.sql"]
