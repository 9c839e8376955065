"""Offsets of a stopped source wait for its tasks: what one still delivers would be committed over the change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.domain.cluster import InstanceStatus
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.api import OffsetEntry
from service.herder.errors import BadRequestError, ConflictError
from service.herder.view import CONFLICT
from tests.unit.herder.world import ME, OTHER, SOURCE, HerderWorld

pytestmark = pytest.mark.looptime
ENTRY: OffsetEntry = ({"filename": "/in"}, {"position": 3})
TASK = TaskId("c", 0)


@asynccontextmanager
async def stopped() -> AsyncIterator[HerderWorld]:
    """A leader; the connector's task was run by another worker, which has not said yet that it has let go."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", SOURCE, None)
        await world.settled()
        world.membership.become(ME, OTHER, owners={ConnectorId("c"): ME, TASK: OTHER})
        await world.settled()
        tell(world, TASK, State.RUNNING)
        await herder.changes.set_target("c", TargetState.STOPPED)
        await world.settled()
        yield world


def tell(world: HerderWorld, instance: InstanceId, state: State) -> None:
    """The other worker's word."""
    world.statuses.put(instance, InstanceStatus(state, OTHER.worker_id, world.membership.generation))


async def test_a_change_waits_until_the_task_is_let_go() -> None:
    """Wherever it runs; the client sees the connector stopped at once, without tasks."""
    async with stopped() as world:
        assert world.states("c") == {"": "STOPPED"}
        async with asyncio.TaskGroup() as group:
            changing = group.create_task(world.herder.offsets.alter("c", [ENTRY]))
            await asyncio.sleep(7)
            assert world.offsets.altered == []
            world.statuses.remove(TASK)
            await changing
        assert world.offsets.altered == [ENTRY]


@pytest.mark.parametrize("change", ["alter", "reset"])
async def test_a_change_is_a_conflict_while_the_task_does_not_end(change: str) -> None:
    """Clients try again; nothing was changed."""
    async with stopped() as world:
        herder = world.herder
        with pytest.raises(ConflictError) as refused:
            await (herder.offsets.alter("c", [ENTRY]) if change == "alter" else herder.offsets.reset("c"))
        assert str(refused.value) == CONFLICT
        assert world.offsets.asked_with == []


async def test_a_connector_that_is_resumed_meanwhile_is_not_changed() -> None:
    """Any worker may resume it while the leader waits."""
    async with stopped() as world:
        async with asyncio.TaskGroup() as group:

            async def change() -> None:
                with pytest.raises(BadRequestError, match="must be in the STOPPED state"):
                    await world.herder.offsets.alter("c", [ENTRY])

            group.create_task(change())
            await asyncio.sleep(1)
            await world.configs.put_target_state("c", TargetState.STARTED)
        assert world.offsets.altered == []


async def test_a_worker_that_has_left_is_not_waited_for() -> None:
    """It can say nothing any more."""
    async with stopped() as world:
        world.membership.become(ME)
        await world.herder.offsets.alter("c", [ENTRY])
        assert world.offsets.altered == [ENTRY]


async def test_a_word_that_nobody_takes_back_is_forgotten() -> None:
    """A worker that was killed and came back under its name knows nothing of what it has told."""
    async with stopped() as world:
        await asyncio.sleep(10)
        assert list(world.statuses.tasks("c")) == [0]
        await asyncio.sleep(10)
        assert world.statuses.tasks("c") == {}
        await world.herder.offsets.alter("c", [ENTRY])


async def test_a_former_owner_whose_task_does_not_end_leaves_the_word_to_its_successor() -> None:
    """It would else tell RUNNING over whatever the successor tells, for ever."""
    async with HerderWorld().started() as world:
        await world.herder.changes.create("c", SOURCE, None)
        await world.settled()
        world.instances.is_silent = True
        world.membership.become(ME, OTHER, owners={ConnectorId("c"): ME, TASK: OTHER})
        tell(world, TASK, State.PAUSED)
        await asyncio.sleep(5)
        told = world.statuses.instance(TASK)
        assert told is not None
        assert (told.state, told.worker_id) == (State.PAUSED, OTHER.worker_id)
