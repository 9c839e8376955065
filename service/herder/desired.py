"""What should run on a worker: a pure function of who owns what and of the config log."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from service.domain.cluster import ClusterConfig, ConnectorEntry, Properties
from service.domain.ids import ConnectorId, InstanceId
from service.domain.states import TargetState
from service.herder.ports import Desired


def desired_for(
    mine: Iterable[InstanceId], config: ClusterConfig, *, type_of: Callable[[Properties], str]
) -> dict[InstanceId, Desired]:
    """What should run here, of what is this worker's.

    Tasks run with the connector config they were made from: a newer one reaches them with the next task configs.
    Tasks of a source whose older generation is still to be fenced wait for it (KIP-618).
    """
    desired: dict[InstanceId, Desired] = {}
    for instance in mine:
        entry = config.connectors.get(instance.connector)
        if entry is None:
            continue
        if isinstance(instance, ConnectorId):
            desired[instance] = Desired(entry.config, entry.target_state)
        elif (task := task_of(entry, instance.task)) is not None and not awaits_fencing(config, entry, type_of):
            desired[instance] = task
    return desired


def task_of(entry: ConnectorEntry, number: int) -> Desired | None:
    """One task of a connector; None where there is none, or where it should not exist any more."""
    tasks = entry.tasks or ()
    if number >= len(tasks) or entry.target_state is TargetState.STOPPED:
        return None
    made_from = entry.config if entry.tasks_made_from is None else entry.tasks_made_from
    return Desired(made_from, entry.target_state, tasks[number], entry.task_generation)


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
