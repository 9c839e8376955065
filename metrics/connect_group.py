"""Kafka Connect's figures of the group of workers and of requests to its coordinator, as they follow from events."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from metrics import events
from metrics.catalogue import connect_group as group
from metrics.window import SampledWindow

if TYPE_CHECKING:
    from metrics.instruments import Instruments


class GroupView:
    """Shows nothing before the first round: a standalone worker is in no group."""

    def __init__(self, into: Instruments, *, clock: Callable[[], float]) -> None:
        self._into = into
        self._clock = clock
        self._rounds_ms = SampledWindow(now_seconds=clock())
        self._ended_at: float | None = None

    def refresh(self) -> None:
        """Write what depends on the time of asking."""
        if self._ended_at is None:
            return
        now_seconds = self._clock()
        self._into.set(group.AVERAGE_MS, self._rounds_ms.average(now_seconds=now_seconds))
        self._into.set(group.LONGEST_MS, self._rounds_ms.maximum(now_seconds=now_seconds))
        self._into.set(group.SINCE_MS, (now_seconds - self._ended_at) * 1000)

    @singledispatchmethod
    def measure(self, event: events.Event) -> None:
        """Update by one event; most do not concern the group."""

    @measure.register
    def _(self, _: events.GroupRoundBegan) -> None:
        self._into.set(group.REBALANCING, 1)
        self._into.add(group.COMPLETED, 0)

    @measure.register
    def _(self, event: events.GroupRoundEnded) -> None:
        self._ended_at = self._clock()
        self._rounds_ms.record(event.seconds * 1000, now_seconds=self._ended_at)
        self._into.set(group.REBALANCING, 0)
        self._into.set(group.EPOCH, event.generation)
        self._into.add(group.COMPLETED, 1)
        self._into.tell(group.LEADER, event.leader)
        self._into.tell(group.PROTOCOL, event.protocol)


_SECONDS_AN_HOUR = 3600
_ANSWERED = {
    "join": (group.JOINS, group.JOIN_RATE),
    "sync": (group.SYNCS, group.SYNC_RATE),
    "heartbeat": (group.HEARTBEATS, group.HEARTBEAT_RATE),
}


class CoordinatorView:
    """Shows nothing before the first request: a standalone worker is in no group."""

    def __init__(self, into: Instruments, *, clock: Callable[[], float]) -> None:
        self._into = into
        self._clock = clock
        self._client_id: str | None = None
        self._windows = {request: SampledWindow(now_seconds=clock()) for request in _ANSWERED}
        self._heartbeats_ms = SampledWindow(now_seconds=clock())
        self._rounds_ms = SampledWindow(now_seconds=clock())
        self._failures = SampledWindow(now_seconds=clock())
        self._heard_at: float | None = None
        self._round_ended_at: float | None = None

    def refresh(self, *, connectors: int, tasks: int) -> None:
        """Write what depends on the time of asking, and how many are this worker's."""
        client_id = self._client_id
        if client_id is None:
            return
        now = self._clock()
        figures = {
            group.ASSIGNED_CONNECTORS: connectors,
            group.ASSIGNED_TASKS: tasks,
            group.HEARTBEAT_LONGEST_MS: self._heartbeats_ms.maximum(now_seconds=now),
            group.ROUND_AVERAGE_MS: self._rounds_ms.average(now_seconds=now),
            group.ROUND_LONGEST_MS: self._rounds_ms.maximum(now_seconds=now),
            group.FAILED_ROUND_RATE: self._failures.rate(now_seconds=now) * _SECONDS_AN_HOUR,
            group.HEARTBEAT_SINCE: _since(self._heard_at, now),
            group.ROUND_SINCE: _since(self._round_ended_at, now),
        }
        for request, (_, rate) in _ANSWERED.items():
            figures[rate] = self._windows[request].rate(now_seconds=now)
        for metric, value in figures.items():
            self._into.set(metric, value, client_id)

    @singledispatchmethod
    def measure(self, event: events.Event) -> None:
        """Update by one event; most do not concern the group."""

    @measure.register
    def _(self, event: events.GroupRequestEnded) -> None:
        now = self._clock()
        self._appear(event.client_id)
        if event.is_success:
            total, _ = _ANSWERED[event.request]
            self._into.add(total, 1, event.client_id)
            self._windows[event.request].record(1, now_seconds=now)
            if event.request == "heartbeat":
                self._heard_at = now
                self._heartbeats_ms.record(event.seconds * 1000, now_seconds=now)
        elif event.request != "heartbeat":
            self._into.add(group.FAILED_ROUNDS, 1, event.client_id)
            self._failures.record(1, now_seconds=now)

    @measure.register
    def _(self, event: events.GroupRoundEnded) -> None:
        self._round_ended_at = self._clock()
        self._rounds_ms.record(event.seconds * 1000, now_seconds=self._round_ended_at)
        if self._client_id is not None:
            self._into.add(group.ROUND_MS, event.seconds * 1000, self._client_id)

    def _appear(self, client_id: str) -> None:
        """Counters begin at 0, so that their first step is seen."""
        if client_id != self._client_id:
            self._client_id = client_id
            for total in (*(total for total, _ in _ANSWERED.values()), group.FAILED_ROUNDS, group.ROUND_MS):
                self._into.add(total, 0, client_id)


def _since(then: float | None, now: float) -> float:
    """-1 before the first, as Kafka's client says it."""
    return -1.0 if then is None else now - then
