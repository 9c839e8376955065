"""A connector that watches its source, and whose work is split anew, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from fetchers.sdk import WorkContext
from service.domain.ids import ConnectorId, TaskId
from service.domain.states import State
from service.kafka.errors import DeliveryRetriable
from tests.unit.worker.fake_kind import Scene, connector, task

pytestmark = pytest.mark.looptime
C, T0 = ConnectorId("c"), TaskId("c", 0)
R, F, X, U = State.RUNNING, State.FAILED, State.RESTARTING, State.UNASSIGNED


async def test_work_that_has_changed_is_split_anew_while_its_tasks_run() -> None:
    """The connector stays RUNNING; whether its tasks must change is for the herder to say."""
    scene, appeared = Scene(), asyncio.Event()

    async def wait_for_table(context: WorkContext) -> None:
        assert await context.run_blocking(lambda: 1) == 1
        await appeared.wait()
        appeared.clear()
        scene.parts_more += 1

    scene.work_changed = wait_for_table
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(dotted={"tasks.max": "9"}), T0: task()})
        await asyncio.sleep(1)
        for _ in range(2):
            appeared.set()
            await asyncio.sleep(5)
        assert [len(tasks) for _, tasks, _ in scene.task_configs] == [1, 2, 3]
        assert scene.states == {C: [R], T0: [R]}
        assert scene.starts[T0] == 1
    assert scene.states[C] == [R, U]


async def test_a_watch_that_fails_begins_again_and_its_tasks_go_on() -> None:
    """A source that is away for a moment is no reason to end what reads it; what is fatal waits for a person."""
    scene = Scene()
    failures = [DeliveryRetriable("away"), TimeoutError("nobody stopped it")]

    async def watch(context: WorkContext) -> None:
        await context.clock.sleep(10)
        raise failures.pop(0)

    scene.work_changed = watch
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(), T0: task()})
        await asyncio.sleep(60)
        assert scene.states[C] == [R, X, R, F]
        assert "nobody stopped it" in scene.traces[C]
        assert scene.states[T0] == [R]


async def test_a_connector_that_always_sees_changes_is_split_once_a_second() -> None:
    """It takes no more of the worker than that, and stops at once."""
    scene = Scene()

    async def watch(context: WorkContext) -> None:
        del context

    scene.work_changed = watch
    async with scene.instances() as instances:
        instances.apply("c", {C: connector()})
        await asyncio.sleep(10.5)
        assert scene.splits == 11
        stopped_at = asyncio.get_running_loop().time()
        instances.apply("c", {})
        while scene.state(C) is not U:
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - stopped_at < 0.1
