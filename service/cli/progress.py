"""What somebody sees while a worker runs: live lines on a terminal, else one log line a minute for what moves."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from metrics.events import Emit, Progress
from metrics.progress import ConnectorProgress, ProgressView
from service.background import Background
from service.cli.figures import STATE_STYLES, ago, count, lag, rate
from service.cli.printing import printable

REFRESH_SECONDS = 0.5
LOG_SECONDS = 60.0
ROWS_MAX = 20
"""Connectors that are shown live; a thousand of them are a matter for Prometheus."""


class LinesAbove(io.TextIOBase):
    """Where the log goes on a terminal: its lines appear above the live ones."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> int:
        """Print a whole line; as plain text, not broken, however long it is."""
        self._console.print(Text(text), end="", soft_wrap=True, highlight=False)
        return len(text)


def terminal() -> Console | None:
    """The terminal that standard error is; None where it is a file or a pipe."""
    return Console(stderr=True) if sys.stderr.isatty() else None


@asynccontextmanager
async def showing(progress: ProgressView, emit: Emit, console: Console | None) -> AsyncIterator[None]:
    """Show progress while the block runs, on the terminal or in the log; on a terminal a summary at its end."""
    async with Background() as background:
        if console is None:
            background.start(log_progress(progress, emit), name="progress")
            yield
            return
        with Live(console=console, auto_refresh=False, transient=True) as live:
            background.start(_refresh(progress, live), name="progress")
            try:
                yield
            finally:
                live.update(Text(""), refresh=True)
    found = progress.connectors()
    if found and console is not None:
        console.print(summary_table(found))


async def _refresh(progress: ProgressView, live: Live) -> None:
    while True:
        live.update(live_lines(progress.connectors()), refresh=True)
        await asyncio.sleep(REFRESH_SECONDS)


async def log_progress(progress: ProgressView, emit: Emit, *, every_seconds: float = LOG_SECONDS) -> None:
    """One event for each connector of which anything has moved since its last one; for ever."""
    told: dict[str, Sequence[int]] = {}
    while True:
        await asyncio.sleep(every_seconds)
        for each in progress.connectors():
            if any(each.moved) and told.get(each.connector) != each.moved:
                told[each.connector] = each.moved
                emit(progress_event(each))


def progress_event(progress: ConnectorProgress) -> Progress:
    """The fact that is logged."""
    return Progress(
        progress.connector,
        state=progress.state,
        fetched_records=progress.fetched_records,
        delivered_records=progress.delivered_records,
        rejected_records=progress.rejected_records,
        deduplicated_records=progress.deduplicated_records,
        records_per_second=round(progress.records_per_second, 1),
        lag_seconds=None if progress.lag_seconds is None else round(progress.lag_seconds, 3),
        lag_records=progress.lag_records,
    )


def live_lines(found: Iterable[ConnectorProgress]) -> Group:
    """One line for each connector, those in trouble first; below, what troubles them now."""
    ordered = sorted(found, key=lambda each: (not _is_in_trouble(each), each.connector))
    if not ordered:
        return Group()
    table, below = _table("records/s"), []
    for each in ordered[:ROWS_MAX]:
        table.add_row(*_cells(each, rate(each.records_per_second)))
        if each.trouble is not None and _is_in_trouble(each):
            told = printable(f"{each.connector}: {each.trouble.message}")
            below.append(Text(told, style="red", overflow="ellipsis", no_wrap=True))
    if len(ordered) > ROWS_MAX:
        below.append(Text(f"and {len(ordered) - ROWS_MAX} more: ./headrace connectors", style="dim"))
    return Group(table, *below)


def _is_in_trouble(progress: ConnectorProgress) -> bool:
    return progress.trouble is not None and not progress.trouble.is_over


def summary_table(found: Iterable[ConnectorProgress]) -> Table:
    """What each connector has done by the end."""
    table = _table("last commit")
    for each in found:
        # At the end no task is anybody's: that is not news.
        ended = replace(each, state="ended") if each.state == "UNASSIGNED" else each
        table.add_row(*_cells(ended, ago(each.last_commit_seconds)))
    return table


def _table(last: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("connector", overflow="ellipsis", no_wrap=True, max_width=24)
    table.add_column("state", no_wrap=True)
    for column in (last, "delivered", "rejected", "lag"):
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _cells(progress: ConnectorProgress, last: str) -> tuple[Any, ...]:
    return (
        Text(progress.connector),
        Text(progress.state, style=STATE_STYLES.get(progress.state, "")),
        last,
        count(progress.delivered_records),
        Text(count(progress.rejected_records), style="yellow" if progress.rejected_records else ""),
        lag(progress.lag_seconds, progress.lag_records),
    )
