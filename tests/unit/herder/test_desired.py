"""A task that starts is asked about in the config log, whatever this worker has heard of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from metrics.events import discard
from service.domain.errors import TaskSupersededError
from service.domain.ids import TaskId
from service.domain.states import TargetState
from service.herder.desired import demand_wanted
from service.herder.ports import Desired
from service.kafka.errors import DeliveryRetriable
from service.stores.config_log import ConfigLog
from service.stores.state_log import KeyedValue, MemoryRecord, MemoryStateLog
from tests.unit.herder.world import SOURCE

TASK = TaskId("c", 1)
Change = Callable[[ConfigLog], Awaitable[None]]


class Journal(MemoryStateLog):
    """The log, with everything that was ever written."""

    def __init__(self) -> None:
        """Empty."""
        self.written: list[MemoryRecord] = []
        super().__init__("configs")

    def _append(self, records: Sequence[KeyedValue]) -> list[MemoryRecord]:
        new = super()._append(records)
        self.written += new
        return new


class LateLog(MemoryStateLog):
    """The log as a worker sees it that hears of nothing by itself."""

    def __init__(self, journal: Journal) -> None:
        """Nothing is heard yet."""
        super().__init__("configs")
        self._journal = journal
        self._heard = 0
        self.is_away = False

    async def read_to_end(self) -> None:
        """Hear of everything, unless Kafka is away."""
        if self.is_away:
            raise DeliveryRetriable("away")
        assert self._receive is not None
        self._receive(self._journal.written[self._heard :])
        self._heard = len(self._journal.written)


class Scene:
    """The leader's log, a worker's, and a task as that worker began it."""

    async def begin(self) -> None:
        """A connector of two tasks, of which the worker knows."""
        journal = Journal()
        self.leader = ConfigLog(journal, emit=discard)
        await self.leader.start()
        await self.leader.claim_leadership()
        await self.leader.put_connector("c", SOURCE)
        await self.leader.put_tasks("c", [{"part": "0"}, {"part": "1"}])
        self.log = LateLog(journal)
        self.configs = ConfigLog(self.log, emit=discard)
        await self.configs.start()
        await self.configs.read_to_end()
        entry = self.configs.config.connectors["c"]
        self.begun = Desired(entry.config, TargetState.STARTED, {"part": "1"}, entry.task_generation)
        await self.confirm()

    async def confirm(self) -> None:
        """As the task's start does."""
        await demand_wanted(self.configs, TASK, self.begun)


@pytest.fixture
async def scene() -> Scene:
    """Begun."""
    scene = Scene()
    await scene.begin()
    return scene


async def two_tasks(configs: ConfigLog) -> None:
    """As many, with other parts."""
    await configs.put_tasks("c", [{"part": "1"}, {"part": "0"}])


async def one_task(configs: ConfigLog) -> None:
    """Fewer."""
    await configs.put_tasks("c", [{"part": "0"}])


async def stopped(configs: ConfigLog) -> None:
    """It keeps its task configs."""
    await configs.put_target_state("c", TargetState.STOPPED)


async def deleted(configs: ConfigLog) -> None:
    """It is gone."""
    await configs.remove_connector("c")


@pytest.mark.parametrize("change", [two_tasks, one_task, stopped, deleted])
async def test_what_the_log_no_longer_asks_for_is_refused(scene: Scene, change: Change) -> None:
    """Also where the record of it has not been heard of yet."""
    await change(scene.leader)
    assert scene.configs.config.connectors["c"].task_generation == scene.begun.generation
    with pytest.raises(TaskSupersededError):
        await scene.confirm()


async def test_other_changes_are_nothing_to_it(scene: Scene) -> None:
    """A pause, and a connector config that no tasks were made from yet: the tasks are those that were."""
    await scene.leader.put_target_state("c", TargetState.PAUSED)
    await scene.leader.put_connector("c", {**SOURCE, "file": "/other"})
    await scene.leader.put_connector("d", SOURCE)
    await scene.confirm()
    assert "d" in scene.configs.config.connectors


async def test_a_log_that_cannot_be_read_confirms_nothing(scene: Scene) -> None:
    """The task tries again, and fences nobody meanwhile."""
    scene.log.is_away = True
    with pytest.raises(DeliveryRetriable):
        await scene.confirm()
