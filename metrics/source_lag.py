"""The lag behind the source, which fetchers tell of while they are asked: it grows while none can be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatchmethod

from metrics import events
from metrics.catalogue import own
from metrics.connect_task import forget_tasks
from metrics.connect_view import Clock
from metrics.instruments import Instruments


@dataclass(slots=True)
class _Lag:
    seconds: float
    """As last told."""
    silent_since: float | None = None
    """From when on the fetcher waits for its source, for room in the queue, or for memory; None: it is at work."""

    def at(self, now_seconds: float) -> float:
        """The lag at that time."""
        return self.seconds if self.silent_since is None else self.seconds + now_seconds - self.silent_since


class SourceLagView:
    """Keeps ``headrace_source_lag_seconds``. A task whose fetcher never told a lag has none."""

    def __init__(self, into: Instruments, *, clock: Clock) -> None:
        self._into = into
        self._clock = clock
        self._lags: dict[tuple[str, int], _Lag] = {}

    def refresh(self) -> None:
        """Write what depends on the time of asking."""
        now_seconds = self._clock()
        for owner, lag in self._lags.items():
            self._into.set(own.SOURCE_LAG, lag.at(now_seconds), *owner)

    def seconds(self, connector: str, task: int) -> float | None:
        """The lag of a task now; None where it never told one."""
        lag = self._lags.get((connector, task))
        return None if lag is None else lag.at(self._clock())

    def forget(self, connector: str, task: int | None = None) -> None:
        """Drop the memory of a task, or of a connector with all its tasks; series stay."""
        forget_tasks(self._lags, connector, task)

    @singledispatchmethod
    def measure(self, event: events.Event) -> None:
        """Update by one event; most do not concern the lag."""

    @measure.register
    def _(self, event: events.SourceLagMeasured) -> None:
        self._lags[event.connector, event.task] = _Lag(event.seconds)

    @measure.register
    def _(self, event: events.RetryScheduled) -> None:
        if event.stage == "fetch":
            self._fall_silent(event)

    @measure.register
    def _(self, event: events.QueueWaitBegan) -> None:
        self._fall_silent(event)

    @measure.register
    def _(self, event: events.QueueStalled) -> None:
        self._work_again(event)

    @measure.register
    def _(self, event: events.MemoryWaitBegan) -> None:
        self._fall_silent(event)

    @measure.register
    def _(self, event: events.MemoryWaited) -> None:
        self._work_again(event)

    @measure.register
    def _(self, event: events.PageFetched) -> None:
        self._work_again(event)

    def _fall_silent(self, event: events.TaskEvent) -> None:
        lag = self._lags.get((event.connector, event.task))
        if lag is not None and lag.silent_since is None:
            lag.silent_since = self._clock()

    def _work_again(self, event: events.TaskEvent) -> None:
        lag = self._lags.get((event.connector, event.task))
        if lag is not None:
            lag.silent_since = None
