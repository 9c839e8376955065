"""Whether a task that starts is still wanted as it was begun (KIP-618).

A worker that is out of the group goes on with what it had, and may start that again by itself: after an error, or when
it wakes. Its start fences whoever has the same number; but with newer task configs its work may have gone to another
number, and the leader fences the older ones only once. So a source's task asks the config log itself, up to its end:
*before* its start, so that it fences nobody whom it must not, and *after* it, because the leader's fencing may have
come in between. Where newer configs come later still, the leader fences what has started here.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.errors import TaskSupersededError
from service.domain.ids import TaskId
from service.domain.states import TargetState
from service.herder.ports import ConfigStore, Desired


@dataclass(frozen=True, slots=True)
class TaskConfirmation:
    """Asks the config log."""

    configs: ConfigStore

    async def confirm(self, task_id: TaskId, begun: Desired) -> None:
        """Raises TaskSupersededError, DeliveryRetriable."""
        await self.configs.read_to_end()
        entry = self.configs.config.connectors.get(task_id.connector)
        if entry is None:
            message = f"connector {task_id.connector} is deleted"
        elif entry.target_state is TargetState.STOPPED:
            message = f"connector {task_id.connector} is stopped"
        elif entry.task_generation != begun.generation:
            message = f"task {task_id} has newer configs, or is no longer one of its connector's"
        else:
            return
        raise TaskSupersededError(message)
