"""Records a second of the puts of ``JdbcSink`` alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from fetchers.catalog import shared_http
from fetchers.sdk import SystemClock
from metrics.events import discard
from service.sinks.contract import SinkBatch, SinkContext
from service.sinks.jdbc.config import JdbcSinkConfig
from service.sinks.jdbc.sink import JdbcSink
from tests.benchmarks.rows import Row
from tests.databases import MariaDb, Postgres, running_mariadb, running_postgres
from tests.jdbc_sink_suite import batch_of

_WRITTEN = {
    "type": "record",
    "name": "Written",
    "fields": [
        {"name": "a", "type": ["null", "int"]},
        {"name": "b", "type": "double"},
        {"name": "c", "type": "string"},
        {"name": "d", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "e", "type": "boolean"},
        {"name": "f", "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}},
    ],
}


async def upsert_rate(dialect: str, *, records: int) -> float:
    """Rows a second that puts of the sink's own size write into an empty table of seven columns, a third of them again.

    The decoding of records, and Kafka, are no part of it.
    """
    batches = _batches(records)
    with TemporaryDirectory(prefix="headrace-bench-") as folder:
        if dialect == "postgresql":
            with running_postgres(_opened(folder)) as server:
                return await _upsert(Postgres(server, "postgres").url, batches, records=records)
        with running_mariadb(_opened(folder)) as server:
            await MariaDb(server, "bench").rows("create database bench", database=None)
            return await _upsert(MariaDb(server, "bench").url, batches, records=records)


def _batches(records: int) -> Sequence[SinkBatch]:
    size, distinct = JdbcSinkConfig.model_fields["batch_size"].default, records * 2 // 3
    rows = [
        (n % distinct, {"a": n, "b": n / 7, "c": f"name {n}", "d": n, "e": n % 2 == 0, "f": Decimal(n).scaleb(-2)})
        for n in range(records)
    ]
    return [
        batch_of(rows[begin : begin + size], _WRITTEN, begin=begin, topic="written")
        for begin in range(0, records, size)
    ]


async def measure_upserts(*, records: int) -> list[Row]:
    """Both databases; what their aims are."""
    rows = []
    for dialect, name, aim in (("postgresql", "PostgreSQL", 60_000), ("mariadb", "MariaDB", 0)):
        rate = await upsert_rate(dialect, records=records)
        told, is_reached = (f"≥ {aim:,}/s", rate >= aim) if aim else ("none", None)
        rows.append(Row(f"JdbcSink → {name}, upserts, puts alone", f"{rate:,.0f}/s", told, is_reached))
    return rows


async def _upsert(url: str, batches: Sequence[SinkBatch], *, records: int) -> float:
    keys = {"connection.url": url, "insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}
    config = JdbcSinkConfig.parse(keys | {"auto.create": "true"}).config
    assert config is not None
    sink = JdbcSink(config)
    async with shared_http() as http:
        await sink.start(SinkContext("bench", 0, SystemClock(), discard, http))
        try:
            await sink.put(batches[0].slice(0, 1))  # connects, and makes the table
            began_at = time.perf_counter()
            for batch in batches:
                await sink.put(batch)
            return records / (time.perf_counter() - began_at)
        finally:
            await sink.stop()


def _opened(folder: str) -> Path:
    """To the servers' user, who is not root."""
    Path(folder).chmod(0o755)
    return Path(folder)
