"""The figures that a worker gives of its connectors (``GET /progress``), in the columns of the commands that ask it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from service.cli.figures import ago, count, lag, rate
from service.cli.remote.client import AnsweredError, RemoteWorker
from service.cli.remote.running import Output

COLUMNS = ("delivered", "rejected", "records/s", "lag", "last commit")
NO_FIGURES = ("", "", "", "", "")


def figures_by_connector(worker: RemoteWorker, *names: str) -> Mapping[str, Any] | None:
    """By name; None where the worker has no such route, as Kafka Connect's own has none."""
    try:
        answer = worker.ask("GET", "progress", query=[("connector", name) for name in names])
    except AnsweredError:
        return None
    found = answer.body.get("connectors") if isinstance(answer.body, dict) else None
    return found if isinstance(found, dict) else None


def figure_cells(figures: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Of a connector or a task, in the order of ``COLUMNS``; empty where none are known."""
    if figures is None:
        return NO_FIGURES
    return (
        count(figures["delivered_records"]),
        count(figures["rejected_records"]),
        rate(figures["records_per_second"]),
        lag(figures["lag_seconds"], figures["lag_records"]),
        _ago(figures["last_commit"]),
    )


def tell_trouble(output: Output, who: str, figures: Mapping[str, Any] | None) -> None:
    """The last thing that went wrong, and whether it is over."""
    trouble = None if figures is None else figures["trouble"]
    if trouble is None:
        return
    told = f"{who}: {trouble['message']} ({_ago(trouble['at'])}{', over' if trouble['is_over'] else ''})"
    output.tell(told, "dim" if trouble["is_over"] else "red")


def _ago(instant: str | None) -> str:
    return ago(None if instant is None else datetime.fromisoformat(instant).timestamp())
