"""Lives of tasks whose source, conversion and Kafka are in memory."""

from __future__ import annotations

from fetchers.sdk import BackOff
from metrics.events import TaskEvents
from service.domain.cluster import Properties
from service.domain.ids import TaskId
from service.domain.states import State, TargetState
from service.herder.ports import Desired
from service.pipeline.task import SourceTask
from service.worker.life import InstanceLife, Wish
from service.worker.reporting import TaskReporter
from service.worker.supervising import RestartPolicy, TaskSupervisor
from tests.unit.pipeline.fakes import Numbers, World

STOP_SECONDS = 8.0


def life_of(world: World, source: Numbers) -> InstanceLife:
    """Of a task that is to run and reads this source."""
    task_id = TaskId(world.name, 0)
    reporter = TaskReporter(TaskEvents(world.events.append, task_id.connector, task_id.task))

    async def make() -> SourceTask:
        return world.task(source)

    def supervisor(_wanted: Desired, state: State) -> TaskSupervisor:
        policy = RestartPolicy(back_off=BackOff(jitter_seconds=0))
        return TaskSupervisor(task_id, make, policy, reporter, world.clock, state=state)

    async def version_of(_config: Properties) -> str:
        return "1"

    wish = Wish(Desired({"name": world.name}, TargetState.STARTED))
    return InstanceLife(task_id, supervisor, reporter, world.clock, STOP_SECONDS, version_of, wish)
