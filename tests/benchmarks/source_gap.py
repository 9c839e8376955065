"""Why a record from Mixpanel costs more than one from a file: the difference, step by step, in processor time.

Run `python -m tests.benchmarks.source_gap --help`. Each row adds one thing to the row before it: first the lines and
the contract of `file`, then Mixpanel's lines, then Mixpanel's contract, then the hash for de-duplication. Microseconds
a record of this process and of Spark's JVM, medians of rounds in which all rows take turns, conversion alone. What
fetchers and de-duplication cost apart from it is measured without Spark, below.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from fetchers.mixpanel.lines import LineCutter
from service.simulators.mixpanel_events import render_day
from service.simulators.mixpanel_settings import CONTRACT_PATH, MixpanelSettings
from service.stores.dedupe import DedupeIndex
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.runner import ConversionRunner
from spark_batch.session import SparkSettings
from tests.benchmarks.conversion import DEDUPE
from tests.benchmarks.lines import CONTRACT, line

_CHUNK_BYTES = 64 * 1024
_WINDOWS = 5
"""Days that are open while records of another come in."""


def rows_of(count: int, body: bytes) -> dict[str, tuple[ConversionPlan, pa.Table]]:
    """The steps from `file` to Mixpanel."""
    avro = ConverterSpec(ConverterKind.AVRO, schema_id=1)
    of_file = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(CONTRACT)), value_converter=avro)
    of_mixpanel = replace(of_file, contract=Contract(CONTRACT_PATH.read_text()))
    lines, events = batch_of([line(number) for number in range(count)]), batch_of(body.splitlines()[:count])
    return {
        "lines and contract of file": (of_file, lines),
        "Mixpanel's lines": (replace(of_file, contract=Contract(nullable(CONTRACT))), events),
        "Mixpanel's contract": (of_mixpanel, events),
        "hash for de-duplication": (replace(of_mixpanel, dedupe_fields=DEDUPE), events),
    }


def nullable(schema: Mapping[str, object]) -> str:
    """The contract of `file`, its user optional, as Mixpanel's lines need it."""
    text = json.dumps(schema)
    return text.replace('"distinct_id", "type": "string"', '"distinct_id", "type": ["null", "string"], "default": null')


def batch_of(lines: list[bytes]) -> pa.Table:
    """A micro-batch of these payloads."""
    nothing = [None] * len(lines)
    return pa.table({"key": nothing, "value": lines, "timestamp": nothing}, schema=INPUT_SCHEMA)


async def spent(runner: ConversionRunner, plan: ConversionPlan, batch: pa.Table) -> tuple[float, float, int]:
    """Seconds of this process and of the JVM, and bytes written; raises SystemExit where a record is rejected."""
    machine = psutil.Process(runner.jvm_pid)
    before = time.process_time(), sum(machine.cpu_times()[:2])
    outcome = await runner.convert(plan, batch)
    if outcome.column("reason").null_count != batch.num_rows:
        raise SystemExit("a clean record was rejected")
    after = time.process_time(), sum(machine.cpu_times()[:2])
    return after[0] - before[0], after[1] - before[1], outcome.column("value").nbytes


def cut_lines(body: bytes) -> None:
    """What `MixpanelSource` does with a body."""
    cutter = LineCutter(1 << 20)
    for start in range(0, len(body), _CHUNK_BYTES):
        for _ in cutter.feed(body[start : start + _CHUNK_BYTES]):
            pass
    for _ in cutter.finish():
        pass


def remember(hashes: np.ndarray) -> None:
    """What a task does with the hashes of micro-batches, some windows being open beside."""
    index, is_valid = DedupeIndex(), np.ones(len(hashes) // 10, dtype=bool)
    for number, part in enumerate(np.array_split(hashes, 10)):
        window = f"2026-01-{1 + number * _WINDOWS // 10:02}"
        index.fresh_in_open_windows(part, is_valid[: len(part)], window)
        index.commit()


def microseconds(work: Callable[[], None], *, count: int, rounds: int) -> float:
    """Of this process, a record, the median."""
    found = []
    for _ in range(rounds):
        before = time.process_time()
        work()
        found.append(time.process_time() - before)
    return 1e6 * statistics.median(found) / count


async def main(options: argparse.Namespace) -> None:
    """Print all rows."""
    settings = MixpanelSettings(first_day=date(2026, 1, 1), days=1, events_per_day=options.batch + 5_000)
    body = render_day(settings, settings.first_day).base
    runner = ConversionRunner(SparkSettings(avro_jar=options.avro_jar), slots=1, job_seconds_max=300)
    await runner.start()
    steps = rows_of(options.batch, body)
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in steps}
    try:
        for number in range(options.warm_up + options.rounds):
            for name, (plan, batch) in steps.items():
                seconds = await spent(runner, plan, batch)
                if number >= options.warm_up:
                    found[name].append(seconds)
    finally:
        await runner.stop()
    for name, (_, batch) in steps.items():
        python, java, size = (statistics.median(column) for column in zip(*found[name], strict=True))
        read, written = batch.column("value").nbytes / options.batch, size / options.batch
        each = f"Python {1e6 * python / options.batch:5.2f} µs  JVM {1e6 * java / options.batch:5.2f} µs"
        print(f"{name:28} {each}  {read:5.0f} bytes in {written:5.0f} out", flush=True)
    hashes = np.random.default_rng(1).integers(0, 256, (1_000_000, 16), dtype=np.uint8)
    count = body.count(b"\n")
    print(f"lines cut                    {microseconds(lambda: cut_lines(body), count=count, rounds=5):5.2f} µs")
    print(f"hashes remembered            {microseconds(lambda: remember(hashes), count=1_000_000, rounds=3):5.2f} µs")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--avro-jar", type=Path)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=4, help="rounds before anything is counted")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(_options()))
