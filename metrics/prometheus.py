"""Turns events into Prometheus metrics and writes them out: the door to the client library."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)

from metrics import own_view
from metrics.connect_group import CoordinatorView, GroupView
from metrics.connect_sink import SinkView
from metrics.connect_task import describe
from metrics.connect_view import Clock, ConnectView
from metrics.events import ConnectorRemoved, Event, TaskDescribed, TaskRemoved
from metrics.instruments import Instruments
from metrics.source_lag import SourceLagView

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Of what ``render`` returns: the classic text format, which every Prometheus reads."""


class PrometheusObserver:
    """An ``Emit`` that keeps the worker's metrics, in a registry of its own.

    Call it, and ``render`` or ``expose``, on one thread, the event loop's. ``clock`` is monotonic, ``wall_clock``
    counts from the epoch, both in seconds.
    """

    content_type = CONTENT_TYPE

    def __init__(self, *, clock: Clock = time.monotonic, wall_clock: Clock = time.time) -> None:
        self._instruments = Instruments()
        self._connect = ConnectView(self._instruments, clock=clock, wall_clock=wall_clock)
        self._sinks = SinkView(self._instruments, clock=clock)
        self._source_lag = SourceLagView(self._instruments, clock=clock)
        self._group = GroupView(self._instruments, clock=clock)
        self._coordinator = CoordinatorView(self._instruments, clock=clock)
        self._registry = CollectorRegistry()
        self._registry.register(self._instruments)
        ProcessCollector(registry=self._registry)

    def __call__(self, event: Event) -> None:
        """Update every metric the event concerns."""
        own_view.measure(event, self._instruments)
        self._connect.measure(event)
        self._sinks.measure(event)
        self._source_lag.measure(event)
        self._group.measure(event)
        self._coordinator.measure(event)
        if isinstance(event, TaskDescribed):
            describe(event, self._instruments)
        elif isinstance(event, TaskRemoved):
            self.forget(event.connector, event.task)
        elif isinstance(event, ConnectorRemoved):
            self.forget(event.connector)

    def lag_seconds(self, connector: str, task: int) -> float | None:
        """How far a task is behind its source now; None where it never told."""
        return self._source_lag.seconds(connector, task)

    def forget(self, connector: str, task: int | None = None) -> None:
        """Remove the series of a task, or of a connector with all its tasks.

        Events of the task that come later would bring them back: emit the removal last.
        """
        self._connect.forget(connector, task)
        self._sinks.forget(connector, task)
        self._source_lag.forget(connector, task)
        self._instruments.forget(connector, task)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format 0.0.4. With many tasks, prefer ``expose``."""
        self._refresh()
        return generate_latest(self._registry)

    async def expose(self) -> bytes:
        """Return what ``render`` does, written in a thread: a thousand tasks take a second or more.

        A histogram that is updated meanwhile may show its sum one observation ahead of its counts.
        """
        self._refresh()
        return await asyncio.to_thread(generate_latest, self._registry)

    def _refresh(self) -> None:
        self._connect.refresh()
        self._sinks.refresh()
        self._source_lag.refresh()
        self._group.refresh()
        self._coordinator.refresh(connectors=self._connect.connectors, tasks=self._connect.tasks)
