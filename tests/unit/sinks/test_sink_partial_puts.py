"""Puts of which a part is done, and several puts at once; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Thread

import pyarrow as pa
import pytest

from fetchers.sdk import BackOff, Fatal, Retriable, SystemClock
from metrics.events import RetryScheduled
from service.kafka.errors import DeliveryRetriable
from service.pipeline.memory import MemoryBudget
from service.sinks.contract import Form, Offsets, PutLimits, SinkBatch, SinkContext, TargetFull, ValueType
from service.sinks.dead_letters import DeadLetterRules
from tests.unit.sinks.fake_library import HERE, FakeGroup, polled
from tests.unit.sinks.fakes import World, numbers, run_until, texts

pytestmark = pytest.mark.looptime
TOLERANT = DeadLetterRules(is_tolerant=True, topic="letters")


def values_of(batch: SinkBatch) -> list[str]:
    """As texts."""
    return [str(value) for value in batch.records.column("value").to_pylist()]


async def test_only_the_named_rows_come_again() -> None:
    """The others are done; nothing goes to the dead letters, and all is committed once the rest is taken."""
    world = World(FakeGroup(numbers(10)), TOLERANT)
    tries: list[list[str]] = []

    async def take_even_places(batch: SinkBatch) -> None:
        tries.append(values_of(batch))
        left = range(1, len(batch), 2)
        world.sink.values += values_of(batch)[::2]
        if left:
            message = "too busy"
            raise Retriable(message, rows=left)

    world.sink.put = take_even_places  # type: ignore[method-assign]
    await run_until(world.task(), lambda: world.group.committed == 10)
    assert tries == [texts(numbers(10)), ["1", "3", "5", "7", "9"], ["3", "7"], ["7"]]
    assert sorted(map(str, world.sink.values)) == sorted(map(str, texts(numbers(10))))
    assert not world.letters.written
    assert [event.attempt for event in world.told(RetryScheduled)] == [1, 1, 1]


async def test_a_refusal_among_retried_rows_is_one_letter_of_the_right_record() -> None:
    """Rows of a smaller batch are counted in it."""
    world = World(FakeGroup(numbers(4)), TOLERANT)

    async def put(batch: SinkBatch) -> None:
        if len(batch) == 4:
            batch.refuse(0, "odd", "the first")
            message = "busy"
            raise Retriable(message, rows=[1, 3])
        batch.refuse(1, "odd", "the last")

    world.sink.put = put  # type: ignore[method-assign]
    await run_until(world.task(), lambda: world.group.committed == 4)
    assert world.letters.values == [b"0", b"3"]


async def test_nothing_behind_a_row_that_waits_is_committed() -> None:
    """Though it is done: a successor would pass over the one that is not."""
    world = World(FakeGroup(numbers(6)), flush_seconds=1)

    async def put(batch: SinkBatch) -> None:
        if "2" in values_of(batch):
            message = "away"
            raise Retriable(message, rows=[values_of(batch).index("2")])

    world.sink.put = put  # type: ignore[method-assign]
    await run_until(world.task(), lambda: len(world.told(RetryScheduled)) > 3)
    assert world.group.committed == 2


async def test_what_waits_behind_a_row_is_bounded_by_the_worker_s_memory() -> None:
    """Other puts go on while one record is refused for a while, but what they bring is held until it is done."""
    memory = MemoryBudget(20_000)
    world = World(
        FakeGroup(numbers(2_000)), limits=PutLimits(puts_max=3), flush_seconds=0.05, poll_records_max=10, memory=memory
    )
    is_away, held = True, []

    async def put(batch: SinkBatch) -> None:
        held.append(memory.bytes_held)
        if is_away and "0" in values_of(batch):
            message = "away"
            raise Retriable(message, rows=[values_of(batch).index("0")])
        world.sink.values += values_of(batch)

    world.sink.put = put  # type: ignore[method-assign]
    task = world.task()
    async with asyncio.TaskGroup() as group:
        group.create_task(task.run())
        await asyncio.sleep(600)
        assert 50 < len(world.sink.values) < 1_000
        assert world.group.committed is None
        assert max(held) < memory.bytes_max
        is_away = False
        await asyncio.sleep(600)
        assert world.group.committed == 2_000
        assert memory.bytes_held == 0
        task.request_stop()


async def test_several_puts_are_under_way_and_the_commit_follows_the_slowest() -> None:
    """As many as the sink takes; what is done behind an open one is committed after it."""
    limits = PutLimits(records_max=2, puts_max=3)
    world = World(FakeGroup(numbers(10)), limits=limits, flush_seconds=0.05)
    first_may_end, most, open_now = asyncio.Event(), 0, 0

    async def put(batch: SinkBatch) -> None:
        nonlocal most, open_now
        open_now += 1
        most = max(most, open_now)
        if "0" in values_of(batch):
            await first_may_end.wait()
        await asyncio.sleep(0.01)
        world.sink.values += values_of(batch)
        open_now -= 1

    world.sink.put = put  # type: ignore[method-assign]
    task = world.task()
    async with asyncio.TaskGroup() as group:
        group.create_task(task.run())
        await asyncio.sleep(5)
        assert len(world.sink.values) == 8
        assert world.group.committed is None
        first_may_end.set()
        await asyncio.sleep(5)
        assert world.group.committed == 10
        task.request_stop()
    assert most == 3
    assert sorted(map(str, world.sink.values)) == sorted(map(str, texts(numbers(10))))


async def test_flush_and_close_are_never_beside_a_put() -> None:
    """Though puts are beside each other; a rebalance waits for those under way and puts nothing of theirs twice."""
    world = World(FakeGroup(numbers(40)), limits=PutLimits(records_max=2, puts_max=4), flush_seconds=0.03)
    open_now, seen = 0, []
    flush, close = world.sink.flush, world.sink.close

    async def put(batch: SinkBatch) -> None:
        nonlocal open_now
        open_now += 1
        if batch.ends == {tuple(HERE): 20} and "open [20]" not in world.log:
            world.group.rebalance()
        await asyncio.sleep(0.02)
        world.sink.values += values_of(batch)
        open_now -= 1

    async def flush_alone(offsets: object) -> object:
        seen.append(open_now)
        return await flush(offsets)  # type: ignore[arg-type]

    async def close_alone(partitions: object) -> None:
        seen.append(open_now)
        await close(partitions)  # type: ignore[arg-type]

    world.sink.put, world.sink.flush, world.sink.close = put, flush_alone, close_alone  # type: ignore[method-assign, assignment]
    await run_until(world.task(), lambda: world.group.committed == 40)
    assert set(seen) == {0}
    assert len(seen) > 3
    assert sorted(map(str, set(world.sink.values))) == sorted(map(str, texts(numbers(40))))
    assert sum(line.startswith("open ") for line in world.log) == 2


async def test_a_sink_may_bound_its_tries() -> None:
    """``retries_max`` failures in a row after the first one fail the task; its own waits are between them."""
    waits = BackOff(first_seconds=5, cap_seconds=5, jitter_seconds=0)
    world = World(FakeGroup(numbers(1)), limits=PutLimits(retries_max=2, waits=waits))
    world.sink.before_put = lambda _batch: Retriable("away")
    with pytest.raises(Fatal, match="given up after 3 tries: away"):
        await world.task().run()
    assert [event.wait_seconds for event in world.told(RetryScheduled)] == [5, 5]


@pytest.mark.parametrize("retries_max", [0, 2])
async def test_a_target_that_is_full_is_waited_for(retries_max: int) -> None:
    """Its refusals are not counted, before or after others that are; the other kinds still fail the task in time."""
    waits = BackOff(first_seconds=5, cap_seconds=5, jitter_seconds=0)
    world = World(FakeGroup(numbers(1)), limits=PutLimits(retries_max=retries_max, waits=waits))
    full = TargetFull("no room", wait_seconds=30)
    answers: list[Exception | None] = [*[full] * 50, *[Retriable("away")] * (retries_max - 1), *[full] * 50, None]
    world.sink.before_put = lambda _batch: answers.pop(0)
    await run_until(world.task(), lambda: world.sink.values == texts(numbers(1)))
    told = [(event.error_class, event.attempt, event.wait_seconds) for event in world.told(RetryScheduled)]
    assert told[:50] == told[-50:] == [("TargetFull", 1, 30)] * 50


async def test_a_target_that_stays_full_fails_the_task_by_the_errors_own_limit() -> None:
    """``errors.retry.timeout`` counts from the first refusal."""
    world = World(FakeGroup(numbers(1)), limits=PutLimits(retries_max=2), retry_seconds_max=100)
    world.sink.before_put = lambda _batch: TargetFull("no room", wait_seconds=30)
    with pytest.raises(Fatal, match=r"errors\.retry\.timeout is over: no room"):
        await world.task().run()
    assert len(world.told(RetryScheduled)) == 4


async def test_what_was_refused_before_a_fatal_error_has_its_letter() -> None:
    """The record and the reason are not lost with the task; nothing of the batch is committed."""
    world = World(FakeGroup(numbers(3)), TOLERANT)

    async def put(batch: SinkBatch) -> None:
        batch.refuse(1, "odd", "this is odd")
        message = "see the dead letters"
        raise Fatal(message)

    world.sink.put = put  # type: ignore[method-assign]
    with pytest.raises(Fatal, match="see the dead letters"):
        await world.task().run()
    assert world.letters.values == [b"1"]
    assert world.group.committed is None


async def test_a_rebalance_behind_a_failure_commits_nothing() -> None:
    """It waited while dead letters could not be written, and another put waits to be tried again.

    What the flow could not settle is not this task's to commit any more.
    """
    world = World(FakeGroup(numbers(10)), TOLERANT, limits=PutLimits(records_max=5, puts_max=2))

    async def put(batch: SinkBatch) -> None:
        values = values_of(batch)
        if "0" not in values:
            message = "away"
            raise Retriable(message)
        batch.refuse(0, "odd", "this is odd")
        world.sink.values += values[1:]

    def fail_once() -> Exception:
        world.letters.fail = lambda: None
        world.group.rebalance()
        return DeliveryRetriable("broker away")

    world.sink.put = put  # type: ignore[method-assign]
    world.letters.fail = fail_once
    with pytest.raises(DeliveryRetriable, match="broker away"):
        await world.task().run()
    assert world.log[-2:] == ["close 1", "stop"]
    assert world.group.committed is None


def flush_requests(world: World) -> list[Callable[..., None]]:
    """Holds the sink's ``request_flush`` from its start on."""
    started = world.sink.start
    asks: list[Callable[..., None]] = []

    async def start(context: SinkContext) -> None:
        asks.append(context.request_flush)
        await started(context)

    world.sink.start = start  # type: ignore[method-assign]
    return asks


async def test_a_sink_asks_for_its_flush() -> None:
    """What was put is committed at once, long before the interval is over."""
    world = World(FakeGroup(numbers(1)), flush_seconds=10_000)
    asks = flush_requests(world)
    task = world.task()
    async with asyncio.TaskGroup() as group:
        group.create_task(task.run())
        await asyncio.sleep(2)
        world.group.values += numbers(1, begin=1)
        await asyncio.sleep(2)
        assert world.group.committed == 1
        asking = Thread(target=asks[0])  # a sink may find out in a thread of its own that it is full
        asking.start()
        asking.join()
        await asyncio.sleep(2)
        assert world.group.committed == 2
        task.request_stop()


async def test_a_sink_asks_for_a_flush_at_a_moment() -> None:
    """It comes then, while nothing comes from Kafka, and not with the poll that ends next."""
    world = World(FakeGroup(numbers(1)), flush_seconds=10_000)
    asks, clock = flush_requests(world), SystemClock()
    flushed_at: list[float] = []

    def safe(offsets: Offsets) -> Offsets:
        flushed_at.append(clock.monotonic())
        return offsets

    world.sink.safe = safe
    task = world.task()
    async with asyncio.TaskGroup() as group:
        group.create_task(task.run())
        await asyncio.sleep(2)
        world.group.values += numbers(1, begin=1)
        await asyncio.sleep(2)
        asked_at = clock.monotonic()
        asks[0](3.21)
        asks[0](7.0)
        await asyncio.sleep(10)
        assert world.group.committed == 2
        assert flushed_at[1:] == [pytest.approx(asked_at + 3.21, abs=0.005)], "the later one finds nothing new"
        task.request_stop()


def test_a_batch_by_partition() -> None:
    """Each partition's records in order, and refusals find their row."""
    table = pa.concat_tables([polled([b"a", b"b"], partition=1), polled([b"c"], partition=0)])
    table = table.append_column("original_topic", table.column("topic"))
    refused: list[int] = []
    kind = ValueType(Form.BYTES)
    batch = SinkBatch(table, kind, kind, lambda row, _reason, _message: refused.append(row))
    found = list(batch.by_partition())
    assert [(partition, each.records.column("value").to_pylist()) for partition, each in found] == [
        (("lines", 0), [b"c"]),
        (("lines", 1), [b"a", b"b"]),
    ]
    found[0][1].refuse(0, "odd", "")
    assert refused == [2]
