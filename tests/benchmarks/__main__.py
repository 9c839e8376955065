"""``./headrace bench``: every figure beside its aim, into ``docs/benchmarks/``.

Names after the command choose figures; without one it is all of ``FIGURES``.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.benchmarks import (
    change_logs,
    cluster,
    control,
    databases,
    kills,
    lakes,
    service_level,
    sinks,
    slow_kafka,
    spark_source,
    streams,
    throughput,
    transforms,
)
from tests.benchmarks.processes import ROOT, servers
from tests.benchmarks.rows import Row
from tests.benchmarks.sink_service import measure_memory as measure_memory_of_sinks
from tests.benchmarks.throughput import Field, run_name
from tests.benchmarks.watching import Passage, cost, limit

FIGURES = (
    "throughput",
    "sources",
    "spark-source",
    "transforms",
    "databases",
    "change-logs",
    "sinks",
    "sinks-memory",
    "lakes",
    "latency",
    "streams",
    "slow-kafka",
    "start",
    "control",
    "cluster",
    "memory",
)
ON_REQUEST = ("kills",)
RESULTS = ROOT / "docs" / "benchmarks"
MEBIBYTE = 1024 * 1024
Measure = Callable[..., Awaitable[Passage]]


async def measure_throughput(field: Field, *, records: int, rounds: int) -> list[Row]:
    """Peer and file source by turns on one broker, the one that goes first changing with every round."""
    measures: dict[str, Measure] = {"peer": throughput.peer, "file": throughput.from_file}
    # Nobody is measured beside a broker that has just started: the peer was a quarter slower there, headrace a seventh.
    await throughput.peer(field, run_name(rounds), records=records)
    passages = await _alternate(field, measures, records=records, rounds=rounds)
    rates = {name: [passage.records_per_second for passage in runs] for name, runs in passages.items()}
    ratio = statistics.median(rates["file"]) / statistics.median(rates["peer"])
    by_round = [file / peer for file, peer in zip(rates["file"], rates["peer"], strict=True)]
    return [
        Row("Kafka Connect, file, strings, at least once", _rates(rates["peer"]), "the peer", is_reached=None),
        Row("file → Avro, exactly once", _rates(rates["file"]), "≥ 100,000/s seen once", max(rates["file"]) >= 100_000),
        Row(f"file ÷ peer (medians; rounds: {_each(by_round)})", f"{ratio:.2f}", "≥ 2.0", ratio >= 2.0),
        *(Row(f"{name}: processor time a record", cost(runs), limit(runs), None) for name, runs in passages.items()),
    ]


async def measure_sources(field: Field, *, records: int, rounds: int) -> list[Row]:
    """The other sources beside the file source."""
    measures: dict[str, Measure] = {
        "file": throughput.from_file,
        "http": throughput.from_http,
        "mixpanel": throughput.from_mixpanel,
        "Mixpanel's lines in a file": throughput.from_file_of_events,
    }
    passages = await _alternate(field, measures, records=records, rounds=rounds)
    rates = {name: [passage.records_per_second for passage in runs] for name, runs in passages.items()}
    rows = []
    for name, aim in (("http", 0.6), ("mixpanel", 0.8)):
        share = statistics.median(rates[name]) / statistics.median(rates["file"])
        rows.append(Row(f"{name} ÷ file ({_rates(rates[name])})", f"{share:.2f}", f"≥ {aim}", share >= aim))
    same = rates["Mixpanel's lines in a file"]
    share = statistics.median(rates["mixpanel"]) / statistics.median(same)
    by_round = [ours / of_file for ours, of_file in zip(rates["mixpanel"], same, strict=True)]
    told = f"medians; those lines: {_rates(same)}; rounds: {_each(by_round)}"
    rows.append(Row(f"mixpanel ÷ the same lines in a file ({told})", f"{share:.2f}", "≥ 0.8", share >= 0.8))
    rows += [Row(f"{name}: processor time a record", cost(runs), limit(runs), None) for name, runs in passages.items()]
    return rows


async def measure_spark_source(field: Field, *, records: int, rounds: int) -> list[Row]:
    """A backfill by Spark's data source to Parquet, and by the service to Kafka, by turns."""
    measures: dict[str, Measure] = {"service": throughput.from_mixpanel, "data source": spark_source.from_mixpanel}
    passages = await _alternate(field, measures, records=records, rounds=rounds)
    rates = {name: [passage.records_per_second for passage in runs] for name, runs in passages.items()}
    by_round = [ours / service for ours, service in zip(rates["data source"], rates["service"], strict=True)]
    share = statistics.median(by_round)
    told = f"{_rates(rates['data source'])}; rounds: {_each(by_round)}"
    return [
        Row(f"Mixpanel backfill, Spark data source ÷ service ({told})", f"{share:.2f}", "≥ 0.7", share >= 0.7),
        *(Row(f"{name}: processor time a record", cost(runs), limit(runs), None) for name, runs in passages.items()),
    ]


async def measure_transforms(field: Field, *, records: int, rounds: int) -> list[Row]:
    """Five transformations: against none, and against Kafka Connect with the same five."""
    measures: dict[str, Measure] = {
        "none": transforms.without_chain,
        "five": transforms.with_chain,
        "peer, five of lines": transforms.peer,
        "five of lines": transforms.lines,
    }
    passages = await _alternate(field, measures, records=records, rounds=rounds)
    rates = {name: [passage.records_per_second for passage in runs] for name, runs in passages.items()}
    shares = [five / none for five, none in zip(rates["five"], rates["none"], strict=True)]
    ratios = [ours / peer for ours, peer in zip(rates["five of lines"], rates["peer, five of lines"], strict=True)]
    share, ratio = statistics.median(shares), statistics.median(ratios)
    told = f"{_rates(rates['five'])}; rounds: {_each(shares)}"
    told_of_lines = f"{_rates(rates['five of lines'])}; rounds: {_each(ratios)}"
    return [
        Row(f"file → Avro through five transformations ÷ without ({told})", f"{share:.2f}", "≥ 0.85", share >= 0.85),
        Row(f"five of lines ÷ Kafka Connect with them ({told_of_lines})", f"{ratio:.2f}", "≥ 3.0", ratio >= 3.0),
        *(Row(f"{name}: processor time a record", cost(runs), limit(runs), None) for name, runs in passages.items()),
    ]


async def _alternate(
    field: Field, measures: dict[str, Measure], *, records: int, rounds: int
) -> dict[str, list[Passage]]:
    """So that a machine that changes its speed changes it for all."""
    passages: dict[str, list[Passage]] = {name: [] for name in measures}
    for number in range(rounds):
        in_turn = list(measures.items())
        for name, measure in in_turn if number % 2 else reversed(in_turn):
            passage = await measure(field, run_name(number), records=records)
            passages[name].append(passage)
            rate, cost = passage.records_per_second, sum(passage.cpu_micros_a_record.values())
            click.echo(f"  {name}: {rate:,.0f} records/s, {cost:.1f} µs of processor time a record")
    return passages


def _each(values: list[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


async def measure_latency(field: Field) -> list[Row]:
    """100 records a second."""
    seen = await service_level.latency(field, run_name(0))
    return [
        Row(
            "latency at 100/s (file to JSON, poll.interval.ms=50), p50",
            f"{seen.p50_seconds:.3f} s",
            "≤ 0.4 s",
            seen.p50_seconds <= 0.4,
        ),
        Row("latency at 100/s, p99", f"{seen.p99_seconds:.3f} s", "≤ 1.2 s", seen.p99_seconds <= 1.2),
    ]


async def measure_streams(field: Field, *, seconds: float) -> list[Row]:
    """A listener at a high rate, and at a low one."""
    seen = await streams.steady(field, run_name(0), seconds=seconds)
    growth = seen.memory_late_bytes / seen.memory_early_bytes - 1
    p50, p99, _ = await streams.latency(field, run_name(0))
    return [
        Row(
            f"NDJSON stream at {streams.RATE_PER_SECOND:,}/s for {seconds:.0f} s, last message behind by",
            f"{seen.behind_seconds:.1f} s, {seen.gaps} gaps",
            "keeps up, nothing dropped",
            seen.behind_seconds < 2.0 and not seen.gaps,
        ),
        Row("growth of its Python process from a tenth to the end", f"{growth:+.1%}", "flat (≤ 10 %)", growth <= 0.1),
        Row("message sent → readable at 200/s, p50", f"{p50:.3f} s", "≤ 0.3 s", p50 <= 0.3),
        Row("message sent → readable at 200/s, p99", f"{p99:.3f} s", "≤ 1 s", p99 <= 1.0),
    ]


async def measure_memory(field: Field, *, records: int) -> list[Row]:
    """A long run."""
    seen = await service_level.memory(field, run_name(0), records=records)
    growth = seen.python_late_bytes / seen.python_early_bytes - 1
    return [
        Row(
            f"Python process over {records:,} records, peak",
            f"{seen.python_peak_bytes / MEBIBYTE:.0f} MiB",
            "≤ 400 MB",
            seen.python_peak_bytes <= 400e6,
        ),
        Row("its growth from a tenth to the end", f"{growth:+.1%}", "flat (≤ 10 %)", growth <= 0.1),
        Row(
            f"Spark's heap, at most (-Xmx of the JVM; resident peak {seen.jvm_peak_bytes / MEBIBYTE:.0f} MiB)",
            f"{seen.jvm_heap_bytes_max / MEBIBYTE:.0f} MiB",
            "≤ 1 GB",
            is_reached=seen.jvm_heap_bytes_max <= 1024 * MEBIBYTE,
        ),
    ]


async def measure_start(field: Field, *, records: int) -> list[Row]:
    """Start, stop under load, start again."""
    seen = await service_level.start_and_stop(field, run_name(0), records=records)
    is_whole = seen.exit_code == 0 and seen.records == records
    return [
        Row("process → first record", f"{seen.first_record_seconds:.1f} s", "≤ 20 s", seen.first_record_seconds <= 20),
        Row("SIGTERM under load → exit 0", f"{seen.stop_seconds:.1f} s", "≤ 10 s", seen.stop_seconds <= 10),
        Row(
            f"after it and a second run, of {records:,}",
            f"{seen.records:,} found, exit {seen.exit_code}",
            "all, once, exit 0",
            is_whole,
        ),
    ]


async def measure_control(field: Field, *, connectors: int) -> list[Row]:
    """Start and answers of a worker with many connectors, beside the peer's with a tenth of them."""
    bootstrap, folder = field.servers.bootstrap, field.folder
    rows: list[Row] = []
    for measuring in (
        control.measure_health(bootstrap, folder / "health"),
        control.measure_many(bootstrap, folder / "many", connectors=connectors),
        control.measure_peer(bootstrap, folder / "peer", connectors=connectors // 10),
    ):
        measured = await measuring
        for row in measured:
            click.echo(f"  {row.what}: {row.figure}")
        rows += measured
    return rows


def _rates(values: list[float]) -> str:
    return f"median {statistics.median(values):,.0f}/s, best {max(values):,.0f}/s of {len(values)}"


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything."""

    records: int
    memory_records: int
    rounds: int
    connectors: int
    kills: int
    kill_minutes: int
    kill_workers: int
    seed: int
    stream_seconds: int
    slow_seconds: int
    latency_records: int
    transaction_rows: int
    tables: int


async def _measure(names: tuple[str, ...], amounts: Amounts) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        if "kills" in names:
            rows += await asyncio.to_thread(
                kills.measure_kills,
                folder,
                ledger=RESULTS / "kills.jsonl",
                kills=amounts.kills,
                seed=amounts.seed,
                minutes=amounts.kill_minutes,
                workers=amounts.kill_workers,
            )
        if set(names) <= set(ON_REQUEST):
            return rows
        with servers(folder / "servers") as running:
            field = Field(folder, running)
            if "throughput" in names:
                rows += await measure_throughput(field, records=amounts.records, rounds=amounts.rounds)
            if "sources" in names:
                rows += await measure_sources(field, records=amounts.records, rounds=amounts.rounds)
            if "spark-source" in names:
                rows += await measure_spark_source(field, records=amounts.records, rounds=amounts.rounds)
            if "latency" in names:
                rows += await measure_latency(field)
            if "start" in names:
                rows += await measure_start(field, records=amounts.records)
            if "streams" in names:
                rows += await measure_streams(field, seconds=amounts.stream_seconds)
            if "memory" in names:
                rows += await measure_memory(field, records=amounts.memory_records)
            rows += await _measure_others(names, field, amounts)
    return rows


async def _measure_others(names: tuple[str, ...], field: Field, amounts: Amounts) -> list[Row]:
    """What brings servers of its own, what is asked of workers and of their group, and chains of transformations."""
    rows: list[Row] = []
    if "transforms" in names:
        rows += await measure_transforms(field, records=amounts.records, rounds=amounts.rounds)
    if "slow-kafka" in names:
        rows += await slow_kafka.measure_slow_kafka(field, seconds=amounts.slow_seconds)
    if "databases" in names:
        rows += await databases.measure_databases(field, records=amounts.records, rounds=amounts.rounds)
    if parts := {"change-logs", *change_logs.PARTS} & set(names):
        rows += await change_logs.measure_change_logs(
            field,
            parts,
            records=amounts.records,
            rounds=amounts.rounds,
            memory_records=amounts.memory_records,
            transaction_rows=amounts.transaction_rows,
            tables=amounts.tables,
        )
    if "sinks" in names:
        rows += await sinks.measure_sinks(
            field, records=amounts.records, rounds=amounts.rounds, latency_records=amounts.latency_records
        )
    if "sinks-memory" in names:
        folder_records = min(amounts.records, amounts.memory_records)
        rows += await measure_memory_of_sinks(field, records=amounts.memory_records, folder_records=folder_records)
    if "lakes" in names:
        rows += await lakes.measure_lakes(field, records=amounts.records, rounds=amounts.rounds)
    if "control" in names:
        rows += await measure_control(field, connectors=amounts.connectors)
    if "cluster" in names:
        rows += await cluster.measure_cluster(field.servers.bootstrap, field.folder / "cluster")
    return rows


def _report(rows: list[Row], *, command: str, seconds: float, loads: tuple[float, float]) -> str:
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    lines = [
        f"# Benchmark of {date}",
        "",
        (
            f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}), Python {platform.python_version()}; "
            f"{seconds / 60:.0f} minutes. Made by `{command}`; the broker runs on the same machine. "
            f"Load before and after: {loads[0]:.1f}, {loads[1]:.1f}."
        ),
        "",
        "| what | figure | aim | reached |",
        "|---|---|---|---|",
        *(f"| {row.what} | {row.figure} | {row.aim} | {row.verdict} |" for row in rows),
        "",
    ]
    return "\n".join(lines)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*FIGURES, *change_logs.PARTS, *ON_REQUEST]))
@click.option("--records", default=1_000_000, show_default=True)
@click.option("--memory-records", default=10_000_000, show_default=True)
@click.option("--rounds", default=5, show_default=True, help="Runs of each throughput figure.")
@click.option("--connectors", default=1_000, show_default=True, help="Of the worker that has many.")
@click.option("--kills", default=300, show_default=True, help="Of each kind, over all stretches of kills.")
@click.option(
    "--kill-minutes", default=8, show_default=True, help="Of killing in one stretch; then it is accounted for."
)
@click.option("--kill-workers", default=3, show_default=True, help="Killed side by side in one stretch.")
@click.option("--seed", default=20261123, show_default=True, help="What is killed when.")
@click.option("--stream-seconds", default=600, show_default=True, help="Of the stream at a high rate.")
@click.option("--slow-seconds", default=120, show_default=True, help="For which Kafka is slow, for slow-kafka.")
@click.option("--latency-records", default=6_000, show_default=True, help="Of each sink, sent at 100 a second.")
@click.option("--transaction-rows", default=1_000_000, show_default=True, help="Of one transaction of a database.")
@click.option("--tables", default=500, show_default=True, help="Of the connector that has many.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default=None)
def main(names: tuple[str, ...], *, output: Path | None, **amounts: int) -> None:
    """Measure, print, and write the results with machine and date."""
    started_at, load = time.monotonic(), os.getloadavg()[0]
    chosen = names or FIGURES
    rows = asyncio.run(_measure(chosen, Amounts(**amounts)))
    table = Table(title="headrace bench")
    for column in ("what", "figure", "aim", "reached"):
        table.add_column(column)
    for row in rows:
        table.add_row(row.what, row.figure, row.aim, row.verdict.strip("*"))
    Console().print(table)
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = output or RESULTS / f"{time.strftime('%Y-%m-%d', time.gmtime())}-{'-'.join(chosen)}.md"
    command = re.sub(r" --output[ =]\S+", "", shlex.join(["./headrace", "bench", *sys.argv[1:]]))
    seconds, loads = time.monotonic() - started_at, (load, os.getloadavg()[0])
    path.write_text(_report(rows, command=command, seconds=seconds, loads=loads), encoding="utf-8")
    click.echo(f"written to {path}")


main()
