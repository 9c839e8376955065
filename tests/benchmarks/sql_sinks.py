"""Processor time of a record at a sink, with and without `Sql`: decoded alone, and put to a file sink as well.

``python -m tests.benchmarks.sql_sinks``. Each figure is that of this process and of Spark's JVM, both warm. Kafka is no
part of it, so it holds on a busy machine, where a rate would say what else the machine does.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import psutil
import pyarrow as pa

from service.sinks.converters import ColumnReader, EnvelopeReader
from service.sinks.decoding import Decoded
from spark_batch.session import jvm_pid
from spark_batch.transforms.catalog import Side, Sql, Step
from tests.spark.engines import LocalEngine
from tests.spark.sinks_by_engines import At
from tests.unit.sinks.fake_library import polled
from tests.unit.sinks.filesystem.files_runs import config_of, running
from tests.unit.sinks.test_sink_decoding import Registry, avro_reader, framed

ROWS, ROUNDS, WARM = 20_000, 12, 12
"""Of a poll; as much is done before, so that HotSpot has compiled what runs."""
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "city", "type": "string"},
        {"name": "pieces", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
CONNECT = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "customer", "type": "string", "optional": True},
        {"field": "city", "type": "string"},
        {"field": "pieces", "type": "int32"},
        {"field": "price", "type": "double"},
        {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
    ],
}
SAME = "SELECT id, customer, city, pieces, price, at FROM record"
MORE = "SELECT id, upper(city) AS city, pieces * price AS paid, at FROM record WHERE pieces > 1"


def main() -> None:
    """Print a line for each kind of record and each chain."""
    engine = LocalEngine()
    try:
        asyncio.run(_measure(engine))
    finally:
        engine.stop()


async def _measure(engine: LocalEngine) -> None:
    chains: dict[str, tuple[Step, ...]] = {
        "no transformation": (),
        "Sql, the same fields": (Step("s", Sql(Side.VALUE, SAME)),),
        "Sql, new fields and WHERE": (Step("s", Sql(Side.VALUE, MORE)),),
    }
    for form in ("Avro", "JSON with its schema"):
        reader, records = _records(form)
        for name, steps in chains.items():
            at = At(engine, steps, reader)
            decoded_micros, put_micros, seconds = await _micros(engine, at, records)
            click.echo(
                f"{form}, {name}: {decoded_micros:.2f} µs to decode a record, "
                f"{put_micros:.2f} µs to put it as Parquet; decoded at {ROWS / seconds:,.0f}/s by the clock"
            )


def _records(form: str) -> tuple[ColumnReader, pa.Table]:
    rows = [
        {
            "id": number,
            "customer": None if number % 7 == 0 else f"customer {number % 999}",
            "city": f"city {number % 101}",
            "pieces": number % 10,
            "price": number / 7,
            "at": 1_790_000_000_000 + number,
        }
        for number in range(ROWS)
    ]
    if form == "Avro":
        return avro_reader(Registry({1: AVRO})), polled([framed(1, AVRO, row) for row in rows])
    return EnvelopeReader(), polled([json.dumps({"schema": CONNECT, "payload": row}).encode() for row in rows])


async def _micros(engine: LocalEngine, at: At, records: pa.Table) -> tuple[float, float, float]:
    """Processor time a record of the poll, to decode and to put; seconds that decoding took."""
    engine.session.conf.get("spark.master")  # it has begun
    process = psutil.Process(jvm_pid())

    def used() -> float:
        times = process.cpu_times()
        return time.process_time() + times.user + times.system

    decoded = await at.decode(records)
    for _ in range(WARM):
        await at.decode(records)
    began, began_at = used(), time.perf_counter()
    for _ in range(ROUNDS):
        await at.decode(records)
    decoding, seconds = used() - began, time.perf_counter() - began_at
    began = used()
    await _put(decoded)
    count = ROUNDS * ROWS
    return decoding / count * 1e6, (used() - began) / count * 1e6, seconds / ROUNDS


async def _put(decoded: Decoded) -> None:
    """All rounds as one file; offsets go on from one to the next."""
    with tempfile.TemporaryDirectory() as name:
        changes = {"format__class": "ParquetFormat", "flush__size": "1000000"}
        async with running(config_of(Path(name), **changes)) as sink:
            topic = str(decoded.batches[0].records.column("topic")[0])
            await sink.open({(topic, 0): None})
            for number in range(ROUNDS):
                for batch in decoded.batches:
                    index = batch.records.schema.get_field_index("offset")
                    offsets: Any = pa.array(range(number * ROWS, number * ROWS + len(batch)), pa.int64())
                    await sink.put(replace(batch, records=batch.records.set_column(index, "offset", offsets)))


if __name__ == "__main__":
    main()
