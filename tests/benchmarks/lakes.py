"""A topic of Avro records into Parquet files and into an Iceberg table, in folders of this machine."""

from __future__ import annotations

import io
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import click
import fastavro
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from tests.benchmarks.rows import Row
from tests.benchmarks.running_sinks import run_sink
from tests.benchmarks.sink_service import fill
from tests.benchmarks.throughput import Field

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "event", "type": "string"},
        {"name": "distinct_id", "type": "string"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
COMMIT_RECORDS = 100_000


async def measure_lakes(field: Field, *, records: int, rounds: int) -> list[Row]:
    """Both, by turns."""
    topic = f"bench-events-{time.time_ns()}"
    await _fill(field, topic, records=records)
    rates: dict[str, list[float]] = {"Parquet": [], "Iceberg": []}
    for number in range(rounds):
        for name, seen in rates.items():
            measured = _parquet if name == "Parquet" else _iceberg
            properties, count = measured(field, f"{name}-{number}".lower(), topic)

            async def counted(count: Callable[[], int] = count) -> int:
                return count()

            run = f"{name}-{number}".lower()
            passage = await run_sink(field, run, properties, counted, records=records)
            seen.append(passage.records_per_second)
            click.echo(f"  topic → {name}: {seen[-1]:,.0f} records/s")
    aims = {"Parquet": 200_000, "Iceberg": 150_000}
    return [
        Row(
            f"topic of Avro records → {name} (best of {rounds}; median {statistics.median(seen):,.0f}/s)",
            f"{max(seen):,.0f}/s",
            f"≥ {aims[name]:,}/s",
            max(seen) >= aims[name],
        )
        for name, seen in rates.items()
    ]


async def _fill(field: Field, topic: str, *, records: int) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{field.servers.registry}/subjects/{topic}-value/versions", json={"schema": json.dumps(SCHEMA)}
        ) as answer,
    ):
        schema_id = int((await answer.json())["id"])
    schema, head = fastavro.parse_schema(SCHEMA), b"\0" + schema_id.to_bytes(4, "big")
    await fill(field.servers.bootstrap, topic, lambda number: head + encoded(schema, number), records=records)


def encoded(schema: Any, number: int) -> bytes:
    """The body of a record; ``schema`` is as fastavro has parsed it."""
    out = io.BytesIO()
    row = {
        "n": number,
        "event": ("Signed up", "Purchase", "Viewed page", "Search")[number % 4],
        "distinct_id": f"user-{number % 100_003}",
        "city": None if number % 5 else "Zürich",
        "amount": number * 0.25 if number % 3 else None,
        "at": 1_764_000_000_000 + number,
    }
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def _avro(topic: str) -> dict[str, str]:
    return {"topics": topic, "value.converter": "io.confluent.connect.avro.AvroConverter"}


def _parquet(field: Field, run: str, topic: str) -> tuple[dict[str, str], Callable[[], int]]:
    folder = field.folder / run

    def count() -> int:
        names = [file.stem.split("+") for file in (folder / "topics" / topic).rglob("*.parquet")]
        return sum(int(last) - int(first) + 1 for _, _, first, last in names)

    folder.mkdir()
    properties = {
        **_avro(topic),
        "connector.class": "FileSystemSink",
        "store.url": f"file://{folder}",
        "flush.size": str(COMMIT_RECORDS),
        "format.class": "ParquetFormat",
    }
    return properties, count


def _iceberg(field: Field, run: str, topic: str) -> tuple[dict[str, str], Callable[[], int]]:
    folder = field.folder / run
    folder.mkdir()
    address, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/lake"
    opened = SqlCatalog("iceberg", uri=address, warehouse=warehouse)

    def count() -> int:
        try:
            snapshot = opened.load_table("shop.events").current_snapshot()
        except NoSuchTableError:
            return 0
        summary = None if snapshot is None else snapshot.summary
        return 0 if summary is None else int(summary["total-records"] or 0)

    properties = {
        **_avro(topic),
        "connector.class": "IcebergSink",
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": address,
        "iceberg.catalog.warehouse": warehouse,
        "iceberg.tables": "shop.events",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.commit.records": str(COMMIT_RECORDS),
        "iceberg.control.commit.interval-ms": "1000",
    }
    return properties, count
