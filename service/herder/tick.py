"""The herder's tick: small steps from what is known to what runs here. Nothing in it waits.

A tick looks only at connectors of which something has changed, so that one more costs the same beside ten and beside
ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from fetchers.sdk import Clock
from service.domain.cluster import ConfigChange, RestartRequest
from service.domain.ids import InstanceId
from service.domain.states import State
from service.herder.desired import desired_of
from service.herder.errors import NotFoundError
from service.herder.leader import LeaderDuties
from service.herder.ports import Desired, Instances
from service.herder.requests import chosen, impact
from service.herder.statuses import StatusTeller
from service.herder.view import ClusterView


@dataclass(slots=True)
class Tick:
    """Works on the newest config log and roster; whatever came between two ticks is seen at once."""

    view: ClusterView
    instances: Instances
    holdings: Holdings
    leader: LeaderDuties
    teller: StatusTeller
    set_log_level: Callable[[str, str], None]
    _spoken_of: set[str] = field(default_factory=set)
    """Connectors that the config log has spoken of since the last tick."""
    _moved: set[str] = field(default_factory=set)
    """Connectors of which something has another owner since then."""
    _are_all_due: bool = True
    _restarts: dict[str, RestartRequest] = field(default_factory=dict)
    _generation: int = 0
    _was_out: bool = False

    def hear(self, change: ConfigChange) -> None:
        """Keep what a record of the config log asks for; what it changes is in the log's state."""
        if change.connector is not None:
            self._spoken_of.add(change.connector)
        if change.restart is not None:
            pending = self._restarts.get(change.restart.connector, change.restart)
            self._restarts[change.restart.connector] = max(pending, change.restart, key=impact)
        if change.logger is not None:
            self.set_log_level(*change.logger)

    def run(self) -> None:
        """All steps, once; called by the herder's life on the event loop."""
        if self.view.roster is None:
            # Out of the group, for now: what runs goes on. Whoever takes it over fences it.
            self._was_out = True
            return
        begun = {instance for name in self._due() for instance in self.holdings.renew(name)}
        self._restart_overtaken(begun)
        self._restart_asked()
        self.leader.forget_gone(self._spoken_of)
        # Only now: a tick that fails is made up for by the next.
        self._spoken_of, self._moved, self._are_all_due = set(), set(), False

    @property
    def is_waiting(self) -> bool:
        """Whether the next tick is due soon, without anything new being heard."""
        return bool(self.holdings.waiting)

    def _due(self) -> Collection[str]:
        moved = self.view.owners.take_moved()
        if moved is None:
            self._are_all_due = True
        else:
            self._moved |= moved
        if self._are_all_due:
            return {*self.view.config.connectors, *self.holdings.names()}
        return self._spoken_of | self._moved | self.holdings.waiting

    def _restart_overtaken(self, begun: Collection[InstanceId]) -> None:
        """What another worker took over while this one was away, and is this one's again, has nobody to run it.

        Its former incarnation here may not know yet that it is fenced; it would when it delivers next.
        """
        generation = self.view.generation
        has_missed_rounds = self._was_out and generation > self._generation + 1
        self._was_out, self._generation = False, generation
        suspects = self.teller.fenced_by_successor()
        if has_missed_rounds:
            suspects |= self.teller.running()
        mine = [instance for instance in suspects if self.holdings.is_running(instance) and instance not in begun]
        if mine:
            self.instances.restart(mine)
            self.teller.begin_anew(mine)

    def _restart_asked(self) -> None:
        asked, self._restarts = self._restarts, {}
        for request in asked.values():
            try:
                status = self.view.status(request.connector)
            except NotFoundError:
                continue
            mine = [instance for instance in chosen(request, status) if self.holdings.is_running(instance)]
            if mine:
                self.instances.restart(mine)


@dataclass(slots=True)
class _Holding:
    """One connector, as far as it is this worker's."""

    hand_over: _HandOver
    running: Mapping[InstanceId, Desired] = field(default_factory=dict)


@dataclass(slots=True)
class Holdings:
    """What is this worker's, connector by connector: what should run, and what of it may run yet."""

    view: ClusterView
    instances: Instances
    clock: Clock
    waiting: set[str] = field(default_factory=set)
    """Connectors of which something waits for its former owner: they are due at every tick."""
    _held: dict[str, _Holding] = field(default_factory=dict)

    def names(self) -> Collection[str]:
        """Connectors of which this worker owns the connector itself or a task."""
        return self._held.keys()

    def is_running(self, instance: InstanceId) -> bool:
        """Whether it should run here, and may."""
        held = self._held.get(instance.connector)
        return held is not None and instance in held.running

    def renew(self, name: str) -> Collection[InstanceId]:
        """Bring one connector in line with the config log and the owners; returns what may run here only now."""
        wanted = desired_of(name, self.view.config, is_mine=self.view.is_mine, type_of=self.view.type_of)
        held = self._held.get(name)
        if held is None:
            if not wanted:
                return ()
            held = self._held[name] = _Holding(_HandOver(self.view, self.clock))
        before, held.running = held.running, held.hand_over.ready(wanted)
        if held.hand_over.is_waiting:
            self.waiting.add(name)
        else:
            self.waiting.discard(name)
        if not wanted:
            del self._held[name]
        if held.running != before:
            self.instances.apply(name, held.running)
        return held.running.keys() - before.keys()


@dataclass(slots=True)
class _HandOver:
    """Whoever takes work waits until the one who had it has let go, for the graceful time-out at most.

    Nothing is at risk without it (transactions fence sources, consumer groups bar sinks); it spares the former owner
    from being cut off while it delivers what it holds.
    """

    view: ClusterView
    clock: Clock
    _taken: set[InstanceId] = field(default_factory=set)
    _waiting_since: dict[InstanceId, float] = field(default_factory=dict)

    @property
    def is_waiting(self) -> bool:
        """Whether anything is held back for its former owner."""
        return bool(self._waiting_since)

    def ready(self, desired: Mapping[InstanceId, Desired]) -> dict[InstanceId, Desired]:
        """What of it may run now; what runs already stays."""
        if self._taken == desired.keys():
            return dict(desired)
        now, seconds_max = self.clock.monotonic(), self.view.settings.graceful_seconds
        self._taken &= desired.keys()
        self._waiting_since = {
            instance: self._waiting_since.get(instance, now)
            for instance in desired
            if instance not in self._taken and self._is_held_elsewhere(instance)
        }
        late = {instance for instance, since in self._waiting_since.items() if now - since >= seconds_max}
        for instance in late:
            del self._waiting_since[instance]
        free = {instance: wanted for instance, wanted in desired.items() if instance not in self._waiting_since}
        self._taken.update(free)
        return free

    def _is_held_elsewhere(self, instance: InstanceId) -> bool:
        status = self.view.statuses.instance(instance)
        if status is None or status.state is State.UNASSIGNED or self.view.roster is None:
            return False
        others = [member for member in self.view.roster.members if member != self.view.me]
        return any(member.worker_id == status.worker_id for member in others)
