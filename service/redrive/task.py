"""The task of a redrive: reads the dead letters, and writes as the connector does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from metrics.events import TaskEvents
from service.config.definition import ConnectorDefinition
from service.domain.cluster import Properties
from service.domain.ids import TaskId
from service.domain.states import State, TargetState
from service.herder.ports import Desired
from service.kafka.errors import DeliveryRetriable
from service.kafka.sharing import StandbyAdmin
from service.pipeline.task import SourceTask
from service.redrive.remembered import FIRST_TASK, RememberedByTasks
from service.redrive.source import DeadLetterFeed, DeadLetterSource, Nameless, PassedOver, RedriveConfig, redrive_name
from service.stores.dedupe_store import StoredDedupe
from service.worker.connectors import ConnectorParts, StandIn, make_source_task, plan_of
from service.worker.lending import ClientSettings
from service.worker.life import InstanceLife, Wish
from service.worker.reporting import TaskReporter
from service.worker.supervising import TaskSupervisor, restart_policy

STOP_SECONDS_MAX = 8.0
"""Time that the task of a redrive has to stop; once all letters are read it has nothing left to deliver."""

Producer: TypeAlias = tuple[int, int]
"""Id and epoch that a coordinator has given to a transactional id."""


@dataclass(frozen=True, slots=True)
class Redrive:
    """A connector's letters in one topic, on their way through its conversion."""

    topic: str
    definition: ConnectorDefinition
    parts: ConnectorParts
    admin: StandbyAdmin
    """Fences the connector's other tasks, in each transaction; whoever made it stops it."""
    nameless: Nameless = Nameless.OTHERS
    passed_over: PassedOver = field(default_factory=PassedOver)

    def life(self) -> InstanceLife:
        """That of a task of its own name, so that its offsets are its own; it runs until it is no longer wanted."""
        task_id = TaskId(redrive_name(self.topic, self.definition.name), 0)
        clock, emit = self.parts.flow.clock, self.parts.flow.emit
        events = TaskEvents(emit, task_id.connector, task_id.task)
        reporter = TaskReporter(events, is_every_failure_traced=False)

        def supervisor(wanted: Desired, state: State) -> TaskSupervisor:
            policy = restart_policy(wanted.config)
            return TaskSupervisor(task_id, lambda: self._task(task_id), policy, reporter, clock, state=state)

        async def version_of(_config: Properties) -> None:
            """Nobody is told the version of a redrive."""

        wish = Wish(Desired(self.definition.properties, TargetState.STARTED))
        return InstanceLife(task_id, supervisor, reporter, clock, STOP_SECONDS_MAX, version_of, wish)

    async def _task(self, task_id: TaskId) -> SourceTask:
        plan = await plan_of(self.definition, self.parts)
        feed = replace(
            feed_of(self.definition, self.parts.writers.clients), nameless=self.nameless, passed_over=self.passed_over
        )
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
        others = FencedTasks(self._fence)
        return StandIn(
            TaskId(self.definition.name, FIRST_TASK),
            lambda: RememberedByTasks(lambda: self._fence_and_load(others)),
            others.confirm,
        )

    async def _fence_and_load(self, others: FencedTasks) -> Mapping[int, StoredDedupe]:
        """Of the tasks the first is fenced already, by the writer that took its place."""
        connector, common, states = self.definition.name, self.definition.common, self.parts.dedupe
        tasks = {FIRST_TASK, *range(common.tasks_max), *await states.store.tasks_of(connector)}
        await others.fence(sorted(tasks - {FIRST_TASK}))
        return await states.store.load_tasks(
            connector,
            sorted(tasks),
            lambda task: states.open_stored(TaskId(connector, task), records_max=common.dedupe_records_max),
        )

    async def _fence(self, tasks: Sequence[int]) -> Mapping[int, Producer]:
        """As a change of offsets does it."""
        group_id = self.parts.writers.group_id
        ids = {TaskId(self.definition.name, task).transactional_id(group_id): task for task in tasks}
        # Fenced twice after a lost answer, a task looks as if it had been started: the commit is made again.
        producers = await self.admin.use(lambda admin: admin.fence_producers(ids))
        return {ids[name]: producer for name, producer in producers.items()}


@dataclass(slots=True)
class FencedTasks:
    """The connector's other tasks, which must not write beside the redrive: it adds to what they remember.

    One that is restarted would go on from the same chunks, and overwrite what the redrive notes. So all are fenced
    anew within each transaction, after its records and before its end: whoever started before is found by its epoch,
    and whoever starts later reads what is remembered only once the transaction has ended.
    """

    fence_producers: Callable[[Sequence[int]], Awaitable[Mapping[int, Producer]]]
    _producers: Mapping[int, Producer] = field(default_factory=dict)

    async def fence(self, tasks: Sequence[int]) -> None:
        """Bar these from writing; before what they remember is read."""
        self._producers = await self.fence_producers(tasks) if tasks else {}

    async def confirm(self) -> None:
        """Fence them anew; raises ``DeliveryRetriable`` where one was started since."""
        before = self._producers
        await self.fence(sorted(before))
        started = [task for task, (producer, epoch) in before.items() if self._producers[task] != (producer, epoch + 1)]
        if started:
            raise DeliveryRetriable(
                f"task {', '.join(map(str, started))} of the connector was started during the redrive, and is fenced: "
                "stop the connector until the redrive has ended"
            )


def feed_of(definition: ConnectorDefinition, clients: ClientSettings) -> DeadLetterFeed:
    """Read as whom the worker's consumers log in, or the connector's where it says so."""
    return DeadLetterFeed(clients.of("consumer", definition.properties), definition.name)
