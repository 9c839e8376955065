"""What stands in the files of each format, where they end, and in which folders they are."""

from __future__ import annotations

import errno
import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import fastavro
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from service.sinks.avro_columns import avro_shape
from service.sinks.batch import Form
from service.sinks.contract import Fatal
from service.sinks.filesystem.path_format import PathFormatError, compiled, folders_of
from tests.unit.sinks.filesystem.files_runs import (
    BY_CLOCK,
    BY_CLOCK_IDS,
    CLOCK_SET,
    DAY,
    HERE,
    SET_CLOCK,
    CountingStore,
    FixedClock,
    batch_of,
    clock_is_set,
    commits,
    config_of,
    every_name,
    found,
    running,
)

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "who", "type": ["null", "string"], "default": None},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
)
CONNECT = json.dumps(
    {
        "type": "struct",
        "name": "Order",
        "optional": False,
        "fields": [
            {"field": "n", "type": "int64", "optional": False},
            {"field": "who", "type": "string", "optional": True},
        ],
    }
)
ORDERS: list[dict[str, Any]] = [{"n": n, "who": None if n % 2 else f"ä{n}", "price": Decimal(n)} for n in range(3)]
FIRST = "orders/partition=0/orders+0+0000000000+0000000002"


async def written(folder: Path, *batches: Any, clock: FixedClock | None = None, **changes: str) -> None:
    """Put batches to a sink, one after another."""
    async with running(config_of(folder, **changes), clock=clock) as sink:
        await sink.open({HERE: None})
        for batch in batches:
            await sink.put(batch)


async def test_names_and_bounds_of_files(tmp_path: Path) -> None:
    """Three records a file and the tenth still open, however they come; the group hears of what is committed."""
    rows = [{"n": number} for number in range(10)]
    async with running(config_of(tmp_path)) as sink:
        assert await sink.open({HERE: None}) == {}
        await sink.put(batch_of(rows[:4]))
        assert await sink.flush({HERE: 4}) == {HERE: 3}
        await sink.put(batch_of(rows[4:], begin=4))
        assert await sink.flush({HERE: 10}) == {HERE: 9}
    assert found(tmp_path) == {
        f"orders/partition=0/orders+0+{begin:010}+{begin + 2:010}.json": rows[begin : begin + 3] for begin in (0, 3, 6)
    }
    async with running(config_of(tmp_path)) as sink:
        assert await sink.open({HERE: None}) == {HERE: 9}


@pytest.mark.parametrize("name", ["Avro", "Parquet", "Orc", "Json"])
async def test_typed_records_in_every_format(name: str, tmp_path: Path) -> None:
    """Nulls, texts and decimals come back as they were; Avro and Parquet bring the records' schema."""
    values = pa.array(ORDERS, avro_shape(AVRO).type)
    await written(
        tmp_path,
        batch_of(values, schema=AVRO, form=Form.RECORD),
        format__class=f"io.confluent.connect.hdfs.{name.lower()}.{name}Format",
    )
    file = tmp_path / "topics" / f"{FIRST}.{name.lower()}"
    if name == "Avro":
        with file.open("rb") as opened:
            reader = fastavro.reader(opened)
            assert list(reader) == ORDERS
            assert json.loads(reader.metadata["avro.schema"]) == json.loads(AVRO)
    elif name == "Json":
        assert [json.loads(line) for line in file.read_text().splitlines()] == [
            {**order, "price": float(order["price"])} for order in ORDERS
        ]
    else:
        table = pq.read_table(file, partitioning=None) if name == "Parquet" else po.read_table(file)
        assert table.to_pylist() == ORDERS
        if name == "Parquet":
            assert table.schema.metadata[b"parquet.avro.schema"].decode() == AVRO


@pytest.mark.parametrize("name", ["Avro", "Parquet"])
async def test_json_with_a_schema_is_typed(name: str, tmp_path: Path) -> None:
    """What is not of its schema is refused alone; an odd line end in a payload does not matter."""
    refused: list[tuple[int, str, str]] = []
    texts = ['{"n":0,\n"who":"a"}', '{"n":"x","who":null}', '{"n":2}', '{"who":"b"}', '{"n":4,"who":null}']
    batch = batch_of(pa.array(texts), schema=CONNECT, refused=refused)
    await written(tmp_path, batch, format__class=f"{name}Format")
    assert [(row, reason) for row, reason, _ in refused] == [(1, "wrong_type"), (3, "wrong_type")]
    file = tmp_path / "topics" / f"orders/partition=0/orders+0+0000000000+0000000004.{name.lower()}"
    if name == "Avro":
        with file.open("rb") as opened:
            rows: list[Any] = list(fastavro.reader(opened))
    else:
        rows = pq.read_table(file, partitioning=None).to_pylist()
    assert rows == [{"n": 0, "who": "a"}, {"n": 2, "who": None}, {"n": 4, "who": None}]


async def test_texts_a_line(tmp_path: Path) -> None:
    """As the file sink writes them."""
    values = pa.array(["a", "ä€🙂", ""])
    await written(tmp_path, batch_of(values, form=Form.TEXT), format__class="StringFormat")
    assert (tmp_path / "topics" / f"{FIRST}.txt").read_text() == "a\nä€🙂\n\n"


@pytest.mark.parametrize("name", ["String", "Avro", "Parquet"])
async def test_the_field_that_is_not_of_its_schema_is_named(name: str, tmp_path: Path) -> None:
    """In every format that looks at fields."""
    refused: list[tuple[int, str, str]] = []
    batch = batch_of([{"n": 0}, {"n": "x"}], schema=CONNECT, refused=refused)
    await written(tmp_path, batch, format__class=f"{name}Format")
    assert refused == [(1, "wrong_type", "field 'n' is not of its schema, INT64")]


async def test_records_without_a_schema_make_no_parquet(tmp_path: Path) -> None:
    """Each is refused, with what to do; null values are passed over where they are to be ignored."""
    refused: list[tuple[int, str, str]] = []
    batch = batch_of([{"n": 1}, None], refused=refused)
    await written(tmp_path, batch, format__class="ParquetFormat", behavior__on__null__values="ignore")
    assert [(row, reason) for row, reason, _ in refused] == [(0, "no_schema")]
    assert "schemas.enable=true" in refused[0][2]
    await written(tmp_path, batch_of([None], refused=refused))
    assert refused[1][:2] == (0, "null_value")


async def test_folders_by_fields(tmp_path: Path) -> None:
    """Names are escaped as Hive does it, null has Hive's name; all folders of a commit are there together."""
    rows = [{"n": 0, "at": {"x": "a/b"}}, {"n": 1, "at": {"x": None}}, {"n": 2, "at": {"x": "a/b"}}]
    refused: list[tuple[int, str, str]] = []
    batch = batch_of([*rows[:2], {"n": 9, "at": {"x": [1]}}, {"n": [9]}, rows[2]], refused=refused)
    await written(
        tmp_path, batch, partitioner__class="FieldPartitioner", partition__field__name="n,at.x", flush__size="3"
    )
    assert [row for row, _, _ in refused] == [3, 2]
    assert found(tmp_path) == {
        "orders/n=0/at.x=a%2Fb/orders+0+0000000000+0000000000.json": [rows[0]],
        "orders/n=1/at.x=__HIVE_DEFAULT_PARTITION__/orders+0+0000000001+0000000001.json": [rows[1]],
        "orders/n=2/at.x=a%2Fb/orders+0+0000000004+0000000004.json": [rows[2]],
    }


async def test_a_number_that_nobody_holds_beside_the_field_of_the_folder(tmp_path: Path) -> None:
    """The line is written as it came; the number names no folder itself, and refuses its record alone."""
    lines = ['{"n":1,"x":1e400}', '{"n":1e400}', '{"n":2}', '{"n":1,"x":%s}' % ("9" * 5000)]
    refused: list[tuple[int, str, str]] = []
    batch = batch_of(pa.array(lines), refused=refused)
    await written(tmp_path, batch, partitioner__class="FieldPartitioner", partition__field__name="n")
    assert [(row, reason) for row, reason, _ in refused] == [(1, "wrong_type")]
    texts = {path.parent.name: path.read_text() for path in (tmp_path / "topics").rglob("*.json")}
    assert texts == {"n=1": f"{lines[0]}\n{lines[3]}\n", "n=2": f"{lines[2]}\n"}


async def test_folders_by_the_hour_where_clocks_change(tmp_path: Path) -> None:
    """In Berlin on 29 March 2026 the hour after 1 is 3; on 25 October 2 comes twice, and is one folder."""
    spring, autumn = 1774742400000, 1792882800000  # midnight UTC, 29 March; 23:00 UTC, 24 October
    times = [spring, spring + 3_600_000, autumn, autumn + 3_600_000, autumn + 7_200_000]
    batch = batch_of([{"n": n} for n in range(5)], times_ms=times)
    await written(
        tmp_path,
        batch,
        partitioner__class="io.confluent.connect.storage.partitioner.HourlyPartitioner",
        timestamp__extractor="Record",
        timezone="Europe/Berlin",
        flush__size="5",
    )
    hours = {
        path.rsplit("/", 1)[0].removeprefix("orders/"): [row["n"] for row in rows]
        for path, rows in found(tmp_path).items()
    }
    assert hours == {
        "year=2026/month=03/day=29/hour=01": [0],
        "year=2026/month=03/day=29/hour=03": [1],
        "year=2026/month=10/day=25/hour=01": [2],
        "year=2026/month=10/day=25/hour=02": [3, 4],
    }


@pytest.mark.parametrize(
    "value", [1774742400000, "2026-03-29T00:00:00Z", "2026-03-29T02:00:00+02:00", "2026-03-29T00:00:00"]
)
async def test_times_of_a_field(value: object, tmp_path: Path) -> None:
    """A number or a text of ISO 8601; what is neither is refused."""
    refused: list[tuple[int, str, str]] = []
    batch = batch_of([{"on": value}, {"on": "yesterday"}, {"on": None}, {"on": -5}, {"on": value}], refused=refused)
    await written(
        tmp_path,
        batch,
        partitioner__class="DailyPartitioner",
        timestamp__extractor="RecordField",
        timestamp__field="on",
        timezone="UTC",
        flush__size="2",
    )
    assert list(found(tmp_path)) == ["orders/year=2026/month=03/day=29/orders+0+0000000000+0000000004.json"]
    assert [(row, reason) for row, reason, _ in refused] == [
        (1, "missing_timestamp"),
        (2, "missing_timestamp"),
        (3, "out_of_range"),
    ]


def test_path_formats() -> None:
    """Joda's patterns of numbers; those of texts, and such as lead elsewhere, are refused."""
    import numpy as np  # noqa: PLC0415 - one use

    codes, names = folders_of(np.array([0, 61_000, 125_000]), "yyyy-MM-dd'T'HH'h'mm", 120_000, SET_CLOCK.at.tzinfo)  # type: ignore[arg-type]
    assert (codes.tolist(), names) == ([0, 0, 1], ["1970-01-01T00h00", "1970-01-01T00h02"])
    for pattern in ("", "MMMM", "qq", "'a", "'..'/YYYY", "'/'YYYY", "YYYY//MM", "yy"):
        with pytest.raises(PathFormatError):
            compiled(pattern)


async def test_files_end_by_the_records_times(tmp_path: Path) -> None:
    """Before the record that is an interval later than the first, whatever the batches are."""
    times = [0, 30, 99, 100, 150, 500, 501]
    rows = [{"n": n} for n in range(7)]
    batches = [batch_of(rows[a:b], begin=a, times_ms=times[a:b]) for a, b in ((0, 2), (2, 6), (6, 7))]
    await written(tmp_path, *batches, flush__size="100", rotate__interval__ms="100", timestamp__extractor="Record")
    assert [[row["n"] for row in rows] for rows in found(tmp_path).values()] == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("key", ["rotate__idle__interval__ms", "rotate__schedule__interval__ms"])
async def test_files_of_a_silent_topic_end_by_the_clock(key: str, tmp_path: Path) -> None:
    """Where a key says so; the worker asks by its flushes."""
    clock = FixedClock(SET_CLOCK.at)
    async with running(config_of(tmp_path, **{key: "60000"}, timezone="UTC"), clock=clock) as sink:
        assert sink.flush_interval_seconds == 30
        await sink.open({HERE: None})
        await sink.put(batch_of([{"n": 1}]))
        clock.go_on(59)
        assert await sink.flush({HERE: 1}) == {}
        clock.go_on(1)
        assert await sink.flush({HERE: 1}) == {HERE: 1}
    assert list(found(tmp_path).values()) == [[{"n": 1}]]


@pytest.mark.parametrize(
    ("key", "after_a_put_seconds"), [("rotate__idle__interval__ms", 60), ("rotate__schedule__interval__ms", 45)]
)
async def test_a_flush_is_asked_for_at_the_moment(key: str, after_a_put_seconds: float, tmp_path: Path) -> None:
    """So that files wait no longer than their key says, also where no record comes then."""
    clock = FixedClock(SET_CLOCK.at)
    asked: list[float] = []
    async with running(config_of(tmp_path, **{key: "60000"}, timezone="UTC"), clock=clock) as sink:
        assert sink._context is not None
        sink._context.request_flush = asked.append
        await sink.open({HERE: None})
        clock.go_on(15)
        await sink.put(batch_of([{"n": 1}]))
        clock.go_on(20)
        assert await sink.flush({HERE: 1}) == {}
        assert asked == [after_a_put_seconds, after_a_put_seconds - 20]
        clock.go_on(asked[-1])
        assert await sink.flush({HERE: 1}) == {HERE: 1}
        assert len(asked) == 2, "nothing waits any more"
    assert list(found(tmp_path).values()) == [[{"n": 1}]]


@pytest.mark.parametrize("by", CLOCK_SET)
@pytest.mark.parametrize("changes", BY_CLOCK, ids=BY_CLOCK_IDS)
async def test_a_clock_that_is_set_holds_no_file_open(changes: dict[str, str], by: timedelta, tmp_path: Path) -> None:
    """Where the clock ends files, they end within two intervals of it, also when it was set; each record once."""
    clock = FixedClock(SET_CLOCK.at)
    async with running(config_of(tmp_path, flush__size="100", **changes), clock=clock) as sink:
        count = await clock_is_set(sink, clock, by)
    committed = [row["n"] for rows in found(tmp_path).values() for row in rows]
    assert committed == list(range(len(committed)))
    assert len(committed) >= count - 2
    assert commits(tmp_path) >= count - 3


async def test_folders_by_a_clock_that_is_set_back(tmp_path: Path) -> None:
    """A record's folder is the time at which it came, as the clock had it: the day before, and each record once."""
    clock = FixedClock(SET_CLOCK.at)
    changes = {"partitioner__class": "DailyPartitioner", "timezone": "UTC", "flush__size": "2"}
    async with running(config_of(tmp_path, **changes), clock=clock) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of([{"n": 0}]))
        clock.at -= DAY
        await sink.put(batch_of([{"n": 1}], begin=1))
    assert found(tmp_path) == {
        "orders/year=2026/month=03/day=28/orders+0+0000000001+0000000001.json": [{"n": 1}],
        "orders/year=2026/month=03/day=29/orders+0+0000000000+0000000000.json": [{"n": 0}],
    }


BY_N = {"partitioner__class": "FieldPartitioner", "partition__field__name": "n"}


async def test_folders_above_the_open_files_make_no_commit(tmp_path: Path) -> None:
    """Three times as many folders as files may be open, by turns: one commit for each rotation, a file for each folder.

    Memory and open files stay within their bounds, and each folder has its records in order.
    """
    rows: list[dict[str, Any]] = [{"n": n % 300, "at": n, "text": "x" * 600} for n in range(6_000)]
    changes = {"flush__size": "3000", "max__open__files__per__partition": "100", "buffer__bytes": "1048576"}
    store = CountingStore(tmp_path)
    async with running(config_of(tmp_path, **BY_N, **changes), store=store) as sink:
        await sink.open({HERE: None})
        for begin in range(0, 6_000, 1_000):
            await sink.put(batch_of(rows[begin : begin + 1_000], begin=begin))
            assert sink._partitions[HERE]._gathered.held_bytes <= 1_048_576
        assert await sink.flush({HERE: 6_000}) == {HERE: 6_000}
    assert commits(tmp_path) == 2
    assert store.open_max <= 2  # a file of the log, or one of a folder
    assert found(tmp_path) == {
        f"orders/n={n}/orders+0+{begin + n:010}+{begin + 2_700 + n:010}.json": rows[begin + n : begin + 3_000 : 300]
        for n in range(300)
        for begin in (0, 3_000)
    }


@pytest.mark.parametrize(("open_max", "open_at_once"), [("2", 2), ("0", 1), ("-1", 6)])
async def test_folders_with_many_records_have_their_files_open(
    open_max: str, open_at_once: int, tmp_path: Path
) -> None:
    """As many as may be; what the others have waits elsewhere, and comes in order."""
    rows: list[dict[str, Any]] = [{"n": n % 6, "at": n, "text": "x" * 4_000} for n in range(1_200)]
    changes = {"flush__size": "1200", "max__open__files__per__partition": open_max, "buffer__bytes": "1048576"}
    store = CountingStore(tmp_path)
    async with running(config_of(tmp_path, **BY_N, **changes), store=store) as sink:
        await sink.open({HERE: None})
        for begin in range(0, 1_200, 100):
            await sink.put(batch_of(rows[begin : begin + 100], begin=begin))
    assert open_at_once <= store.open_max <= open_at_once + 1
    assert [*found(tmp_path).values()] == [rows[n::6] for n in range(6)]


async def test_one_commit_has_so_many_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before one folder too many for an entry of the log, all are committed."""
    monkeypatch.setattr("service.sinks.filesystem.writing.FOLDERS_MAX", 50)
    rows = [{"n": n} for n in range(60)]
    async with running(config_of(tmp_path, **BY_N, flush__size="1000")) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(rows[:40]))
        await sink.put(batch_of(rows[40:], begin=40))
        assert await sink.flush({HERE: 60}) == {HERE: 50}
    assert [row for rows in found(tmp_path).values() for row in rows] == sorted(
        rows[:50], key=lambda row: f"n={row['n']}"
    )


async def test_no_room_for_records_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who fails for want of a temporary folder says which one it is."""

    def full() -> IO[bytes]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    rows = [{"n": n, "text": "x" * 6_000} for n in range(300)]
    async with running(config_of(tmp_path, **BY_N, flush__size="1000", buffer__bytes="1048576")) as sink:
        await sink.open({HERE: None})
        with pytest.raises(Fatal, match=r"^/.*no room for records that wait .* TMPDIR"):
            await sink.put(batch_of(rows))


async def test_files_of_others_are_gone_on_from(tmp_path: Path) -> None:
    """Names that Confluent's connector has left say where to begin; nothing of them is touched."""
    folder = tmp_path / "topics" / "orders" / "partition=0"
    folder.mkdir(parents=True)
    for name in ("orders+0+0000000000+0000000041.json", "orders+1+0000000000+0000000099.json", "other.json"):
        (folder / name).write_text("")
    before = every_name(tmp_path)
    async with running(config_of(tmp_path)) as sink:
        assert await sink.open({HERE: None}) == {HERE: 42}
    assert every_name(tmp_path) == before
