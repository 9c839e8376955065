"""One task through all its incarnations, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fetchers.sdk import BackOff, Retriable
from metrics.events import TaskEvents, TaskFailed, TaskRestarted, TaskStateChanged
from service.domain.ids import TaskId
from service.domain.states import State
from service.kafka.errors import DeliveryFatal, DeliveryRetriable, WriterFenced
from service.pipeline.task import SourceTask
from service.registry.errors import RegistryRetriable
from service.worker.reporting import TaskReporter
from service.worker.supervising import (
    HEALTHY_AFTER_SECONDS,
    RestartPolicy,
    RunnableTask,
    TaskSupervisor,
    restart_policy,
)
from tests.unit.pipeline.fake_kafka import TOPIC, FakeKafka
from tests.unit.pipeline.fakes import World, numbers, payloads, wait_until

pytestmark = pytest.mark.looptime
BACK_OFF = BackOff(first_seconds=2, cap_seconds=16, jitter_seconds=0)


@dataclass
class Supervised:
    """A supervisor over a world; ``failures`` gives the error of the n-th start, None when it succeeds."""

    world: World = field(default_factory=World)
    records: int = 20
    failures: Callable[[int], Exception | None] = lambda _: None
    restarts_max: int = 1_000
    starts: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing runs yet."""
        self.supervisor = TaskSupervisor(
            TaskId("numbers", 0),
            self._make,
            RestartPolicy(self.restarts_max, BACK_OFF),
            TaskReporter(TaskEvents(self.world.events.append, "numbers", 0)),
            self.world.clock,
        )

    @property
    def states(self) -> list[str]:
        """All states in order."""
        return [event.state for event in self.world.told(TaskStateChanged)]

    async def _make(self) -> SourceTask:
        self.starts.append(asyncio.get_running_loop().time())
        error = self.failures(len(self.starts))
        if error is not None:
            raise error
        return self.world.task(numbers(payloads(self.records)))


async def test_a_retriable_failure_restarts_the_task_until_it_works() -> None:
    """With a growing back-off; nothing is delivered twice."""
    kafka = FakeKafka(before_commit=lambda commit: DeliveryRetriable("away") if commit in {2, 3} else None)
    found = Supervised(World(kafka))
    async with asyncio.TaskGroup() as group:
        group.create_task(found.supervisor.run())
        await wait_until(lambda: len(kafka.values(TOPIC)) == 20)
        found.supervisor.request_stop()
    assert kafka.values(TOPIC) == payloads(20)
    assert found.states == ["RUNNING", "RESTARTING", "RUNNING", "RESTARTING", "RUNNING", "UNASSIGNED"]
    assert [later - earlier for earlier, later in zip(found.starts, found.starts[1:], strict=False)] == pytest.approx(
        [2, 4], abs=0.1
    )
    assert [event.attempt for event in found.world.told(TaskRestarted)] == [1, 2]


async def test_what_cannot_be_asked_at_the_start_is_asked_again() -> None:
    """A registry that is away is no reason to fail; the status says what is waited for."""
    found = Supervised(failures=lambda start: RegistryRetriable("no answer") if start < 4 else None)
    async with asyncio.TaskGroup() as group:
        group.create_task(found.supervisor.run())
        await wait_until(lambda: found.supervisor.state is State.RUNNING)
        found.supervisor.request_stop()
    assert found.states == ["RESTARTING"] * 3 + ["RUNNING", "UNASSIGNED"]
    assert found.world.told(TaskStateChanged)[0].reason == "RegistryRetriable: no answer"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (WriterFenced("a newer writer took over"), "WriterFenced: a newer writer took over"),
        (DeliveryFatal("no permission"), "DeliveryFatal: no permission"),
        (KeyError("secret-of-a-bug"), "KeyError"),
    ],
)
async def test_what_a_restart_cannot_mend_is_failed_for_good(error: Exception, reason: str) -> None:
    """With its trace; a bug's message is not shown where anyone may read it."""
    found = Supervised(failures=lambda _: error)
    await found.supervisor.run()
    assert found.states == ["FAILED"]
    assert found.supervisor.is_failed
    assert found.world.told(TaskStateChanged)[0].reason == reason
    (failed,) = found.world.told(TaskFailed)
    assert failed.error_class == type(error).__name__
    assert "_make" in failed.trace
    assert len(found.starts) == 1


@pytest.mark.parametrize("restarts_max", [0, 3])
async def test_it_gives_up_after_so_many_restarts_in_a_row(restarts_max: int) -> None:
    """Zero means never."""
    found = Supervised(failures=lambda _: RegistryRetriable("away"), restarts_max=restarts_max)
    await found.supervisor.run()
    assert len(found.starts) == 1 + restarts_max
    assert found.states == ["RESTARTING"] * restarts_max + ["FAILED"]


async def test_a_long_healthy_run_begins_the_back_off_anew() -> None:
    """A failure a day is not a failure in a row."""
    world = World()
    found = Supervised(world, restarts_max=1)

    def fail_late(position: int) -> object:
        async def later() -> None:
            await asyncio.sleep(HEALTHY_AFTER_SECONDS + 1)
            if len(found.starts) < 5:
                message = "reset"
                raise DeliveryRetriable(message)

        return later() if position == 2 else None

    async def make() -> SourceTask:
        found.starts.append(asyncio.get_running_loop().time())
        return world.task(numbers(payloads(4), script=fail_late))

    found.supervisor.make_task = make
    async with asyncio.TaskGroup() as group:
        group.create_task(found.supervisor.run())
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 4, step_seconds=1)
        found.supervisor.request_stop()
    assert len(found.starts) >= 2
    assert not found.supervisor.is_failed


async def test_the_wait_a_source_asked_for_holds_across_a_restart() -> None:
    """``Retry-After`` is not forgotten with the incarnation that heard it."""
    found = Supervised(failures=lambda start: Retriable("429", wait_seconds=900) if start == 1 else None)
    async with asyncio.TaskGroup() as group:
        group.create_task(found.supervisor.run())
        await wait_until(lambda: len(found.starts) == 2, step_seconds=1)
        found.supervisor.request_stop()
    assert found.starts[1] >= 900


async def test_a_stop_ends_the_wait_for_a_restart() -> None:
    """At once, and it is not started again."""
    found = Supervised(failures=lambda _: RegistryRetriable("away"))
    async with asyncio.TaskGroup() as group:
        group.create_task(found.supervisor.run())
        await wait_until(lambda: found.supervisor.state is State.RESTARTING)
        starts = len(found.starts)
        found.supervisor.request_stop()
    assert len(found.starts) == starts
    assert found.states[-1] == "UNASSIGNED"


async def test_a_stop_while_the_task_is_made_runs_nothing() -> None:
    """The registry may answer late."""
    found = Supervised()
    made = found.supervisor.make_task

    async def slowly() -> RunnableTask:
        await asyncio.sleep(5)
        return await made()

    found.supervisor.make_task = slowly
    async with asyncio.TaskGroup() as group:
        group.create_task(found.supervisor.run())
        await asyncio.sleep(1)
        found.supervisor.request_stop()
    assert found.world.kafka.transactions == []
    assert found.states == ["UNASSIGNED"]


async def test_a_cancelled_task_is_unassigned() -> None:
    """Not RUNNING for ever in the metrics."""
    found = Supervised()
    async with asyncio.TaskGroup() as group:
        run = group.create_task(found.supervisor.run())
        await wait_until(lambda: found.supervisor.state is State.RUNNING)
        run.cancel()
    assert found.states == ["RUNNING", "UNASSIGNED"]


async def test_only_a_running_task_can_be_idle() -> None:
    """One that waits for its restart is not."""
    found = Supervised(failures=lambda start: RegistryRetriable("away") if start == 1 else None)
    assert found.supervisor.idle_seconds is None
    async with asyncio.TaskGroup() as group:
        group.create_task(found.supervisor.run())
        await wait_until(lambda: found.supervisor.state is State.RESTARTING)
        assert found.supervisor.idle_seconds is None
        await wait_until(lambda: found.supervisor.idle_seconds is not None)
        assert len(found.world.kafka.values(TOPIC)) == 20
        found.supervisor.request_stop()


def test_a_connectors_keys_say_how_often_and_how_soon() -> None:
    """The longest wait is never shorter than the first."""
    keys = {"errors.restart.max": "3", "errors.restart.backoff.ms": "9000", "errors.retry.delay.max.ms": "2000"}
    assert restart_policy(keys) == RestartPolicy(3, BackOff(first_seconds=9.0, cap_seconds=9.0))


def test_what_is_no_number_is_the_default() -> None:
    """The definition refuses it with its finding; until then the policy must not fail."""
    assert restart_policy({"errors.restart.max": "often"}) == restart_policy({})
    assert restart_policy({}) == RestartPolicy(1_000_000, BackOff(first_seconds=1.0, cap_seconds=60.0))
