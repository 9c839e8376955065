"""What a sink hears of the group's assignments: a number by which its target can refuse a zombie."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer

from fetchers.catalog import shared_http
from fetchers.sdk import SystemClock
from metrics.events import discard
from service.kafka.library import generation_of
from service.sinks.contract import SinkBatch, SinkContext
from tests.unit.sinks.fake_library import FakeGroup
from tests.unit.sinks.fakes import World, numbers, run_until


@pytest.mark.looptime
async def test_the_generation_is_that_of_the_assignment_under_which_records_are_put() -> None:
    """-1 at the start and at the stop; between them the group's own, and a greater one after a rebalance."""
    world = World(FakeGroup(numbers(30)))
    seen: list[tuple[int, int]] = []
    contexts: list[SinkContext] = []
    start, stop = world.sink.start, world.sink.stop

    async def started(context: SinkContext) -> None:
        contexts.append(context)
        seen.append((context.generation(), -1))
        await start(context)

    async def stopped() -> None:
        seen.append((contexts[0].generation(), -1))
        await stop()

    def note(batch: SinkBatch) -> None:
        seen.append((contexts[0].generation(), world.group.generation))
        if batch.ends == {("lines", 0): 20} and world.group.generation == 1:
            world.group.rebalance()

    world.sink.start = started  # type: ignore[method-assign]
    world.sink.stop = stopped  # type: ignore[method-assign]
    world.sink.before_put = note
    await run_until(world.task(), lambda: len(world.sink.values) >= 30)
    assert all(own == of_group for own, of_group in seen)
    assert [own for own, _ in seen] == [-1, 1, 1, 2, -1]


async def test_a_consumer_that_still_connects_has_no_generation() -> None:
    """The client library has no coordinator until it has reached a broker, and a sink may ask meanwhile."""
    consumer = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1", group_id="group")
    assert generation_of(consumer) == -1
    await consumer.stop()


async def test_outside_of_a_group_there_is_no_generation() -> None:
    """As in the contract suite, and in a sink's own tests."""
    async with shared_http() as http:
        assert SinkContext("sink", 0, SystemClock(), discard, http).generation() == -1
