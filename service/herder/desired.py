"""What should run of one connector on a worker, and when: from who owns what and from the config log.

``desired_of`` and what it is made of are pure; ``demand_wanted`` reads the log.
"""

from __future__ import annotations

from collections.abc import Callable

from service.domain.cluster import ClusterConfig, ConnectorEntry, Properties
from service.domain.errors import TaskSupersededError
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import TargetState
from service.herder.ports import ConfigStore, Desired


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
    """The connector itself and its tasks, whoever owns them; ``has_tasks`` = False leaves the tasks out.

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


async def demand_wanted(configs: ConfigStore, task_id: TaskId, begun: Desired) -> None:
    """Raise TaskSupersededError unless a task that starts is still wanted as it was begun; or DeliveryRetriable.

    A worker that is out of the group goes on with what it had, and may start that again by itself: after an error, or
    when it wakes. Its start fences whoever has the same number; but with newer task configs its work may have gone to
    another number, and the leader fences the older ones only once. So a source's task asks the config log itself, up to
    its end: *before* its start, so that it fences nobody whom it must not, and *after* it, because the leader's fencing
    may have come in between. Where newer configs come later still, the leader fences what has started here.
    """
    await configs.read_to_end()
    entry = configs.config.connectors.get(task_id.connector)
    if entry is None:
        message = f"connector {task_id.connector} is deleted"
    elif entry.target_state is TargetState.STOPPED:
        message = f"connector {task_id.connector} is stopped"
    elif entry.task_generation != begun.generation:
        message = f"task {task_id} has newer configs, or is no longer one of its connector's"
    else:
        return
    raise TaskSupersededError(message)
