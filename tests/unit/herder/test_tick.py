"""A tick looks at connectors of which something has changed, and at all of those."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.cluster import ClusterConfig, ConfigChange, Roster
from service.domain.ids import ConnectorId, TaskId
from service.domain.states import State, TargetState
from service.herder.assignment import AssignmentTracker
from tests.unit.herder.config_log import ConfigLog, members
from tests.unit.herder.world import ME, OTHER, SINK, SOURCE, HerderWorld

NAMES = [f"c{number}" for number in range(6)]
RECORDS = st.lists(st.tuples(st.sampled_from(NAMES), st.none() | st.integers(0, 5)), max_size=30)


@settings(deadline=None)
@given(RECORDS, st.integers(1, 4))
def test_whatever_has_another_owner_is_told_as_moved(records: list[tuple[str, int | None]], count: int) -> None:
    """New, gone, or taken from one worker for another to even out the shares."""
    group, log, tracker = members("abcd"[:count]), ConfigLog(), AssignmentTracker(ClusterConfig())
    tracker.on_roster(Roster(1, group[0], group, {}, 0))
    assert tracker.take_moved() is None
    for name, tasks in records:
        before = tracker.assignment.owners()
        tracker.on_change(log.write(name, tasks))
        after = tracker.assignment.owners()
        changed = {each.connector for each in before.keys() | after.keys() if before.get(each) != after.get(each)}
        moved = tracker.take_moved()
        assert moved is not None
        assert changed <= moved
        assert tracker.take_moved() == frozenset()
    tracker.on_roster(Roster(2, group[0], group, tracker.assignment.owners(), log.config.offset))
    assert tracker.take_moved() is None


@pytest.mark.looptime
async def test_one_connector_more_is_nothing_to_the_others() -> None:
    """Instances hear of what has changed; a round of the group that moves nothing is no news to them."""
    async with HerderWorld().started() as world:
        herder = world.herder
        for name in NAMES:
            await herder.changes.create(name, SOURCE, None)
        await world.settled()
        world.instances.asked.clear()
        await herder.changes.create("new", SOURCE, None)
        await world.settled()
        assert set(world.instances.asked) == {"new"}
        world.instances.asked.clear()
        world.membership.become(ME, OTHER)
        await world.settled()
        assert world.instances.asked == []
        await herder.changes.set_target(NAMES[2], TargetState.PAUSED)
        await world.settled()
        assert world.instances.asked == [NAMES[2]]


@pytest.mark.looptime
async def test_what_another_connectors_end_has_moved_here_runs_here() -> None:
    """Nothing is written of the one that moves."""
    async with HerderWorld().started() as world:
        herder = world.herder
        for name in "abcd":
            await herder.changes.create(name, SOURCE, None)
        await world.settled()
        theirs = {each: OTHER if each.connector in "cd" else ME for each in world.tracker.assignment.owners()}
        world.membership.become(ME, OTHER, owners=theirs)
        await world.settled()
        for name in "cd":
            world.statuses.remove(ConnectorId(name))
            world.statuses.remove(TaskId(name, 0))
        assert {each.connector for each in world.instances.applied} == {"a", "b"}
        await herder.changes.delete("a")
        await herder.changes.delete("b")
        await world.settled()
        mine = {each for each, owner in world.tracker.assignment.owners().items() if owner == ME}
        assert {each.connector for each in mine} & {"c", "d"}
        assert world.instances.applied.keys() == mine


@pytest.mark.looptime
async def test_first_tasks_are_counted_with_their_configs() -> None:
    """There is nothing to be fenced before them, so the leader has nothing to write later. Sinks are not counted."""
    async with HerderWorld().started() as world:
        loop, pending = asyncio.get_running_loop(), list[frozenset[str]]()

        def look_soon(_: ConfigChange) -> None:
            loop.call_soon(lambda: pending.append(world.configs.config.fencing_pending))

        world.configs.listen(look_soon)
        await world.herder.changes.create("c", {**SOURCE, "tasks.max": "2"}, None)
        await world.settled()
        config = world.configs.config
        assert (config.task_counts, world.fenced) == ({"c": 2}, [])
        assert set(pending) == {frozenset()}, "written together, so never seen one without the other"
        assert world.states("c") == {"": State.RUNNING, "0": State.RUNNING, "1": State.RUNNING}
        await world.herder.changes.create("s", SINK, None)
        await world.settled()
        assert world.configs.config.task_counts == {"c": 2}
