"""The worker's memory: what all tasks hold together, what is left for each, and who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from fetchers.sdk import FetchContext, Page
from metrics.events import MemoryHeldChanged, MemoryWaitBegan, MemoryWaited
from service.domain.errors import SourceTransactionTooLargeError
from service.domain.ids import TaskId
from service.kafka.errors import DeliveryFatal
from service.pipeline.batching import BatchLimits
from service.pipeline.memory import MemoryBudget, MemoryShare, bytes_of_page, default_bytes_max
from service.pipeline.queue import QueueLimits
from tests.unit.pipeline.fake_kafka import TOPIC, FakeKafka
from tests.unit.pipeline.fakes import FakeConversion, Numbers, World, fail, numbers, payloads, running, wait_until

pytestmark = pytest.mark.looptime
BUDGET = 100_000
PAGE_PAYLOADS = [b"x" * 96] * 5
WIDE = {"queue": QueueLimits(10**9, 10**9), "batch": BatchLimits(50, 10**9, 0.5)}
"""Limits that never hold a task up: only the budget does."""


def filled(*tasks: MemoryShare, step: int = 1_000) -> int:
    """Bytes held by these tasks once none of them may ask for more."""
    while any(task.has_room for task in tasks):
        for task in tasks:
            if task.has_room:
                task.add(step)
    return sum(task.bytes_held for task in tasks)


def test_a_single_task_may_use_more_than_half() -> None:
    """Most workers have one task under load at a time."""
    budget = MemoryBudget(BUDGET)
    assert filled(budget.share(TaskId("a", 0))) == pytest.approx(BUDGET * 4 / 7, abs=1_000)


def test_many_tasks_of_a_connector_leave_a_third() -> None:
    """However many it has: shares are the connector's first."""
    budget = MemoryBudget(BUDGET)
    tasks = [budget.share(TaskId("a", number)) for number in range(50)]
    assert filled(*tasks, step=100) == pytest.approx(BUDGET * 2 / 3, abs=50 * 100)


def test_a_connector_that_never_delivers_leaves_enough_for_one_that_comes_later() -> None:
    """Its fifty tasks hold what they hold for ever; the newcomer has more than its one page."""
    budget = MemoryBudget(BUDGET)
    filled(*(budget.share(TaskId("hangs", number)) for number in range(50)), step=100)
    assert filled(budget.share(TaskId("late", 0)), step=100) > BUDGET / 8
    assert budget.bytes_held < BUDGET


def test_a_task_that_holds_nothing_may_always_ask_for_a_page() -> None:
    """Whatever the others hold, and if the page is larger than the whole budget."""
    budget = MemoryBudget(1)
    first, second = budget.share(TaskId("a", 0)), budget.share(TaskId("b", 0))
    assert first.has_room
    first.add(1_000)
    assert not first.has_room
    assert second.has_room


async def test_who_waits_goes_on_when_another_gives_back() -> None:
    """Memory of one connector is room for another."""
    budget = MemoryBudget(BUDGET)
    hog, waiting = budget.share(TaskId("a", 0)), budget.share(TaskId("b", 0))
    waiting.add(1_000)
    hog.add(BUDGET)
    async with asyncio.TaskGroup() as group:
        wait = group.create_task(waiting.wait_for_room())
        await asyncio.sleep(1)
        assert not wait.done()
        with hog:
            pass


def test_all_columns_of_a_page_are_counted() -> None:
    """Keys may be larger than values."""
    payloads, keys = pa.array([b"v" * 10], pa.binary()), pa.array([b"k" * 1_000], pa.binary())
    whole = Page(payloads, {}, keys=keys, timestamps_ms=[1], positions=[1])
    assert bytes_of_page(whole) == payloads.nbytes + keys.nbytes + 16


async def test_tasks_under_backlog_hold_no_more_than_the_budget_and_harm_no_other() -> None:
    """Three connectors whose conversions hang and whose own limits are wide; a fourth goes on, and they after it."""
    hanging = asyncio.Event()

    class Hanging(FakeConversion):
        async def __call__(self, *args: object, **options: bool) -> pa.Table:
            await hanging.wait()
            return await super().__call__(*args, **options)  # type: ignore[arg-type]

    budget = MemoryBudget(BUDGET)
    stuck = [World(conversion=Hanging(), memory=budget, name=f"stuck-{number}") for number in range(3)]
    healthy = World(memory=budget, name="healthy")
    everything = PAGE_PAYLOADS * 400
    tasks = [world.task(numbers(everything, page_records=5), **WIDE) for world in (*stuck, healthy)]
    page_bytes = 2 * bytes_of_page(Page(PAGE_PAYLOADS, {}, positions=range(5)))
    async with running(tasks[0]), running(tasks[1]), running(tasks[2]), running(tasks[3]):
        await wait_until(lambda: len(healthy.kafka.values(TOPIC)) == len(everything))
        assert not any(world.kafka.values(TOPIC) for world in stuck)
        assert all(len(world.told(MemoryWaitBegan)) == len(world.told(MemoryWaited)) + 1 for world in stuck)
        assert budget.bytes_held > BUDGET / 2
        hanging.set()
        await wait_until(lambda: all(len(world.kafka.values(TOPIC)) == len(everything) for world in stuck))
    told = [event for world in (*stuck, healthy) for event in world.told(MemoryHeldChanged)]
    assert max(event.worker_bytes for event in told) <= BUDGET + len(tasks) * page_bytes
    assert budget.bytes_held == 0


async def test_a_task_that_ends_gives_everything_back() -> None:
    """What it held is fetched again."""

    def refuse(commits: int) -> Exception | None:
        return DeliveryFatal("no") if commits == 2 else None

    world = World(FakeKafka(before_commit=refuse))
    await fail(world.task(numbers(payloads(100))))
    assert max(event.bytes for event in world.told(MemoryHeldChanged)) > 0
    assert world.memory.bytes_held == 0


async def test_a_transaction_of_the_source_is_fetched_to_its_end() -> None:
    """Its first pages are given back only with its last: waiting for memory in between would be for ever."""
    world = World(memory=MemoryBudget(1))

    class InTransactions(Numbers):
        async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
            async for page in super().fetch(context):
                yield replace(page, ends_transaction=page.offset["position"] == 8)

    source = InTransactions(numbers([]).config)
    source.payloads = payloads(8)
    async with running(world.task(source, batch=BatchLimits(4, 10_000, 0.5))):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 8)


class OneTransaction(Numbers):
    """All that it has is one transaction of the source, behind a page that is one by itself."""

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """See ``Numbers``."""
        last = len(self.payloads)
        async for page in super().fetch(context):
            yield replace(page, ends_transaction=page.offset["position"] in {5, last})


@pytest.mark.parametrize("first_bytes_max", [1, 10**9])
async def test_a_large_transaction_has_no_more_memory_than_is_kept_of_it_whole(first_bytes_max: int) -> None:
    """Once it is split nothing is kept of it, and its source waits until what it holds is delivered.

    Also where it became so large behind a page that waited for others to be converted.
    """
    hanging = asyncio.Event()

    class Hanging(FakeConversion):
        async def __call__(self, *args: object, **options: bool) -> pa.Table:
            await hanging.wait()
            return await super().__call__(*args, **options)  # type: ignore[arg-type]

    limit, everything = 5_000, PAGE_PAYLOADS * 400
    world, source = World(conversion=Hanging()), OneTransaction(numbers([]).config)
    source.payloads, source.page_records = everything, 5
    limits = BatchLimits(50, first_bytes_max, 0.5, transaction_bytes_max=limit)
    async with running(world.task(source, queue=QueueLimits(10**9, 10**9), batch=limits)):
        await wait_until(lambda: bool(world.told(MemoryWaitBegan)))
        assert not world.kafka.values(TOPIC)
        hanging.set()
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == len(everything))
    assert limit < max(event.bytes for event in world.told(MemoryHeldChanged)) < 4 * limit
    assert world.memory.bytes_held == 0


async def test_a_large_transaction_that_must_not_be_split_fails_its_task() -> None:
    """Instead of waiting for memory that nobody gives back."""
    world, source = World(), OneTransaction(numbers([]).config)
    source.payloads, source.page_records = PAGE_PAYLOADS * 400, 5
    limits = BatchLimits(50, 1, 0.5, transaction_bytes_max=5_000, is_transaction_split=False)
    error = await fail(world.task(source, queue=QueueLimits(10**9, 10**9), batch=limits))
    assert isinstance(error, SourceTransactionTooLargeError)
    assert len(world.kafka.values(TOPIC)) == 5


def test_the_default_is_a_quarter_of_what_the_cgroup_allows(tmp_path: Path) -> None:
    """Of the narrowest of the groups around the process, by either version of the interface."""
    groups = tmp_path / "sys/fs/cgroup"
    (groups / "outer/inner").mkdir(parents=True)
    (groups / "memory/docker").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    membership = tmp_path / "proc/self/cgroup"
    unlimited = default_bytes_max(tmp_path)

    membership.write_text("0::/outer/inner\n")
    (groups / "outer/memory.max").write_text("400000000\n")
    (groups / "outer/inner/memory.max").write_text("max\n")
    assert default_bytes_max(tmp_path) == 100_000_000

    membership.write_text("3:cpu:/docker\n2:memory:/docker\n")
    (groups / "memory/docker/memory.limit_in_bytes").write_text("80000000\n")
    assert default_bytes_max(tmp_path) == 20_000_000 < unlimited
