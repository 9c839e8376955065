"""The poll loop in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import SystemClock
from service.pipeline.batching import BatchLimits, CloseReason, MicroBatch
from service.pipeline.polling import poll
from service.pipeline.queue import BoundedQueue, QueueLimits
from tests.unit.pipeline.fake_kafka import TOPIC, FakeKafka
from tests.unit.pipeline.fakes import FakeConversion, World, numbers, page, payloads, queued, running, wait_until
from tests.unit.pipeline.virtual_time import run_virtual

pytestmark = pytest.mark.looptime
LIMITS = BatchLimits(records_max=4, bytes_max=10_000, age_seconds_max=0.5)


class Poller:
    """The poll loop over one queue; what it yields is kept with the time."""

    def __init__(self, *, is_converting: bool) -> None:
        """A queue with room."""
        self.queue = BoundedQueue(QueueLimits())
        self.is_converting = is_converting
        self.found: list[tuple[float, MicroBatch]] = []

    async def run(self) -> None:
        """Until the queue is closed and empty."""
        loop = asyncio.get_running_loop()
        batches = poll(self.queue, limits=LIMITS, is_converting=lambda: self.is_converting, clock=SystemClock())
        async with aclosing(batches):
            async for batch in batches:
                self.found.append((loop.time(), batch))

    @property
    def summary(self) -> list[tuple[CloseReason, int]]:
        """Reason and records of each micro-batch."""
        return [(batch.reason, batch.records) for _, batch in self.found]


async def test_an_unfinished_batch_closes_by_age() -> None:
    """While something is converted, the first page waits half a second and no longer."""
    poller = Poller(is_converting=True)
    async with asyncio.TaskGroup() as group:
        group.create_task(poller.run())
        await poller.queue.put(queued(page(b"1")))
        await asyncio.sleep(0.3)
        await poller.queue.put(queued(page(b"2")))
        await asyncio.sleep(10)
        await poller.queue.close()
    ((closed_at, batch),) = poller.found
    assert (batch.reason, batch.records) == (CloseReason.AGE, 2)
    assert closed_at == pytest.approx(0.5, abs=0.01)
    assert batch.age_seconds == pytest.approx(0.5, abs=0.01)


async def test_the_end_of_the_conversions_closes_an_unfinished_batch() -> None:
    """A nudge is enough; no page has to come."""
    poller = Poller(is_converting=True)
    async with asyncio.TaskGroup() as group:
        group.create_task(poller.run())
        await poller.queue.put(queued(page(b"1")))
        await asyncio.sleep(0.2)
        poller.is_converting = False
        await poller.queue.nudge()
        await asyncio.sleep(0.1)
        assert poller.summary == [(CloseReason.IDLE, 1)]
        await poller.queue.close()


async def test_closing_the_queue_drains_it() -> None:
    """Everything inside is yielded, the unfinished rest too, then the loop ends."""
    poller = Poller(is_converting=True)
    for number in range(5):
        await poller.queue.put(queued(page(b"%d" % number, b"x")))
    await poller.queue.close()
    await poller.run()
    assert poller.summary == [(CloseReason.COUNT, 4), (CloseReason.COUNT, 4), (CloseReason.STOP, 2)]


async def test_an_unfinished_source_transaction_is_left_out_at_the_end() -> None:
    """What came before it is delivered; it is fetched again."""
    poller = Poller(is_converting=True)
    await poller.queue.put(queued(page(b"1")))
    await poller.queue.put(queued(page(b"2", ends_transaction=False)))
    await poller.queue.close()
    await poller.run()
    assert poller.summary == [(CloseReason.STOP, 1)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.floats(0, 1)), max_size=15), st.booleans())
def test_no_page_is_lost_or_repeated(script: list[tuple[int, float]], is_converting: bool) -> None:  # noqa: FBT001
    """Whatever the sizes and times, the pages come out once, in order, none older than the age limit."""
    items = [queued(page(*[b"x"] * size), fetched_at=number) for number, (size, _) in enumerate(script)]

    async def run() -> Poller:
        poller = Poller(is_converting=is_converting)
        async with asyncio.TaskGroup() as group:
            group.create_task(poller.run())
            for item, (_, pause) in zip(items, script, strict=True):
                await poller.queue.put(item)
                await asyncio.sleep(pause)
            await poller.queue.close()
        return poller

    found = run_virtual(run()).found
    assert [item for _, batch in found for item in batch.pages] == items
    assert all(batch.age_seconds <= LIMITS.age_seconds_max + 0.01 for _, batch in found)


async def test_while_transactions_are_slow_micro_batches_grow_and_nothing_waits_for_more_than_three() -> None:
    """For the one under way, for those collected meanwhile, and for its own."""
    count, seconds_between = 600, 0.01
    world = World(conversion=FakeConversion(script=lambda _: 0.005), kafka=FakeKafka(commit_seconds=0.1))
    source = numbers(payloads(count), page_records=1)
    source.script = lambda _: asyncio.sleep(seconds_between)
    loop, readable_at = asyncio.get_running_loop(), list[float]()

    async def note(place: str) -> None:
        if place == "commit.end":
            readable_at.extend([loop.time()] * (len(world.kafka.values(TOPIC)) - len(readable_at)))

    world.kafka.turn = note
    began = loop.time()
    async with running(world.task(source, queue=QueueLimits(), batch=BatchLimits())):
        await wait_until(lambda: len(readable_at) == count)
    delays = [at - began - (number + 1) * seconds_between for number, at in enumerate(readable_at)]
    assert max(delays) < 3 * world.kafka.commit_seconds + seconds_between
