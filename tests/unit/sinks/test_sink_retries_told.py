"""What is told of puts that wait to be tried again, while others of the same task are taken; in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fetchers.sdk import Retriable
from metrics.events import Level, RetryScheduled, SinkRecordsPut
from metrics.progress import ProgressView, Trouble
from service.rest.health import Health
from service.sinks.contract import PutLimits, SinkBatch, TargetFull
from tests.unit.sinks.fake_library import FakeGroup
from tests.unit.sinks.fakes import World, numbers, run_until, texts

pytestmark = pytest.mark.looptime


def values_of(batch: SinkBatch) -> list[str]:
    """As texts."""
    return [str(value) for value in batch.records.column("value").to_pylist()]


def retrying(world: World) -> list[tuple[str, str]]:
    """What the health page says now: errors and their messages."""
    health = Health()
    for event in world.events:
        health(event)
    task: dict[str, Any] = health.report(has_reasons=True)["tasks"].get("sink-0", {})
    return [(each["error"], each["message"]) for each in task.get("retrying", [])]


def trouble(world: World) -> Trouble:
    """What the figures of the connector say now."""
    view = ProgressView()
    for event in world.events:
        view(event)
    found = view.connectors()[0].trouble
    assert found is not None
    return found


async def test_a_put_that_waits_is_told_while_others_are_taken() -> None:
    """The health page and the figures name it until it is taken itself."""
    world = World(FakeGroup(numbers(20)), limits=PutLimits(records_max=5, puts_max=2))
    is_full = True
    world.sink.before_put = lambda batch: (
        TargetFull("no room", wait_seconds=30) if is_full and "0" in values_of(batch) else None
    )

    async def make_room() -> None:
        nonlocal is_full
        while len(world.sink.values) < 15:
            await asyncio.sleep(1)
        assert retrying(world) == [("TargetFull", "TargetFull: no room")]
        assert not trouble(world).is_over
        is_full = False

    async with asyncio.TaskGroup() as group:
        group.create_task(make_room())
        group.create_task(run_until(world.task(), lambda: len(world.sink.values) == 20))
    assert retrying(world) == []
    assert trouble(world).is_over


async def test_a_put_that_recovers_hides_no_other() -> None:
    """Of two that wait for different reasons, the last one told is taken first."""
    world = World(FakeGroup(numbers(10)), limits=PutLimits(records_max=5, puts_max=2))
    answers: dict[str, list[Exception | None]] = {
        "0": [TargetFull("no room", wait_seconds=300), None],
        "5": [Retriable("busy"), None],
    }
    world.sink.before_put = lambda batch: answers[values_of(batch)[0]].pop(0)

    async def look() -> None:
        while len(world.sink.values) < 5:
            await asyncio.sleep(1)
        assert retrying(world) == [("TargetFull", "TargetFull: no room")]
        assert (trouble(world).message, trouble(world).is_over) == ("put is tried again: TargetFull: no room", False)

    async with asyncio.TaskGroup() as group:
        group.create_task(look())
        group.create_task(run_until(world.task(), lambda: len(world.sink.values) == 10))
    assert retrying(world) == []
    assert trouble(world).is_over


async def test_puts_that_wait_for_the_same_are_told_once() -> None:
    """The page has one line for a reason, however many puts wait for it."""
    world = World(FakeGroup(numbers(10)), limits=PutLimits(records_max=5, puts_max=2))
    world.sink.before_put = lambda _batch: TargetFull("no room", wait_seconds=30)
    seen: list[tuple[str, str]] = []

    def have_failed_twice() -> bool:
        seen[:] = retrying(world)
        return len(world.told(RetryScheduled)) >= 4

    await run_until(world.task(), have_failed_twice)
    assert seen == [("TargetFull", "TargetFull: no room")]
    assert retrying(world) == [], "a task that was stopped tries nothing again"


async def test_puts_that_a_rebalance_takes_away_are_not_told_any_more() -> None:
    """They are nobody's to try again here; what comes anew tells its own."""
    world = World(FakeGroup(numbers(5)))
    answers: list[Exception | None] = [TargetFull("no room", wait_seconds=30), None]
    world.sink.before_put = lambda _batch: answers.pop(0)

    async def rebalance() -> None:
        while not world.told(RetryScheduled):
            await asyncio.sleep(0.1)
        assert retrying(world) == [("TargetFull", "TargetFull: no room")]
        world.group.rebalance()

    async with asyncio.TaskGroup() as group:
        group.create_task(rebalance())
        group.create_task(run_until(world.task(), lambda: world.sink.values == texts(numbers(5))))
    assert retrying(world) == []
    assert trouble(world).is_over


async def test_a_put_with_nothing_left_is_not_tried_again() -> None:
    """A sink that names no row to come again has done all of them."""
    world = World(FakeGroup(numbers(5)))
    world.sink.before_put = lambda _batch: Retriable("slow, but done", rows=[])
    await run_until(world.task(), lambda: world.group.committed == 5)
    assert world.told(RetryScheduled) == []


async def test_a_full_target_is_told_loudly_once_and_then_less_and_less_often() -> None:
    """However many puts wait for it; the page and the counts know of each try, and a later outage is loud again."""
    world = World(FakeGroup(numbers(50)), limits=PutLimits(records_max=10, puts_max=5))
    is_full = True
    world.sink.before_put = lambda _batch: TargetFull("no room", wait_seconds=30) if is_full else None

    def loud() -> list[RetryScheduled]:
        return [event for event in world.told(RetryScheduled) if event.level is Level.WARNING]

    async def make_room() -> None:
        nonlocal is_full
        await asyncio.sleep(3600)
        assert len(world.told(RetryScheduled)) > 500
        assert len(loud()) == 6, "at once, after 1, 3, 7, 15 and 31 minutes"
        assert retrying(world) == [("TargetFull", "TargetFull: no room")]
        is_full = False
        while len(world.sink.values) < 50:
            await asyncio.sleep(1)
        is_full = True
        world.group.values.extend(numbers(10, begin=50))
        while len(loud()) < 7:
            await asyncio.sleep(1)
        is_full = False

    async with asyncio.TaskGroup() as group:
        group.create_task(make_room())
        group.create_task(run_until(world.task(), lambda: len(world.sink.values) == 60))
    assert len(loud()) == 7
    assert sum(event.records for event in world.told(SinkRecordsPut)) == 60


async def test_what_is_no_full_target_is_told_loudly_each_time() -> None:
    """A server that is away is tried with growing waits, which say it seldom enough."""
    world = World(FakeGroup(numbers(5)))
    answers: list[Exception | None] = [*[Retriable("away")] * 4, None]
    world.sink.before_put = lambda _batch: answers.pop(0)
    await run_until(world.task(), lambda: world.sink.values == texts(numbers(5)))
    assert [event.level for event in world.told(RetryScheduled)] == [Level.WARNING] * 4
