"""What one bad record in a thousand costs a conversion, for every reason a record is rejected for.

Run `python -m tests.benchmarks.bad_records --help`. Prints microseconds of processor time a record, of this process and
of Spark's JVM together, for clean batches and for batches with one bad record in `--one-in`, and the difference in per
cent. Clean batches and those of a reason take turns, so that what else the machine does falls on both. Processor time,
not the clock: figures of a busy machine still compare.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from spark_batch.outcome import INPUT_SCHEMA, Reason
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule, UnknownFields
from spark_batch.runner import ConversionRunner
from spark_batch.session import SparkSettings
from tests.benchmarks.conversion import event_lines

RECORD_BYTES_MAX = 4_096
_TIME = b'"time": '
_SCHEMA = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "event", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}, "default": "a"},
        {
            "name": "properties",
            "type": {
                "type": "record",
                "name": "Properties",
                "fields": [
                    {"name": "time", "type": "long"},
                    {"name": "insert_id", "type": "string", "json.name": "$insert_id"},
                    {"name": "amount", "type": ["null", "double"], "default": None},
                ],
            },
        },
    ],
}
BAD: Mapping[Reason, Callable[[bytes], bytes]] = {
    Reason.MALFORMED_JSON: lambda line: line[:-1],
    Reason.INVALID_UTF8: lambda line: line.replace(b"Signed", b"S\xff"),
    Reason.LONE_SURROGATE: lambda line: line.replace(b"Signed", b"\\ud800"),
    Reason.DUPLICATE_KEY: lambda line: line[:-1] + b', "event": "b"}',
    Reason.TOO_DEEP: lambda line: line[:-1] + b', "deep": ' + b"[" * 600 + b"]" * 600 + b"}",
    Reason.TOO_LARGE: lambda line: line[:-1] + b', "large": "' + b"a" * RECORD_BYTES_MAX + b'"}',
    Reason.WRONG_TYPE: lambda line: line.replace(_TIME, _TIME + b'"x", "was": '),
    Reason.OUT_OF_RANGE: lambda line: line.replace(_TIME, _TIME + b"9" * 10),
    Reason.MISSING_FIELD: lambda line: line.replace(_TIME, b'"no time": '),
    Reason.NULL_NOT_ALLOWED: lambda line: line.replace(_TIME, _TIME + b'null, "was": '),
    Reason.UNKNOWN_FIELD: lambda line: line[:-1] + b', "unknown": 1}',
    Reason.UNKNOWN_SYMBOL: lambda line: line[:-1] + b', "kind": "c"}',
    Reason.RULE_FAILED: lambda line: line.replace(_TIME, _TIME + b'-1, "was": '),
}
"""How a line is spoilt. Only tombstones are rejected as unrepresentable, and they have no payload to be read."""


def plan_for(reason: Reason | None) -> ConversionPlan:
    """Avro by a contract with a rule; unknown fields are refused where that is the reason."""
    policy = UnknownFields.REJECT if reason is Reason.UNKNOWN_FIELD else UnknownFields.IGNORE
    contract = Contract(json.dumps(_SCHEMA), (Rule("recent", "properties.time > 0"),), policy)
    avro = ConverterSpec(ConverterKind.AVRO, schema_id=1)
    return ConversionPlan(PayloadFormat.JSON, contract, value_converter=avro, record_bytes_max=RECORD_BYTES_MAX)


def batch_of(lines: list[bytes]) -> pa.Table:
    """A micro-batch of these payloads."""
    nothing = [None] * len(lines)
    return pa.table({"key": nothing, "value": lines, "timestamp": nothing}, schema=INPUT_SCHEMA)


def known_only(line: bytes) -> bytes:
    """The line with the contract's fields alone, for a plan that refuses others."""
    event: dict[str, Any] = json.loads(line)
    named = ("time", "$insert_id", "amount")
    properties = {name: event["properties"][name] for name in named}
    return json.dumps({"event": event["event"], "properties": properties}).encode()


async def processor_seconds(runner: ConversionRunner, plan: ConversionPlan, batch: pa.Table, bad: int) -> float:
    """Of this process and the JVM, for one conversion; raises SystemExit where not just the bad ones are rejected."""
    machine = psutil.Process(runner.jvm_pid)
    before = time.process_time() + sum(machine.cpu_times()[:2])
    outcome = await runner.convert(plan, batch)
    after = time.process_time() + sum(machine.cpu_times()[:2])
    rejected = batch.num_rows - outcome.column("reason").null_count
    if rejected != bad:
        raise SystemExit(f"{rejected} records were rejected instead of {bad}")
    return after - before


async def main(options: argparse.Namespace) -> None:
    """Each reason against clean batches of the same plan."""
    runner = ConversionRunner(SparkSettings(avro_jar=options.avro_jar), slots=1, job_seconds_max=300)
    await runner.start()
    lines = event_lines(options.batch)
    count = len(range(0, options.batch, options.one_in))
    try:
        for reason, spoil in BAD.items():
            if options.reason not in {reason.value, "all"}:
                continue
            plan = plan_for(reason)
            clean = [known_only(line) for line in lines] if reason is Reason.UNKNOWN_FIELD else lines
            bad = [spoil(line) if at % options.one_in == 0 else line for at, line in enumerate(clean)]
            pairs = [(batch_of(clean), 0), (batch_of(bad), count)]
            spent: list[list[float]] = [[], []]
            for round_number in range(options.warm_up + options.rounds):
                for which, (batch, expected) in enumerate(pairs):
                    seconds = await processor_seconds(runner, plan, batch, expected)
                    if round_number >= options.warm_up:
                        spent[which].append(seconds)
            without, with_bad = (1e6 * statistics.median(each) / options.batch for each in spent)
            change = 100 * (with_bad / without - 1)
            print(f"{reason:18} clean {without:6.2f} µs  bad {with_bad:6.2f} µs  {change:+6.1f} %", flush=True)
    finally:
        await runner.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--avro-jar", type=Path)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--one-in", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=3, help="pairs of batches before anything is counted")
    parser.add_argument("--reason", default="all", help="the only one to measure")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(_options()))
