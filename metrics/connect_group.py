"""Kafka Connect's figures of the group of workers, as they follow from events."""

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
