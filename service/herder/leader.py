"""What only the leader of the group does: hold the claim to write, fence, forget what is gone, renew the session key.

Each duty looks at what is there and does what is missing, so it may be done twice and may be left off at any point;
whoever leads next goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fetchers.sdk import Clock
from metrics.events import Emit, HerderStepFailed
from service.domain.cluster import ConnectorEntry, Properties
from service.domain.ids import ConnectorId, TaskId
from service.herder.deletions import Deletions
from service.herder.desired import ids_to_fence
from service.herder.errors import ConflictError, NotFoundError, RequestError
from service.herder.peers import new_key
from service.herder.requests import ConnectorLocks
from service.herder.view import ClusterView

FENCINGS_AT_ONCE = 16
"""Each opens a client of its own, because a connector may name other brokers or another login."""
FENCING_SECONDS_MAX = 60.0
"""For one connector: variables of its config resolved, its client opened, its transactional ids fenced."""
FENCING_RETRY_SECONDS = 2.0


@dataclass(slots=True)
class Leadership:
    """The leader's claim to write: taken when the group makes this worker its leader, given up when it does not.

    A claim ends the one of the leader before. So a worker that was frozen and still takes itself for the leader must
    not claim again the moment it is fenced: it waits until the group has told it of a newer generation, or would have
    by now.
    """

    view: ClusterView
    clock: Clock
    _fenced_in: int | None = None
    _doubt_ends: float = 0.0

    def on_fenced(self) -> None:
        """Hear that another worker has claimed the lead: a write of this one was refused."""
        self._fenced_in = self.view.generation
        self._doubt_ends = self.clock.monotonic() + self.view.settings.doubt_seconds

    async def settle(self) -> None:
        """Claim or give up, whichever is due; raises ``KafkaFailure``."""
        configs = self.view.configs
        if self.view.is_leader:
            if not configs.is_leader and not self._is_in_doubt():
                await configs.claim_leadership()
        elif configs.is_leader and self.view.roster is not None:
            await configs.drop_leadership()

    def _is_in_doubt(self) -> bool:
        return self._fenced_in == self.view.generation and self.clock.monotonic() < self._doubt_ends


@dataclass(slots=True)
class Fencing:
    """Before a new generation of a source's tasks may start, the leader ends the older one (KIP-618).

    Each task's own start fences the task of the same number. What is left are the numbers that the new generation does
    not have, and work that has moved from one number to another: the leader fences them all, then writes how many tasks
    there are now. Owners stop the older tasks when they read of newer ones, and hold those back until they have read
    that record.

    Fenced is only what has let go, so that a task delivers what it holds when its connector is stopped or changed; or
    what has had ``letting_go_seconds`` for it. Connect comes to the same: its workers stop the older tasks in the
    rebalance, and ask for the fencing when they start the new ones.
    """

    view: ClusterView
    fence_producers: Callable[[Properties, Sequence[str]], Awaitable[None]]
    """With the client settings of a connector of this config, ends older incarnations of these transactional ids."""
    locks: ConnectorLocks
    clock: Clock
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    """Runs a coroutine that raises nothing beside everything else."""
    on_ended: Callable[[], None]
    """Hears that a fencing has ended, well or not."""
    emit: Emit
    _pending_since: dict[str, float] = field(default_factory=dict, init=False)
    _not_before: dict[str, float] = field(default_factory=dict, init=False)
    """When to try what has failed again."""
    _begun: set[str] = field(default_factory=set, init=False)
    _at_broker: set[str] = field(default_factory=set, init=False)
    """Connectors whose transactional ids are being fenced this moment."""
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(FENCINGS_AT_ONCE), init=False)

    @property
    def is_waiting(self) -> bool:
        """Whether older tasks are being waited for, so that ``begin_due`` should be called again soon."""
        return any(name not in self._begun and name not in self._not_before for name in self._pending_since)

    def is_spared(self, entry: ConnectorEntry, count: int) -> bool:
        """Whether ``count`` new tasks of a source need not wait for it; those of sinks are not counted at all."""
        return not self.view.is_sink(entry) and not ids_to_fence(self.view.config, entry.name, count)

    def is_under_way(self, connector: str) -> bool:
        """Whether ids of the connector are being fenced this moment: what begins to write under one would be hit."""
        return connector in self._at_broker

    def begin_due(self) -> None:
        """Begin to fence what is due, all of it at once within bounds. Returns at once; failures are tried again."""
        now = self.clock.monotonic()
        pending = self._pending()
        self._pending_since = {name: self._pending_since.get(name, now) for name in pending}
        self._not_before = {name: at for name, at in self._not_before.items() if name in pending and at > now}
        for name in pending:
            if name not in self._begun and name not in self._not_before and self._may_begin(name, now):
                self._begun.add(name)
                self.spawn(self._run(name))

    def stop_waiting(self) -> None:
        """Forget what was waited for, because another worker leads now."""
        self._pending_since.clear()

    def _pending(self) -> list[str]:
        """Sources with task configs after which no task count is written yet."""
        config = self.view.config
        return [
            name
            for name in sorted(config.fencing_pending)
            if (entry := config.connectors.get(name)) and entry.tasks is not None and not self.view.is_sink(entry)
        ]

    def _may_begin(self, name: str, now: float) -> bool:
        """Whether all that is to be fenced has let go, as far as its workers have told, or its time is over.

        New tasks are not begun yet, so what is told to run of the connector is of the older ones.
        """
        if not self._ids(name):
            return True
        waited_seconds = now - self._pending_since.get(name, now)
        return not self.view.held_tasks(name) or waited_seconds >= letting_go_seconds(self.view)

    def _ids(self, name: str) -> list[str]:
        numbers = ids_to_fence(self.view.config, name, len(self.view.entry(name).tasks or ()))
        return [TaskId(name, number).transactional_id(self.view.settings.group_id) for number in numbers]

    async def _run(self, name: str) -> None:
        """The border of one connector: what it may not, or cannot, is told and tried again."""
        try:
            async with self._slots, self.locks.telling_failures():
                await self._fence(name)
        except (ConflictError, NotFoundError):
            pass  # Changed or deleted meanwhile, or another worker leads: the next look sees what is due now.
        except Exception as error:  # noqa: BLE001 - one connector holds up no other
            self._not_before[name] = self.clock.monotonic() + FENCING_RETRY_SECONDS
            # A client would be told of Kafka's failure in its own class; here the failure itself is of interest.
            cause = error.__cause__ if isinstance(error, RequestError) and error.__cause__ else error
            message = f"fencing of {name}: {cause}"
            self.emit(HerderStepFailed(step="fencing", error_class=type(cause).__name__, message=message))
        finally:
            self._begun.discard(name)
            self.on_ended()

    async def _fence(self, name: str) -> None:
        # Alone, because what is being written meanwhile may spare its tasks the fencing.
        async with self.locks.alone_with(name):
            entry = self.view.entry(name)
            if name not in self._pending() or not self._may_begin(name, self.clock.monotonic()):
                return  # Written while this one waited for its slot.
            ids = self._ids(name)
            if ids:
                self._at_broker.add(name)
        # Not alone: no request about the connector has to wait for brokers that do not answer.
        try:
            if ids:
                async with asyncio.timeout(FENCING_SECONDS_MAX):
                    await self.fence_producers(entry.config, ids)
        except TimeoutError:
            raise TimeoutError(f"not done within {FENCING_SECONDS_MAX:g} s") from None
        finally:
            self._at_broker.discard(name)
        async with self.locks.alone_with(name):
            if self.view.entry(name).task_generation != entry.task_generation:
                raise ConflictError(f"Connector {name} has got newer task configurations")
            await self.view.configs.put_task_count(name, len(entry.tasks or ()))


@dataclass(slots=True)
class LeaderDuties:
    """Done after every tick of a leader."""

    view: ClusterView
    leadership: Leadership
    fencing: Fencing
    deletions: Deletions
    locks: ConnectorLocks
    clock: Clock
    _swept_in: int = field(default=0, init=False)
    """The generation in which the states that earlier leaders have left were looked through."""
    _leaving: dict[str, float] = field(default_factory=dict, init=False)
    """Connectors of which some worker still has a task that is no more, and since when."""

    async def run(self) -> None:
        """Claim or give up the lead, then do all duties of a leader; called after every tick.

        Raises ``RequestError`` or ``KafkaFailure`` where something could not be done, to be tried again.
        """
        await self.leadership.settle()
        if not self.view.configs.is_leader:
            self.fencing.stop_waiting()
            return
        self.fencing.begin_due()
        self.deletions.begin_due()
        async with self.locks.telling_failures():
            if not self.view.settings.is_standalone:
                await self._renew_key()
            await self._forget_left_over()

    def forget_gone(self, names: Iterable[str]) -> None:
        """Remove the states of what is no more, of connectors that the config log has spoken of.

        A task that a worker still has may still write; that worker's own word is waited for, but not for ever.
        """
        for name in {*names, *self._leaving}:
            entry = self.view.config.connectors.get(name)
            count = 0 if entry is None else len(entry.tasks or ())
            gone = {number for number in self.view.statuses.tasks(name) if number >= count}
            # Who leads next has waited as long.
            waited_for = self._waited_for(name, set() if entry is None else gone)
            if self.view.is_leader:
                for number in sorted(gone - waited_for):
                    self.view.statuses.remove(TaskId(name, number))
                if entry is None:
                    self._forget_connector(name)

    async def _forget_left_over(self) -> None:
        """Once for each generation: a leader that deletes and dies has not forgotten, and nobody else was to."""
        generation = self.view.generation
        if generation == self._swept_in:
            return
        names = self.view.statuses.names()
        # Whoever has a state now was in the config log before.
        await self.view.configs.read_to_end()
        self.forget_gone(names)
        self._swept_in = generation

    def _waited_for(self, name: str, gone: set[int]) -> set[int]:
        held = gone & self.view.held_tasks(name)
        if not held:
            self._leaving.pop(name, None)
            return held
        now = self.clock.monotonic()
        is_late = now - self._leaving.setdefault(name, now) >= letting_go_seconds(self.view)
        return set() if is_late else held

    def _forget_connector(self, name: str) -> None:
        if self.view.statuses.connector(name) is not None:
            self.view.statuses.remove(ConnectorId(name))
        self.view.statuses.reset_topics(name)

    async def _renew_key(self) -> None:
        key = self.view.config.session_key
        now_ms = round(self.clock.now().timestamp() * 1000)
        if key is None or now_ms - key.created_ms >= self.view.settings.key_seconds_max * 1000:
            await self.view.configs.put_session_key(new_key(self.view.settings.key_algorithm, created_ms=now_ms))


def letting_go_seconds(view: ClusterView) -> float:
    """Until a worker has heard that a task is no more, has ended it, and has said so: twice the graceful time-out."""
    return 2.0 * view.settings.graceful_seconds
