"""Whatever is wished in whatever order and haste: in the end exactly the last wish runs, and never twice at once."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.ports import Desired
from service.worker.instances import RunningInstances
from tests.unit.pipeline.virtual_time import run_virtual
from tests.unit.worker.fake_kind import STOP_SECONDS, Scene, Script

TASKS = tuple(TaskId("c", number) for number in range(3))
INSTANCES: tuple[InstanceId, ...] = (ConnectorId("c"), *TASKS)
RESTS = {TargetState.PAUSED: State.PAUSED, TargetState.STOPPED: State.STOPPED}


@dataclass(frozen=True)
class Step:
    """One tick of the herder, restarts that somebody asked for, and the time until the next."""

    desired: dict[InstanceId, Desired]
    restarts: tuple[InstanceId, ...]
    seconds: float


@st.composite
def wishes(draw: st.DrawFn) -> dict[InstanceId, Desired]:
    """What may be desired of each instance."""
    present = draw(st.sets(st.sampled_from(INSTANCES)))
    return {
        instance: Desired(
            {"name": "c", "version": draw(st.sampled_from("ab"))},
            draw(st.sampled_from(TargetState)),
            {"part": "0"} if isinstance(instance, TaskId) else None,
            draw(st.integers(1, 2)),
        )
        for instance in sorted(present, key=repr)
    }


steps = st.builds(
    Step,
    wishes(),
    st.lists(st.sampled_from(INSTANCES), max_size=2).map(tuple),
    st.sampled_from([0.0, 0.0, 0.1, 1.0, 3.0, 20.0]),
)
scripts = st.builds(
    Script,
    start_seconds=st.sampled_from([0.0, 0.5, 2.0]),
    stop_seconds=st.sampled_from([0.0, 2.0, 100.0]),
    farewell_seconds=st.sampled_from([0.0, 1.0, 100.0]),
)


@given(history=st.lists(steps, min_size=1, max_size=8), taken=st.lists(scripts, min_size=3, max_size=3))
@settings(max_examples=150, deadline=None)
def test_the_last_wish_runs_and_nothing_else(history: list[Step], taken: list[Script]) -> None:
    """States move by the table of legal transitions all the while: otherwise the life would end FAILED."""
    scene = Scene(dict(zip(TASKS, taken, strict=True)))

    async def live() -> None:
        async with scene.instances() as instances:
            for step in history:
                instances.apply("c", step.desired)
                instances.restart(step.restarts)
                await asyncio.sleep(step.seconds)
            await asyncio.sleep(2 * STOP_SECONDS + 5)
            compare(scene, instances, history[-1].desired)
        assert scene.running == {}

    run_virtual(live())


def compare(scene: Scene, instances: RunningInstances, wanted: dict[InstanceId, Desired]) -> None:
    """What runs, what is told, and what was asked for last are the same."""
    started = {instance for instance, desired in wanted.items() if desired.target is TargetState.STARTED}
    assert set(scene.running) == started - {ConnectorId("c")}
    for instance, desired in wanted.items():
        state = State.RUNNING if instance in started else RESTS[desired.target]
        if state is State.STOPPED and isinstance(instance, TaskId):
            assert scene.state(instance) in {None, State.UNASSIGNED}
        else:
            assert scene.state(instance) is state
    for instance in set(INSTANCES) - set(wanted):
        assert scene.state(instance) in {None, State.UNASSIGNED}
    for task_id, task in scene.running.items():
        assert task.config["version"] == wanted[task_id].config["version"]
    assert (instances.idle_seconds == math.inf) is (not started)
    assert State.FAILED not in {state for states in scene.states.values() for state in states}
