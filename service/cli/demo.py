"""``headrace demo``: progress while it runs, one table at the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from metrics.logging import LogFormat, configure_logging
from service.background import Background
from service.cli.standalone import EXIT_CLEAN, EXIT_FAILED, exit_code_of, raise_file_limit, stopping_on_signals
from service.demo.accounts import Accounts
from service.demo.run import Demo, DemoReport, open_demo
from service.embedded.errors import EmbeddedError
from service.kafka.errors import DeliveryFatal

_REFRESH_SECONDS = 0.25


async def run_demo(*, folder: Path, json_file: Path | None, is_kept: bool) -> int:
    """Run, audit, report; with ``is_kept`` go on until a signal. Exit codes as those of standalone."""
    try:
        return await _run_demo(folder, json_file, is_kept=is_kept)
    except (EmbeddedError, DeliveryFatal, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(Text(f"headrace: {error}", style="red"))
        return exit_code_of(error)


async def _run_demo(folder: Path, json_file: Path | None, *, is_kept: bool) -> int:
    configure_logging(format=LogFormat.CONSOLE, level="ERROR")
    raise_file_limit()
    console = Console()
    accounts = Accounts()
    listener = "http://127.0.0.1:8083" if is_kept else "http://127.0.0.1:0"
    console.print("Starting Kafka, the schema registry, Spark and a simulated Mixpanel …")
    async with open_demo(folder, accounts, listener=listener) as demo:
        async with _progress(console, accounts):
            report = await demo.run()
        _print_report(console, report)
        if json_file is not None:
            json_file.write_text(json.dumps(report.figures(), indent=2) + "\n", encoding="utf-8")
        if is_kept:
            await _keep(console, demo)
    return EXIT_FAILED if report.differences() else EXIT_CLEAN


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
    differences = report.differences()
    if differences:
        console.print("The accounts do not balance:", style="bold red")
    else:
        console.print("The accounts balance: every record exactly once.", style="bold green")
    for difference in differences:
        console.print(f"  {difference}", style="red")


async def _keep(console: Console, demo: Demo) -> None:
    addresses = demo.running.addresses
    console.print(f"REST:     {addresses.rest}")
    console.print(f"health:   {addresses.rest}/health/ready")
    console.print(f"metrics:  {addresses.rest}/metrics")
    console.print(f"Kafka:    {addresses.bootstrap}")
    console.print(f"registry: {addresses.registry}")
    console.print("Ctrl-C ends it.")
    worker = demo.running.new_worker()
    with stopping_on_signals(worker):
        await worker.run()
