"""A worker's run: idleness and the staged stop, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from fetchers.sdk import BackOff, Fatal, SystemClock
from metrics.events import StopReported, TaskEvents, WorkerStopping
from service.domain.ids import TaskId
from service.kafka.errors import DeliveryRetriable
from service.pipeline.task import SourceTask
from service.worker.supervising import RestartPolicy, TaskSupervisor
from service.worker.telling import TaskTelling
from service.worker.worker import Worker
from tests.unit.pipeline.fake_kafka import TOPIC, FakeKafka
from tests.unit.pipeline.fakes import FakeConversion, Numbers, World, numbers, payloads, wait_until

pytestmark = pytest.mark.looptime
STOP_SECONDS = 8.0


def supervised(world: World, source: Numbers) -> TaskSupervisor:
    """A task of this source."""

    async def make() -> SourceTask:
        return world.task(source)

    policy = RestartPolicy(back_off=BackOff(jitter_seconds=0))
    listener = TaskTelling(TaskEvents(world.events.append, "numbers", 0))
    return TaskSupervisor(TaskId("numbers", 0), make, policy, listener, world.clock)


def worker_of(*tasks: TaskSupervisor, world: World) -> Worker:
    """A worker that runs these."""
    return Worker(tasks, SystemClock(), world.events.append, STOP_SECONDS)


async def stopped_after(worker: Worker, seconds: float) -> float:
    """Stop after so long; how long the stop took."""
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await asyncio.sleep(seconds)
        worker.request_stop("SIGTERM")
        asked_at = asyncio.get_running_loop().time()
    return asyncio.get_running_loop().time() - asked_at


async def test_until_idle_ends_when_everything_was_idle_that_long() -> None:
    """Not before: the slow conversion of the last records counts as work."""
    world = World(conversion=FakeConversion(script=lambda _: 20.0))
    worker = worker_of(supervised(world, numbers(payloads(20))), world=world)
    await worker.run(idle_seconds=5)
    assert len(world.kafka.values(TOPIC)) == 20
    assert not worker.has_failed
    assert [event.reason for event in world.told(WorkerStopping)] == ["idle"]
    assert world.told(StopReported)[0].left_records == 0


async def test_until_idle_zero_still_does_the_whole_work() -> None:
    """Busy is not idle for zero seconds."""
    world = World(conversion=FakeConversion(script=lambda _: 1.0))
    await worker_of(supervised(world, numbers(payloads(20))), world=world).run(idle_seconds=0)
    assert len(world.kafka.values(TOPIC)) == 20


async def test_one_busy_task_keeps_all_running() -> None:
    """A source in the middle of its first round is busy, however silent."""
    quiet, slow = World(), World()
    source = numbers(payloads(2))
    source.script = lambda _: asyncio.sleep(300)
    tasks = supervised(quiet, numbers(payloads(2))), supervised(slow, source)
    await worker_of(*tasks, world=quiet).run(idle_seconds=5)
    assert len(slow.kafka.values(TOPIC)) == 2
    assert asyncio.get_running_loop().time() >= 305


async def test_a_failed_task_does_not_hold_up_the_end_and_is_remembered() -> None:
    """The other connector finishes its work; the exit code is 1."""
    broken, well = World(), World()
    source = numbers(payloads(4))
    source.script = lambda _: Fatal("401")
    tasks = supervised(broken, source), supervised(well, numbers(payloads(30)))
    worker = worker_of(*tasks, world=well)
    await worker.run(idle_seconds=5)
    assert worker.has_failed
    assert len(well.kafka.values(TOPIC)) == 30


async def test_a_task_that_waits_for_its_restart_is_not_idle() -> None:
    """The worker ends only when it is through."""
    world, starts = World(), []

    async def turn(place: str) -> None:
        if place == "writer.start":
            starts.append(place)
            if len(starts) < 4:
                message = "away"
                raise DeliveryRetriable(message)

    world.kafka.turn = turn
    await worker_of(supervised(world, numbers(payloads(4))), world=world).run(idle_seconds=0.1)
    assert len(starts) == 4
    assert len(world.kafka.values(TOPIC)) == 4


async def test_a_stop_under_load_delivers_what_was_fetched() -> None:
    """Within the deadline, and without a cancellation."""
    world = World(conversion=FakeConversion(script=lambda _: 0.5))
    took = await stopped_after(worker_of(supervised(world, numbers(payloads(100_000))), world=world), 20)
    assert took < STOP_SECONDS * 0.75
    (report,) = world.told(StopReported)
    assert report.is_complete
    delivered = world.kafka.values(TOPIC)
    assert delivered == payloads(len(delivered))


@pytest.mark.parametrize("place", ["fetch", "convert", "commit.begin", "writer.start"])
async def test_what_hangs_is_cancelled_at_three_quarters_of_the_deadline(place: str) -> None:
    """And what was left is said; a fetcher alone that hangs costs no time at all."""

    async def turn(at: str) -> None:
        if at == place:
            await asyncio.Event().wait()

    kafka = FakeKafka(turn=turn)
    world = World(kafka, FakeConversion(kafka=kafka))
    took = await stopped_after(worker_of(supervised(world, numbers(payloads(20), kafka=kafka)), world=world), 5)
    assert took == pytest.approx(0 if place == "fetch" else STOP_SECONDS * 0.75, abs=0.1)
    (report,) = world.told(StopReported)
    assert report.is_complete == (place == "fetch")
    assert (report.left_records > 0) == (place in {"convert", "commit.begin"})
    assert kafka.values(TOPIC) == []


async def test_what_hangs_after_it_was_cancelled_is_cancelled_again_at_the_deadline() -> None:
    """A broker that is gone must not keep the process by an endless farewell."""

    async def turn(at: str) -> None:
        if at == "commit.begin":
            await asyncio.Event().wait()

    world = World(FakeKafka(turn=turn, stop_seconds=3_600))
    took = await stopped_after(worker_of(supervised(world, numbers(payloads(20))), world=world), 5)
    assert took == pytest.approx(STOP_SECONDS, abs=0.1)


async def test_one_hanging_connector_harms_no_other() -> None:
    """While one hangs in every place there is, the other delivers."""
    kafka = FakeKafka()
    hung, well = World(kafka), World()
    source = numbers(payloads(4))
    source.script = lambda _: asyncio.Event().wait()
    worker = worker_of(supervised(hung, source), supervised(well, numbers(payloads(40))), world=well)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await wait_until(lambda: len(well.kafka.values(TOPIC)) == 40)
        worker.request_stop("SIGTERM")


async def test_a_stop_asked_for_before_the_run_starts_nothing() -> None:
    """A signal may come early."""
    world = World()
    worker = worker_of(supervised(world, numbers(payloads(4))), world=world)
    worker.request_stop("SIGINT")
    await worker.run()
    assert world.writers == []


async def test_without_tasks_until_idle_ends_at_once() -> None:
    """There is nothing to wait for."""
    world = World()
    await worker_of(world=world).run(idle_seconds=60)
    assert asyncio.get_running_loop().time() < 1
