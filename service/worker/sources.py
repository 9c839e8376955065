"""Source connectors, as the worker runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fetchers.sdk import SourceConnector
from service.config.definition import ConnectorDefinition
from service.domain.ids import TaskId
from service.pipeline.task import SourceTask
from service.worker.connectors import ConnectorParts, make_source_task, plan_of
from service.worker.kinds import Confirm, ConnectorTraits, MakeTask, UseTopic


@dataclass(frozen=True, slots=True)
class DefinedSource:
    """A source as it is configured, as the worker runs it: see ``service.worker.kinds.DefinedConnector``."""

    parts: ConnectorParts
    traits: ConnectorTraits
    definition: ConnectorDefinition

    def split(self) -> Sequence[Mapping[str, str]]:
        """For each task the keys it has besides the connector's own; runs the connector's ``task_configs``."""
        return self._connector().task_configs(self.definition.common.tasks_max)

    def prepare_task(self, task_id: TaskId, use_topic: UseTopic, confirm: Confirm) -> MakeTask:
        """Make the connector's instance; the rest waits for the registry and for Kafka."""
        connector = self._connector()

        async def make_task() -> SourceTask:
            plan = await plan_of(self.definition, self.parts)
            return await make_source_task(
                task_id,
                self.definition,
                self.parts,
                connector=connector,
                plan=plan,
                use_topic=use_topic,
                confirm=confirm,
            )

        return make_task

    def _connector(self) -> SourceConnector[Any]:
        return self.definition.for_task({})
