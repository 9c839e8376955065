"""The herder's life: read the internal topics, join the group, tick until stopped, let go in order.

The order of the end matters in a group: first the tasks stop and say so (UNASSIGNED), then these words are written,
then the worker leaves, so that whoever takes over finds everything let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from fetchers.sdk import BackOff, Clock
from metrics.events import Emit, HerderStepFailed
from service.background import Background, persist
from service.domain.cluster import ConfigChange, ConnectorEntry, InstanceStatus
from service.domain.ids import ConnectorId, InstanceId
from service.domain.states import State, TargetState
from service.herder.api import Activity
from service.herder.leader import LeaderDuties
from service.herder.tick import Tick
from service.herder.view import ClusterView
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
class TickRequests:
    """Asks for ticks: by whoever has changed something, often before the herder ticks once for all of them."""

    _due: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def request_tick(self) -> None:
        """Ask for a tick; returns at once."""
        self._due.set()

    async def wait_tick(self) -> None:
        """Ask for a tick; until one that begins after the call has ended."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.request_tick()
        await future

    async def wait_requested(self, *, seconds_max: float) -> list[asyncio.Future[None]]:
        """Until a tick is asked for, or so long; the futures of those that wait for its end."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._due.wait()
        except TimeoutError:
            pass  # a tick in any case: some steps depend on time
        self._due.clear()
        waiting, self._waiting = self._waiting, []
        return waiting


@dataclass(slots=True)
class HerderLife:
    """Runs the herder: its start, its ticks, the leader's duties beside them, its end."""

    view: ClusterView
    tick: Tick
    leader: LeaderDuties
    ticks: TickRequests
    cluster_id: Callable[[], Awaitable[str | None]]
    """Asks Kafka for the id of the cluster."""
    background: Background
    clock: Clock
    emit: Emit
    is_started: bool = field(default=False, init=False)
    kafka_cluster_id: str | None = field(default=None, init=False)
    activity: Activity = field(init=False)
    _duties_due: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _group_changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        """Everything begins with the start."""
        self.activity = Activity("starting", self._instant())

    async def start(self) -> None:
        """Read the topics, however often it takes, and begin to join; raises ``DeliveryFatal``.

        Cancelled: ``stop`` is still to be called.
        """
        view = self.view
        view.configs.listen(self._hear)
        view.membership.listen(self._on_group)
        with self._during("reading the internal topics"):
            await self._persistently(view.configs.start)
            await self._persistently(view.statuses.start)
            self.kafka_cluster_id = await self._persistently(self.cluster_id)
        with self._during("joining the group"):
            await view.membership.start()
        if view.settings.is_standalone:
            await self.leader.leadership.settle()
        self.is_started = True
        self.background.start(self._tick_for_ever(), name="herder tick")
        self.background.start(self._do_duties_for_ever(), name="herder duties")
        watching = persist(self._watch_states_for_ever, tell=lambda error: self._tell("states", error))
        self.background.start(watching, name="herder states")
        self.ticks.request_tick()

    async def stop(self) -> None:
        """Let go: tasks, words, group, changes, topics; what fails in it keeps nothing of the rest."""
        self._stopping.set()
        with self._during("stopping"):
            async with AsyncExitStack() as last_first:
                last_first.push_async_callback(self.view.configs.stop)
                last_first.push_async_callback(self.leader.locks.close, seconds_max=CHANGES_END_SECONDS_MAX)
                for part in (self.view.membership, self.view.statuses, self.tick.instances):
                    last_first.push_async_callback(part.stop)

    async def wait_tick(self) -> None:
        """Until a tick that begins after the call has ended."""
        await self.ticks.wait_tick()

    @property
    def is_settled(self) -> bool:
        """Whether every connector has its tasks, as its config is now, and all of them have begun (or FAILED)."""
        told = self.tick.teller.told
        return all(has_settled(entry, told) for entry in self.view.config.connectors.values())

    async def wait_refused(self) -> None:
        """Never returns; raises ``DeliveryFatal`` when the group turns out to be one this worker cannot be in."""
        while self.view.membership.failure is None:
            await self._group_changed.wait()
            self._group_changed.clear()
        raise self.view.membership.failure

    def _hear(self, change: ConfigChange) -> None:
        self.tick.hear(change)
        self.ticks.request_tick()

    def _on_group(self) -> None:
        self._group_changed.set()
        self.ticks.request_tick()

    async def _tick_for_ever(self) -> None:
        while True:
            is_waiting = self.tick.is_waiting or self.leader.fencing.is_waiting
            waiting = await self.ticks.wait_requested(seconds_max=WAITING_SECONDS if is_waiting else PERIOD_SECONDS)
            if self._stopping.is_set():
                return
            began = self.clock.monotonic()
            try:
                self.tick.run()
            except Exception as error:  # noqa: BLE001 - a bug in one tick must not end all that runs here
                self._tell("tick", error)
            else:
                for future in waiting:
                    if not future.done():
                        future.set_result(None)
            self._duties_due.set()
            # With thousands of connectors a tick takes its time: records that come in a row share one.
            await self.clock.sleep((self.clock.monotonic() - began) * REST_SHARE)

    async def _watch_states_for_ever(self) -> None:
        while True:
            await self.clock.sleep(PERIOD_SECONDS)
            if self.view.roster is not None and not self._stopping.is_set():
                self.tick.teller.tell_again()

    async def _do_duties_for_ever(self) -> None:
        """Beside the ticks, because they write; what fails is tried again at the next tick."""
        while True:
            await self._duties_due.wait()
            self._duties_due.clear()
            try:
                await self.leader.run()
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

    @contextmanager
    def _during(self, text: str) -> Iterator[None]:
        """Tell ``text`` as the activity for the length of a block."""
        began = self._instant()
        self.activity = Activity(text, began)
        try:
            yield
        finally:
            self.activity = Activity(text, began, self._instant())

    def _instant(self) -> str:
        return self.clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")


def has_settled(entry: ConnectorEntry, told: Mapping[InstanceId, InstanceStatus]) -> bool:
    """Whether nothing is on its way between a connector's config and what runs of it here."""
    connector = told.get(ConnectorId(entry.name))
    if connector is None:
        return False
    if connector.state is State.FAILED or entry.target_state is not TargetState.STARTED:
        return connector.state in {State.FAILED, State.PAUSED, State.STOPPED}
    tasks = [told.get(task) for task in entry.task_ids]
    return entry.is_current and all(task and task.state in {State.RUNNING, State.FAILED} for task in tasks)
