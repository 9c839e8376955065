"""The herder's tick: small steps from what is known to what runs here. Nothing in it waits."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from service.domain.cluster import ConfigChange, RestartRequest
from service.domain.ids import InstanceId
from service.herder.errors import NotFoundError
from service.herder.holdings import Holdings
from service.herder.leader import LeaderDuties
from service.herder.ports import Instances
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
        """Keep what a record asks for; what it changes is in the config log's state."""
        if change.connector is not None:
            self._spoken_of.add(change.connector)
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
        config = self.view.configs.config
        begun = {instance for name in self._due() for instance in self.holdings.renew(name, config)}
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
        moved = self.whereabouts.owners.take_moved()
        if moved is None:
            self._are_all_due = True
        else:
            self._moved |= moved
        if self._are_all_due:
            return {*self.view.configs.config.connectors, *self.holdings.names()}
        return self._spoken_of | self._moved | self.holdings.waiting

    def _restart_overtaken(self, begun: Collection[InstanceId]) -> None:
        """What another worker took over while this one was away, and is this one's again, has nobody to run it.

        Its former incarnation here may not know yet that it is fenced; it would when it delivers next.
        """
        generation = self.whereabouts.generation
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
