"""The end of a redrive: when everything is idle, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from fetchers.sdk import Fatal, SystemClock
from metrics.events import StopReported
from service.kafka.errors import DeliveryRetriable
from service.redrive.run import RedriveReport, run_until_idle
from tests.unit.pipeline.fake_kafka import TOPIC
from tests.unit.pipeline.fakes import FakeConversion, World, numbers, payloads
from tests.unit.worker.lives import life_of

pytestmark = pytest.mark.looptime


async def test_until_idle_ends_when_everything_was_idle_that_long() -> None:
    """Not before: the slow conversion of the last records counts as work."""
    world = World(conversion=FakeConversion(script=lambda _: 20.0))
    await run_until_idle([life_of(world, numbers(payloads(20)))], SystemClock(), seconds=5)
    assert len(world.kafka.values(TOPIC)) == 20
    assert world.told(StopReported)[0].left_records == 0


async def test_until_idle_zero_still_does_the_whole_work() -> None:
    """Busy is not idle for zero seconds."""
    world = World(conversion=FakeConversion(script=lambda _: 1.0))
    await run_until_idle([life_of(world, numbers(payloads(20)))], SystemClock(), seconds=0)
    assert len(world.kafka.values(TOPIC)) == 20


async def test_one_busy_task_keeps_all_running() -> None:
    """A source in the middle of its first round is busy, however silent."""
    quiet, slow = World(name="quiet"), World(name="slow")
    source = numbers(payloads(2))
    source.script = lambda _: asyncio.sleep(300)
    await run_until_idle([life_of(quiet, numbers(payloads(2))), life_of(slow, source)], SystemClock(), seconds=5)
    assert len(slow.kafka.values(TOPIC)) == 2
    assert asyncio.get_running_loop().time() >= 305


async def test_a_failed_task_does_not_hold_up_the_end_and_is_remembered() -> None:
    """The other connector finishes its work; the exit code is 1."""
    broken, well, report = World(name="broken"), World(name="well"), RedriveReport()
    source = numbers(payloads(4))
    source.script = lambda _: Fatal("401")
    lives = [life_of(broken, source), life_of(well, numbers(payloads(30)))]
    await run_until_idle(lives, SystemClock(), seconds=5)
    for event in (*well.events, *broken.events):
        report(event)
    assert report.is_failed
    assert len(well.kafka.values(TOPIC)) == 30


async def test_a_task_that_waits_for_its_restart_is_not_idle() -> None:
    """The redrive ends only when it is through."""
    world, starts = World(), []

    async def turn(place: str) -> None:
        if place == "writer.start":
            starts.append(place)
            if len(starts) < 4:
                message = "away"
                raise DeliveryRetriable(message)

    world.kafka.turn = turn
    await run_until_idle([life_of(world, numbers(payloads(4)))], SystemClock(), seconds=0.1)
    assert len(starts) == 4
    assert len(world.kafka.values(TOPIC)) == 4


async def test_without_tasks_until_idle_ends_at_once() -> None:
    """There is nothing to wait for."""
    await run_until_idle([], SystemClock(), seconds=60)
    assert asyncio.get_running_loop().time() < 1
