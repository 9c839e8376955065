"""Restarts: the matrix of parameters, the owner, the plan, several requests at once."""

from __future__ import annotations

import asyncio

import pytest

from service.domain.cluster import RestartRequest
from service.domain.errors import Recovery
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.errors import ConflictError, ElsewhereError, NotFoundError
from service.herder.ports import HerderSettings
from service.herder.view import CONFLICT, STALE
from tests.unit.herder.world import ME, OTHER, SOURCE, HerderWorld

pytestmark = pytest.mark.looptime
CONNECTOR, FIRST, SECOND = ConnectorId("c"), TaskId("c", 0), TaskId("c", 1)
TWO_TASKS = {**SOURCE, "tasks.max": "2"}


async def running(world: HerderWorld, *failed: InstanceId) -> None:
    """A connector of two tasks, of which these are FAILED."""
    await world.herder.changes.create("c", TWO_TASKS, None)
    await world.settled()
    for instance in failed:
        world.instances.tell(instance, State.FAILED, "trace")


@pytest.mark.parametrize(
    ("is_failed_only", "has_tasks", "failed", "restarted"),
    [
        (False, False, (), {CONNECTOR}),
        (False, False, (FIRST,), {CONNECTOR}),
        (True, False, (FIRST,), set()),
        (True, False, (CONNECTOR, FIRST), {CONNECTOR}),
        (False, True, (), {CONNECTOR, FIRST, SECOND}),
        (True, True, (), set()),
        (True, True, (SECOND,), {SECOND}),
        (True, True, (CONNECTOR, SECOND), {CONNECTOR, SECOND}),
    ],
)
async def test_the_matrix(
    *, is_failed_only: bool, has_tasks: bool, failed: tuple[InstanceId, ...], restarted: set[InstanceId]
) -> None:
    """What the plan shows RESTARTING is what restarts; the rest keeps its state and its trace."""
    async with HerderWorld().started() as world:
        await running(world, *failed)
        plan = await world.herder.restarts.plan(RestartRequest("c", is_failed_only, has_tasks))
        shown: set[InstanceId] = {
            TaskId("c", number) for number, told in plan.tasks.items() if told.state is State.RESTARTING
        }
        if plan.connector.state is State.RESTARTING:
            shown |= {CONNECTOR}
        assert shown == restarted
        await world.settled()
        assert set(world.instances.restarted) == restarted


async def test_only_the_owner_restarts_one_instance() -> None:
    """Another worker is told the owner's URL; an owner that is not there is a conflict."""
    async with HerderWorld().started() as world:
        await running(world)
        herder = world.herder
        await herder.restarts.connector("c")
        await herder.restarts.task(SECOND)
        assert world.instances.restarted == [CONNECTOR, SECOND]
        world.membership.become(ME, OTHER, owners={CONNECTOR: OTHER, FIRST: OTHER, SECOND: OTHER})
        for restart in (herder.restarts.connector("c"), herder.restarts.task(FIRST)):
            with pytest.raises(ElsewhereError) as elsewhere:
                await restart
            assert elsewhere.value.url == OTHER.url
        world.membership.become(ME)
        with pytest.raises(ConflictError) as conflict:
            await herder.restarts.connector("c")
        assert str(conflict.value) == CONFLICT


async def test_the_plan_is_the_leaders() -> None:
    """And every owner carries out its part when it reads the record."""
    async with HerderWorld().started() as world:
        await running(world)
        world.membership.become(OTHER, ME)
        with pytest.raises(ElsewhereError):
            await world.herder.restarts.plan(RestartRequest("c", is_failed_only=False, has_tasks=True))
        world.membership.become(ME, OTHER, owners={CONNECTOR: OTHER, FIRST: ME, SECOND: OTHER})
        await world.settled()
        await world.herder.restarts.plan(RestartRequest("c", is_failed_only=False, has_tasks=True))
        await world.settled()
        assert world.instances.restarted == [FIRST]


async def test_a_rebalance_that_is_due_is_waited_for() -> None:
    """By the client, which tries 409 again."""
    async with HerderWorld().started() as world:
        await running(world)
        world.membership.is_rebalancing = True
        herder = world.herder
        for restart in (
            herder.restarts.connector("c"),
            herder.restarts.task(FIRST),
            herder.restarts.plan(RestartRequest("c", is_failed_only=False, has_tasks=True)),
        ):
            with pytest.raises(ConflictError) as stale:
                await restart
            assert str(stale.value) == STALE


@pytest.mark.parametrize(
    ("is_standalone", "connector", "task"),
    [
        (True, "Connector x not found", "Task c-9 not found"),
        (False, "Unknown connector: x", "Unknown task: c-9"),
    ],
)
async def test_what_is_not_there_is_told_in_the_words_of_the_mode(
    *, is_standalone: bool, connector: str, task: str
) -> None:
    """Connect's two modes say it in two ways."""
    async with HerderWorld(HerderSettings("g", is_standalone=is_standalone)).started() as world:
        await running(world)
        herder = world.herder
        for restart, text in (
            (herder.restarts.connector("x"), connector),
            (herder.restarts.task(TaskId("x", 0)), connector),
            (herder.restarts.task(TaskId("c", 9)), task),
            (herder.restarts.plan(RestartRequest("x", is_failed_only=False, has_tasks=False)), connector),
        ):
            with pytest.raises(NotFoundError) as missing:
                await restart
            assert str(missing.value) == text


async def test_a_connector_of_which_nothing_is_told_yet_has_no_plan() -> None:
    """It would show states that nobody has."""
    async with HerderWorld().started() as world:
        world.instances.is_silent = True
        await world.herder.changes.create("c", SOURCE, None)
        with pytest.raises(NotFoundError, match="Status for connector c not found"):
            await world.herder.restarts.plan(RestartRequest("c", is_failed_only=False, has_tasks=True))


async def test_tasks_of_a_stopped_connector_cannot_be_restarted() -> None:
    """There are none; the connector itself may be, and stays stopped."""
    async with HerderWorld().started() as world:
        await running(world)
        await world.herder.changes.set_target("c", TargetState.STOPPED)
        await world.settled()
        with pytest.raises(NotFoundError, match="Unknown task: c-0"):
            await world.herder.restarts.task(FIRST)
        await world.herder.restarts.connector("c")


async def test_of_several_requests_between_two_ticks_the_one_of_larger_impact_wins() -> None:
    """In either order."""
    small, large = (
        RestartRequest("c", is_failed_only=True, has_tasks=True),
        RestartRequest("c", is_failed_only=False, has_tasks=False),
    )
    for first, second in ((small, large), (large, small)):
        async with HerderWorld().started() as world:
            await running(world, FIRST)
            async with asyncio.TaskGroup() as group:
                group.create_task(world.configs.put_restart(first))
                group.create_task(world.configs.put_restart(second))
            await world.settled()
            assert world.instances.restarted == [CONNECTOR]


async def test_what_was_fenced_while_this_worker_was_away_runs_again_when_it_is_this_ones_again() -> None:
    """Nobody else would restart it: to the group it is assigned and fine."""
    async with HerderWorld().started() as world:
        await running(world)
        world.membership.leave()
        world.instances.tell(FIRST, State.FAILED, "Traceback", failure=Recovery.FENCED)
        world.instances.tell(
            SECOND, State.FAILED, "ValueError: WriterFenced, TaskSupersededError", failure=Recovery.FAIL
        )
        await world.settled()
        assert world.instances.restarted == []
        world.membership.become(ME)
        await world.settled()
        assert world.instances.restarted == [FIRST]


async def test_what_was_not_asked_for_when_it_started_runs_again_once_it_is() -> None:
    """It started by itself while this worker was away: its connector was stopped then, and has been resumed since."""
    async with HerderWorld().started() as world:
        await running(world)
        world.membership.leave()
        world.membership.become(ME)
        await world.settled()
        world.instances.tell(FIRST, State.FAILED, "Traceback", failure=Recovery.SUPERSEDED)
        world.membership.tell()
        await world.settled()
        assert world.instances.restarted == [FIRST]
        world.instances.tell(FIRST, State.RUNNING)
        world.membership.tell()
        await world.settled()
        assert world.instances.restarted == [FIRST]


async def test_what_learns_late_that_it_was_fenced_runs_again_once() -> None:
    """It was idle, and heard of it long after this worker was back; fenced once more, it stays FAILED."""
    async with HerderWorld().started() as world:
        await running(world)
        world.membership.leave()
        world.membership.become(ME)
        await world.settled()
        for _ in range(2):
            world.instances.tell(FIRST, State.FAILED, "Traceback", failure=Recovery.FENCED)
            world.membership.tell()
            await world.settled()
            assert world.instances.restarted == [FIRST]


async def test_a_worker_that_has_missed_rounds_starts_everything_anew() -> None:
    """Others ran it meanwhile, so what still runs here is fenced; what FAILED by itself stays as it is."""
    async with HerderWorld().started() as world:
        await running(world)
        world.instances.tell(
            SECOND, State.FAILED, "ValueError: WriterFenced, TaskSupersededError", failure=Recovery.FAIL
        )
        world.membership.leave()
        await world.settled()
        world.membership.generation += 1
        world.membership.become(ME)
        await world.settled()
        assert sorted(map(str, world.instances.restarted)) == sorted(map(str, [CONNECTOR, FIRST]))
