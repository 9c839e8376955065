"""What is remembered of one task to give Connect's averages, extremes, rates and shares of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from metrics.catalogue import Metric, connect
from metrics.catalogue import connect_described as words
from metrics.events import TaskDescribed
from metrics.window import SampledWindow

if TYPE_CHECKING:
    from metrics.instruments import Instruments


Figures = TypeVar("Figures")


class TaskFigures:
    """The recent past of one task, of constant size. All times are of one monotonic clock."""

    def __init__(self, *, now_seconds: float) -> None:
        self.batches = SampledWindow(now_seconds=now_seconds)
        self.written = SampledWindow(now_seconds=now_seconds)
        self.commit_ms = SampledWindow(now_seconds=now_seconds)
        self.commit_successes = SampledWindow(now_seconds=now_seconds)
        self._polled = SampledWindow(now_seconds=now_seconds)
        self._poll_ms = SampledWindow(now_seconds=now_seconds)
        self._transactions = SampledWindow(now_seconds=now_seconds)
        self._active = SampledWindow(now_seconds=now_seconds)
        self._active_now = 0
        self.is_sink = False
        self.state = "UNASSIGNED"
        self._since_seconds = now_seconds
        self._in_state_seconds: dict[str, float] = {}

    def enter(self, state: str, *, now_seconds: float) -> None:
        """Change the state; the time since the last change was spent in the old one."""
        spent = self._in_state_seconds.get(self.state, 0.0) + now_seconds - self._since_seconds
        self._in_state_seconds[self.state] = spent
        self.state = state
        self._since_seconds = now_seconds

    def fetched(self, records: int, wait_seconds: float | None, *, now_seconds: float) -> None:
        """Take in a page of ``records`` that was waited for."""
        self._polled.record(records, now_seconds=now_seconds)
        if wait_seconds is not None:
            self._poll_ms.record(wait_seconds * 1000, now_seconds=now_seconds)
        self._active_now += records
        self._active.record(self._active_now, now_seconds=now_seconds)

    def settled(self, written: int, source_records: int, *, now_seconds: float) -> None:
        """Take in a committed transaction: ``source_records`` are no longer active."""
        self._transactions.record(written, now_seconds=now_seconds)
        self._active_now = max(0, self._active_now - source_records)
        self._active.record(self._active_now, now_seconds=now_seconds)

    def gauges(self, *, now_seconds: float) -> Iterator[tuple[Metric, float]]:
        """Yield every windowed figure as it is now."""
        yield connect.RUNNING_RATIO, self._share("RUNNING", now_seconds)
        yield connect.PAUSE_RATIO, self._share("PAUSED", now_seconds)
        successes = self.commit_successes.average(now_seconds=now_seconds)
        yield connect.OFFSET_COMMIT_SUCCESS_SHARE, successes
        yield connect.OFFSET_COMMIT_FAILURE_SHARE, 1 - successes
        yield from _extremes(
            now_seconds,
            (
                (connect.OFFSET_COMMIT_MAX, connect.OFFSET_COMMIT_AVG, self.commit_ms),
                (connect.BATCH_SIZE_MAX, connect.BATCH_SIZE_AVG, self.batches),
            ),
        )
        if not self.is_sink:
            yield from self._source_gauges(now_seconds=now_seconds)

    def _source_gauges(self, *, now_seconds: float) -> Iterator[tuple[Metric, float]]:
        yield connect.ACTIVE, self._active_now
        yield connect.POLL_RATE, self._polled.rate(now_seconds=now_seconds)
        yield connect.WRITE_RATE, self.written.rate(now_seconds=now_seconds)
        yield (
            connect.TRANSACTION_SIZE_MIN,
            self._transactions.minimum(now_seconds=now_seconds),
        )
        yield from _extremes(
            now_seconds,
            (
                (connect.POLL_TIME_MAX, connect.POLL_TIME_AVG, self._poll_ms),
                (connect.ACTIVE_MAX, connect.ACTIVE_AVG, self._active),
                (connect.TRANSACTION_SIZE_MAX, connect.TRANSACTION_SIZE_AVG, self._transactions),
            ),
        )

    def _share(self, state: str, now_seconds: float) -> float:
        current = now_seconds - self._since_seconds
        total = sum(self._in_state_seconds.values()) + current
        spent = self._in_state_seconds.get(state, 0.0) + (current if state == self.state else 0.0)
        return spent / total if total > 0 else 0.0


def _extremes(
    now_seconds: float, windows: Iterable[tuple[Metric, Metric, SampledWindow]]
) -> Iterator[tuple[Metric, float]]:
    for largest, mean, window in windows:
        yield largest, window.maximum(now_seconds=now_seconds)
        yield mean, window.average(now_seconds=now_seconds)


def forget_tasks(tasks: dict[tuple[str, int], Figures], connector: str, task: int | None) -> None:
    """Drop what is remembered of a task, or of all tasks of a connector."""
    if task is not None:
        tasks.pop((connector, task), None)
        return
    for owner in [owner for owner in tasks if owner[0] == connector]:
        del tasks[owner]


def describe(event: TaskDescribed, into: Instruments) -> None:
    """Tell every word; converters, transformations and predicates come with the worker, so its version is theirs."""
    owner, built_in = (event.connector, event.task), event.worker_version
    into.tell(words.CONNECTOR_CLASS, *owner, event.connector_class)
    into.tell(words.CONNECTOR_TYPE, *owner, event.kind)
    into.tell(words.CONNECTOR_VERSION, *owner, event.version)
    into.tell(words.TASK_CLASS, *owner, event.task_class)
    into.tell(words.TASK_VERSION, *owner, event.version)
    into.tell(words.KEY_CONVERTER_CLASS, *owner, event.key_converter)
    into.tell(words.KEY_CONVERTER_VERSION, *owner, built_in)
    into.tell(words.VALUE_CONVERTER_CLASS, *owner, event.value_converter)
    into.tell(words.VALUE_CONVERTER_VERSION, *owner, built_in)
    into.tell(words.HEADER_CONVERTER_CLASS, *owner, event.header_converter)
    into.tell(words.HEADER_CONVERTER_VERSION, *owner, built_in)
    for alias, name in event.transforms:
        into.tell(words.TRANSFORM_CLASS, *owner, alias, name)
        into.tell(words.TRANSFORM_VERSION, *owner, alias, built_in)
    for alias, name in event.predicates:
        into.tell(words.PREDICATE_CLASS, *owner, alias, name)
        into.tell(words.PREDICATE_VERSION, *owner, alias, built_in)
