"""The herder's tick: small steps from what is known to what runs here. Nothing in it waits."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from service.domain.cluster import RestartRequest
from service.domain.ids import InstanceId
from service.herder.desired import DesiredInstances
from service.herder.errors import NotFoundError
from service.herder.handover import HandOver
from service.herder.leader import LeaderDuties
from service.herder.ports import ConfigChange, Desired, Instances
from service.herder.restarts import chosen, impact
from service.herder.telling import StatusTeller
from service.herder.view import ClusterView
from service.herder.whereabouts import Whereabouts


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
    _generation: int = 0
    _was_out: bool = False

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
            self._was_out = True
            return
        running_before = self._running.keys()
        self._apply()
        self._restart_overtaken(running_before)
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

    def _restart_overtaken(self, running_before: Collection[InstanceId]) -> None:
        """What another worker took over while this one was away, and is this one's again, has nobody to run it.

        Its former incarnation here may not know yet that it is fenced; it would when it delivers next.
        """
        generation = self.whereabouts.generation
        has_missed_rounds = self._was_out and generation > self._generation + 1
        self._was_out, self._generation = False, generation
        suspects = self.teller.fenced_by_successor()
        if has_missed_rounds:
            suspects |= self.teller.running()
        mine = [instance for instance in self._running if instance in suspects and instance in running_before]
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
            mine = [instance for instance in chosen(request, status) if instance in self._running]
            if mine:
                self.instances.restart(mine)
