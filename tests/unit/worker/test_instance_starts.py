"""Starts of instances: so many at once, behind what people wait for, and no one keeps the others out."""

from __future__ import annotations

import asyncio

import pytest

from metrics.events import StopReported
from service.domain.ids import ConnectorId, TaskId
from service.domain.states import State, TargetState
from service.foreground import TRICKLE_SECONDS, Foreground
from service.worker.life import VERSION_SECONDS_MAX
from tests.unit.worker.fake_kind import HANG, Scene, Script, connector, task

pytestmark = pytest.mark.looptime
C, T0, T1 = ConnectorId("c"), TaskId("c", 0), TaskId("c", 1)
R, P, S, X = State.RUNNING, State.PAUSED, State.STOPPED, State.RESTARTING
PAUSED, STOPPED = TargetState.PAUSED, TargetState.STOPPED


async def test_one_that_hangs_anywhere_harms_no_other() -> None:
    """Hanging splits, starts and stops of forty connectors; the last one begins all the same."""
    others = [TaskId(f"hung-{number}", 0) for number in range(40)]
    scene = Scene({other: Script(start_seconds=HANG) for other in others})
    scene.hanging = {ConnectorId(other.connector) for other in others}
    async with scene.instances() as instances:
        hung = {instance: task() for instance in others} | {
            ConnectorId(other.connector): connector() for other in others
        }
        instances.apply("c", {**hung, T0: task(), C: connector()})
        await asyncio.sleep(60)
        assert scene.state(T0) is scene.state(C) is R
        instances.apply("c", {C: connector(STOPPED)})
        await asyncio.sleep(1)
        assert (scene.state(C), scene.state(T0)) == (State.STOPPED, State.UNASSIGNED)


async def test_a_start_lets_requests_go_first_and_makes_way_itself_when_it_is_not_wanted_any_more() -> None:
    """What has not had its turn holds nothing: its stop is at once and complete."""
    scene, foreground = Scene(), Foreground()
    async with scene.instances(foreground=foreground) as instances:
        with foreground.in_hand():
            instances.apply("c", {T0: task(), T1: task()})
            await asyncio.sleep(1.5 * TRICKLE_SECONDS)
            assert set(scene.starts) == {T0}
            instances.apply("c", {T0: task()})
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            assert not scene.told(StopReported)[0].left_records
            assert scene.told(StopReported)[0].is_complete
        await asyncio.sleep(2 * TRICKLE_SECONDS)
        assert set(scene.starts) == {T0}


async def test_a_connector_resumed_and_restarted_before_its_turn_runs() -> None:
    """No start was under way that could be made anew; what is told is what was asked for."""
    scene, foreground = Scene(), Foreground()
    async with scene.instances(foreground=foreground) as instances:
        instances.apply("c", {C: connector(STOPPED)})
        await asyncio.sleep(1)
        with foreground.in_hand():
            instances.apply("c", {C: connector()})
            await asyncio.sleep(TRICKLE_SECONDS / 2)
            instances.restart([C])
            await asyncio.sleep(TRICKLE_SECONDS / 2)
        await asyncio.sleep(1)
        assert scene.states == {C: [S, X, R]}


async def test_starts_are_not_a_stampede() -> None:
    """A thousand at once, thirty-two at a time."""
    tasks = [TaskId("c", number) for number in range(200)]
    scene = Scene({task_id: Script(start_seconds=1) for task_id in tasks})
    most = 0
    async with scene.instances() as instances:
        instances.apply("c", {task_id: task() for task_id in tasks})
        while any(scene.state(task_id) is not R for task_id in tasks):
            await asyncio.sleep(0.1)
            most = max(most, sum(scene.state(task_id) is None for task_id in scene.running))
    assert most == 32


@pytest.mark.parametrize("target", [PAUSED, STOPPED])
async def test_what_has_not_run_yet_tells_its_version(target: TargetState) -> None:
    """A connector that is created PAUSED or STOPPED has the version of its class, as in Connect; so has its task."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(target), T0: task(target=target)})
        await asyncio.sleep(1)
        assert scene.versions[C] == "7.1"
        assert scene.states[C] == [State(target.value)]
        assert scene.versions.get(T0) == ("7.1" if target is PAUSED else None)
        assert not scene.starts
        assert not scene.splits


async def test_a_class_that_cannot_be_loaded_rests_without_a_version() -> None:
    """What is wrong with it is told when it is to run."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(PAUSED, dotted={"connector.class": "Missing"})})
        await asyncio.sleep(1)
        assert (scene.state(C), scene.versions[C]) == (P, None)


async def test_a_class_that_hangs_in_its_import_rests_all_the_same_and_keeps_nothing_from_going_on() -> None:
    """Its version comes when it does."""
    scene = Scene(hanging={("version", C)})
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(PAUSED)})
        await asyncio.sleep(VERSION_SECONDS_MAX + 1)
        assert (scene.states[C], scene.versions[C]) == ([P], None)
        instances.apply("c", {C: connector()})
        await asyncio.sleep(1)
        assert (scene.state(C), scene.versions[C]) == (R, "7.1")


@pytest.mark.parametrize("target", [PAUSED, STOPPED])
async def test_a_version_that_comes_late_is_told_when_it_comes(target: TargetState) -> None:
    """A process that stands still for some seconds while it imports a class tells the version all the same."""
    scene = Scene(hanging={("version", C)}, hang_seconds=VERSION_SECONDS_MAX + 5)
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(target)})
        await asyncio.sleep(VERSION_SECONDS_MAX + 1)
        assert (scene.states[C], scene.versions[C]) == ([State(target.value)], None)
        await asyncio.sleep(5)
        assert (scene.states[C], scene.versions[C]) == ([State(target.value)] * 2, "7.1")


async def test_another_class_under_what_rests_has_another_version() -> None:
    """The state is told once more, because of what is told with it."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(STOPPED)})
        await asyncio.sleep(1)
        instances.apply("c", {C: connector(STOPPED, dotted={"connector.class": "Newer"})})
        await asyncio.sleep(1)
        assert (scene.states[C], scene.versions[C]) == ([S, S], "8.0")
