"""What each connector on this worker has done so far, as figures for people: the live line, ``status``, ``/progress``.

Prometheus has more, and for longer; these are what somebody wants who looks once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import singledispatchmethod

from metrics import events

Clock = Callable[[], float]
RATE_SECONDS = 30.0
"""A rate looks back so far, or to the task's start."""
_SAMPLE_SECONDS = 1.0
_FETCHING = (events.PageFetched, events.SourceCaughtUp, events.SourceLagMeasured)
"""What shows that a task's one fetch works again."""
_Retried = tuple[str, int | None]
"""A stage, and which of the things that it does at once."""
_FETCH: _Retried = ("fetch", None)
_COUNTED = (events.DeadLettersWritten, events.RecordRejectedLogged, events.TaskRestarted)
"""Loud in the log, and shown as a number here or told of by what came before."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The last thing that went wrong with a task."""

    at_seconds: float
    """Since the epoch."""
    message: str
    is_over: bool = False
    """Whether the stage that was in trouble has worked since."""
    attempt: int = 0
    """Of a stage that is tried again: how often it has failed in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """Figures of one task since this worker has it; instants are seconds since the epoch."""

    task: int
    state: str
    started_seconds: float | None
    """When its incarnation began to fetch."""
    fetched_records: int
    delivered_records: int
    rejected_records: int
    deduplicated_records: int
    records_per_second: float
    """Settled by commits (of a sink: taken by it), over the last ``RATE_SECONDS``."""
    commits: int
    """Of this incarnation."""
    is_caught_up: bool
    """Whether this incarnation has asked its source for everything it had, once at least."""
    records_in_hand: int
    """Fetched by this incarnation, and in no commit yet."""
    lag_seconds: float | None
    """Of a source that tells it."""
    lag_records: int | None
    """Of a sink."""
    last_commit_seconds: float | None
    trouble: Trouble | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorProgress:
    """The same of all tasks of a connector here together."""

    connector: str
    state: str
    fetched_records: int
    delivered_records: int
    rejected_records: int
    deduplicated_records: int
    records_per_second: float
    lag_seconds: float | None
    lag_records: int | None
    last_commit_seconds: float | None
    trouble: Trouble | None
    tasks: tuple[TaskProgress, ...]

    @property
    def moved(self) -> tuple[int, ...]:
        """Grows whenever anything has moved."""
        return (self.fetched_records, self.delivered_records, self.rejected_records, self.deduplicated_records)


@dataclass(slots=True)
class _Tally:
    state: str = "UNASSIGNED"
    started: float | None = None
    fetched: int = 0
    delivered: int = 0
    rejected: int = 0
    deduplicated: int = 0
    settled: int = 0
    samples: list[tuple[float, int]] = field(default_factory=list)
    """Monotonic seconds and what was settled by then; the first is what the rate is reckoned from."""
    commits: int = 0
    is_caught_up: bool = False
    in_hand: int = 0
    lag_records: int | None = None
    last_commit: float | None = None
    trouble: Trouble | None = None
    retried: _Retried | None = None
    """What is in trouble, where it may end by itself."""
    retries: dict[_Retried, Trouble] = field(default_factory=dict)
    """What is tried again, the last one told at the end."""

    def end(self, retried: _Retried) -> None:
        """Show what else is tried again, or that it is over."""
        self.retries.pop(retried, None)
        if self.retried != retried or self.trouble is None:
            return
        self.retried = next(reversed(self.retries), None)
        if self.retried is None:
            self.trouble = dataclasses.replace(self.trouble, is_over=True)
        else:
            self.trouble = self.retries[self.retried]

    def settle(self, records: int, now_seconds: float) -> None:
        """Count records that are done with."""
        self.settled += records
        if now_seconds - self.samples[-1][0] < _SAMPLE_SECONDS and len(self.samples) > 1:
            self.samples[-1] = (self.samples[-1][0], self.settled)
        else:
            self.samples.append((now_seconds, self.settled))
        self._drop_old(now_seconds)

    def rate(self, now_seconds: float) -> float:
        """Settled per second; of less than a second nothing is known."""
        self._drop_old(now_seconds)
        since, before = self.samples[0] if self.samples else (now_seconds, 0)
        elapsed = now_seconds - since
        return (self.settled - before) / elapsed if elapsed >= _SAMPLE_SECONDS else 0.0

    def _drop_old(self, now_seconds: float) -> None:
        while len(self.samples) > 1 and self.samples[1][0] <= now_seconds - RATE_SECONDS:
            del self.samples[0]


class ProgressView:
    """An ``Emit`` that keeps the figures; ``lag_seconds`` gives a task's lag behind its source now."""

    def __init__(
        self,
        lag_seconds: Callable[[str, int], float | None] = lambda _connector, _task: None,
        *,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        self._lag_seconds = lag_seconds
        self._clock, self._wall_clock = clock, wall_clock
        self._tallies: dict[str, dict[int, _Tally]] = {}
        self._former: dict[str, _Tally] = {}
        """What tasks had done that are no longer here."""

    def __call__(self, event: events.Event) -> None:
        """Take an event."""
        if isinstance(event, events.ConnectorRemoved):
            self._tallies.pop(event.connector, None)
            self._former.pop(event.connector, None)
        elif isinstance(event, events.TaskRemoved):
            self._remove(event)
        elif isinstance(event, events.TaskEvent):
            tally = self._tallies.setdefault(event.connector, {}).get(event.task)
            if tally is None:
                tally = _Tally(samples=[(self._clock(), 0)])
                self._tallies[event.connector][event.task] = tally
            if isinstance(event, _FETCHING):
                tally.end(_FETCH)
            self._measure(event, tally)

    def connectors(self, names: Iterable[str] | None = None) -> tuple[ConnectorProgress, ...]:
        """Those of these names that have tasks here, or had; None: all, sorted."""
        known = sorted(self._tallies) if names is None else [name for name in names if name in self._tallies]
        return tuple(self._connector(name) for name in known)

    def _remove(self, event: events.TaskRemoved) -> None:
        gone = self._tallies.get(event.connector, {}).pop(event.task, None)
        if gone is not None:
            former = self._former.setdefault(event.connector, _Tally())
            former.fetched += gone.fetched
            former.delivered += gone.delivered
            former.rejected += gone.rejected
            former.deduplicated += gone.deduplicated
            former.last_commit = gone.last_commit or former.last_commit
            former.trouble = gone.trouble or former.trouble

    def _connector(self, name: str) -> ConnectorProgress:
        tasks = tuple(self._task(name, number, tally) for number, tally in sorted(self._tallies[name].items()))
        former = self._former.get(name, _Tally())
        troubles = [trouble for trouble in (*(task.trouble for task in tasks), former.trouble) if trouble is not None]
        commits = [*(each.last_commit_seconds for each in tasks), former.last_commit]
        return ConnectorProgress(
            connector=name,
            state=combined_state(task.state for task in tasks),
            fetched_records=sum(task.fetched_records for task in tasks) + former.fetched,
            delivered_records=sum(task.delivered_records for task in tasks) + former.delivered,
            rejected_records=sum(task.rejected_records for task in tasks) + former.rejected,
            deduplicated_records=sum(task.deduplicated_records for task in tasks) + former.deduplicated,
            records_per_second=sum(task.records_per_second for task in tasks),
            lag_seconds=max((task.lag_seconds for task in tasks if task.lag_seconds is not None), default=None),
            lag_records=max((task.lag_records for task in tasks if task.lag_records is not None), default=None),
            last_commit_seconds=max((at for at in commits if at is not None), default=None),
            trouble=max(troubles, key=lambda each: (not each.is_over, each.at_seconds), default=None),
            tasks=tasks,
        )

    def _task(self, connector: str, number: int, tally: _Tally) -> TaskProgress:
        return TaskProgress(
            task=number,
            state=tally.state,
            started_seconds=tally.started,
            fetched_records=tally.fetched,
            delivered_records=tally.delivered,
            rejected_records=tally.rejected,
            deduplicated_records=tally.deduplicated,
            records_per_second=tally.rate(self._clock()),
            commits=tally.commits,
            is_caught_up=tally.is_caught_up,
            records_in_hand=tally.in_hand,
            lag_seconds=self._lag_seconds(connector, number),
            lag_records=tally.lag_records,
            last_commit_seconds=tally.last_commit,
            trouble=tally.trouble,
        )

    @singledispatchmethod
    def _measure(self, event: events.TaskEvent, tally: _Tally) -> None:
        """Of an event without a rule it counts how loud it is."""
        if event.level in {events.Level.WARNING, events.Level.ERROR} and not isinstance(event, _COUNTED):
            tally.trouble, tally.retried = Trouble(self._wall_clock(), worded(event)), _FETCH

    def _commit(self, tally: _Tally, records: int) -> None:
        tally.commits += 1
        tally.last_commit = self._wall_clock()
        tally.in_hand = max(0, tally.in_hand - records)

    @_measure.register
    def _(self, event: events.TaskStarted, tally: _Tally) -> None:
        if event.is_success:
            tally.started, tally.commits, tally.is_caught_up, tally.in_hand = self._wall_clock(), 0, False, 0
            tally.retries.clear()
            if tally.trouble is not None:
                tally.trouble = dataclasses.replace(tally.trouble, is_over=True)

    @_measure.register
    def _(self, event: events.TaskStateChanged, tally: _Tally) -> None:
        tally.state = event.state

    @_measure.register
    def _(self, event: events.TaskFailed, tally: _Tally) -> None:
        tally.trouble, tally.retried = Trouble(self._wall_clock(), event.message or event.error_class), None
        tally.retries.clear()

    @_measure.register
    def _(self, event: events.RetryScheduled, tally: _Tally) -> None:
        message = f"{event.stage} is tried again: {event.message or event.error_class}"
        tally.trouble = Trouble(self._wall_clock(), message, attempt=event.attempt)
        tally.retried = (event.stage, event.part)
        tally.retries.pop(tally.retried, None)
        tally.retries[tally.retried] = tally.trouble

    @_measure.register
    def _(self, event: events.RetriesEnded, tally: _Tally) -> None:
        tally.end((event.stage, event.part))

    @_measure.register
    def _(self, event: events.PageFetched, tally: _Tally) -> None:
        tally.fetched += event.records
        tally.in_hand += event.records

    @_measure.register
    def _(self, event: events.SinkRecordsRead, tally: _Tally) -> None:
        tally.fetched += event.records
        tally.in_hand += event.records

    @_measure.register
    def _(self, _event: events.SourceCaughtUp, tally: _Tally) -> None:
        tally.is_caught_up = True

    @_measure.register
    def _(self, event: events.RecordsDelivered, tally: _Tally) -> None:
        tally.delivered += event.records

    @_measure.register
    def _(self, event: events.SinkRecordsPut, tally: _Tally) -> None:
        tally.delivered += event.records
        tally.settle(event.records, self._clock())

    @_measure.register
    def _(self, event: events.RecordsRejected, tally: _Tally) -> None:
        tally.rejected += event.count

    @_measure.register
    def _(self, event: events.RecordsDeduplicated, tally: _Tally) -> None:
        tally.deduplicated += event.count

    @_measure.register
    def _(self, event: events.TransactionCommitted, tally: _Tally) -> None:
        records = event.records if event.source_records is None else event.source_records
        self._commit(tally, records)
        tally.settle(records, self._clock())

    @_measure.register
    def _(self, event: events.SinkOffsetsCommitted, tally: _Tally) -> None:
        self._commit(tally, event.records)

    @_measure.register
    def _(self, event: events.SinkLagMeasured, tally: _Tally) -> None:
        tally.lag_records = event.records


_URGENCY = ("FAILED", "RESTARTING", "UNASSIGNED", "RUNNING", "PAUSED", "STOPPED")


def combined_state(states: Iterable[str]) -> str:
    """The state that most wants looking at; UNASSIGNED where there is none."""
    found = set(states)
    return next((state for state in _URGENCY if state in found), "UNASSIGNED")


def worded(event: events.TaskEvent) -> str:
    """An event in words: its name, and its own fields."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(event).__name__).strip()
    own = [each.name for each in dataclasses.fields(event) if each.name not in {"connector", "task"}]
    told = [f"{name} {value}" for name in own if (value := getattr(event, name)) not in (None, "")]
    return f"{words}: {', '.join(told)}" if told else words
