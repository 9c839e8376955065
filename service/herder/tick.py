"""The herder's tick: small steps from what is known to what runs here. Nothing in it waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from service.domain.cluster import RestartRequest
from service.domain.ids import InstanceId
from service.domain.states import State
from service.herder.desired import DesiredInstances
from service.herder.errors import NotFoundError
from service.herder.handover import HandOver
from service.herder.leader import LeaderDuties
from service.herder.ports import ConfigChange, Desired, Instances
from service.herder.restarts import chosen, impact
from service.herder.telling import StatusTeller
from service.herder.view import ClusterView
from service.herder.whereabouts import Whereabouts
from service.kafka.errors import WriterFenced


@dataclass(slots=True)
class Tick:
    """Works on the newest config log and roster; whatever came between two ticks is seen at once."""

    view: ClusterView
    whereabouts: Whereabouts
    instances: Instances
    hand_over: HandOver
    leader: LeaderDuties
    teller: StatusTeller
    desired: DesiredInstances
    set_log_level: Callable[[str, str], None]
    _running: dict[InstanceId, Desired] = field(default_factory=dict)
    _restarts: dict[str, RestartRequest] = field(default_factory=dict)
    _generation: int = -1

    def hear(self, change: ConfigChange) -> None:
        """Keep what a record asks for; what it changes is in the config log's state."""
        if change.restart is not None:
            pending = self._restarts.get(change.restart.connector, change.restart)
            self._restarts[change.restart.connector] = max(pending, change.restart, key=impact)
        if change.logger is not None:
            self.set_log_level(*change.logger)

    def run(self) -> None:
        """All steps."""
        if self.whereabouts.membership.roster is None:
            # Out of the group, for now: what runs goes on. Whoever takes it over fences it.
            return
        self._apply()
        self._restart_fenced()
        self._restart_asked()
        self.leader.forget_gone()

    @property
    def is_waiting(self) -> bool:
        """Whether the next tick is due soon, without anything new being heard."""
        return self.hand_over.is_waiting

    def _apply(self) -> None:
        me, owners = self.whereabouts.membership.me, self.whereabouts.owners
        desired = self.desired.of(owners.owned_by(me), self.view.configs.config)
        self._running = self.hand_over.ready(desired)
        self.instances.apply(self._running)

    def _restart_fenced(self) -> None:
        """What another worker took over while this one was away, and is this one's again, has nobody to run it."""
        generation = self.whereabouts.generation
        if generation == self._generation:
            return
        self._generation = generation
        fenced = [
            instance
            for instance, status in self.teller.told.items()
            if status.state is State.FAILED and WriterFenced.__name__ in (status.trace or "")
        ]
        mine = [instance for instance in fenced if instance in self._running]
        if mine:
            self.instances.restart(mine)

    def _restart_asked(self) -> None:
        asked, self._restarts = self._restarts, {}
        for request in asked.values():
            try:
                status = self.view.status(request.connector)
            except NotFoundError:
                continue
            mine = [instance for instance in chosen(request, status) if instance in self._running]
            if mine:
                self.instances.restart(mine)
