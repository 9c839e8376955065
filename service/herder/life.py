"""The herder's life: read the internal topics, join the group, tick until stopped, let go in order.

The order of the end matters in a group: first the tasks stop and say so (UNASSIGNED), then these words are written,
then the worker leaves, so that whoever takes over finds everything let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from fetchers.sdk import BackOff, Clock
from metrics.events import Emit, HerderStepFailed
from service.background import Background, persist
from service.domain.cluster import ConfigChange, ConnectorEntry, InstanceStatus
from service.domain.ids import ConnectorId, InstanceId
from service.domain.states import State, TargetState
from service.herder.bell import Bell, ended
from service.herder.herder import WorkerHerder
from service.herder.leader import Fencing, LeaderDuties, Leadership
from service.herder.ports import ConfigStore, Instances, Membership, StatusStore
from service.herder.telling import StatusTeller
from service.herder.tick import Tick
from service.herder.writing import ChangeTurns
from service.kafka.errors import DeliveryRetriable

Result = TypeVar("Result")
PERIOD_SECONDS = 2.0
"""Between ticks while nothing is heard."""
WAITING_SECONDS = 0.1
"""Between ticks while former owners have not let go yet."""
REST_SHARE = 3.0
"""Ticks take a quarter of the event loop's time at most."""
CHANGES_END_SECONDS_MAX = 2.0
"""For changes that are being written when the worker stops."""
_BACK_OFF = BackOff(first_seconds=0.5, cap_seconds=10.0)


@dataclass(slots=True)
class HerderLife:
    """Owner of a herder's parts while they run."""

    herder: WorkerHerder
    tick: Tick
    teller: StatusTeller
    leader: LeaderDuties
    leadership: Leadership
    configs: ConfigStore
    statuses: StatusStore
    membership: Membership
    instances: Instances
    cluster_id: Callable[[], Awaitable[str | None]]
    background: Background
    clock: Clock
    emit: Emit
    bell: Bell
    fencing: Fencing
    turns: ChangeTurns
    _duties_due: asyncio.Event = field(default_factory=asyncio.Event)
    _group_changed: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        """Read the topics, however often it takes, and begin to join; raises ``DeliveryFatal``.

        Cancelled: ``stop`` is still to be called.
        """
        self.configs.listen(self._hear)
        self.membership.listen(self._on_group)
        with self.herder.stages.during("reading the internal topics"):
            await self._persistently(self.configs.start)
            await self._persistently(self.statuses.start)
            self.herder.kafka_cluster_id = await self._persistently(self.cluster_id)
        with self.herder.stages.during("joining the group"):
            await self.membership.start()
        if self.herder.settings.is_standalone:
            await self.leadership.settle()
        self.herder.is_started = True
        self.background.start(self._tick_for_ever(), name="herder tick")
        self.background.start(self._do_duties_for_ever(), name="herder duties")
        watching = persist(self._watch_states_for_ever, tell=lambda error: self._tell("states", error))
        self.background.start(watching, name="herder states")
        self.bell.ring()

    async def stop(self) -> None:
        """Let go: tasks, words, group, changes, topics; what fails in it keeps nothing of the rest."""
        self._stopping.set()
        with self.herder.stages.during("stopping"):
            async with AsyncExitStack() as last_first:
                last_first.push_async_callback(self.configs.stop)
                last_first.push_async_callback(self.turns.close, seconds_max=CHANGES_END_SECONDS_MAX)
                for part in (self.membership, self.statuses, self.instances):
                    last_first.push_async_callback(part.stop)

    @property
    def is_settled(self) -> bool:
        """Whether every connector has its tasks, as its config is now, and all of them have begun (or FAILED)."""
        told = self.teller.told
        return all(has_settled(entry, told) for entry in self.configs.config.connectors.values())

    async def wait_refused(self) -> None:
        """Never returns; raises ``DeliveryFatal`` when the group turns out to be one this worker cannot be in."""
        while self.membership.failure is None:
            await self._group_changed.wait()
            self._group_changed.clear()
        raise self.membership.failure

    def _hear(self, change: ConfigChange) -> None:
        self.tick.hear(change)
        self.bell.ring()

    def _on_group(self) -> None:
        self._group_changed.set()
        self.bell.ring()

    async def _tick_for_ever(self) -> None:
        while True:
            is_waiting = self.tick.is_waiting or self.fencing.is_waiting
            waiting = await self.bell.wait_rung(seconds_max=WAITING_SECONDS if is_waiting else PERIOD_SECONDS)
            if self._stopping.is_set():
                return
            began = self.clock.monotonic()
            try:
                self.tick.run()
            except Exception as error:  # noqa: BLE001 - a bug in one tick must not end all that runs here
                self._tell("tick", error)
            else:
                ended(waiting)
            self._duties_due.set()
            # With thousands of connectors a tick takes its time: records that come in a row share one.
            await self.clock.sleep((self.clock.monotonic() - began) * REST_SHARE)

    async def _watch_states_for_ever(self) -> None:
        while True:
            await self.clock.sleep(PERIOD_SECONDS)
            if self.membership.roster is not None and not self._stopping.is_set():
                self.teller.tell_again()

    async def _do_duties_for_ever(self) -> None:
        """Beside the ticks, because they write; what fails is tried again at the next tick."""
        while True:
            await self._duties_due.wait()
            self._duties_due.clear()
            try:
                await self.leadership.settle()
                if self.configs.is_leader:
                    await self.leader.run()
                else:
                    self.fencing.stop_waiting()
            except Exception as error:  # noqa: BLE001 - mostly Kafka being away; a bug must not end all that runs here
                self._tell("duties", error)

    async def _persistently(self, step: Callable[[], Awaitable[Result]]) -> Result:
        """Kafka may be away when a worker starts."""
        attempt = 0
        while True:
            try:
                return await step()
            except DeliveryRetriable as error:
                attempt += 1
                self._tell("start", error)
                await self.clock.sleep(_BACK_OFF.wait_seconds(attempt))

    def _tell(self, step: str, error: Exception) -> None:
        self.emit(HerderStepFailed(step=step, error_class=type(error).__name__, message=str(error)))


def has_settled(entry: ConnectorEntry, told: Mapping[InstanceId, InstanceStatus]) -> bool:
    """Whether nothing is on its way between a connector's config and what runs of it here."""
    connector = told.get(ConnectorId(entry.name))
    if connector is None:
        return False
    if connector.state is State.FAILED or entry.target_state is not TargetState.STARTED:
        return connector.state in {State.FAILED, State.PAUSED, State.STOPPED}
    tasks = [told.get(task) for task in entry.task_ids]
    return entry.is_current and all(task and task.state in {State.RUNNING, State.FAILED} for task in tasks)
