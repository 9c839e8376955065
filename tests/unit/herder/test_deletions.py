"""What the leader does for a deleted source that has left something outside."""

from __future__ import annotations

import asyncio

import pytest

from fetchers.sdk import Fatal, Retriable
from metrics.events import DeletedSourceGone, DeletedSourceStays
from service.domain.ids import TaskId
from service.domain.states import TargetState
from service.herder.errors import RequestError
from tests.unit.herder.world import ME, OTHER, SINK, SOURCE, HerderWorld

pytestmark = pytest.mark.looptime
OFFSETS = [({"server": "s"}, {"lsn": 7})]


async def with_connector(world: HerderWorld) -> None:
    """A source that has offsets, and another beside it."""
    world.offsets.known = {"c": list(OFFSETS)}
    await world.herder.changes.create("c", SOURCE, None)
    await world.herder.changes.create("other", {**SOURCE, "topic": "u"}, None)
    await world.settled()


def told(world: HerderWorld) -> list[tuple[str, bool]]:
    """Messages of what stays, and whether it was the last word."""
    return [(event.message, event.is_last) for event in world.events if isinstance(event, DeletedSourceStays)]


@pytest.mark.parametrize("target", [TargetState.STARTED, TargetState.PAUSED, TargetState.STOPPED])
async def test_a_deleted_source_is_asked_once_and_its_offsets_are_forgotten(target: TargetState) -> None:
    """Whatever state it was in; it gets its offsets and the configs of those that are left."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        await world.herder.changes.set_target("c", target)
        await world.settled()
        assert world.deleted_sources.asked == []
        await world.herder.changes.delete("c")
        await asyncio.sleep(3)
        assert world.deleted_sources.asked == [
            ({**SOURCE, "name": "c"}, OFFSETS, [{**SOURCE, "topic": "u", "name": "other"}])
        ]
        assert world.offsets.known == {}
        assert world.configs.config.deleted == {}
        assert [event for event in world.events if isinstance(event, DeletedSourceGone)] == [
            DeletedSourceGone(connector="c", has_offsets=False)
        ]


async def test_offsets_stay_where_the_source_says_so_and_others_are_not_asked() -> None:
    """As Kafka Connect keeps them."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        world.deleted_sources.are_offsets_over = False
        await world.herder.changes.create("sink", SINK, None)
        for name in ("c", "sink"):
            await world.herder.changes.delete(name)
        await asyncio.sleep(3)
        assert [config["name"] for config, _, _ in world.deleted_sources.asked] == ["c"]
        assert world.offsets.known == {"c": OFFSETS}
        assert world.configs.config.deleted == {}


async def test_tasks_have_a_moment_to_end_before_their_source_is_asked() -> None:
    """They read it until they have delivered what they hold."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        await world.herder.changes.delete("c")
        await asyncio.sleep(1.5)
        assert world.deleted_sources.asked == []
        await asyncio.sleep(1)
        assert len(world.deleted_sources.asked) == 1


async def test_a_source_that_is_away_delays_no_delete_and_is_tried_again() -> None:
    """Then it is told with the source's own words."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        world.deleted_sources.failures = [Retriable("away: drop it")] * 2
        await world.herder.changes.delete("c")
        assert "c" not in world.herder.reads.names()
        await asyncio.sleep(20)
        assert told(world) == [("away: drop it", False)] * 2
        assert (world.offsets.known, world.configs.config.deleted) == ({}, {})


async def test_it_is_given_up_after_a_few_times_and_the_offsets_stay() -> None:
    """What the source still keeps belongs to them: one of the same name goes on there."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        world.deleted_sources.failures = [Retriable("away: drop it")] * 20
        await world.herder.changes.delete("c")
        await asyncio.sleep(300)
        assert told(world) == [*[("away: drop it", False)] * 4, ("away: drop it", True)]
        assert (world.offsets.known, world.configs.config.deleted) == ({"c": OFFSETS}, {})


@pytest.mark.parametrize("error", [Fatal("somebody reads it"), ZeroDivisionError("a bug")])
async def test_what_waiting_does_not_mend_is_told_once(error: Exception) -> None:
    """A bug in the connector is one of these."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        world.deleted_sources.failures = [error]
        await world.herder.changes.delete("c")
        await asyncio.sleep(60)
        assert told(world) == [(str(error), True)]
        assert world.offsets.known == {"c": OFFSETS}


async def test_a_source_that_hangs_is_given_up() -> None:
    """Other connectors do not notice; nor do the leader's other duties."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        world.deleted_sources.gate = asyncio.Event()
        await world.herder.changes.delete("c")
        await asyncio.sleep(1)
        await world.herder.changes.delete("other")
        await world.settled()
        assert "other" not in world.statuses.names()
        await asyncio.sleep(600)
        assert told(world)[-1] == ("not done within 60 s", True)


async def test_one_of_the_same_name_takes_over_what_is_there() -> None:
    """A client that deletes and creates in a row goes on where the deleted one was, as with Kafka Connect."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        await world.herder.changes.delete("c")
        await asyncio.sleep(1)
        await world.herder.changes.create("c", SOURCE, None)
        await asyncio.sleep(30)
        assert world.deleted_sources.asked == []
        assert (world.offsets.known, world.configs.config.deleted) == ({"c": OFFSETS}, {})


async def test_a_leader_that_dies_in_between_is_followed_by_another() -> None:
    """The config log still has what is to be done; this worker does nothing of it while another leads."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        world.membership.become(OTHER, ME)
        await world.settled()
        await world.configs.claim_leadership()  # in the place of the other leader
        await world.configs.remove_connector("c", deleted={**SOURCE, "name": "c"})
        await world.configs.drop_leadership()
        await asyncio.sleep(30)
        assert world.deleted_sources.asked == []
        world.membership.become(ME)
        await asyncio.sleep(5)
        assert [config["name"] for config, _, _ in world.deleted_sources.asked] == ["c"]
        assert (world.offsets.known, world.configs.config.deleted) == ({}, {})


async def test_kafka_that_is_away_is_waited_for() -> None:
    """Offsets that could not be forgotten are forgotten later: the slot they speak of is gone. Told once a reason."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        world.offsets.failure = RequestError("no brokers")
        await world.herder.changes.delete("c")
        await asyncio.sleep(60)
        assert world.offsets.known == {"c": OFFSETS}
        assert told(world) == [("no brokers", False)]
        world.offsets.failure = RequestError("no leader")
        await asyncio.sleep(60)
        assert told(world) == [("no brokers", False), ("no leader", False)]
        world.offsets.failure = None
        await asyncio.sleep(60)
        assert (world.offsets.known, world.configs.config.deleted) == ({}, {})
        assert TaskId("c", 0) not in world.instances.applied
