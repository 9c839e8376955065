"""What should run on a worker: a pure function of who owns what and of the config log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from service.domain.cluster import ClusterConfig, ConnectorEntry, Properties
from service.domain.ids import ConnectorId, InstanceId
from service.domain.states import TargetState
from service.herder.ports import Desired


@dataclass(frozen=True, slots=True)
class _Remembered:
    entry: ConnectorEntry
    is_awaiting: bool
    desired: Mapping[InstanceId, Desired]


@dataclass(slots=True)
class DesiredInstances:
    """The function, and what it gave last: of a thousand connectors all but one are as they were."""

    type_of: Callable[[Properties], str]
    _remembered: dict[str, _Remembered] = field(default_factory=dict)

    def of(self, mine: Iterable[InstanceId], config: ClusterConfig) -> dict[InstanceId, Desired]:
        """What should run here, of what is this worker's.

        Tasks of a source whose older generation is still to be fenced wait for it (KIP-618).
        """
        known = {name: self._look_up(entry, config) for name, entry in config.connectors.items()}
        self._remembered = known
        found: dict[InstanceId, Desired] = {}
        for instance in mine:
            of_connector = known.get(instance.connector)
            wanted = None if of_connector is None else of_connector.desired.get(instance)
            if wanted is not None:
                found[instance] = wanted
        return found

    def _look_up(self, entry: ConnectorEntry, config: ClusterConfig) -> _Remembered:
        is_awaiting = awaits_fencing(config, entry, self.type_of)
        before = self._remembered.get(entry.name)
        if before is not None and before.entry is entry and before.is_awaiting == is_awaiting:
            return before
        return _Remembered(entry, is_awaiting, instances_of(entry, has_tasks=not is_awaiting))


def instances_of(entry: ConnectorEntry, *, has_tasks: bool = True) -> dict[InstanceId, Desired]:
    """Everything of one connector.

    Tasks run with the connector config they were made from: a newer one reaches them with the next task configs.
    """
    desired: dict[InstanceId, Desired] = {ConnectorId(entry.name): Desired(entry.config, entry.target_state)}
    if has_tasks and entry.target_state is not TargetState.STOPPED:
        made_from = entry.config if entry.tasks_made_from is None else entry.tasks_made_from
        for task_id, task in zip(entry.task_ids, entry.tasks or (), strict=True):
            desired[task_id] = Desired(made_from, entry.target_state, task, entry.task_generation)
    return desired


def awaits_fencing(config: ClusterConfig, entry: ConnectorEntry, type_of: Callable[[Properties], str]) -> bool:
    """Whether tasks of an older generation could still write, and may by their number not be fenced by the new ones.

    One task before and one now need no fencing by the leader: the new one's own start does it. Nor do the first ones.
    """
    return (
        entry.name in config.fencing_pending and bool(ids_to_fence(config, entry)) and type_of(entry.config) != "sink"
    )


def ids_to_fence(config: ClusterConfig, entry: ConnectorEntry) -> range:
    """Numbers of the tasks of the generation before that have to be fenced before this one may start."""
    before, now = config.task_counts.get(entry.name, 0), len(entry.tasks or ())
    return range(0) if before == 1 and now == 1 else range(before)
