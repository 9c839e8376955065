"""Whatever is changed in whatever haste: fenced is what has let go or had its time, and never what begins to run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.domain.cluster import Properties
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.ports import Desired, HerderSettings, InstanceObserver
from tests.unit.herder.world import SOURCE, FakeInstances, HerderWorld
from tests.unit.pipeline.virtual_time import run_virtual

GRACEFUL_SECONDS = 8.0
SETTLED_SECONDS = 150.0
"""Longer than any drain and fencing here, and than the longest wait before task configs are handed over again."""
RESTS = {TargetState.PAUSED: State.PAUSED, TargetState.STARTED: State.RUNNING}


@dataclass
class Running:
    """One incarnation of a task."""

    wanted: Desired
    ends_at: float | None = None
    asked_at: float | None = None


@dataclass
class DrainingInstances(FakeInstances):
    """Tasks that take their time to end, one incarnation after the other, the last wish first."""

    drain_seconds: float = 0.0
    running: dict[TaskId, Running] = field(default_factory=dict)
    begun: list[tuple[float, TaskId]] = field(default_factory=list)
    """Every start, and when it was."""

    def apply(self, connector: str, desired: Mapping[InstanceId, Desired]) -> None:
        """See ``Instances``."""
        before, self.applied = self.applied, dict(desired)
        itself = ConnectorId(connector)
        if itself in desired and before.get(itself) != desired[itself]:
            self._start(itself, desired[itself])
        for task in {*self.running, *(each for each in desired if isinstance(each, TaskId))}:
            self._look(task)

    def _look(self, task: TaskId) -> None:
        wanted, running, now = self.applied.get(task), self.running.get(task), asyncio.get_running_loop().time()
        if running is None:
            if wanted is not None:
                self.running[task] = Running(wanted)
                self.begun.append((now, task))
                self.tell(task, RESTS[wanted.target])
        elif running.asked_at is None and wanted != running.wanted:
            running.asked_at = now
            asyncio.get_running_loop().call_later(self.drain_seconds, self._end, task)

    def _end(self, task: TaskId) -> None:
        del self.running[task]
        self.tell(task, State.UNASSIGNED)
        self._look(task)


@dataclass
class FencedWorld(HerderWorld):
    """Fencing takes its time, and is looked at while it lasts."""

    fence_seconds: float = 0.0

    async def fence(self, connector: Properties, ids: Sequence[str]) -> None:
        """Nothing that has not had its time is running now, and nothing begins meanwhile."""
        del connector
        tasks, instances = {TaskId("c", int(each.rpartition("-")[2])) for each in ids}, self.instances
        assert isinstance(instances, DrainingInstances)
        began_at = asyncio.get_running_loop().time()
        for task in tasks & instances.running.keys():
            asked_at = instances.running[task].asked_at
            assert asked_at is not None
            assert began_at - asked_at >= 2 * GRACEFUL_SECONDS - 0.5
        self.fenced.append(ids)
        await asyncio.sleep(self.fence_seconds)
        assert not {task for at, task in instances.begun if at > began_at} & tasks


steps = st.one_of(
    st.integers(1, 3),
    st.sampled_from([TargetState.STOPPED, TargetState.STARTED, TargetState.PAUSED]),
)
waits = st.sampled_from([0.0, 0.05, 1.0, 5.0, 30.0])


@given(
    history=st.lists(st.tuples(steps, waits), min_size=1, max_size=7),
    drain_seconds=st.sampled_from([0.0, 0.5, 7.0, 40.0]),
    fence_seconds=st.sampled_from([0.0, 0.3, 20.0]),
)
@example(history=[(3, 30.0), (2, 30.0)], drain_seconds=7.0, fence_seconds=0.0)
@example(
    history=[(1, 30.0), (TargetState.STOPPED, 1.0), (TargetState.STARTED, 0.0)], drain_seconds=0.0, fence_seconds=20.0
)
@settings(max_examples=60, deadline=None)
def test_fencing_hits_nothing_that_delivers_or_begins(
    history: list[tuple[int | TargetState, float]], drain_seconds: float, fence_seconds: float
) -> None:
    """In the end exactly what is wanted runs. A failed look during a fencing is told as a failed step."""
    world = FencedWorld(HerderSettings("g", graceful_seconds=GRACEFUL_SECONDS), fence_seconds=fence_seconds)
    failures: list[BaseException] = []

    def make_instances(observer: InstanceObserver) -> DrainingInstances:
        return DrainingInstances(observer, drain_seconds=drain_seconds)

    async def live() -> None:
        async with world.started(make_instances=make_instances):
            changes, count, target = world.herder.changes, 2, TargetState.STARTED
            await changes.create("c", {**SOURCE, "tasks.max": "2"}, None)
            for step, seconds in history:
                if isinstance(step, int):
                    count = step
                    await changes.put("c", {**SOURCE, "tasks.max": str(count), "topic": str(len(world.fenced))})
                else:
                    target = step
                    await changes.set_target("c", target)
                await asyncio.sleep(seconds)
            await asyncio.sleep(SETTLED_SECONDS)
            instances = world.instances
            assert isinstance(instances, DrainingInstances)
            if target is TargetState.STARTED:
                assert instances.running.keys() == {TaskId("c", number) for number in range(count)}
            if target is TargetState.STOPPED:
                assert instances.running == {}

    run_virtual(live())
    failures += [AssertionError(str(event)) for event in world.events if "fencing" in str(event)]
    assert failures == []
