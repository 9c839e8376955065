"""What is seen while a worker runs: live lines on a terminal, one log line a minute without one."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from metrics.events import (
    Event,
    Progress,
    RecordsDelivered,
    RetryScheduled,
    TaskEvents,
    TaskStateChanged,
    TransactionCommitted,
    discard,
)
from metrics.progress import ProgressView
from service.background import Background
from service.cli.figures import ago, duration, lag, rate
from service.cli.progress import LOG_SECONDS, ROWS_MAX, LinesAbove, live_lines, log_progress, showing


def deliver(view: ProgressView, connector: str, records: int) -> TaskEvents:
    """A commit of a task that runs."""
    task = TaskEvents(view, connector, 0)
    task(TaskStateChanged, state="RUNNING")
    task(RecordsDelivered, records=records, bytes=1)
    task(TransactionCommitted, records=records, source_records=records, seconds=0.1)
    return task


def screen(*, is_terminal: bool = True) -> Console:
    """Eighty columns that can be read back."""
    return Console(file=io.StringIO(), width=80, force_terminal=is_terminal, color_system=None)


def shown(console: Console) -> str:
    """What was written so far."""
    written: io.StringIO = console.file  # type: ignore[assignment]
    return written.getvalue()


@pytest.mark.looptime
async def test_the_log_has_a_line_a_minute_for_what_moves() -> None:
    """Nothing for what stands still, and nothing before anything was done."""
    view, told = ProgressView(), list[Event]()
    async with Background() as background:
        background.start(log_progress(view, told.append), name="log")
        TaskEvents(view, "idle", 0)(TaskStateChanged, state="RUNNING")
        deliver(view, "orders", 5)
        await asyncio.sleep(LOG_SECONDS * 3.5)
        deliver(view, "orders", 2)
        await asyncio.sleep(LOG_SECONDS)
    progress = [event for event in told if isinstance(event, Progress)]
    assert [(event.connector, event.delivered_records, event.state) for event in progress] == [
        ("orders", 5, "RUNNING"),
        ("orders", 7, "RUNNING"),
    ]


def test_a_line_for_each_connector_fits_a_terminal() -> None:
    """State, rate, counts and lag; what troubles one is below, in one line."""
    view, console = ProgressView(lambda _connector, _task: 90.0), screen()
    deliver(view, "a-connector-with-a-name-that-is-much-too-long", 1_234_567)
    task = deliver(view, "orders", 5)
    task(RetryScheduled, stage="fetch", error_class="Away", attempt=1, wait_seconds=1.0, message="503 " * 40)
    console.print(live_lines(view.connectors()))
    header, first, second, trouble, *rest = shown(console).splitlines()
    assert header.split() == ["connector", "state", "records/s", "delivered", "rejected", "lag"]
    assert first.split() == ["orders", "RUNNING", "0", "5", "0", "90", "s"]
    assert second.split()[1:] == ["RUNNING", "0", "1,234,567", "0", "90", "s"]
    assert trouble.startswith("orders: fetch is tried again: 503")
    assert not rest
    assert all(len(line) <= 80 for line in (first, second, trouble))


def test_a_thousand_connectors_do_not_fill_the_screen() -> None:
    """The rest is a number."""
    view, console = ProgressView(), screen()
    for number in range(ROWS_MAX + 5):
        deliver(view, f"c{number}", 1)
    console.print(live_lines(view.connectors()))
    assert shown(console).splitlines()[-1] == "and 5 more: ./headrace connectors"
    assert len(shown(console).splitlines()) == ROWS_MAX + 2


async def test_a_terminal_gets_a_summary_at_the_end() -> None:
    """The live lines are taken away, and the last word stays."""
    view, console = ProgressView(), screen()
    async with showing(view, discard, console):
        deliver(view, "orders", 5)
    last = shown(console).splitlines()[-1].split()
    assert last[:2] == ["orders", "RUNNING"]
    assert last[-4:] == ["ago", "5", "0", "-"]


async def test_an_error_goes_through() -> None:
    """Whoever shows progress changes nothing of how a worker ends."""
    with pytest.raises(FileNotFoundError):
        async with showing(ProgressView(), discard, screen()):
            raise FileNotFoundError
    with pytest.raises(FileNotFoundError):
        async with showing(ProgressView(), discard, None):
            raise FileNotFoundError


def test_log_lines_are_not_broken_on_a_terminal() -> None:
    """A line of JSON is longer than a terminal is wide, and is copied whole."""
    console = screen()
    line = '{"event": "[bold]x[/bold]", "text": "' + "y" * 200 + '"}\n'
    assert LinesAbove(console).write(line) == len(line)
    assert shown(console) == line


def test_figures_are_read_aloud() -> None:
    """Short, with their unit."""
    assert [rate(each) for each in (0, 0.04, 3.14, 12_345.6)] == ["0", "0.0", "3.1", "12,346"]
    assert [duration(each) for each in (0, 1.234, 59, 119, 150, 7300, 200_000)] == [
        "0 s",
        "1.2 s",
        "59 s",
        "119 s",
        "2 min",
        "2 h",
        "2 d",
    ]
    assert (lag(None, None), lag(None, 1200), lag(0.0, None)) == ("-", "1,200 records", "0 s")
    assert (ago(None), ago(100.0, now_seconds=102.5), ago(100.0, now_seconds=90)) == ("-", "2.5 s ago", "0 s ago")
