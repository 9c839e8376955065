"""A polite hand-over: whoever takes work waits until the one who had it has let go, but not for ever.

Nothing is at risk without it (transactions fence sources, consumer groups bar sinks); it spares the former owner
from being cut off while it delivers what it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fetchers.sdk import Clock
from service.domain.ids import InstanceId
from service.domain.states import State
from service.herder.ports import Desired, StatusStore
from service.herder.telling import current
from service.herder.whereabouts import Whereabouts


@dataclass(slots=True)
class HandOver:
    """Remembers since when it waits for whom."""

    statuses: StatusStore
    whereabouts: Whereabouts
    clock: Clock
    seconds_max: float
    _taken: set[InstanceId] = field(default_factory=set)
    _waiting_since: dict[InstanceId, float] = field(default_factory=dict)

    @property
    def is_waiting(self) -> bool:
        """Whether anything is held back."""
        return bool(self._waiting_since)

    def ready(self, desired: Mapping[InstanceId, Desired]) -> dict[InstanceId, Desired]:
        """What of it may run now; what runs already stays."""
        if self._taken == desired.keys():
            return dict(desired)
        now = self.clock.monotonic()
        self._taken &= desired.keys()
        self._waiting_since = {
            instance: self._waiting_since.get(instance, now)
            for instance in desired
            if instance not in self._taken and self._is_held_elsewhere(instance)
        }
        late = {instance for instance, since in self._waiting_since.items() if now - since >= self.seconds_max}
        for instance in late:
            del self._waiting_since[instance]
        free = {instance: wanted for instance, wanted in desired.items() if instance not in self._waiting_since}
        self._taken.update(free)
        return free

    def _is_held_elsewhere(self, instance: InstanceId) -> bool:
        status = current(self.statuses, instance)
        if status is None or status.state is State.UNASSIGNED:
            return False
        roster = self.whereabouts.membership.roster
        others = () if roster is None else roster.members
        me = self.whereabouts.membership.me
        return any(member.worker_id == status.worker_id for member in others if member != me)
