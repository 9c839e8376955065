"""Sinks from outside: rows of a database end to end, what a sink's worker keeps in memory, how soon a record is there.

Each figure is looked at only once the target holds every record, and holds each once.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import click
import fastavro
import pyarrow as pa

from service.kafka.client import KafkaSettings
from service.kafka.producer import IdempotentWriter
from service.kafka.records import TopicRecords
from tests.benchmarks.processes import Child
from tests.benchmarks.rows import Row, quantile
from tests.benchmarks.running_sinks import run_sink, running_sink
from tests.benchmarks.throughput import Field
from tests.benchmarks.watching import WAIT_SECONDS_MAX
from tests.databases import Postgres, running_postgres

RATE_PER_SECOND = 100
LOOK_SECONDS = 0.02
FOLDERS = 3_000
ROTATION_SECONDS = 20
"""99 of 100 records wait for less than 0.99 of this; the way to the sink and the writing of a file come besides."""
FILL_RECORDS = 20_000
MEBIBYTE = 1024 * 1024
_CHECKPOINTS = 50
_WRITTEN = {
    "type": "record",
    "name": "Written",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "a", "type": "long"},
        {"name": "b", "type": "double"},
        {"name": "c", "type": "string"},
        {"name": "d", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "e", "type": "boolean"},
    ],
}
Number = Callable[[int], bytes]
"""The value of a record by its number."""


async def fill(bootstrap: str, topic: str, value: Number, *, records: int) -> None:
    """A topic of one partition with so many values, numbered from 0."""
    writer = IdempotentWriter(KafkaSettings(bootstrap=bootstrap), last_topic="")
    await writer.start()
    try:
        for begin in range(0, records, FILL_RECORDS):
            values = [value(number) for number in range(begin, min(begin + FILL_RECORDS, records))]
            await writer.commit([TopicRecords(topic, pa.array(values, pa.binary()), None)])
    finally:
        await writer.stop()


async def measure_upserts(bench: Field, *, records: int) -> list[Row]:
    """Avro records into one table of a new PostgreSQL, a third of them to rows that are there already."""
    topic, distinct = f"written_{time.time_ns()}", records * 2 // 3
    schema = fastavro.parse_schema(_WRITTEN)
    head = b"\x00" + (await _registered(bench.servers.registry, topic)).to_bytes(4, "big")

    def value(number: int) -> bytes:
        body = io.BytesIO(head)
        body.seek(0, io.SEEK_END)
        row = {"id": number % distinct, "a": number, "b": number / 7, "c": f"name {number}", "d": number, "e": True}
        fastavro.schemaless_writer(body, schema, row)
        return body.getvalue()

    await fill(bench.servers.bootstrap, topic, value, records=records)
    with TemporaryDirectory(prefix="headrace-bench-") as folder:
        Path(folder).chmod(0o755)  # to the server's user, who is not root
        with running_postgres(Path(folder)) as server:
            database = Postgres(server, "postgres")
            properties = {
                "connector.class": "JdbcSink",
                "topics": topic,
                "connection.url": database.url,
                "insert.mode": "upsert",
                "pk.mode": "record_value",
                "pk.fields": "id",
                "auto.create": "true",
                "value.converter": "io.confluent.connect.avro.AvroConverter",
                "value.converter.schema.registry.url": bench.servers.registry,
            }
            marks = sorted({*range(0, records, max(1, records // _CHECKPOINTS)), records - 1})
            looked_up = ",".join(str(number % distinct) for number in marks)

            async def count() -> int:
                is_made = await asyncio.to_thread(database.rows, f"select to_regclass('{topic}')::text")
                if is_made == [(None,)]:
                    return 0
                sql = f'select id, a from "{topic}" where id in ({looked_up})'  # noqa: S608 - names of our own
                held = dict(await asyncio.to_thread(database.rows, sql))
                return max((number + 1 for number in marks if held.get(number % distinct, -1) >= number), default=0)

            passage = await run_sink(bench, "postgres", properties, count, records=records)
            sql = f'select count(*), count(distinct id), sum(a) from "{topic}"'  # noqa: S608 - as above
            (found,) = database.rows(sql)
    # Of each row the last record that went to it.
    expected = (distinct, distinct, sum(range(distinct, records)) + sum(range(records - distinct, distinct)))
    if tuple(map(int, found)) != expected:
        raise RuntimeError(f"the table holds {found}, and should {expected}")
    rate, cost = passage.records_per_second, sum(passage.cpu_micros_a_record.values())
    what = f"topic of {records:,} Avro records → PostgreSQL, upserts, end to end ({cost:.1f} µs of processor time each)"
    return [Row(what, f"{rate:,.0f}/s", "≥ 60,000/s, as Confluent's sink is not to be had", rate >= 60_000)]


async def _registered(registry: str, topic: str) -> int:
    body = {"schema": json.dumps(_WRITTEN), "schemaType": "AVRO"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{registry.rstrip('/')}/subjects/{topic}-value/versions", json=body) as answer,
    ):
        answer.raise_for_status()
        return int((await answer.json(content_type=None))["id"])


async def measure_memory(bench: Field, *, records: int, folder_records: int) -> list[Row]:
    """Records of a long topic to a file; and three times as many folders as files may be open."""
    topic = f"long-{time.time_ns()}"

    def value(number: int) -> bytes:
        return b'{"number":"%012d","folder":"f%04d","filling":"%s"}' % (number, number % FOLDERS, b"x" * 45)

    size_bytes = len(value(0)) + 1
    await fill(bench.servers.bootstrap, topic, value, records=records)
    file = bench.folder / "long.txt"

    async def count() -> int:
        return file.stat().st_size // size_bytes if file.exists() else 0

    texts = {"topics": topic, "value.converter": "org.apache.kafka.connect.storage.StringConverter"}
    async with running_sink(bench, "long", {"connector.class": "FileStreamSink", "file": str(file), **texts}) as child:
        looks = Looks(child)
        await looks.until(count, records // 10)
        early_bytes = child.memory_bytes()
        await looks.until(count, records)
        late_bytes = child.memory_bytes()
    _demand_numbers(file, value, records=records)
    file.unlink()
    growth = late_bytes / early_bytes - 1
    peak = looks.peak_bytes / MEBIBYTE
    click.echo(f"  {records:,} records to a file: {peak:.0f} MiB at most, {growth:+.1%} from a tenth on")
    return [
        Row(
            f"sink's Python process over {records:,} records, growth from a tenth to the end (peak {peak:.0f} MiB)",
            f"{growth:+.1%}",
            "flat (≤ 10 %)",
            growth <= 0.1,
        ),
        *await _folders(bench, value, records=folder_records),
    ]


def _demand_numbers(file: Path, value: Number, *, records: int) -> None:
    with file.open("rb") as written:
        found = 0
        for found, text in enumerate(written, 1):
            if text[:-1] != value(found - 1):
                raise RuntimeError(f"line {found} of the file is not record {found - 1}")
    if found != records:
        raise RuntimeError(f"the file has {found:,} lines, and should have {records:,}")


async def _folders(bench: Field, value: Number, *, records: int) -> list[Row]:
    """Every folder is open from the first poll to the commit at the end."""
    topic, folder = f"folders-{time.time_ns()}", bench.folder / "folders"
    await fill(bench.servers.bootstrap, topic, value, records=records)
    properties = {
        "connector.class": "FileSystemSink",
        "topics": topic,
        "store.url": f"file://{folder}",
        "format.class": "io.confluent.connect.hdfs.json.JsonFormat",
        "partitioner.class": "io.confluent.connect.storage.partitioner.FieldPartitioner",
        "partition.field.name": "folder",
        "flush.size": str(records),
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }

    async def count() -> int:
        return len(_files(folder))

    async with running_sink(bench, "folders", properties) as child:
        looks = Looks(child)
        before = child.memory_bytes()
        await looks.until(count, FOLDERS)
    files = _files(folder)
    if len(files) != FOLDERS:
        raise RuntimeError(f"there are {len(files):,} files, and should be {FOLDERS:,}: one commit, and one a folder")
    lines = [json.loads(text)["number"] for file in files for text in file.read_bytes().splitlines()]
    if sorted(map(int, lines)) != list(range(records)):
        raise RuntimeError(f"the folders hold {len(lines):,} records, and should hold {records:,}, each once")
    grown = (looks.peak_bytes - before) / MEBIBYTE
    what = f"{FOLDERS:,} open folders, {records:,} records: peak of the Python process over its start"
    return [Row(what, f"+{grown:.0f} MiB", "bounded (≤ 512 MiB)", grown <= 512)]


def _files(folder: Path) -> list[Path]:
    """Committed files alone: what is being written has other names."""
    return [file for file in folder.glob("topics/*/folder=*/*.json") if not file.name.startswith((".", "_"))]


@dataclass(slots=True)
class Looks:
    """At the memory of a worker, while its target is waited for."""

    child: Child
    peak_bytes: int = 0

    async def until(self, count: Callable[[], Awaitable[int]], records: int) -> None:
        """Look until the target has so many."""
        async with asyncio.timeout(4 * WAIT_SECONDS_MAX):
            while True:
                self.peak_bytes = max(self.peak_bytes, self.child.memory_bytes())
                if await count() >= records:
                    return
                await asyncio.sleep(0.1)


async def measure_latency(bench: Field, search_url: str, *, records: int) -> list[Row]:
    """Records one by one at a low rate, until somebody who asks the target sees them."""
    topic = f"steady-{time.time_ns()}"
    async with aiohttp.ClientSession(search_url) as session:

        async def found() -> int:
            async with session.get(f"/{topic}/_count") as answer:
                return int((await answer.json())["count"]) if answer.ok else 0

        properties = {
            "connector.class": "ElasticsearchSink",
            "connection.url": search_url,
            "key.ignore": "true",
            "schema.ignore": "true",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        search = (await _steady(bench, topic, properties, found, records=records)).latencies
        async with session.get(f"/{topic}/_search", params={"size": 0, "track_total_hits": "true"}) as answer:
            told = await answer.json()
        if told["hits"]["total"]["value"] != records:
            raise RuntimeError(f"the index holds {told['hits']['total']}, and should hold {records}")
    files = await _steady_files(bench, records=records)
    late = files.behind_rotations
    return [
        Row("record → found in OpenSearch at 100/s, p50", f"{quantile(search, 0.5):.2f} s", "", is_reached=None),
        Row(
            "record → found in OpenSearch at 100/s, p99",
            f"{quantile(search, 0.99):.2f} s",
            "≤ 1.5 s",
            quantile(search, 0.99) <= 1.5,
        ),
        Row(
            f"record → in a file of FileSystemSink at 100/s, p99 (rotation every {ROTATION_SECONDS} s)",
            f"{quantile(files.latencies, 0.99):.2f} s",
            f"one rotation (≤ {ROTATION_SECONDS} s)",
            quantile(files.latencies, 0.99) <= ROTATION_SECONDS,
        ),
        Row(
            f"a rotation's end by the clock → its file is there, median of {len(late)}, at most {max(late):.2f} s",
            f"{quantile(late, 0.5):.2f} s",
            "",
            is_reached=None,
        ),
    ]


async def _steady_files(bench: Field, *, records: int) -> Steady:
    topic, folder = f"steady-files-{time.time_ns()}", bench.folder / "steady"
    properties = {
        "connector.class": "FileSystemSink",
        "store.url": f"file://{folder}",
        "format.class": "io.confluent.connect.hdfs.json.JsonFormat",
        "flush.size": "1000000",
        "rotate.schedule.interval.ms": str(ROTATION_SECONDS * 1000),
        "timezone": "UTC",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }

    def files() -> list[Path]:
        return [file for file in folder.glob(f"topics/{topic}/**/*.json") if not file.name.startswith((".", "_"))]

    async def found() -> int:
        # A committed file is named by its topic, partition, first and last offset.
        return max((int(file.stem.rpartition("+")[2]) + 1 for file in files()), default=0)

    seen = await _steady(bench, topic, properties, found, records=records)
    numbers = [json.loads(text)["number"] for file in files() for text in file.read_bytes().splitlines()]
    if sorted(numbers) != list(range(records)):
        raise RuntimeError(f"the files hold {len(numbers)} records, and should hold {records}, each once")
    return seen


@dataclass(slots=True)
class Steady:
    """Sends records at a steady rate, and notes when each was sent and when it was seen."""

    sent_at: list[float] = field(default_factory=list)
    seen_at: list[float] = field(default_factory=list)

    async def send(self, bootstrap: str, topic: str, *, records: int) -> None:
        """One record a time, at its time by the clock; a late one is sent at once."""
        writer = IdempotentWriter(KafkaSettings(bootstrap=bootstrap), last_topic="")
        await writer.start()
        try:
            began_at = time.monotonic()
            for number in range(records):
                await asyncio.sleep(max(0.0, began_at + number / RATE_PER_SECOND - time.monotonic()))
                self.sent_at.append(time.monotonic())
                value = b'{"number":%d}' % number
                await writer.commit([TopicRecords(topic, pa.array([value], pa.binary()), None)])
        finally:
            await writer.stop()

    async def look(self, found: Callable[[], Awaitable[int]], *, records: int) -> None:
        """Until all are there; ``found`` counts those that are, of which the first sent came first."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while len(self.seen_at) < records:
                count, now = await found(), time.monotonic()
                self.seen_at += [now] * (count - len(self.seen_at))
                await asyncio.sleep(LOOK_SECONDS)

    @property
    def latencies(self) -> list[float]:
        """Seconds of each record; those of the beginning, in which topic and target are made, are left out."""
        records, settled = len(self.sent_at), RATE_PER_SECOND * ROTATION_SECONDS
        pairs = zip(self.sent_at, self.seen_at, strict=True)
        return [seen - sent for sent, seen in pairs][settled if records > 3 * settled else records // 3 :]

    @property
    def behind_rotations(self) -> list[float]:
        """For each file that was seen, seconds since the clock was at a whole number of rotations."""
        offset = time.time() - time.monotonic()
        return [(seen + offset) % ROTATION_SECONDS for seen in sorted(set(self.seen_at))]


async def _steady(
    bench: Field,
    topic: str,
    properties: Mapping[str, str],
    found: Callable[[], Awaitable[int]],
    *,
    records: int,
) -> Steady:
    """Send at the rate to a worker with one sink, until the target has all."""
    steady = Steady()
    async with running_sink(bench, "steady", {"topics": topic, **properties}), asyncio.TaskGroup() as group:
        group.create_task(steady.send(bench.servers.bootstrap, topic, records=records))
        group.create_task(steady.look(found, records=records))
    return steady
