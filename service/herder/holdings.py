"""What is this worker's, connector by connector: what should run, and what of it may run yet.

A tick looks only at connectors of which something has changed, so that one more costs the same beside ten and beside
ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from service.domain.cluster import ClusterConfig, Properties
from service.domain.ids import InstanceId
from service.herder.desired import desired_of
from service.herder.handover import HandOver
from service.herder.ports import Desired, Instances
from service.herder.whereabouts import Whereabouts


@dataclass(slots=True)
class _Holding:
    """One connector, as far as it is this worker's."""

    hand_over: HandOver
    running: Mapping[InstanceId, Desired] = field(default_factory=dict)


@dataclass(slots=True)
class Holdings:
    """Tells the instances what to run."""

    whereabouts: Whereabouts
    instances: Instances
    type_of: Callable[[Properties], str]
    new_hand_over: Callable[[], HandOver]
    waiting: set[str] = field(default_factory=set)
    """Connectors of which something waits for its former owner: they are due at every tick."""
    _held: dict[str, _Holding] = field(default_factory=dict)

    def names(self) -> Collection[str]:
        """Connectors of which something is here."""
        return self._held.keys()

    def is_running(self, instance: InstanceId) -> bool:
        """Whether it should run here, and may."""
        held = self._held.get(instance.connector)
        return held is not None and instance in held.running

    def renew(self, name: str, config: ClusterConfig) -> Collection[InstanceId]:
        """Bring one connector in line with the config log and the owners; returns what may run here only now."""
        wanted = desired_of(name, config, is_mine=self._is_mine, type_of=self.type_of)
        held = self._held.get(name)
        if held is None:
            if not wanted:
                return ()
            held = self._held[name] = _Holding(self.new_hand_over())
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

    def _is_mine(self, instance: InstanceId) -> bool:
        return self.whereabouts.owners.owner(instance) == self.whereabouts.membership.me
