"""Source connectors, as the worker runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fetchers.sdk import SourceConnector, WorkContext
from service.config.definition import ConnectorDefinition
from service.domain.errors import ConnectorExitError
from service.domain.ids import TaskId
from service.pipeline.task import SourceTask
from service.worker.connectors import ConnectorParts, make_source_task, plan_of
from service.worker.kinds import Confirm, ConnectorTraits, MakeTask, UseTopic


@dataclass(slots=True)
class DefinedSource:
    """A source as it is configured, as the worker runs it: see ``service.worker.kinds.DefinedConnector``."""

    parts: ConnectorParts
    traits: ConnectorTraits
    definition: ConnectorDefinition
    _split_by: SourceConnector[Any] | None = field(default=None, init=False)
    """The instance whose ``task_configs`` was last asked; it knows what it has seen then."""

    def split(self) -> Sequence[Mapping[str, str]]:
        """For each task the keys it has besides the connector's own; runs the connector's ``task_configs``."""
        self._split_by = self._connector()
        return self._split_by.task_configs(self.definition.common.tasks_max)

    async def work_changed(self, context: WorkContext) -> None:
        """What the connector's own ``work_changed`` does; an exit that it asks for is not the worker's."""
        try:
            await (self._split_by or self._connector()).work_changed(context)
        except SystemExit as error:
            raise ConnectorExitError.of(error) from error

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
