"""How fast Mixpanel-shaped JSON lines become validated Avro, without fetcher and without broker.

Run `python -m tests.benchmarks.conversion --help`. Prints one line for each plan: records a second over all batches,
with a few of them in flight, after a warm-up. Figures of different machines or hours do not compare; ratios do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from pathlib import Path

import pyarrow as pa

from service.config.transformations import read_transformations
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import (
    Contract,
    ConversionPlan,
    ConverterKind,
    ConverterSpec,
    PayloadFormat,
    Rule,
)
from spark_batch.runner import ConversionRunner
from spark_batch.session import SparkSettings

EVENT_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "event", "type": "string"},
            {
                "name": "properties",
                "type": {
                    "type": "record",
                    "name": "Properties",
                    "fields": [
                        {"name": "time", "type": "long"},
                        {"name": "distinct_id", "type": ["null", "string"], "default": None},
                        {"name": "insert_id", "type": "string", "json.name": "$insert_id"},
                        {"name": "mp_processing_time_ms", "type": "long"},
                        {"name": "city", "type": ["null", "string"], "default": None, "json.name": "$city"},
                        {"name": "amount", "type": ["null", "double"], "default": None},
                        {"name": "note", "type": ["null", "string"], "default": None},
                        {"name": "is_new", "type": ["null", "boolean"], "default": None},
                    ],
                },
            },
        ],
    },
)
PACKAGE = "org.apache.kafka.connect.transforms"
FIVE = {
    "transforms": "flat,masked,typed,marked,fewer",
    "transforms.flat.type": f"{PACKAGE}.Flatten$Value",
    "transforms.flat.delimiter": "_",
    "transforms.masked.type": f"{PACKAGE}.MaskField$Value",
    "transforms.masked.fields": "properties_note",
    "transforms.typed.type": f"{PACKAGE}.Cast$Value",
    "transforms.typed.spec": "properties_time:string",
    "transforms.marked.type": f"{PACKAGE}.InsertField$Value",
    "transforms.marked.static.field": "source",
    "transforms.marked.static.value": "mixpanel",
    "transforms.fewer.type": f"{PACKAGE}.ReplaceField$Value",
    "transforms.fewer.exclude": "properties_is_new",
    "transforms.fewer.renames": "properties_city:city",
}
"""A chain of five transformations, each of them on every record."""
DEDUPE = ("event", "properties.distinct_id", "properties.time", "properties.$insert_id")


def event_lines(count: int, *, seed: int = 1) -> list[bytes]:
    """Lines as Mixpanel exports them: text with escapes, ids that look like numbers, nested properties."""
    chance = random.Random(seed)
    return [_event_line(chance, index) for index in range(count)]


def _event_line(chance: random.Random, index: int) -> bytes:
    user = f"user-{chance.randrange(100_000)}" if index % 3 else str(chance.randrange(10**9))
    properties = {
        "time": 1_602_611_311 + index,
        "distinct_id": user,
        "$insert_id": f"{chance.getrandbits(128):032x}",
        "mp_processing_time_ms": 1_602_625_711_874 + index,
        "$city": chance.choice(["Zürich", "Paris", "New York"]),
        "$browser": "Chrome",
        "amount": round(chance.random() * 100, 2),
        "note": 'line\none "quoted" é',
        "plan": chance.choice(["free", "pro"]),
        "tags": ["a", "b"],
        "is_new": bool(index % 2),
        "utm": {"source": "x", "campaign": f"c{index % 7}"},
    }
    return json.dumps({"event": "Signed up", "properties": properties}, ensure_ascii=bool(index % 2)).encode()


def plans() -> dict[str, ConversionPlan]:
    """The plans that are measured."""
    contract = Contract(EVENT_SCHEMA, (Rule("recent", "properties.time > 0"),))
    avro = ConverterSpec(ConverterKind.AVRO, schema_id=1)
    json_value = ConverterSpec(ConverterKind.JSON)
    return {
        "avro": ConversionPlan(PayloadFormat.JSON, Contract(EVENT_SCHEMA), value_converter=avro),
        "avro+five": ConversionPlan(
            PayloadFormat.JSON,
            Contract(EVENT_SCHEMA),
            value_converter=avro,
            transformations=read_transformations(FIVE).steps,
            topic="events",
        ),
        "avro+rule+dedupe": ConversionPlan(
            PayloadFormat.JSON,
            contract,
            dedupe_fields=DEDUPE,
            value_converter=avro,
        ),
        "json": ConversionPlan(PayloadFormat.JSON, Contract(EVENT_SCHEMA), value_converter=json_value),
        "loose+dedupe": ConversionPlan(PayloadFormat.JSON, dedupe_fields=DEDUPE, value_converter=json_value),
    }


async def measured(
    runner: ConversionRunner,
    plan: ConversionPlan,
    batch: pa.Table,
    *,
    batches: int,
    in_flight: int,
) -> float:
    """Records a second; raises SystemExit where a clean record was rejected."""
    left = iter(range(batches))

    async def work() -> None:
        for _ in left:
            outcome = await runner.convert(plan, batch)
            if outcome.column("reason").null_count != batch.num_rows:
                raise SystemExit("a clean record was rejected")

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work())
    return batches * batch.num_rows / (time.perf_counter() - start)


async def main(options: argparse.Namespace) -> None:
    """Measure every plan asked for, one after the other, in one session."""
    lines = event_lines(options.batch)
    columns = {
        "key": pa.nulls(len(lines), pa.binary()),
        "value": pa.array(lines, pa.binary()),
        "timestamp": pa.nulls(len(lines), pa.int64()),
    }
    batch = pa.table(columns, schema=INPUT_SCHEMA)
    settings = SparkSettings(avro_jar=options.avro_jar, remote=options.remote)
    runner = ConversionRunner(settings, slots=options.in_flight, job_seconds_max=300)
    await runner.start()
    try:
        for name, plan in plans().items():
            if options.plan not in {name, "all"}:
                continue
            await measured(runner, plan, batch, batches=options.warm_up, in_flight=options.in_flight)
            batches = max(1, options.records // options.batch)
            rate = await measured(runner, plan, batch, batches=batches, in_flight=options.in_flight)
            print(f"{name:20} {rate:>10,.0f} records/s  ({batches} batches of {options.batch:,})", flush=True)
    finally:
        await runner.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--avro-jar", type=Path)
    parser.add_argument("--remote")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--in-flight", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=9, help="batches before the clock starts")
    parser.add_argument("--plan", default="all")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(_options()))
