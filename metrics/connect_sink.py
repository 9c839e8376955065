"""Kafka Connect's metrics of sink tasks, as they follow from events; a task's begin anew when it restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from metrics import events
from metrics.catalogue import CATALOGUE, Kind, Metric
from metrics.catalogue import connect_sink as sink
from metrics.connect_task import forget_tasks
from metrics.window import SampledWindow

if TYPE_CHECKING:
    from metrics.instruments import Instruments

SINK_METRICS = tuple(metric for metric in CATALOGUE if metric.name.startswith(sink.SINK_TASK))
_COUNTERS = tuple(metric for metric in SINK_METRICS if metric.kind is Kind.COUNTER)


class SinkFigures:
    """The recent past of one sink task, of constant size."""

    def __init__(self, *, now_seconds: float) -> None:
        self.read = SampledWindow(now_seconds=now_seconds)
        self.sent = SampledWindow(now_seconds=now_seconds)
        self.put_ms = SampledWindow(now_seconds=now_seconds)
        self.commits = SampledWindow(now_seconds=now_seconds)
        self.skips = SampledWindow(now_seconds=now_seconds)
        self._active = SampledWindow(now_seconds=now_seconds)
        self._active_now = 0

    def change_active(self, records: int, *, now_seconds: float) -> None:
        """Records were read, or (negative) committed."""
        self._active_now = max(0, self._active_now + records)
        self._active.record(self._active_now, now_seconds=now_seconds)

    def drop_active(self, *, now_seconds: float) -> None:
        """What was read belongs to others now."""
        self.change_active(-self._active_now, now_seconds=now_seconds)

    def gauges(self, *, now_seconds: float) -> Iterator[tuple[Metric, float]]:
        """Yield every windowed figure as it is now."""
        yield sink.READ_RATE, self.read.rate(now_seconds=now_seconds)
        yield sink.SEND_RATE, self.sent.rate(now_seconds=now_seconds)
        yield sink.COMMIT_RATE, self.commits.rate(now_seconds=now_seconds)
        yield sink.SKIP_RATE, self.skips.rate(now_seconds=now_seconds)
        yield sink.PUT_TIME_MAX, self.put_ms.maximum(now_seconds=now_seconds)
        yield sink.PUT_TIME_AVG, self.put_ms.average(now_seconds=now_seconds)
        yield sink.ACTIVE, self._active_now
        yield sink.ACTIVE_MAX, self._active.maximum(now_seconds=now_seconds)
        yield sink.ACTIVE_AVG, self._active.average(now_seconds=now_seconds)


class SinkView:
    """Follows the events of sink tasks; ``refresh`` brings the windowed figures up to now."""

    def __init__(self, into: Instruments, *, clock: Callable[[], float]) -> None:
        self._into = into
        self._clock = clock
        self._tasks: dict[tuple[str, int], SinkFigures] = {}

    def refresh(self) -> None:
        """Write what depends on the time of asking."""
        now_seconds = self._clock()
        for owner, figures in self._tasks.items():
            for metric, value in figures.gauges(now_seconds=now_seconds):
                self._into.set(metric, value, *owner)

    def forget(self, connector: str, task: int | None = None) -> None:
        """Drop the memory of a task, or of a connector with all its tasks; series stay."""
        forget_tasks(self._tasks, connector, task)

    @singledispatchmethod
    def measure(self, event: events.Event) -> None:
        """Update by one event; most concern no sink."""

    @measure.register
    def _(self, event: events.TaskStarted) -> None:
        if event.kind == "sink":
            self._figures(event)

    @measure.register
    def _(self, event: events.TaskRestarted) -> None:
        if self._tasks.pop((event.connector, event.task), None) is not None:
            self._into.forget(event.connector, event.task, metrics=SINK_METRICS)
            self._figures(event)

    @measure.register
    def _(self, event: events.SinkPartitionsChanged) -> None:
        self._figures(event).drop_active(now_seconds=self._clock())
        self._into.set(sink.PARTITIONS, event.count, event.connector, event.task)

    @measure.register
    def _(self, event: events.SinkRecordsRead) -> None:
        figures, now_seconds = self._figures(event), self._clock()
        figures.read.record(event.records, now_seconds=now_seconds)
        figures.change_active(event.records, now_seconds=now_seconds)
        self._into.add(sink.READ_TOTAL, event.records, event.connector, event.task)

    @measure.register
    def _(self, event: events.SinkRecordsPut) -> None:
        figures, now_seconds = self._figures(event), self._clock()
        figures.sent.record(event.records, now_seconds=now_seconds)
        figures.put_ms.record(event.seconds * 1000, now_seconds=now_seconds)
        self._into.add(sink.SEND_TOTAL, event.records, event.connector, event.task)

    @measure.register
    def _(self, event: events.SinkOffsetsCommitted) -> None:
        figures, now_seconds = self._figures(event), self._clock()
        figures.commits.record(1, now_seconds=now_seconds)
        figures.change_active(-event.records, now_seconds=now_seconds)
        self._into.set(sink.COMMIT_NUMBER, event.number, event.connector, event.task)
        self._into.add(sink.COMMIT_TOTAL, 1, event.connector, event.task)

    @measure.register
    def _(self, event: events.SinkCommitFailed) -> None:
        if event.is_outdated:
            self._figures(event).skips.record(1, now_seconds=self._clock())
            self._into.add(sink.SKIP_TOTAL, 1, event.connector, event.task)

    @measure.register
    def _(self, event: events.SinkLagMeasured) -> None:
        self._figures(event)
        self._into.set(sink.LAG_MAX, event.records, event.connector, event.task)

    def _figures(self, event: events.TaskEvent) -> SinkFigures:
        owner = (event.connector, event.task)
        figures = self._tasks.get(owner)
        if figures is None:
            figures = self._tasks[owner] = SinkFigures(now_seconds=self._clock())
            for metric in _COUNTERS:
                self._into.add(metric, 0, *owner)
            for metric in (sink.PARTITIONS, sink.COMMIT_NUMBER, sink.LAG_MAX):
                self._into.set(metric, 0, *owner)
        return figures
