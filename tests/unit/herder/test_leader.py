"""When the leader fences: after the older tasks have let go, or have had their time; never one after the other."""

from __future__ import annotations

import asyncio

import pytest

from metrics.events import HerderStepFailed
from service.domain.cluster import InstanceStatus
from service.domain.ids import ConnectorId, TaskId
from service.domain.states import State, TargetState
from service.herder.ports import HerderSettings
from tests.unit.herder.world import ME, OTHER, SOURCE, HerderWorld

pytestmark = pytest.mark.looptime


def with_tasks(count: int) -> dict[str, str]:
    """Config of a source that makes so many tasks."""
    return {**SOURCE, "tasks.max": str(count)}


async def with_connector(world: HerderWorld, *, tasks: int) -> None:
    """A connector whose tasks run, and take their time to deliver what they hold when they are to end."""
    await world.herder.changes.create("c", with_tasks(tasks), None)
    await world.settled()
    world.instances.is_draining = True


@pytest.mark.parametrize("tasks", [1, 2])
async def test_a_stop_cuts_off_nothing_that_is_being_delivered(tasks: int) -> None:
    """Fenced is what the tasks have let go of, so that nobody who was cut off can write after the stop."""
    async with HerderWorld(HerderSettings("g", graceful_seconds=8)).started() as world:
        await with_connector(world, tasks=tasks)
        await world.herder.changes.set_target("c", TargetState.STOPPED)
        await asyncio.sleep(7)
        assert world.fenced == []
        world.instances.end_drain()
        await world.settled()
        assert world.fenced == [[f"g-c-{number}" for number in range(tasks)]]
        assert world.configs.config.task_counts["c"] == 0
        await world.herder.changes.set_target("c", TargetState.STARTED)
        await world.settled()
        assert world.states("c") == {"": "RUNNING", **{str(number): "RUNNING" for number in range(tasks)}}


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 2), (3, 2)])
async def test_a_change_of_tasks_fences_the_older_ones_when_they_have_delivered(before: int, after: int) -> None:
    """The new ones begin after that, at once."""
    async with HerderWorld(HerderSettings("g", graceful_seconds=8)).started() as world:
        await with_connector(world, tasks=before)
        await world.herder.changes.put("c", {**with_tasks(after), "topic": "u"})
        await asyncio.sleep(7)
        assert world.fenced == []
        assert not [each for each in world.instances.applied if isinstance(each, TaskId)]
        world.instances.end_drain()
        await asyncio.sleep(0.5)
        assert world.fenced == [[f"g-c-{number}" for number in range(before)]]
        assert world.states("c") == {"": "RUNNING", **{str(number): "RUNNING" for number in range(after)}}


async def test_a_task_that_does_not_let_go_is_fenced_when_its_grace_is_over() -> None:
    """Twice the graceful time-out: the way of the word to its worker and back is in it."""
    async with HerderWorld(HerderSettings("g", graceful_seconds=8)).started() as world:
        await with_connector(world, tasks=2)
        await world.herder.changes.put("c", with_tasks(3))
        await asyncio.sleep(15)
        assert world.fenced == []
        await asyncio.sleep(3)
        assert world.fenced == [["g-c-0", "g-c-1"]]
        assert TaskId("c", 2) in world.instances.applied


async def test_tasks_of_a_worker_that_is_gone_are_fenced_at_once() -> None:
    """Its session was waited for already; or it was stopped, and has told that it let go."""
    async with HerderWorld().started() as world:
        await with_connector(world, tasks=2)
        world.membership.become(ME, OTHER, owners={ConnectorId("c"): ME, TaskId("c", 0): OTHER, TaskId("c", 1): OTHER})
        await world.settled()
        world.instances.end_drain()
        for number in range(2):
            world.statuses.put(TaskId("c", number), InstanceStatus(State.RUNNING, OTHER.worker_id, 2))
        await world.herder.changes.put("c", with_tasks(1))
        await asyncio.sleep(1)
        assert world.fenced == []
        world.membership.become(ME)
        await world.settled()
        assert world.fenced == [["g-c-0", "g-c-1"]]


async def test_fencing_that_hangs_delays_no_other_connector() -> None:
    """Nor the leader's other duties: forgetting what is deleted."""
    async with HerderWorld().started() as world:
        herder = world.herder
        for name in "abc":
            await herder.changes.create(name, with_tasks(2), None)
        await world.settled()
        world.hanging = {"a": asyncio.Event()}
        for name in "ab":
            await herder.changes.put(name, with_tasks(1))
        await herder.changes.delete("c")
        await world.settled()
        assert world.fenced == [["g-b-0", "g-b-1"]]
        assert world.states("b") == {"": "RUNNING", "0": "RUNNING"}
        assert "c" not in world.statuses.names()
        world.hanging["a"].set()
        await world.settled()
        assert world.states("a") == {"": "RUNNING", "0": "RUNNING"}


async def test_fencing_that_never_ends_is_given_up_told_and_tried_again() -> None:
    """It would keep its slot from others for ever."""
    async with HerderWorld().started() as world:
        await with_connector(world, tasks=2)
        world.instances.end_drain()
        world.hanging = {"c": asyncio.Event()}
        await world.herder.changes.put("c", with_tasks(1))
        await asyncio.sleep(59)
        assert not [event for event in world.events if isinstance(event, HerderStepFailed)]
        world.hanging = {}
        await asyncio.sleep(5)
        (told,) = [event for event in world.events if isinstance(event, HerderStepFailed)]
        assert (told.error_class, told.message) == ("TimeoutError", "fencing of c: not done within 60 s")
        assert world.fenced == [["g-c-0", "g-c-1"]]
        assert world.states("c") == {"": "RUNNING", "0": "RUNNING"}


async def test_so_many_are_fenced_at_once_and_no_more() -> None:
    """Each has a client of its own, with its own connections."""
    async with HerderWorld().started() as world:
        names = [f"c{number}" for number in range(40)]
        for name in names:
            await world.herder.changes.create(name, with_tasks(2), None)
        await world.settled()
        gate = asyncio.Event()
        world.hanging = dict.fromkeys(names, gate)
        for name in names:
            await world.herder.changes.put(name, with_tasks(1))
        await asyncio.sleep(1)
        assert world.fencing_now == 16
        gate.set()
        await asyncio.sleep(1)
        assert len(world.fenced) == 40


async def test_what_is_resumed_while_it_is_fenced_starts_after_that() -> None:
    """A fencing that was on its way would end the new task, whose id is the same."""
    async with HerderWorld().started() as world:
        await with_connector(world, tasks=1)
        world.instances.end_drain()
        world.hanging = {"c": asyncio.Event()}
        await world.herder.changes.set_target("c", TargetState.STOPPED)
        await world.settled()
        await world.herder.changes.set_target("c", TargetState.STARTED)
        await asyncio.sleep(1)
        assert TaskId("c", 0) not in world.instances.applied
        world.hanging["c"].set()
        await asyncio.sleep(10)
        assert world.states("c") == {"": "RUNNING", "0": "RUNNING"}


async def test_offsets_are_not_changed_while_their_connector_is_fenced() -> None:
    """The change is written under a task's id, and would be fenced."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await with_connector(world, tasks=1)
        world.instances.end_drain()
        world.hanging = {"c": asyncio.Event()}
        await herder.changes.set_target("c", TargetState.STOPPED)
        await world.settled()
        assert world.fencing_now == 1
        async with asyncio.TaskGroup() as group:
            group.create_task(herder.offsets.reset("c"))
            await asyncio.sleep(1)
            assert world.offsets.asked_with == []
            world.hanging["c"].set()
        assert len(world.offsets.asked_with) == 1
