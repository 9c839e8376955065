"""What to do about an instance, by what runs and what is wanted; and how it stops, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from metrics.events import StopReported
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.ports import Desired
from service.worker.life import START_SECONDS_MAX, InstanceLife, Wish, must_end, resting_state, state_between
from tests.unit.pipeline.fake_kafka import TOPIC, FakeKafka
from tests.unit.pipeline.fakes import FakeConversion, World, numbers, payloads, wait_until
from tests.unit.worker.lives import STOP_SECONDS, life_of

TASK, CONNECTOR = TaskId("c", 0), ConnectorId("c")
RUN = Desired({"name": "c"}, TargetState.STARTED, {"task.class": "T"}, 1)
PAUSE = Desired({"name": "c"}, TargetState.PAUSED, {"task.class": "T"}, 1)
STOP = Desired({"name": "c"}, TargetState.STOPPED, {"task.class": "T"}, 1)


@pytest.mark.parametrize(
    ("instance", "desired", "state"),
    [
        (TASK, RUN, None),
        (CONNECTOR, RUN, None),
        (TASK, PAUSE, State.PAUSED),
        (CONNECTOR, PAUSE, State.PAUSED),
        (TASK, STOP, State.UNASSIGNED),
        (CONNECTOR, STOP, State.STOPPED),
        (TASK, None, State.UNASSIGNED),
        (CONNECTOR, None, State.UNASSIGNED),
    ],
)
def test_what_should_not_run_rests(instance: InstanceId, desired: Desired | None, state: State | None) -> None:
    """A task is never STOPPED."""
    assert resting_state(instance, Wish(desired)) is state


@pytest.mark.parametrize(
    ("wish", "is_over"),
    [
        (Wish(RUN), False),
        (Wish(Desired(dict(RUN.config), RUN.target, dict(RUN.task or {}), 1)), False),
        (Wish(PAUSE), True),
        (Wish(STOP), True),
        (Wish(None), True),
        (Wish(RUN, 1), True),
        (Wish(Desired({"name": "c", "x": "y"}, RUN.target, RUN.task, 1)), True),
        (Wish(Desired(RUN.config, RUN.target, {"task.class": "U"}, 1)), True),
        (Wish(Desired(RUN.config, RUN.target, RUN.task, 2)), True),
    ],
)
def test_what_runs_makes_way_for_any_other_wish(wish: Wish, *, is_over: bool) -> None:
    """Equal values mean that there is nothing to do."""
    assert must_end(TASK, Wish(RUN), wish, is_failed=False) is is_over


@pytest.mark.parametrize(
    ("instance", "wish", "is_over"),
    [
        (TASK, Wish(PAUSE), False),
        (CONNECTOR, Wish(PAUSE), False),
        (CONNECTOR, Wish(STOP), True),
        (TASK, Wish(None), True),
        (TASK, Wish(RUN, 1), True),
        (TASK, Wish(Desired(RUN.config, TargetState.PAUSED, RUN.task, 2)), True),
    ],
)
def test_what_is_failed_stays_so_over_pause_and_resume(instance: InstanceId, wish: Wish, *, is_over: bool) -> None:
    """As in Connect: only a restart, another config or its end moves it."""
    assert must_end(instance, Wish(RUN), wish, is_failed=True) is is_over


@pytest.mark.parametrize(
    ("instance", "wish", "state"),
    [
        (TASK, Wish(RUN, 1), State.RESTARTING),
        (TASK, Wish(PAUSE, 1), State.RESTARTING),
        (CONNECTOR, Wish(STOP, 1), State.STOPPED),
        (TASK, Wish(None, 1), State.UNASSIGNED),
        (TASK, Wish(PAUSE), State.PAUSED),
        (TASK, Wish(Desired({"x": "y"}, TargetState.STARTED)), State.UNASSIGNED),
    ],
)
def test_the_state_between_two_incarnations_says_why(instance: InstanceId, wish: Wish, state: State) -> None:
    """RESTARTING where somebody asked for it."""
    assert state_between(instance, Wish(RUN), wish) is state


async def stopped_after(life: InstanceLife, seconds: float) -> float:
    """Stop after so long; how long the stop took."""
    async with asyncio.TaskGroup() as group:
        group.create_task(life.run())
        await asyncio.sleep(seconds)
        life.want(None)
        asked_at = asyncio.get_running_loop().time()
    return asyncio.get_running_loop().time() - asked_at


@pytest.mark.looptime
async def test_a_stop_under_load_delivers_what_was_fetched() -> None:
    """Within the deadline, and without a cancellation."""
    world = World(conversion=FakeConversion(script=lambda _: 0.5))
    took = await stopped_after(life_of(world, numbers(payloads(100_000))), 20)
    assert took < STOP_SECONDS * 0.75
    (report,) = world.told(StopReported)
    assert report.is_complete
    delivered = world.kafka.values(TOPIC)
    assert delivered == payloads(len(delivered))


@pytest.mark.looptime
@pytest.mark.parametrize("place", ["fetch", "convert", "commit.begin", "writer.start"])
async def test_what_hangs_is_cancelled_at_three_quarters_of_the_deadline(place: str) -> None:
    """What was left is said. A fetcher alone that hangs costs no time, and a start that hangs holds nothing yet."""

    async def turn(at: str) -> None:
        if at == place:
            await asyncio.Event().wait()

    kafka = FakeKafka(turn=turn)
    world = World(kafka, FakeConversion(kafka=kafka))
    took = await stopped_after(life_of(world, numbers(payloads(20), kafka=kafka)), 5)
    wait_seconds = {"fetch": 0, "writer.start": START_SECONDS_MAX}.get(place, STOP_SECONDS * 0.75)
    assert took == pytest.approx(wait_seconds, abs=0.1)
    (report,) = world.told(StopReported)
    assert report.is_complete == (place == "fetch")
    assert (report.left_records > 0) == (place in {"convert", "commit.begin"})
    assert kafka.values(TOPIC) == []


@pytest.mark.looptime
async def test_what_hangs_after_it_was_cancelled_is_cancelled_again_at_the_deadline() -> None:
    """A broker that is gone must not keep the process by an endless farewell."""

    async def turn(at: str) -> None:
        if at == "commit.begin":
            await asyncio.Event().wait()

    world = World(FakeKafka(turn=turn, stop_seconds=3_600))
    took = await stopped_after(life_of(world, numbers(payloads(20))), 5)
    assert took == pytest.approx(STOP_SECONDS, abs=0.1)


@pytest.mark.looptime
async def test_one_hanging_connector_harms_no_other() -> None:
    """While one hangs in every place there is, the other delivers."""
    hung, well = World(name="hung"), World(name="well")
    source = numbers(payloads(4))
    source.script = lambda _: asyncio.Event().wait()
    lives = life_of(hung, source), life_of(well, numbers(payloads(40)))
    async with asyncio.TaskGroup() as group:
        for life in lives:
            group.create_task(life.run())
        await wait_until(lambda: len(well.kafka.values(TOPIC)) == 40)
        for life in lives:
            life.want(None)


@pytest.mark.looptime
async def test_a_stop_asked_for_before_the_run_starts_nothing() -> None:
    """A signal may come early."""
    world = World()
    life = life_of(world, numbers(payloads(4)))
    life.want(None)
    await life.run()
    assert world.writers == []
