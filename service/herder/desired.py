"""What should run on a worker of one connector: a pure function of who owns what and of the config log."""

from __future__ import annotations

from collections.abc import Callable

from service.domain.cluster import ClusterConfig, ConnectorEntry, Properties
from service.domain.ids import ConnectorId, InstanceId
from service.domain.states import TargetState
from service.herder.ports import Desired


def desired_of(
    name: str,
    config: ClusterConfig,
    *,
    is_mine: Callable[[InstanceId], bool],
    type_of: Callable[[Properties], str],
) -> dict[InstanceId, Desired]:
    """What should run here of the connector; nothing of one that is deleted.

    Tasks of a source whose older generation is still to be fenced wait for it (KIP-618).
    """
    entry = config.connectors.get(name)
    if entry is None:
        return {}
    everything = instances_of(entry, has_tasks=not awaits_fencing(config, entry, type_of))
    return {instance: wanted for instance, wanted in everything.items() if is_mine(instance)}


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
    """Whether tasks of an older generation could still write, and may by their number not be fenced by the new ones."""
    return (
        entry.name in config.fencing_pending
        and bool(ids_to_fence(config, entry.name, len(entry.tasks or ())))
        and type_of(entry.config) != "sink"
    )


def ids_to_fence(config: ClusterConfig, name: str, count: int) -> range:
    """Numbers of the tasks of the generation before that have to be fenced before one of ``count`` may start.

    One task before and one now need no fencing by the leader: the new one's own start does it. Nor do the first ones.
    """
    before = config.task_counts.get(name, 0)
    return range(0) if before == 1 and count == 1 else range(before)
