"""One run of a worker's control plane: from reading the topics to letting go, until idle or until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from fetchers.sdk import Clock
from metrics.events import Emit, WorkerStopping
from service.domain.cluster import Properties
from service.domain.states import TargetState
from service.herder.herder import WorkerHerder
from service.herder.life import HerderLife
from service.kafka.errors import DeliveryFatal

_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class FileConnector:
    """A connector that a standalone worker is started with."""

    config: Properties
    initial: TargetState | None = None


async def _nothing_refused() -> None:
    """For connectors that need no check."""


@dataclass(slots=True)
class WorkerRun:
    """Runs once; make another for another run."""

    open_herder: Callable[[], AbstractAsyncContextManager[WorkerHerder]]
    connectors: Sequence[FileConnector]
    clock: Clock
    emit: Emit
    stop_seconds_max: float
    on_started: Callable[[], None] = lambda: None
    refusal: Callable[[], Awaitable[Exception | None]] = _nothing_refused
    """Why the connectors are not to be begun, if that is found only once the worker is there."""
    has_failed: bool = False
    """Whether anything was FAILED at the end."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _stop_reason: str = "asked"
    _refusal: Exception | None = None

    def request_stop(self, reason: str) -> None:
        """Ask for the staged stop; ``reason`` is for the log. Returns at once."""
        self._stop_reason = reason
        self._stop.set()

    async def run(self, *, idle_seconds: float | None = None) -> None:
        """Until asked to stop; with ``idle_seconds`` until everything has been idle (or FAILED) that long.

        Raises ``DeliveryFatal`` where the internal topics or the group cannot be used, and what ``refusal`` gives.
        """
        async with self.open_herder() as herder:
            try:
                await self._until_stopped(herder.life, idle_seconds)
            finally:
                self.emit(WorkerStopping(reason=self._stop_reason))
                teller = herder.life.tick.teller
                teller.keep_failures()
                await herder.life.stop()
                self.has_failed = bool(teller.failed)
        if self._refusal is not None:
            raise self._refusal

    async def _until_stopped(self, life: HerderLife, idle_seconds: float | None) -> None:
        async with asyncio.TaskGroup() as group:
            working = group.create_task(self._work_or_refuse(life, idle_seconds), name="worker")
            asked = group.create_task(self._stop.wait(), name="stop asked")
            await asyncio.wait([working, asked], return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            asked.cancel()

    async def _work_or_refuse(self, life: HerderLife, idle_seconds: float | None) -> None:
        try:
            await self._work(life, idle_seconds)
        except DeliveryFatal as error:
            # Kept, because a group of tasks would wrap it: it is for whoever started the worker.
            self._refusal, self._stop_reason = error, "refused"

    async def _work(self, life: HerderLife, idle_seconds: float | None) -> None:
        await life.start()
        self._refusal = await self.refusal()
        if self._refusal is not None:
            self._stop_reason = "refused"
            return
        for connector in self.connectors:
            await life.view.configs.put_connector(connector.config["name"], connector.config, initial=connector.initial)
        self.on_started()
        if idle_seconds is None:
            await life.wait_refused()
        while not life.is_settled or not _reached(life.tick.instances.idle_seconds, idle_seconds):
            await self.clock.sleep(_LOOK_SECONDS)
        self._stop_reason = "idle"


def _reached(seconds: float | None, wanted: float | None) -> bool:
    return seconds is not None and wanted is not None and seconds >= wanted
