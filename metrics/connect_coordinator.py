"""Kafka Connect's figures of the requests to the group's coordinator, as they follow from events."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from metrics import events
from metrics.catalogue import connect_coordinator as coordinator
from metrics.window import SampledWindow

if TYPE_CHECKING:
    from metrics.instruments import Instruments

_SECONDS_AN_HOUR = 3600
_ANSWERED = {
    "join": (coordinator.JOINS, coordinator.JOIN_RATE),
    "sync": (coordinator.SYNCS, coordinator.SYNC_RATE),
    "heartbeat": (coordinator.HEARTBEATS, coordinator.HEARTBEAT_RATE),
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
            coordinator.ASSIGNED_CONNECTORS: connectors,
            coordinator.ASSIGNED_TASKS: tasks,
            coordinator.HEARTBEAT_LONGEST_MS: self._heartbeats_ms.maximum(now_seconds=now),
            coordinator.ROUND_AVERAGE_MS: self._rounds_ms.average(now_seconds=now),
            coordinator.ROUND_LONGEST_MS: self._rounds_ms.maximum(now_seconds=now),
            coordinator.FAILED_ROUND_RATE: self._failures.rate(now_seconds=now) * _SECONDS_AN_HOUR,
            coordinator.HEARTBEAT_SINCE: _since(self._heard_at, now),
            coordinator.ROUND_SINCE: _since(self._round_ended_at, now),
        }
        for request, (_, rate) in _ANSWERED.items():
            figures[rate] = self._windows[request].rate(now_seconds=now)
        for metric, value in figures.items():
            self._into.set(metric, value, client_id)

    @singledispatchmethod
    def measure(self, event: events.Event) -> None:
        """Update by one event; most do not concern the coordinator."""

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
            self._into.add(coordinator.FAILED_ROUNDS, 1, event.client_id)
            self._failures.record(1, now_seconds=now)

    @measure.register
    def _(self, event: events.GroupRoundEnded) -> None:
        self._round_ended_at = self._clock()
        self._rounds_ms.record(event.seconds * 1000, now_seconds=self._round_ended_at)
        if self._client_id is not None:
            self._into.add(coordinator.ROUND_MS, event.seconds * 1000, self._client_id)

    def _appear(self, client_id: str) -> None:
        """Counters begin at 0, so that their first step is seen."""
        if client_id != self._client_id:
            self._client_id = client_id
            for total in (*(total for total, _ in _ANSWERED.values()), coordinator.FAILED_ROUNDS, coordinator.ROUND_MS):
                self._into.add(total, 0, client_id)


def _since(then: float | None, now: float) -> float:
    """-1 before the first, as Kafka's client says it."""
    return -1.0 if then is None else now - then
