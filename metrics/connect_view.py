"""Kafka Connect's metrics, as they follow from events.

Unlike headrace's own they need a memory: averages and extremes of the recent past, shares of time,
how many tasks are in which state. Counters of a task start again from 0 when the task restarts, as
Connect's do; headrace's own go on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from metrics import events
from metrics.catalogue import CATALOGUE, Kind, Metric, connect, own
from metrics.connect_task import TaskFigures, forget_tasks

if TYPE_CHECKING:
    from metrics.instruments import Instruments

TASK_METRICS = tuple(
    metric for metric in CATALOGUE if metric.name.startswith((connect.SOURCE_TASK, connect.TASK_ERROR))
)
TASK_COUNTERS = tuple(m for m in TASK_METRICS if m.kind in {Kind.COUNTER, Kind.UNTYPED})
SOURCE_METRICS = tuple(metric for metric in TASK_METRICS if metric.name.startswith(connect.SOURCE_TASK))

TASKS_IN_STATE = {
    "RUNNING": connect.CONNECTOR_TASKS_RUNNING,
    "PAUSED": connect.CONNECTOR_TASKS_PAUSED,
    "FAILED": connect.CONNECTOR_TASKS_FAILED,
    "UNASSIGNED": connect.CONNECTOR_TASKS_UNASSIGNED,
    "DESTROYED": connect.CONNECTOR_TASKS_DESTROYED,
    "RESTARTING": connect.CONNECTOR_TASKS_RESTARTING,
}

CONNECTOR_STARTS = (
    connect.CONNECTOR_START_ATTEMPTS,
    connect.CONNECTOR_START_SUCCESSES,
    connect.CONNECTOR_START_SUCCESS_SHARE,
    connect.CONNECTOR_START_FAILURES,
    connect.CONNECTOR_START_FAILURE_SHARE,
)
TASK_STARTS = (
    connect.TASK_START_ATTEMPTS,
    connect.TASK_START_SUCCESSES,
    connect.TASK_START_SUCCESS_SHARE,
    connect.TASK_START_FAILURES,
    connect.TASK_START_FAILURE_SHARE,
)

Clock = Callable[[], float]


class ConnectView:
    """Follows events into Connect's metrics; ``refresh`` brings the windowed ones up to now.

    ``clock`` is monotonic, in seconds; ``wall_clock`` gives seconds since the epoch.
    """

    def __init__(self, into: Instruments, *, clock: Clock, wall_clock: Clock) -> None:
        self._into = into
        self._clock = clock
        self._wall_clock = wall_clock
        self._connectors: set[str] = set()
        self._tasks: dict[tuple[str, int], TaskFigures] = {}
        self._connector_starts = _Starts(into, CONNECTOR_STARTS)
        self._task_starts = _Starts(into, TASK_STARTS)

    @property
    def connectors(self) -> int:
        """Connectors that this worker runs now, for ``connector-count``."""
        return len(self._connectors)

    @property
    def tasks(self) -> int:
        """Tasks that this worker runs now, for ``task-count``."""
        return len(self._tasks)

    def refresh(self) -> None:
        """Write what depends on the time of asking: windows, shares of time, numbers of tasks."""
        into = self._into
        now_seconds = self._clock()
        into.set(connect.CONNECTOR_COUNT, len(self._connectors))
        into.set(connect.TASK_COUNT, len(self._tasks))
        for connector in self._connectors | {connector for connector, _ in self._tasks}:
            into.set(connect.CONNECTOR_TASKS, 0, connector)
            for metric in TASKS_IN_STATE.values():
                into.set(metric, 0, connector)
            into.set(own.CONNECTOR_HAS_FAILED_TASK, 0, connector)
        for (connector, task), figures in self._tasks.items():
            into.add(connect.CONNECTOR_TASKS, 1, connector)
            if (in_state := TASKS_IN_STATE.get(figures.state)) is not None:
                into.add(in_state, 1, connector)
            if figures.state == "FAILED":
                into.set(own.CONNECTOR_HAS_FAILED_TASK, 1, connector)
            for metric, value in figures.gauges(now_seconds=now_seconds):
                into.set(metric, value, connector, task)

    def forget(self, connector: str, task: int | None = None) -> None:
        """Drop the memory of a task, or of a connector with all its tasks; series stay."""
        forget_tasks(self._tasks, connector, task)
        if task is None:
            self._connectors.discard(connector)

    @singledispatchmethod
    def measure(self, event: events.Event) -> None:
        """Update Connect's metrics by one event; most events concern none of them."""

    @measure.register
    def _(self, event: events.ConnectorStarted) -> None:
        self._connectors.add(event.connector)
        self._connector_starts.ended(is_success=event.is_success)
        self._into.tell(connect.CONNECTOR_TYPE, event.connector, event.kind)
        self._into.tell(connect.CONNECTOR_CLASS, event.connector, event.connector_class)
        self._into.tell(connect.CONNECTOR_VERSION, event.connector, event.version)

    @measure.register
    def _(self, event: events.ConnectorStateChanged) -> None:
        self._connectors.add(event.connector)
        self._into.tell(connect.CONNECTOR_STATUS, event.connector, event.state.lower())

    @measure.register
    def _(self, event: events.TaskStarted) -> None:
        if event.kind == "sink":
            # Nobody knew it when its first state was told.
            self._figures(event).is_sink = True
            self._into.forget(event.connector, event.task, metrics=SOURCE_METRICS)
        self._figures(event)
        self._task_starts.ended(is_success=event.is_success)

    @measure.register
    def _(self, event: events.TaskStateChanged) -> None:
        self._figures(event).enter(event.state, now_seconds=self._clock())
        self._into.tell(connect.TASK_STATUS, event.connector, event.task, event.state.lower())

    @measure.register
    def _(self, event: events.TaskRestarted) -> None:
        before = self._figures(event)
        self._into.forget(event.connector, event.task, metrics=TASK_METRICS)
        del self._tasks[event.connector, event.task]
        self._figures(event, is_sink=before.is_sink).enter(before.state, now_seconds=self._clock())

    @measure.register
    def _(self, event: events.PageFetched) -> None:
        self._figures(event).fetched(event.records, event.seconds, now_seconds=self._clock())
        self._add(connect.POLL_TOTAL, event.records, event)

    @measure.register
    def _(self, event: events.BatchClosed) -> None:
        self._figures(event).batches.record(event.records, now_seconds=self._clock())

    @measure.register
    def _(self, event: events.RecordsDelivered) -> None:
        self._figures(event).written.record(event.records, now_seconds=self._clock())
        self._add(connect.WRITE_TOTAL, event.records, event)

    @measure.register
    def _(self, event: events.TransactionCommitted) -> None:
        settled = event.records if event.source_records is None else event.source_records
        self._figures(event).settled(event.records, settled, now_seconds=self._clock())

    @measure.register
    def _(self, event: events.OffsetCommitted) -> None:
        now_seconds = self._clock()
        figures = self._figures(event)
        figures.commit_ms.record(event.seconds * 1000, now_seconds=now_seconds)
        figures.commit_successes.record(1, now_seconds=now_seconds)

    @measure.register
    def _(self, event: events.TransactionAborted) -> None:
        # The offsets were in the transaction: with it, their commit failed.
        self._figures(event).commit_successes.record(0, now_seconds=self._clock())
        self._add(connect.DEAD_LETTER_REQUESTS, event.dead_letters, event)
        self._add(connect.DEAD_LETTER_FAILURES, event.dead_letters, event)

    @measure.register
    def _(self, event: events.SinkRecordsRead) -> None:
        self._figures(event).batches.record(event.records, now_seconds=self._clock())

    @measure.register
    def _(self, event: events.SinkCommitFailed) -> None:
        self._figures(event).commit_successes.record(0, now_seconds=self._clock())

    @measure.register
    def _(self, event: events.SinkDeadLettersFailed) -> None:
        self._add(connect.DEAD_LETTER_REQUESTS, event.count, event)
        self._add(connect.DEAD_LETTER_FAILURES, event.count, event)

    @measure.register
    def _(self, event: events.DeadLettersWritten) -> None:
        self._add(connect.DEAD_LETTER_REQUESTS, event.count, event)

    @measure.register
    def _(self, event: events.RetryScheduled) -> None:
        self._add(connect.RECORD_FAILURES, 1, event)
        self._add(connect.RETRIES_TOTAL, 1, event)
        self._error_seen(event)

    @measure.register
    def _(self, event: events.RecordsRejected) -> None:
        self._add(connect.RECORD_FAILURES, event.count, event)
        self._add(connect.RECORD_ERRORS, event.count, event)
        self._add(connect.RECORDS_SKIPPED, event.count if event.is_tolerated else 0, event)
        self._error_seen(event)

    @measure.register
    def _(self, event: events.RecordRejectedLogged) -> None:
        self._add(connect.ERRORS_LOGGED, 1, event)

    @measure.register
    def _(self, event: events.TaskFailed) -> None:
        self._error_seen(event)

    def _figures(self, event: events.TaskEvent, *, is_sink: bool = False) -> TaskFigures:
        owner = (event.connector, event.task)
        figures = self._tasks.get(owner)
        if figures is None:
            figures = self._tasks[owner] = TaskFigures(now_seconds=self._clock())
            figures.is_sink = is_sink
            for metric in TASK_COUNTERS:
                if not (is_sink and metric in SOURCE_METRICS):
                    self._into.add(metric, 0, *owner)
            self._into.set(connect.LAST_ERROR, 0, *owner)
        return figures

    def _add(self, metric: Metric, amount: float, event: events.TaskEvent) -> None:
        self._figures(event)
        self._into.add(metric, amount, event.connector, event.task)

    def _error_seen(self, event: events.TaskEvent) -> None:
        self._figures(event)
        epoch_ms = int(self._wall_clock() * 1000)
        self._into.set(connect.LAST_ERROR, epoch_ms, event.connector, event.task)


class _Starts:
    """Starts of connectors or of tasks: tried, succeeded, failed, and the shares."""

    def __init__(self, into: Instruments, metrics: tuple[Metric, ...]) -> None:
        self._into = into
        self._metrics = metrics
        self._successes = 0
        self._failures = 0
        self._write()

    def ended(self, *, is_success: bool) -> None:
        self._successes += is_success
        self._failures += not is_success
        self._write()

    def _write(self) -> None:
        attempts, successes, success_share, failures, failure_share = self._metrics
        tried = self._successes + self._failures
        self._into.set(attempts, tried)
        self._into.set(successes, self._successes)
        self._into.set(failures, self._failures)
        self._into.set(success_share, self._successes / tried if tried else 0.0)
        self._into.set(failure_share, self._failures / tried if tried else 0.0)
