"""The bounded queue: its bounds, its order, its end."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.pipeline.queue import BoundedQueue, QueueClosed, QueuedPage, QueueLimits, QueueStatistics
from tests.unit.pipeline.fakes import page, queued

LIMITS = QueueLimits(records_max=5, bytes_max=120)


async def test_a_full_queue_makes_the_fetcher_wait() -> None:
    """Putting returns only once there is room."""
    queue = BoundedQueue(QueueLimits(2, 1_000))
    await queue.put(queued(page(b"a", b"b")))
    async with asyncio.TaskGroup() as group:
        putting = group.create_task(queue.put(queued(page(b"c"))))
        await asyncio.sleep(0.01)
        assert not putting.done()
        await queue.take()
    assert queue.statistics().records == 1


async def test_a_page_over_the_whole_bound_goes_through_alone() -> None:
    """It waits for an empty queue, not for room that can never be."""
    queue = BoundedQueue(QueueLimits(1, 1))
    await queue.put(queued(page(*[b"x" * 100] * 10)))
    assert not queue.has_room_for(page(b""))
    await queue.take()
    assert queue.has_room_for(page(b"a", b"b"))


async def test_pages_without_records_are_bounded_too() -> None:
    """A source that only moves its offset cannot fill memory while Kafka is away."""
    queue = BoundedQueue(QueueLimits(3, 1_000))
    for position in range(3):
        await queue.put(queued(page(position=position)))
    assert not queue.has_room_for(page(position=4))


async def test_a_closed_queue_takes_nothing_and_gives_the_rest() -> None:
    """Who waits to put is told, what is inside can be taken, then there is no more."""
    queue = BoundedQueue(QueueLimits(1, 1_000))
    await queue.put(queued(page(b"a")))
    async with asyncio.TaskGroup() as group:
        putting = group.create_task(_is_refused(queue))
        await asyncio.sleep(0)
        await queue.close()
    assert putting.result()
    await queue.wait_for_news()
    await queue.take()
    with pytest.raises(QueueClosed):
        await queue.take()


async def test_a_cancelled_put_leaves_nothing_behind() -> None:
    """The page is not in the queue, and the queue goes on working."""
    queue = BoundedQueue(QueueLimits(1, 1_000))
    await queue.put(queued(page(b"a")))
    async with asyncio.TaskGroup() as group:
        putting = group.create_task(queue.put(queued(page(b"b"))))
        await asyncio.sleep(0)
        putting.cancel()
    await queue.take()
    assert queue.peek() is None
    await queue.put(queued(page(b"c")))
    assert queue.statistics() == QueueStatistics(records=1, bytes=page(b"c").bytes, pages=1, is_closed=False)


async def test_a_nudge_wakes_who_waits_for_news() -> None:
    """The end of a conversion is news although no page came."""
    queue, is_news = BoundedQueue(LIMITS), False
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.wait_for_news(is_news=lambda: is_news))
        await asyncio.sleep(0)
        await queue.nudge()
        await asyncio.sleep(0)
        assert not waiting.done()
        is_news = True
        await queue.nudge()


async def _is_refused(queue: BoundedQueue) -> bool:
    try:
        await queue.put(queued(page(b"b")))
    except QueueClosed:
        return True
    return False


class QueueMachine(RuleBasedStateMachine):
    """Puts and takes at random, against a plain list."""

    def __init__(self) -> None:
        """An empty queue and an empty model."""
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.changes: list[QueueStatistics] = []
        self.queue = BoundedQueue(LIMITS, on_change=self.changes.append)
        self.model: deque[QueuedPage] = deque()
        self.waiting: list[tuple[QueuedPage, asyncio.Task[None]]] = []

    @precondition(lambda self: not self.waiting)
    @rule(sizes=st.lists(st.integers(0, 60), max_size=7))
    def put(self, sizes: list[int]) -> None:
        """It is in at once when there is room, else it waits."""
        item = queued(page(*[b"x" * size for size in sizes]))
        has_room = not self.model or (
            max(self.records + len(sizes), len(self.model) + 1) <= LIMITS.records_max
            and self.bytes + item.page.bytes <= LIMITS.bytes_max
        )
        putting = self.loop.create_task(self.queue.put(item))
        self._settle()
        assert putting.done() == has_room
        if has_room:
            self.model.append(item)
        else:
            self.waiting.append((item, putting))

    @precondition(lambda self: self.model)
    @rule()
    def take(self) -> None:
        """The oldest page; who waits comes in as soon as there is room."""
        assert self.queue.peek() is self.model[0]
        assert self.loop.run_until_complete(self.queue.take()) is self.model.popleft()
        self._settle()
        if self.waiting and self.waiting[0][1].done():
            self.model.append(self.waiting.pop()[0])
        assert self.model or not self.waiting, "an empty queue must let any page in"

    @property
    def records(self) -> int:
        """What the model holds."""
        return sum(len(item.page) for item in self.model)

    @property
    def bytes(self) -> int:
        """What the model holds."""
        return sum(item.page.bytes for item in self.model)

    @invariant()
    def statistics_are_true(self) -> None:
        """And the bound holds, but for a page that is alone."""
        now = self.queue.statistics()
        assert now == QueueStatistics(self.records, self.bytes, len(self.model), is_closed=False)
        assert len(self.model) <= 1 or (now.records <= LIMITS.records_max and now.bytes <= LIMITS.bytes_max)
        assert not self.changes or self.changes[-1] == now

    def teardown(self) -> None:
        """End who still waits."""
        for _, putting in self.waiting:
            putting.cancel()
        self._settle()
        self.loop.close()

    def _settle(self) -> None:
        for _ in range(5):
            self.loop.run_until_complete(asyncio.sleep(0))


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
