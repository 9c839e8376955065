"""``flush.size.bytes``: which bytes count, where files end by them, and what the key goes with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.sinks.avro_columns import avro_shape
from service.sinks.batch import Form
from service.sinks.filesystem.config import FilesConfig, FileSystemSinkConfig
from service.sinks.s3.sink import S3SinkConfig
from tests.unit.sinks.filesystem.files_runs import (
    HERE,
    CountingStore,
    batch_of,
    commits,
    config_of,
    found,
    running,
)

BY_N = {"partitioner__class": "FieldPartitioner", "partition__field__name": "n"}
SINKS: list[tuple[type[FilesConfig], dict[str, str]]] = [
    (FileSystemSinkConfig, {"store.url": "file:///lake"}),
    (S3SinkConfig, {"s3.bucket.name": "lake"}),
]


@pytest.mark.parametrize(("config_class", "address"), SINKS, ids=["FileSystemSink", "S3Sink"])
@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"flush.size.bytes": "1000"}, set()),
        ({"flush.size.bytes": "1000", "flush.size": "10"}, set()),
        ({"flush.size": "10", "flush.size.bytes": "-1"}, set()),
        ({}, {"flush.size"}),
        ({"flush.size.bytes": "-1"}, {"flush.size"}),
        ({"flush.size.bytes": "0", "rotate.interval.ms": "5"}, {"flush.size"}),
        ({"flush.size.bytes": "-2", "flush.size": "1"}, {"flush.size.bytes"}),
        ({"flush.size.bytes": "128MB", "flush.size": "1"}, {"flush.size.bytes"}),
    ],
)
def test_a_number_of_records_or_of_bytes_is_needed(
    config_class: type[FilesConfig], address: dict[str, str], keys: dict[str, str], wrong: set[str]
) -> None:
    """One of both, or both: nothing else bounds what a file may become."""
    parsed = config_class.parse({**address, **keys})
    findings = [*parsed.findings, *(parsed.config.own_findings() if parsed.config is not None else ())]
    assert {finding.key for finding in findings} == wrong


async def test_a_record_above_the_limit_is_a_file_at_once(tmp_path: Path) -> None:
    """It waits for no other record, and what was there before it is a file of its own; nothing is left open."""
    rows = [{"n": 1}, {"n": "x" * 500}, {"n": 3}]
    async with running(config_of(tmp_path, flush__size__bytes="100")) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(rows[:2]))
        assert await sink.flush({HERE: 2}) == {HERE: 2}
        await sink.put(batch_of(rows[2:], begin=2))
        assert await sink.flush({HERE: 3}) == {HERE: 2}
    assert list(found(tmp_path).values()) == [[rows[0]], [rows[1]]]


async def test_a_file_that_is_full_to_the_byte_waits_for_no_record(tmp_path: Path) -> None:
    """A line of eight letters and its end, ten times: ninety bytes."""
    rows = [{"n": n} for n in range(10)]
    assert [len(json.dumps(row)) for row in rows] == [8] * 10
    async with running(config_of(tmp_path, flush__size__bytes="90")) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(rows))
        assert await sink.flush({HERE: 10}) == {HERE: 10}
    (file,) = (tmp_path / "topics").rglob("*.json")
    assert file.stat().st_size == 90


async def test_the_first_of_the_limits_ends_the_files(tmp_path: Path) -> None:
    """Two small records by ``flush.size``, one large by its bytes, and the count begins anew with each commit."""
    rows = [{"n": n} for n in (0, 1, "x" * 90, 3, 4, 5)]
    async with running(config_of(tmp_path, flush__size="2", flush__size__bytes="60")) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(rows))
    assert list(found(tmp_path).values()) == [rows[:2], rows[2:3], rows[3:5]]


def schema_of(*more: dict[str, Any]) -> str:
    """Of orders with a number and a text, which count 8 bytes and 4 more than the text has."""
    fields = [{"name": "n", "type": "long"}, {"name": "who", "type": ["null", "string"]}, *more]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


@pytest.mark.parametrize("name", ["Avro", "Parquet"])
async def test_values_with_fields_count_before_they_are_compressed(name: str, tmp_path: Path) -> None:
    """Twenty bytes for each text of eight letters: five records fill a hundred, whatever the codec makes of them."""
    orders = [{"n": n, "who": "x" * 8} for n in range(12)]
    schema = schema_of()
    column: Any = pa.array(orders, avro_shape(schema).type)
    config = config_of(tmp_path, flush__size__bytes="100", format__class=f"{name}Format", avro__codec="deflate")
    async with running(config) as sink:
        await sink.open({HERE: None})
        for begin, count in ((0, 3), (3, 9)):
            part = column.slice(begin, count)
            await sink.put(batch_of(part, begin=begin, schema=schema, form=Form.RECORD))
        assert await sink.flush({HERE: 12}) == {HERE: 10}
    written: list[list[Any]] = []
    for file in sorted((tmp_path / "topics/orders").rglob(f"*.{name.lower()}")):
        with file.open("rb") as opened:
            written.append([*fastavro.reader(opened)] if name == "Avro" else pq.read_table(opened).to_pylist())
    assert written == [orders[:5], orders[5:10]]


async def test_a_schema_that_changes_counts_as_its_file_has_it(tmp_path: Path) -> None:
    """The newer schema begins a file, and an older record after it counts with the field that it is given there."""
    old, new = schema_of(), schema_of({"name": "price", "type": "double", "default": 0.5})
    rows: list[dict[str, Any]] = [{"n": n, "who": None} for n in range(6)]
    priced = [{**row, "price": 0.5} for row in rows]
    config = config_of(
        tmp_path, flush__size__bytes="40", format__class="ParquetFormat", schema__compatibility="BACKWARD"
    )
    async with running(config) as sink:
        await sink.open({HERE: None})
        for begin, end, schema, values in ((0, 2, old, rows), (2, 3, new, priced), (3, 6, old, rows)):
            column: Any = pa.array(values[begin:end], avro_shape(schema).type)
            await sink.put(batch_of(column, begin=begin, schema=schema, form=Form.RECORD))
    files = sorted((tmp_path / "topics/orders").rglob("*.parquet"))
    # 12 bytes a record at first, 20 with the price: two of them are full.
    assert [pq.read_table(file, partitioning=None).to_pylist() for file in files] == [
        rows[:2],
        priced[2:4],
        priced[4:6],
    ]


async def test_one_full_file_among_a_thousand_folders_ends_all(tmp_path: Path) -> None:
    """Of a commit no file is above the limit, one is full, and memory and open files stay within their bounds."""
    rows: list[dict[str, Any]] = []
    for turn in range(3):
        rows += [{"n": n, "turn": turn, "text": "x" * 500} for n in range(1_000)]
        rows += [{"n": 7, "turn": turn, "text": "y" * 500}]
    store = CountingStore(tmp_path)
    config = config_of(
        tmp_path,
        **BY_N,
        flush__size__bytes="2000",
        max__open__files__per__partition="10",
        buffer__bytes="1048576",
    )
    async with running(config, store=store) as sink:
        await sink.open({HERE: None})
        for begin in range(0, len(rows), 500):
            await sink.put(batch_of(rows[begin : begin + 500], begin=begin))
            assert sink._partitions[HERE]._gathered.held_bytes <= 1_048_576
    assert commits(tmp_path) == 1
    assert store.open_max <= 2
    before = next(at for at, row in enumerate(rows) if row["text"][0] == "y" and row["turn"] == 1)
    expected: dict[str, list[Any]] = {}
    for row in rows[:before]:
        expected.setdefault(f"n={row['n']}", []).append(row)
    assert {path.split("/")[1]: each for path, each in found(tmp_path).items()} == expected
    assert max(file.stat().st_size for file in (tmp_path / "topics").rglob("*.json")) in range(1500, 2001)
