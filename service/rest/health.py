"""What a worker can say of its health: alive, ready, and if not, what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from metrics.events import (
    ComponentStateChanged,
    Event,
    FetchCompleted,
    ListenerConnected,
    PageFetched,
    RetriesEnded,
    RetryScheduled,
    SourceLagMeasured,
    TaskEvent,
    TaskRemoved,
    TaskStateChanged,
    WorkerStarted,
    WorkerStopping,
)

_FETCHING = (PageFetched, ListenerConnected, SourceLagMeasured)
"""What shows that a task's one fetch works again."""
_Retried = tuple[str, int | None]
"""A stage, and which of the things that it does at once."""


_REASONS = frozenset({"detail", "reason", "message"})


class WorkerPhase(Enum):
    """Where a worker is in its life."""

    STARTING = auto()
    STARTED = auto()
    STOPPING = auto()


@dataclass(slots=True)
class Health:
    """Listens to events; ready is a started worker whose components are all usable, with no task FAILED.

    A task that retries in place does what can be done, so it is told of but still counts as ready.
    """

    components: dict[str, ComponentStateChanged] = field(default_factory=dict)
    tasks: dict[str, TaskStateChanged] = field(default_factory=dict)
    retries: dict[str, dict[_Retried, RetryScheduled]] = field(default_factory=dict)
    """What each task retries."""
    phase: WorkerPhase = WorkerPhase.STARTING
    """Told by events, but for the beginning of another run."""
    hide: Callable[[str], str] = str
    """Takes secrets out of reasons and messages."""

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, WorkerStarted):
            self.phase = WorkerPhase.STARTED
        elif isinstance(event, WorkerStopping):
            self.phase = WorkerPhase.STOPPING
        elif isinstance(event, ComponentStateChanged):
            self.components[event.component] = event
        elif isinstance(event, TaskEvent):
            self._take(event, task=f"{event.connector}-{event.task}")

    def _take(self, event: TaskEvent, *, task: str) -> None:
        if isinstance(event, TaskStateChanged):
            self.tasks[task] = event
            self.retries.pop(task, None)
        elif isinstance(event, TaskRemoved):
            self.tasks.pop(task, None)
            self.retries.pop(task, None)
        elif isinstance(event, RetryScheduled):
            self.retries.setdefault(task, {})[event.stage, event.part] = event
        else:
            self._recover(event, task=task)

    def _recover(self, event: TaskEvent, *, task: str) -> None:
        if task not in self.retries:
            return
        if isinstance(event, RetriesEnded):
            self.retries[task].pop((event.stage, event.part), None)
        elif isinstance(event, _FETCHING) or (isinstance(event, FetchCompleted) and event.outcome == "ok"):
            self.retries[task].pop(("fetch", None), None)

    @property
    def is_ready(self) -> bool:
        """Whether the worker does what it is there for."""
        components_ready = all(state.is_ready for state in self.components.values())
        tasks_well = all(state.state not in {"FAILED", "RESTARTING"} for state in self.tasks.values())
        return self.phase is WorkerPhase.STARTED and components_ready and tasks_well

    def report(self, *, has_reasons: bool) -> dict[str, Any]:
        """The body of ``/health/ready``; reasons and messages are for those who may read."""
        report = {
            "status": "ready" if self.is_ready else "not ready",
            "components": {
                name: {"ready": state.is_ready, "detail": self.hide(state.detail)}
                for name, state in self.components.items()
            },
            "tasks": {name: self._task_report(name) for name in sorted({*self.tasks, *self.retries})},
        }
        return report if has_reasons else _without_reasons(report)

    def _task_report(self, name: str) -> dict[str, Any]:
        state = self.tasks.get(name)
        report: dict[str, Any] = {
            "state": state.state if state else "UNASSIGNED",
            "reason": self.hide(state.reason) if state else "",
        }
        # Puts that wait for the same thing are told once, by the last of them.
        retries = {(each.stage, each.message): each for each in self.retries.get(name, {}).values()}
        if retries:
            report["retrying"] = [
                {
                    "stage": retry.stage,
                    "error": retry.error_class,
                    "message": self.hide(retry.message),
                    "attempt": retry.attempt,
                    "wait_seconds": round(retry.wait_seconds, 3),
                }
                for retry in retries.values()
            ]
        return report


def _without_reasons(report: Any) -> Any:
    """What errors and the outside have said may tell of addresses, names and data."""
    if isinstance(report, dict):
        return {key: _without_reasons(value) for key, value in report.items() if key not in _REASONS}
    return [_without_reasons(item) for item in report] if isinstance(report, list) else report
