"""A worker's run: tasks under one roof, idleness, and the staged stop.

Stop is staged (DESIGN, promise 4): stop fetching → let the queues run dry → at ¾ of the deadline cancel → say what
was left. Nothing is committed that was not delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from fetchers.sdk import Clock
from metrics.events import Emit, WorkerStopping
from service.worker.supervising import TaskSupervisor

CANCEL_AT_SHARE = 0.75
_LOOK_SECONDS = 0.1


@dataclass(slots=True)
class Worker:
    """The tasks of one process."""

    tasks: Sequence[TaskSupervisor]
    clock: Clock
    emit: Emit
    stop_seconds_max: float
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _stop_reason: str = "asked"

    def request_stop(self, reason: str) -> None:
        """Begin the staged stop."""
        self._stop_reason = reason
        self._stop.set()

    async def run(self, *, idle_seconds: float | None = None) -> None:
        """Run every task until asked to stop; with ``idle_seconds`` until all have been idle (or FAILED) that long."""
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task.run(), name=str(task.task_id)) for task in self.tasks]
            watching = group.create_task(self._watch_idleness(idle_seconds), name="idleness")
            await self._stop.wait()
            watching.cancel()
            self.emit(WorkerStopping(reason=self._stop_reason))
            await self._stop_tasks(running)

    @property
    def has_failed(self) -> bool:
        """Whether any task is FAILED."""
        return any(task.is_failed for task in self.tasks)

    async def _stop_tasks(self, running: Sequence[asyncio.Task[None]]) -> None:
        if not running:
            return
        started_at = self.clock.monotonic()
        for task in self.tasks:
            task.request_stop()
        done, late = await asyncio.wait(running, timeout=self.stop_seconds_max * CANCEL_AT_SHARE)
        for supervisor, work in zip(self.tasks, running, strict=True):
            work.cancel()
            supervisor.report_stop(seconds=self.clock.monotonic() - started_at, is_complete=work in done)
        if late:
            _, hanging = await asyncio.wait(late, timeout=self.stop_seconds_max * (1 - CANCEL_AT_SHARE))
            for work in hanging:
                work.cancel()  # once more: what hangs while it cleans up is cut off too

    async def _watch_idleness(self, idle_seconds: float | None) -> None:
        if idle_seconds is None:
            return
        while not all(task.is_failed or _is_idle_for(task, idle_seconds) for task in self.tasks):
            await self.clock.sleep(_LOOK_SECONDS)
        self.request_stop("idle")


def _is_idle_for(task: TaskSupervisor, seconds: float) -> bool:
    return task.idle_seconds is not None and task.idle_seconds >= seconds
