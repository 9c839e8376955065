"""What ``IcebergSink`` has written is what Spark reads, by Iceberg's own runtime and a real REST catalogue."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import SystemClock
from metrics.events import discard
from service.embedded.jars import class_path
from service.sinks.contract import SinkContext
from service.sinks.iceberg.config import IcebergSinkConfig
from service.sinks.iceberg.sink import IcebergSink
from tests.bound import bound
from tests.iceberg_rest import RestLake
from tests.unit.sinks.iceberg.iceberg_runs import HERE, batch_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


async def query(lake: RestLake, text: str) -> list[dict[str, Any]]:
    """Rows of a query; ``{table}`` is the table."""
    asked = text.format(table=f"lake.{lake.namespace}.orders")
    program = str(Path(__file__).with_name("iceberg_reading.py"))
    command = bound([sys.executable, program, lake.address, class_path("iceberg"), asked])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = partial(subprocess.run, command, env=environment, check=False, capture_output=True, timeout=240, text=True)
    ended = await asyncio.to_thread(run)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


@pytest.mark.timeout(600)
async def test_spark_reads_rows_before_and_after_the_schema_has_changed(rest_lake: RestLake) -> None:
    """All types, partitions, null lists of structs, and the column that was added on the way."""
    line = pa.struct([pa.field("sku", pa.string(), nullable=False)])
    fields: list[Any] = [
        pa.field("n", pa.int32(), nullable=False), pa.field("amount", pa.decimal128(10, 2)),
        pa.field("at", pa.timestamp("ms", "UTC")), pa.field("day", pa.date32()), pa.field("lines", pa.list_(line)),
        pa.field("tags", pa.map_(pa.string(), pa.int64())), pa.field("part", line),
    ]  # fmt: skip
    first: dict[str, Any] = {
        "n": 1, "amount": Decimal("12.50"), "at": 1764000000123, "day": 20000, "lines": [{"sku": "a"}],
        "tags": [("x", 2**40)], "part": {"sku": "b"},
    }  # fmt: skip
    parsed = IcebergSinkConfig.parse(
        {
            **rest_lake.properties,
            "iceberg.tables.evolve-schema-enabled": "true",
            "iceberg.tables.default-partition-by": "day(at), bucket(n, 4)",
        }
    )
    assert parsed.config is not None
    sink = IcebergSink(parsed.config)
    async with shared_http() as http:
        await sink.start(SinkContext("lake", 0, SystemClock(), discard, http))
        await sink.open({HERE: None})
        await sink.put(batch_of(pa.array([first, {"n": 2}], pa.struct(fields))))
        await sink.flush({HERE: 2})
        wider = pa.struct([pa.field("n", pa.int64(), nullable=False), *fields[1:], pa.field("more", pa.string())])
        await sink.put(batch_of(pa.array([{"n": 2**40, "more": "x"}], wider), begin=2))
        await sink.flush({HERE: 3})
        await sink.stop()
    columns = "n, amount, at, day, lines, tags, part, lines IS NULL AS none, more"
    text = f"SELECT {columns} FROM {{table}} ORDER BY n"  # noqa: S608 - names of this test
    assert await query(rest_lake, text) == [
        {
            "n": 1, "amount": 12.5, "at": "2025-11-24T16:00:00.123Z", "day": "2024-10-04", "lines": [{"sku": "a"}],
            "tags": {"x": 2**40}, "part": {"sku": "b"}, "none": False,
        },
        {"n": 2, "none": True},
        {"n": 2**40, "none": True, "more": "x"},
    ]  # fmt: skip
