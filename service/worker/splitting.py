"""The instance of a connector itself: reads its config, splits the work, and then only stands for the connector."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from fetchers.sdk import Clock
from service.domain.cluster import Properties
from service.pipeline.activity import Signal

Split = Callable[[], Awaitable[Sequence[Properties]]]


def _nobody_hears() -> None:
    """Until a supervisor listens."""


@dataclass(slots=True)
class Standing:
    """Busy with nothing, since ``since``."""

    clock: Clock
    since: float
    records_in_hand: int = 0

    @property
    def idle_seconds(self) -> float | None:
        """Since the work was split."""
        return self.clock.monotonic() - self.since


@dataclass(slots=True)
class ConnectorRun:
    """One incarnation of a connector, in the shape of a task: RUNNING from the moment its work is split."""

    tasks: Sequence[Properties]
    publish: Callable[[Sequence[Properties]], None]
    clock: Clock
    on_running: Signal = _nobody_hears
    activity: Standing = field(init=False)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """The work is split."""
        self.activity = Standing(self.clock, self.clock.monotonic())

    async def run(self) -> None:
        """Tell how the work is split, then wait for the stop."""
        self.on_running()
        self.publish(self.tasks)
        await self._stop.wait()

    def request_stop(self) -> None:
        """There is nothing to deliver."""
        self._stop.set()
