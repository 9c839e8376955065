"""Before a new generation of a source's tasks may start, the leader ends the older one (KIP-618).

Each task's own start fences the task of the same number. What is left are the numbers that the new generation does
not have, and work that has moved from one number to another: the leader fences them all, then writes how many tasks
there are now. Owners hold the new tasks back until they have read that record.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.cluster import ConnectorEntry
from service.domain.ids import TaskId
from service.herder.desired import ids_to_fence
from service.herder.errors import BadRequestError, ConflictError
from service.herder.parts import ClusterDoors, HerderSettings
from service.herder.ports import ConfigStore
from service.herder.view import ClusterView
from service.herder.writing import ChangeTurns


@dataclass(frozen=True, slots=True)
class Fencing:
    """The leader's part."""

    configs: ConfigStore
    view: ClusterView
    doors: ClusterDoors
    turns: ChangeTurns
    settings: HerderSettings

    def is_spared(self, entry: ConnectorEntry, count: int) -> bool:
        """Whether ``count`` new tasks of a source need not wait for it; those of sinks are not counted at all."""
        is_source = self.doors.type_of(entry.config) != "sink"
        return is_source and not ids_to_fence(self.configs.config, entry.name, count)

    async def fence(self, name: str) -> None:
        """End the older generation; raises ``RequestError``, ``KafkaFailure``."""
        entry = self.view.entry(name)
        if self.doors.type_of(entry.config) == "sink":
            raise BadRequestError(f"Connector {name} is not a source connector")
        numbers = ids_to_fence(self.configs.config, name, len(entry.tasks or ()))
        if numbers:
            ids = [TaskId(name, number).transactional_id(self.settings.group_id) for number in numbers]
            await self.doors.fence_producers(entry.config, ids)
        # Alone, because task configs that are written meanwhile may tell a count as well.
        async with self.turns.alone_with(name):
            if self.view.entry(name).task_generation != entry.task_generation:
                raise ConflictError("Fencing failed because new task configurations were generated for the connector")
            await self.configs.put_task_count(name, len(entry.tasks or ()))

    def pending(self) -> list[str]:
        """Sources whose new tasks wait for it."""
        config = self.configs.config
        return [
            name
            for name in sorted(config.fencing_pending)
            if (entry := config.connectors.get(name)) is not None
            and entry.tasks is not None
            and self.doors.type_of(entry.config) != "sink"
        ]
