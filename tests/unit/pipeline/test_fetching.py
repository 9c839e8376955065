"""The fetch stage: retries, patience, back-off."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, cast

import pyarrow as pa
import pytest

from fetchers.sdk import BackOff, Fatal, FetchContext, Page, RateLimited, Retriable, SystemClock
from fetchers.sdk.context import partition_key
from metrics.events import Event, PageFetched, QueueStalled, QueueWaitBegan, RetryScheduled, TaskEvents
from metrics.prometheus import PrometheusObserver
from service.domain.errors import ConnectorExitError
from service.domain.ids import TaskId
from service.pipeline.activity import Activity
from service.pipeline.context import TaskContext
from service.pipeline.fetching import FetchRetry, FetchStage
from service.pipeline.memory import MemoryBudget
from service.pipeline.queue import BoundedQueue, QueueClosed, QueueLimits
from tests.unit.metrics.exposition import Exposition
from tests.unit.pipeline.fakes import PARTITION, HttpUnused, InThreads, Numbers, NumbersConfig, numbers, page, payloads

pytestmark = pytest.mark.looptime
STEADY = BackOff(first_seconds=2, cap_seconds=16, jitter_seconds=0)


class Bench:
    """A stage with a wide queue."""

    def __init__(
        self,
        connector: Numbers,
        *,
        retry: FetchRetry,
        position: int = 0,
        limits: QueueLimits = QueueLimits(),
    ) -> None:
        """``position``: the stored offset."""
        clock = SystemClock()
        self.events: list[Event] = []
        self.activity = Activity(clock)
        self.queue = BoundedQueue(limits)
        self.context = TaskContext(
            TaskId("c", 0),
            partition=PARTITION,
            offsets={partition_key(PARTITION): {"position": position}},
            http=HttpUnused(),
            clock=clock,
            emit=self.events.append,
            activity=self.activity,
            blocking=InThreads(),
        )
        events = TaskEvents(self.events.append, "c", 0)
        memory = MemoryBudget(2**30).share(TaskId("c", 0))
        self.stage = FetchStage(connector, self.context, self.queue, memory, self.activity, events, clock, retry)

    @property
    def waits(self) -> list[tuple[int, float]]:
        """Attempt and wait of each retry."""
        return [(event.attempt, event.wait_seconds) for event in self.events if isinstance(event, RetryScheduled)]

    def shown(self, name: str) -> float | None:
        """A figure of the task, as it is scraped after what was told so far."""
        observe = PrometheusObserver(clock=asyncio.get_running_loop().time)
        for event in self.events:
            observe(event)
        return Exposition(observe.render()).value(name, connector="c", task="0")


class Scripted(Numbers):
    """A fetcher that is a function."""

    def __init__(self, run: Callable[[FetchContext], AsyncIterator[Page]]) -> None:
        """``run`` is its fetch."""
        super().__init__(NumbersConfig.model_validate({"topic": "t"}))
        self.run = run

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Run it."""
        async for item in self.run(context):
            yield item


async def test_the_back_off_grows_and_begins_anew_after_progress() -> None:
    """Three failures before any page, then a page, then failures count from one again."""
    failures = iter([0, 0, 0, None, 2, 2, None, None, None])

    def script(position: int) -> Exception | None:
        return Retriable("cut") if next(failures) == position else None

    source = numbers(payloads(6), waits_at_end=False)
    source.script = script
    bench = Bench(source, retry=FetchRetry(STEADY))
    await bench.stage.run()
    assert bench.waits == [(1, 2), (2, 4), (3, 8), (1, 2), (2, 4)]
    assert bench.queue.statistics().records == 6
    assert source.opened == source.closed == 6


async def test_the_wait_the_source_asks_for_is_the_least() -> None:
    """``Retry-After`` above the back-off counts, below it the back-off does."""
    asked = iter([100.0, 1.0, None])

    def script(_: int) -> Exception | None:
        wait = next(asked, None)
        return None if wait is None else RateLimited("429", wait_seconds=wait)

    source = numbers(payloads(2), waits_at_end=False)
    source.script = script
    bench = Bench(source, retry=FetchRetry(STEADY))
    await bench.stage.run()
    assert bench.waits == [(1, 100), (2, 4)]
    assert asyncio.get_running_loop().time() == pytest.approx(104, abs=0.1)


async def test_patience_begins_with_the_first_failure_not_with_the_start() -> None:
    """A source that was quiet for ten hours may fail once."""
    calls = 0

    async def run(context: FetchContext) -> AsyncIterator[Page]:
        nonlocal calls
        calls += 1
        if calls == 1:
            for _ in range(10):
                await asyncio.sleep(3_600)
                context.finish_round()
            message = "reset"
            raise Retriable(message)
        yield page(b"1")

    bench = Bench(Scripted(run), retry=FetchRetry(STEADY, seconds_max=60))
    await bench.stage.run()
    assert bench.waits == [(1, 2)]


async def test_a_retry_says_what_is_away() -> None:
    """The class of an error names no source; its message, written for people, does."""

    async def run(context: FetchContext) -> AsyncIterator[Page]:
        if context.clock.monotonic() < 1:
            message = "https://api.example.com/export: cannot connect (Connection refused)"
            raise Retriable(message)
        yield page(b"1")

    bench = Bench(Scripted(run), retry=FetchRetry(STEADY))
    await bench.stage.run()
    told = [event for event in bench.events if isinstance(event, RetryScheduled)]
    assert [(event.error_class, event.message) for event in told] == [
        ("Retriable", "Retriable: https://api.example.com/export: cannot connect (Connection refused)")
    ]


async def test_rounds_without_news_are_progress() -> None:
    """An API that answers every time but one in ten is not a failing one."""
    calls = 0

    async def run(context: FetchContext) -> AsyncIterator[Page]:
        nonlocal calls
        calls += 1
        await asyncio.sleep(50)
        context.finish_round()
        if calls < 5:
            message = "reset"
            raise Retriable(message)
        yield page(b"1")

    bench = Bench(Scripted(run), retry=FetchRetry(STEADY, seconds_max=60))
    await bench.stage.run()
    assert [attempt for attempt, _ in bench.waits] == [1, 1, 1, 1]


async def test_patience_ends() -> None:
    """The last error is raised as it is."""

    async def run(_: FetchContext) -> AsyncIterator[Page]:
        message = "away"
        raise Retriable(message)
        yield page()  # what makes it a generator

    bench = Bench(Scripted(run), retry=FetchRetry(STEADY, seconds_max=60))
    with pytest.raises(Retriable, match="away"):
        await bench.stage.run()
    assert 60 <= asyncio.get_running_loop().time() <= 60 + STEADY.cap_seconds


@pytest.mark.parametrize("error", [Fatal("401"), KeyError("a bug")])
async def test_what_retrying_cannot_mend_is_raised_at_once(error: Exception) -> None:
    """And the generator is closed."""
    source = numbers(payloads(6))
    source.script = lambda position: error if position == 2 else None
    bench = Bench(source, retry=FetchRetry(STEADY))
    with pytest.raises(type(error)):
        await bench.stage.run()
    assert bench.waits == []
    assert source.closed == 1


async def test_a_fetcher_that_wants_to_end_the_process_ends_its_task() -> None:
    """Such an exception, once in the event loop, would end the worker with all its connectors."""

    async def run(context: FetchContext) -> AsyncIterator[Page]:
        del context
        sys.exit(3)
        yield

    with pytest.raises(ConnectorExitError, match="SystemExit: 3"):
        await Bench(Scripted(run), retry=FetchRetry(STEADY)).stage.run()


async def test_it_resumes_from_the_stored_offset() -> None:
    """And ends its round when the source has no more."""
    bench = Bench(numbers(payloads(6), waits_at_end=False), retry=FetchRetry(STEADY), position=4)
    await bench.stage.run()
    assert bench.queue.statistics().records == 2
    assert bench.context.offset == {"position": 6}
    assert bench.activity.rounds > 0


async def test_an_iterator_that_is_no_generator_serves_too() -> None:
    """The contract asks for ``__anext__`` only."""

    class Once:
        def __init__(self) -> None:
            self.left = [page(b"1")]

        def __aiter__(self) -> Once:
            return self

        async def __anext__(self) -> Page:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop()

    connector: Any = numbers([])
    connector.fetch = lambda _: Once()
    bench = Bench(connector, retry=FetchRetry(STEADY))
    await bench.stage.run()
    assert bench.queue.statistics().records == 1


async def test_a_fetcher_that_never_waits_lets_others_work() -> None:
    """Between two of its pages everyone else gets a turn."""
    bench = Bench(numbers(payloads(200), waits_at_end=False), retry=FetchRetry(STEADY))
    turns: list[int] = []

    async def other() -> None:
        while bench.queue.statistics().records < 200:
            turns.append(bench.queue.statistics().records)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(other())
        group.create_task(bench.stage.run())
    assert len(set(turns)) > 50
    assert sum(isinstance(event, PageFetched) for event in bench.events) == 100


async def test_a_poll_takes_from_asking_for_a_page_to_having_it() -> None:
    """Neither the time the page before waited for room counts, nor a back-off."""
    failures = iter([None, Retriable("cut"), None, None])

    async def run(context: FetchContext) -> AsyncIterator[Page]:
        for position in range(cast("int", context.offset["position"]), 3):
            await asyncio.sleep(3 + position)
            if (error := next(failures)) is not None:
                raise error
            yield page(b"%d" % position, position=position + 1)

    bench = Bench(Scripted(run), retry=FetchRetry(STEADY), limits=QueueLimits(1, bytes_max=10_000))
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.stage.run())
        while bench.stage.pages_handed_over < 3:
            await asyncio.sleep(100)
            await bench.queue.take()
    seconds = [event.seconds for event in bench.events if isinstance(event, PageFetched)]
    assert seconds == pytest.approx([3, 4, 5], abs=0.01)
    assert bench.shown("kafka_connect_source_task_poll_batch_max_time_ms") == pytest.approx(5_000, abs=10)


async def test_the_bytes_of_a_page_are_those_of_its_payloads() -> None:
    """Not what Arrow needs to find them; a tombstone has none."""

    async def run(_: FetchContext) -> AsyncIterator[Page]:
        yield page(b"abc", None, b"defgh")
        yield Page(pa.array([b"left out", b"ij", b"left out too"], pa.binary()).slice(1, 1), {"position": 4})
        yield page()

    bench = Bench(Scripted(run), retry=FetchRetry(STEADY))
    await bench.stage.run()
    assert [event.bytes for event in bench.events if isinstance(event, PageFetched)] == [8, 2, 0]
    assert bench.shown("headrace_page_bytes_total") == 10


async def test_a_wait_for_room_is_told_while_it_lasts() -> None:
    """Long before it ends, and although a queue that refuses the next page is short of its limit."""
    bench = Bench(
        numbers(payloads(8), waits_at_end=False), retry=FetchRetry(STEADY), limits=QueueLimits(3, bytes_max=10_000)
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.stage.run())
        await asyncio.sleep(600)
        assert bench.queue.statistics().records == 2
        assert bench.shown("headrace_queue_pages_waiting") == 1
        while bench.stage.pages_handed_over < 4:
            await bench.queue.take()
            await asyncio.sleep(0.1)
    assert bench.shown("headrace_queue_pages_waiting") == 0
    began = [event for event in bench.events if isinstance(event, QueueWaitBegan)]
    waits = [event.seconds for event in bench.events if isinstance(event, QueueStalled)]
    assert len(began) == len(waits) == 3
    assert waits[0] >= 600


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_wait_for_room_that_comes_to_nothing_is_over_too(*, is_cancelled: bool) -> None:
    """A stopped task is not shown as waiting for ever."""
    bench = Bench(
        numbers(payloads(8), waits_at_end=False), retry=FetchRetry(STEADY), limits=QueueLimits(3, bytes_max=10_000)
    )

    async def run_until_closed() -> None:
        with suppress(QueueClosed):
            await bench.stage.run()

    async with asyncio.TaskGroup() as group:
        run = group.create_task(run_until_closed())
        await asyncio.sleep(5)
        assert bench.shown("headrace_queue_pages_waiting") == 1
        if is_cancelled:
            run.cancel()
        else:
            await bench.queue.close()
    assert bench.shown("headrace_queue_pages_waiting") == 0
