"""The flow of one source task as a whole, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from fetchers.sdk import BackOff, Fatal, Retriable
from metrics.events import (
    BatchClosed,
    QueueStalled,
    RecordsRejected,
    RetryScheduled,
    TaskStarted,
    TransactionAborted,
)
from service.domain.errors import (
    PoisonedBatchError,
    RecordRejectedError,
    Recovery,
    recovery_of,
)
from service.kafka.errors import DeliveryRetriable, WriterFenced
from service.pipeline.batching import BatchLimits
from service.pipeline.delivering import HEARING_SECONDS_MAX
from service.pipeline.fetching import FetchRetry
from service.pipeline.queue import QueueLimits
from service.registry.errors import IncompatibleSchema
from spark_batch.errors import ConversionFatal, ConversionRetriable, SparkUnavailable
from tests.unit.pipeline.fake_kafka import LETTERS, TOPIC, FakeKafka
from tests.unit.pipeline.fakes import PARTITION, FakeConversion, World, fail, numbers, payloads, running, wait_until

pytestmark = pytest.mark.looptime


async def test_everything_is_delivered_in_source_order() -> None:
    """Valid records reach the topic, bad ones the dead letters, and the offset is that of the last page."""
    world, source = World(), numbers(payloads(21, bad=[3, 20]))
    async with running(world.task(source)):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 19)
        await wait_until(lambda: len(world.kafka.values(LETTERS)) == 2)
    assert world.kafka.values(TOPIC) == [value for value in payloads(21) if value not in {b"3", b"20"}]
    assert world.kafka.values(LETTERS) == [b"bad3", b"bad20"]
    assert source.heard[-1] == (PARTITION, {"position": 21})
    assert world.told(TaskStarted)[0].is_success


async def test_a_restart_goes_on_after_the_committed_offset() -> None:
    """The next incarnation reads its offsets after its writer has started, and repeats nothing."""
    world = World()
    async with running(world.task(numbers(payloads(7)))):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 7)
    async with running(world.task(numbers(payloads(12)))):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 12)
    assert world.kafka.values(TOPIC) == payloads(12)


async def test_delivery_keeps_the_order_although_conversions_end_out_of_order() -> None:
    """A slow first conversion holds back the delivery of the second, not its conversion."""
    conversion = FakeConversion(script=lambda call: 5.0 if call == 1 else 0.1)
    world = World(conversion=conversion)
    task = world.task(numbers(payloads(8), page_records=4))
    async with running(task):
        await wait_until(lambda: conversion.calls == 2 and conversion.running == 1)
        assert world.kafka.values(TOPIC) == []
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 8)
    assert world.kafka.values(TOPIC) == payloads(8)


@pytest.mark.parametrize("conversions_max", [1, 2, 3])
async def test_no_more_conversions_run_at_once_than_allowed(conversions_max: int) -> None:
    """The bound is reached under load, and never passed."""
    conversion = FakeConversion(script=lambda _: 1.0)
    world = World(conversion=conversion)
    task = world.task(numbers(payloads(80), page_records=4), conversions_max=conversions_max)
    async with running(task):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 80)
    assert conversion.running_most == conversions_max


async def test_back_pressure_reaches_the_fetcher() -> None:
    """While Kafka hangs, the fetcher is asked for no more than queue, batcher and slots hold."""
    hanging = asyncio.Event()

    async def turn(place: str) -> None:
        if place == "commit.begin":
            await hanging.wait()

    world, source = World(FakeKafka(turn=turn)), numbers(payloads(400))
    asked: list[int] = []
    source.script = asked.append
    async with running(world.task(source)):
        await asyncio.sleep(100)
        bound = 8 + 4 * (2 + 1 + 1 + 1) + 2
        assert max(asked) <= bound
        hanging.set()
        await wait_until(lambda: len(world.kafka.values(TOPIC)) > bound)
        assert world.told(QueueStalled)[0].seconds >= 99


async def test_stop_delivers_everything_that_was_fetched() -> None:
    """After the stop the queue runs dry; nothing more is fetched."""
    conversion = FakeConversion(script=lambda _: 2.0)
    world = World(conversion=conversion)
    source = numbers(payloads(10_000))
    task = world.task(source)
    async with running(task):
        await wait_until(lambda: conversion.calls >= 3)
    left = len(world.kafka.values(TOPIC))
    assert left > 12
    assert world.kafka.values(TOPIC) == payloads(left)
    # The page that waited for room in the queue was not taken: it is fetched again.
    assert task.activity.records_in_hand <= 2
    assert source.closed == source.opened == 1


async def test_stop_before_the_start_has_ended_fetches_nothing() -> None:
    """A stop asked for while the writer connects is obeyed once it has."""

    async def turn(place: str) -> None:
        if place == "writer.start":
            await asyncio.sleep(10)

    world = World(FakeKafka(turn=turn))
    task = world.task(numbers(payloads(100)))
    async with running(task):
        await asyncio.sleep(1)
    assert world.kafka.transactions == []
    assert world.writers[0].is_stopped


async def test_a_fetcher_that_ends_leaves_its_task_running_and_idle() -> None:
    """As in Connect; what it handed over is delivered at once."""
    world = World()
    task = world.task(numbers(payloads(5), waits_at_end=False))
    async with running(task) as run:
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 5)
        await asyncio.sleep(60)
        assert not run.done()
        assert task.activity.idle_seconds is not None
        assert task.activity.idle_seconds >= 59


async def test_with_tolerance_none_all_before_the_bad_records_page_is_delivered() -> None:
    """Nothing of that page, and no dead letter; the task fails and says where."""
    world = World()
    error = await fail(world.task(numbers(payloads(40, bad=[21])), is_tolerant=False))
    assert isinstance(error, RecordRejectedError)
    assert '"position":21' in str(error)
    assert "bad21" not in str(error)
    assert world.kafka.values(TOPIC) == payloads(20)
    assert world.kafka.values(LETTERS) == []
    assert [(event.count, event.is_tolerated) for event in world.told(RecordsRejected)] == [(1, False)]


async def test_a_lost_spark_is_waited_for() -> None:
    """The same micro-batch is converted again, and delivered once."""
    conversion = FakeConversion(script=lambda call: ConversionRetriable("gone") if call in {2, 3} else 0.0)
    world = World(conversion=conversion)
    async with running(world.task(numbers(payloads(30)))):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 30)
    assert world.kafka.values(TOPIC) == payloads(30)


async def test_a_poisoned_batch_fails_the_task_after_everything_before_it() -> None:
    """It is given up after some attempts, and does not take slower conversions before it along."""

    def script(call: int) -> float | Exception:
        return 30.0 if call == 1 else ConversionRetriable("gone")

    world = World(conversion=FakeConversion(script=script))
    error = await fail(world.task(numbers(payloads(8), page_records=4)))
    assert isinstance(error, PoisonedBatchError)
    assert world.kafka.values(TOPIC) == payloads(4)
    assert world.conversion.calls == 1 + 4


async def test_a_subject_that_refuses_the_schema_stops_the_task_before_the_first_record() -> None:
    """The micro-batches before it are delivered, and nothing for its topic is even converted."""
    world = World()
    source = numbers(payloads(8), page_records=4, topic_from=lambda position: "other" if position else None)
    task = world.task(source)

    async def refuse(topic: str, *, is_tombstone: bool) -> None:
        raise IncompatibleSchema(f"{topic} takes no such schema, {is_tombstone=}")

    task.admit = refuse
    assert isinstance(await fail(task), IncompatibleSchema)
    assert world.kafka.values(TOPIC) == payloads(4)
    assert world.conversion.calls == 1


async def test_a_refused_plan_fails_the_task_at_once() -> None:
    """What would fail again is not tried again."""
    world = World(conversion=FakeConversion(script=lambda _: ConversionFatal("no such function")))
    assert isinstance(await fail(world.task(numbers(payloads(8)))), ConversionFatal)
    assert world.conversion.calls <= 2


async def test_a_fatal_fetch_fails_the_task_after_delivering_what_came_before() -> None:
    """A source that refuses at page seven has still given six pages; they need not be asked for again."""
    source = numbers(payloads(20))
    source.script = lambda position: Fatal("no permission") if position == 12 else None
    world = World(conversion=FakeConversion(script=lambda _: 3.0))
    assert isinstance(await fail(world.task(source)), Fatal)
    assert world.kafka.values(TOPIC) == payloads(12)


async def test_a_bug_in_a_fetcher_fails_the_task_with_its_trace() -> None:
    """The error is the bug itself, where it happened."""
    source = numbers(payloads(20))
    source.script = lambda position: 1 // (position - 12)
    error = await fail(World().task(source))
    assert isinstance(error, TypeError | ZeroDivisionError)
    assert error.__traceback__ is not None


async def test_a_retriable_fetch_is_repeated_from_the_last_page() -> None:
    """No page twice, none lost, and the wait that the source asked for is kept."""
    times: list[float] = []

    def script(position: int) -> Exception | None:
        times.append(asyncio.get_running_loop().time())
        return Retriable("cut", wait_seconds=40) if position == 10 and len(times) == 6 else None

    source = numbers(payloads(20))
    source.script = script
    world = World()
    async with running(world.task(source)):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 20)
    assert world.kafka.values(TOPIC) == payloads(20)
    assert times[6] - times[5] >= 40
    assert source.opened == 2


async def test_a_fetch_that_fails_longer_than_patience_restarts_the_task() -> None:
    """``errors.retry.timeout``: the error stays retriable, for the supervisor."""
    source = numbers(payloads(20))
    source.script = lambda position: Retriable("away") if position == 4 else None
    world = World()
    error = await fail(world.task(source, fetch_retry=FetchRetry(BackOff(cap_seconds=5), seconds_max=60)))
    assert recovery_of(error) is Recovery.RETRY
    assert world.kafka.values(TOPIC) == payloads(4)
    assert 60 <= asyncio.get_running_loop().time() < 70


async def test_the_longest_wait_holds_for_conversions_too() -> None:
    """``errors.retry.delay.max.ms`` is said of every try, not of a fetch alone."""
    patience = BackOff(cap_seconds=5, jitter_seconds=0)
    world = World(conversion=FakeConversion(script=lambda call: SparkUnavailable("starts") if call <= 12 else 0))
    async with running(world.task(numbers(payloads(2)), fetch_retry=FetchRetry(patience))):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 2)
    assert max(event.wait_seconds for event in world.told(RetryScheduled) if event.stage == "convert") == 5


@pytest.mark.parametrize("error", [DeliveryRetriable("no leader"), WriterFenced("newer")])
async def test_an_aborted_transaction_ends_the_incarnation(error: Exception) -> None:
    """A writer is used up by any error; the offset is that of the last commit."""
    world = World(FakeKafka(before_commit=lambda commit: error if commit == 3 else None))
    assert await fail(world.task(numbers(payloads(40)))) is error
    assert world.writers[0].is_stopped
    assert len(world.told(TransactionAborted)) == 1
    delivered = len(world.kafka.values(TOPIC))
    async with running(world.task(numbers(payloads(40)))):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 40)
    assert 0 < delivered < 40
    assert world.kafka.values(TOPIC) == payloads(40)


async def test_a_zombie_cannot_commit_after_its_successor_has_started() -> None:
    """Two incarnations at once: the older is fenced and says so, and no record is there twice."""
    world = World(conversion=FakeConversion(script=lambda _: 1.0))
    zombie = world.task(numbers(payloads(400)))
    failures: list[BaseException] = []

    async def run_zombie() -> None:
        failures.append(await fail(zombie))

    async with asyncio.TaskGroup() as group:
        group.create_task(run_zombie())
        await wait_until(lambda: len(world.kafka.values(TOPIC)) > 10)
        async with running(world.task(numbers(payloads(400)))):
            await wait_until(lambda: len(world.kafka.values(TOPIC)) == 400)
    assert isinstance(failures[0], WriterFenced)
    assert world.kafka.values(TOPIC) == payloads(400)


@pytest.mark.parametrize("place", ["fetch", "convert", "commit.begin", "writer.start", "offsets.read"])
async def test_cancelling_a_task_that_hangs_ends_it_at_once(place: str) -> None:
    """Wherever it hangs, it lets go of its writer and its fetcher."""

    async def turn(at: str) -> None:
        if at == place:
            await asyncio.Event().wait()

    kafka = FakeKafka(turn=turn)
    world = World(kafka, FakeConversion(kafka=kafka))
    source = numbers(payloads(100), kafka=kafka)
    run = asyncio.get_running_loop().create_task(world.task(source).run())
    await asyncio.sleep(5)
    started_at = asyncio.get_running_loop().time()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert asyncio.get_running_loop().time() - started_at < 1
    assert world.writers[0].is_stopped
    assert source.closed == source.opened
    assert world.kafka.values(TOPIC) == []


async def test_a_fetcher_that_hangs_in_its_cleaning_up_does_not_hold_back_delivery() -> None:
    """What it fetched is delivered while it hangs; a second cancellation ends it."""
    world, source = World(), numbers(payloads(4))
    stuck = asyncio.Event()

    async def hang() -> None:
        try:
            await stuck.wait()
        finally:
            await stuck.wait()

    source.script = lambda position: hang() if position == 2 else None
    task = world.task(source)
    run = asyncio.get_running_loop().create_task(task.run())
    await asyncio.sleep(1)
    task.request_stop()
    await asyncio.sleep(1)
    assert world.kafka.values(TOPIC) == payloads(2)
    assert not run.done()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_source_that_hangs_when_told_of_a_commit_is_left() -> None:
    """The commit counts; the task starts anew instead of standing still for ever."""
    source = numbers(payloads(4))

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    source.on_committed = hang  # type: ignore[assignment, method-assign]
    world = World()
    error = await fail(world.task(source))
    assert recovery_of(error) is Recovery.RETRY
    assert asyncio.get_running_loop().time() >= HEARING_SECONDS_MAX


async def test_one_record_of_room_is_enough() -> None:
    """Pages of five through a queue for one and micro-batches of one: slow, but nothing deadlocks."""
    world = World()
    limits = {"queue": QueueLimits(1, 1), "batch": BatchLimits(1, 1, 0.5)}
    async with running(world.task(numbers(payloads(50), page_records=5), conversions_max=1, **limits)):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 50)
    assert world.kafka.values(TOPIC) == payloads(50)


async def test_pages_without_records_move_the_offset_without_a_conversion() -> None:
    """A source may say "nothing up to here"; that needs Kafka, but not Spark."""
    world, source = World(), numbers([b"0", b"1"])
    source.page_records = 0

    def script(_: int) -> None:
        source.page_records = min(source.page_records + 1, 2) if source.heard else 0

    source.script = script
    async with running(world.task(source)):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 2)
    assert source.heard[0] == (PARTITION, {"position": 0})
    assert 0 not in world.conversion.records


async def test_duplicates_are_dropped_across_batches_and_incarnations() -> None:
    """What was delivered is remembered in the same transaction; bad records are dead-lettered once too."""
    world = World(has_dedupe=True)
    repeated = [b"a", b"bad-b", b"a", b"bad-b", b"c", b"a", b"d", b"bad-b"]
    async with running(world.task(numbers(repeated))):
        await wait_until(lambda: b"d" in world.kafka.values(TOPIC))
    world_again = World(world.kafka, has_dedupe=True)
    async with running(world_again.task(numbers([*repeated, b"d", b"a", b"bad-b", b"e"]))):
        await wait_until(lambda: b"e" in world.kafka.values(TOPIC))
    assert world.kafka.values(TOPIC) == [b"a", b"c", b"d", b"e"]
    assert world.kafka.values(LETTERS) == [b"bad-b"]


async def test_batches_close_at_once_while_nothing_is_converted() -> None:
    """At low rates Spark's floor is the latency, not the age limit."""
    world = World(conversion=FakeConversion(script=lambda _: 0.2))
    source = numbers(payloads(4), page_records=1)
    source.script = lambda _: asyncio.sleep(1)
    async with running(world.task(source)):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 4)
    assert {(event.reason, event.age_seconds) for event in world.told(BatchClosed)} == {("idle", 0.0)}
