"""The task of a redrive: reads the dead letters, and writes as the connector does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from metrics.events import TaskEvents
from service.config.definition import ConnectorDefinition
from service.domain.ids import TaskId
from service.kafka.admin import KafkaAdmin
from service.pipeline.task import SourceTask
from service.redrive.remembered import FIRST_TASK, RememberedByTasks
from service.redrive.source import DeadLetterFeed, DeadLetterSource, RedriveConfig
from service.worker.connectors import ConnectorParts, StandIn, make_source_task, plan_of
from service.worker.lending import ClientSettings
from service.worker.restarting import restart_policy
from service.worker.supervising import TaskSupervisor
from service.worker.telling import TaskTelling


@dataclass(frozen=True, slots=True)
class Redrive:
    """The letters of one topic on their way through their connector's conversion."""

    topic: str
    definition: ConnectorDefinition
    parts: ConnectorParts

    def supervised(self) -> TaskSupervisor:
        """A task of its own name, so that its offsets are its own."""
        task_id = TaskId(f"redrive-{self.topic}", 0)
        return TaskSupervisor(
            task_id=task_id,
            make_task=lambda: self._task(task_id),
            policy=restart_policy(self.definition.properties),
            listener=TaskTelling(TaskEvents(self.parts.flow.emit, task_id.connector, task_id.task)),
            clock=self.parts.flow.clock,
        )

    async def _task(self, task_id: TaskId) -> SourceTask:
        plan = await plan_of(self.definition, self.parts)
        feed = feed_of(self.definition, self.parts.writers.clients)
        return await make_source_task(
            task_id,
            replace(self.definition, common=self.definition.common.model_copy(update={"errors_tolerance": "all"})),
            self.parts,
            connector=DeadLetterSource(RedriveConfig.model_validate({"topic": self.topic}), feed),
            plan=plan,
            stand_in=self._for_connector() if plan.dedupe_fields else None,
        )

    def _for_connector(self) -> StandIn:
        """What is remembered has one writer: the connector's first task, or this in its place."""
        connector, records_max = self.definition.name, self.definition.common.dedupe_records_max
        states = self.parts.dedupe
        return StandIn(
            TaskId(connector, FIRST_TASK),
            open_dedupe=lambda: RememberedByTasks(
                self._fenced_tasks,
                lambda task: states.open_stored(TaskId(connector, task), records_max=records_max),
            ),
        )

    async def _fenced_tasks(self) -> Sequence[int]:
        """All tasks that remember anything; the first is fenced by the writer that took its place."""
        connector, writers = self.definition.name, self.parts.writers
        tasks = await self.parts.dedupe.store.tasks_of(connector)
        others = [TaskId(connector, task).transactional_id(writers.group_id) for task in tasks if task != FIRST_TASK]
        if others:
            async with KafkaAdmin.opened(writers.clients.of("admin", self.definition.properties)) as admin:
                await admin.fence_producers(others)
        return tasks


def feed_of(definition: ConnectorDefinition, clients: ClientSettings) -> DeadLetterFeed:
    """Read as whom the worker's consumers log in, or the connector's where it says so."""
    return DeadLetterFeed(clients.of("consumer", definition.properties), definition.topic)
