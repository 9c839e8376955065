"""``headrace demo``: progress while it runs, one table at the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from metrics.logging import LogFormat, configure_logging
from service.app import RunningWorker
from service.background import Background
from service.cli.standalone import EXIT_CLEAN, EXIT_FAILED, exit_code_of, raise_file_limit, stopping_on_signals
from service.demo.accounts import Accounts
from service.demo.pipeline import (
    FILES,
    SEARCH,
    PipelineAccounts,
    PipelineDemo,
    PipelineReport,
    open_pipeline_demo,
)
from service.demo.run import DemoReport, open_demo
from service.demo.x import XReport, open_x_demo
from service.embedded.errors import EmbeddedError
from service.kafka.errors import DeliveryFatal
from service.simulators.x_ledger import Truth

_REFRESH_SECONDS = 0.25


async def run_demo(*, folder: Path, json_file: Path | None, is_kept: bool) -> int:
    """Run, audit, report; with ``is_kept`` go on until a signal. Exit codes as those of standalone."""
    return await _or_refused(_run_demo(folder, json_file, is_kept=is_kept))


async def run_x_demo(*, folder: Path, json_file: Path | None, is_kept: bool) -> int:
    """The same with the stream of X."""
    return await _or_refused(_run_x_demo(folder, json_file, is_kept=is_kept))


async def run_pipeline_demo(*, folder: Path, json_file: Path | None, is_kept: bool) -> int:
    """The same with a table of MariaDB, into OpenSearch and files."""
    return await _or_refused(_run_pipeline_demo(folder, json_file, is_kept=is_kept))


async def _or_refused(demo: Awaitable[int]) -> int:
    try:
        return await demo
    except (EmbeddedError, DeliveryFatal, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(Text(f"headrace: {error}", style="red"))
        return exit_code_of(error)


async def _run_demo(folder: Path, json_file: Path | None, *, is_kept: bool) -> int:
    console, listener = _begin("Kafka, the schema registry, Spark and a simulated Mixpanel", is_kept=is_kept)
    accounts = Accounts()
    async with open_demo(folder, accounts, listener=listener) as demo:
        async with _progress(console, accounts):
            report = await demo.run()
        _print_report(console, report)
        if json_file is not None:
            json_file.write_text(json.dumps(report.figures(), indent=2) + "\n", encoding="utf-8")
        if is_kept:
            await _keep(console, demo.running)
    return EXIT_FAILED if report.differences() else EXIT_CLEAN


async def _run_x_demo(folder: Path, json_file: Path | None, *, is_kept: bool) -> int:
    console, listener = _begin("Kafka, the schema registry, Spark and a simulated X", is_kept=is_kept)
    accounts = Accounts()
    async with open_x_demo(folder, accounts, listener=listener) as demo:
        async with _live(console, lambda: x_table(demo.accounts, demo.simulator.truth())):
            report = await demo.run()
        _print_x_report(console, report)
        if json_file is not None:
            json_file.write_text(json.dumps(report.figures(), indent=2) + "\n", encoding="utf-8")
        if is_kept:
            await _keep(console, demo.running)
    return EXIT_FAILED if report.differences() else EXIT_CLEAN


async def _run_pipeline_demo(folder: Path, json_file: Path | None, *, is_kept: bool) -> int:
    console, listener = _begin("MariaDB, OpenSearch, Kafka, the schema registry and Spark", is_kept=is_kept)
    accounts = PipelineAccounts()
    async with open_pipeline_demo(folder, accounts, listener=listener) as demo:
        async with _live(console, lambda: pipeline_table(demo)):
            report = await demo.run()
        _print_pipeline_report(console, report)
        if json_file is not None:
            json_file.write_text(json.dumps(report.figures(), indent=2) + "\n", encoding="utf-8")
        if is_kept:
            console.print(f"MariaDB:  {demo.places.mariadb}, user root, database {demo.places.database}")
            console.print(f"search:   {demo.places.search}/{demo.places.topic}/_search")
            console.print(f"files:    {demo.files}")
            await _keep(console, demo.running)
    return EXIT_FAILED if report.differences() else EXIT_CLEAN


def pipeline_table(demo: PipelineDemo) -> Table:
    """How far each hop is."""
    accounts = demo.accounts
    table = Table(title="headrace demo pipeline: MariaDB → Kafka → OpenSearch and Parquet")
    for column, justify in (("hop", "left"), ("records", "right"), ("of", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for hop, count in (
        ("rows written to MariaDB", demo.inserted),
        ("  of them with the later column", demo.with_device),
        ("delivered to the topic", accounts.source.delivered.total()),
        ("taken by OpenSearch", accounts.put[SEARCH]),
        ("taken for Parquet", accounts.put[FILES]),
        ("  of them in files that are committed", accounts.committed[FILES]),
    ):
        table.add_row(hop, f"{count:,}", f"{demo.rows:,}")
    return table


def _print_pipeline_report(console: Console, report: PipelineReport) -> None:
    table = Table(title="headrace demo pipeline: what each store holds")
    for column in ("where", "all", "different", "with the later column"):
        table.add_column(column, justify="left" if column == "where" else "right")
    for where, held in (
        ("rows of MariaDB", report.rows),
        ("records of the topic (read_committed)", report.records),
        ("documents of OpenSearch", report.documents),
        (f"rows of Parquet in {report.files} files, by Spark SQL", report.parquet),
    ):
        table.add_row(where, f"{held.all:,}", f"{held.distinct:,}", f"{held.with_device:,}")
    table.add_section()
    table.add_row("seconds", f"{report.seconds:.1f}", "", "")
    console.print(table)
    _print_differences(console, report.differences())


def _begin(started: str, *, is_kept: bool) -> tuple[Console, str]:
    configure_logging(format=LogFormat.CONSOLE, level="ERROR")
    raise_file_limit()
    console = Console()
    console.print(f"Starting {started} …")
    return console, "http://127.0.0.1:8083" if is_kept else "http://127.0.0.1:0"


@asynccontextmanager
async def _live(console: Console, shown: Callable[[], Table]) -> AsyncIterator[None]:
    """A table, while its figures move."""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        async with Background() as background:
            background.start(_refresh(live, shown), name="progress")
            yield


async def _refresh(live: Live, shown: Callable[[], Table]) -> None:
    while True:
        live.update(shown(), refresh=True)
        await asyncio.sleep(_REFRESH_SECONDS)


def x_table(accounts: Accounts, truth: Truth) -> Table:
    """What X has told, and what the worker has made of it."""
    table = Table(title="headrace demo x: the Twitter config of 2016 on a simulated X")
    for column in ("X", "", "headrace", ""):
        table.add_column(column, justify="left" if column else "right")
    for row in (
        ("published", truth.published, "connections", accounts.connections),
        ("matching a rule", len(truth.matching), "fetched", accounts.fetched.total()),
        ("told, doubles too", truth.tellings, "delivered, deletions too", accounts.delivered.total()),
        ("told again", truth.doubles, "doubles dropped", accounts.deduplicated.total()),
        ("deletions", len(truth.deleted), "left out: deleted before", accounts.passed_over["deleted"]),
        ("withheld", truth.withheld, "missing, told as gaps", accounts.gap_messages.total()),
    ):
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in row))
    return table


def _print_x_report(console: Console, report: XReport) -> None:
    table = x_table(report.accounts, report.truth)
    table.add_section()
    table.add_row("", "", "posts found (read_committed)", f"{report.posts.records:,}")
    table.add_row("", "", "deletions found", f"{report.deletes.records:,}")
    table.add_row("", "", "seconds", f"{report.seconds:.1f}")
    console.print(table)
    _print_differences(console, report.differences())


@asynccontextmanager
async def _progress(console: Console, accounts: Accounts) -> AsyncIterator[None]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        async with Background() as background:
            background.start(_follow(progress, accounts), name="progress")
            yield


async def _follow(progress: Progress, accounts: Accounts) -> None:
    """Records settled out of those fetched so far."""
    bar = progress.add_task("settled of fetched", total=None)
    while True:
        progress.update(bar, completed=accounts.settled, total=accounts.fetched.total() or None)
        await asyncio.sleep(_REFRESH_SECONDS)


def _print_report(console: Console, report: DemoReport) -> None:
    accounts = report.accounts
    table = Table(title="headrace demo: the accounts")
    table.add_column("what")
    for name in (*sorted(accounts.fetched), "all"):
        table.add_column(name, justify="right")
    for what, counter in (
        ("fetched", accounts.fetched),
        ("delivered", accounts.delivered),
        ("dead-lettered", accounts.dead_lettered),
        ("duplicates dropped", accounts.deduplicated),
    ):
        cells = [f"{counter[name]:,}" for name in sorted(accounts.fetched)]
        table.add_row(what, *cells, f"{counter.total():,}")
    blanks = [""] * len(accounts.fetched)
    for reason, count in sorted(report.reasons.items()):
        table.add_row(f"  dead-lettered: {reason}", *blanks, f"{count:,}")
    table.add_row("found in the topics (read_committed)", *blanks, f"{report.found:,}")
    table.add_row("seconds", *blanks, f"{report.seconds:.1f}")
    console.print(table)
    _print_differences(console, report.differences())


def _print_differences(console: Console, differences: Sequence[str]) -> None:
    if differences:
        console.print("The accounts do not balance:", style="bold red")
    else:
        console.print("The accounts balance: every record exactly once.", style="bold green")
    for difference in differences:
        console.print(f"  {difference}", style="red")


async def _keep(console: Console, running: RunningWorker) -> None:
    addresses = running.addresses
    console.print(f"REST:     {addresses.rest}")
    console.print(f"health:   {addresses.rest}/health/ready")
    console.print(f"metrics:  {addresses.rest}/metrics")
    console.print(f"Kafka:    {addresses.bootstrap}")
    console.print(f"registry: {addresses.registry}")
    console.print("Ctrl-C ends it.")
    worker = running.new_worker()
    with stopping_on_signals(worker):
        await worker.run()
