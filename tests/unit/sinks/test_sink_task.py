"""One sink task in virtual time: order of what is asked of the sink, retries, rebalances, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
from aiokafka import errors as kafka

from fetchers.sdk import Fatal, Retriable
from metrics.events import (
    DeadLettersWritten,
    MemoryHeldChanged,
    RecordsFiltered,
    RecordsRejected,
    RetryScheduled,
    SinkCommitFailed,
    SinkDeadLettersFailed,
    SinkLagMeasured,
    SinkOffsetsCommitted,
    SinkRecordsPut,
    TaskStarted,
)
from service.domain.errors import ConnectorExitError, RecordRejectedError, Recovery, described, recovery_of, root_of
from service.kafka.errors import DeliveryRetriable
from service.sinks.contract import Offsets, Partition, SinkBatch
from service.sinks.dead_letters import DeadLetterRules
from spark_batch.transforms.catalog import Filter, Step
from tests.unit.sinks.fake_library import FakeGroup
from tests.unit.sinks.fakes import World, numbers, run_until, texts

pytestmark = pytest.mark.looptime
TOLERANT = DeadLetterRules(is_tolerant=True, topic="letters")


async def test_everything_is_asked_in_order() -> None:
    """Start, open, put, flush before commit, word of the commit, close, stop; the consumer leaves."""
    world = World(FakeGroup(numbers(5)))
    await run_until(world.task(), lambda: len(world.sink.values) == 5)
    assert world.log == [
        "start sink-0", "open [None]", "flush [5]", "commit 5", "committed [5]", "close 1", "stop",
    ]  # fmt: skip
    assert world.clients[0].is_stopped
    assert [event.kind for event in world.told(TaskStarted)] == ["sink"]


async def test_a_coordinator_that_loads_its_offsets_is_not_one_without_offsets() -> None:
    """The client library takes it for one, after a broker's start, and would read the topic anew."""
    world = World(FakeGroup(numbers(5), committed=3, loading_answers=2))
    await run_until(world.task(), lambda: len(world.sink.values) >= 2)
    assert world.sink.values == texts(numbers(2, begin=3))


async def test_commits_come_in_their_interval_and_at_the_stop() -> None:
    """The first with the first put, the next an interval later, the last when the task ends."""
    world = World(FakeGroup(numbers(1)))
    task = world.task()
    async with asyncio.TaskGroup() as group:
        group.create_task(task.run())
        for count in (1, 2, 3):
            await asyncio.sleep(50)
            world.group.values += numbers(1, begin=count)
        await asyncio.sleep(5)
        task.request_stop()
    commits = [line for line in world.log if line.startswith("commit ")]
    assert commits == ["commit 1", "commit 2", "commit 3", "commit 4"]
    assert [event.number for event in world.told(SinkOffsetsCommitted)] == [1, 2, 3, 4]
    assert sum(event.records for event in world.told(SinkOffsetsCommitted)) == 4


async def test_a_retriable_put_gets_the_same_batch_again() -> None:
    """After growing waits, however long it takes; nothing else is put meanwhile."""
    world = World(FakeGroup(numbers(25)))
    tries: list[int] = []

    def fail_thrice(batch: SinkBatch) -> Exception | None:
        tries.append(len(batch))
        return Retriable("away") if len(tries) <= 3 else None

    world.sink.before_put = fail_thrice
    await run_until(world.task(), lambda: len(world.sink.values) == 25)
    assert world.sink.values == texts(numbers(25))
    assert tries == [10, 10, 10, 10, 10, 5]
    assert [event.wait_seconds for event in world.told(RetryScheduled)] == [1, 2, 4]
    assert {event.stage for event in world.told(RetryScheduled)} == {"put"}


async def test_a_put_that_hangs_is_tried_again() -> None:
    """It is given up after its time limit."""
    world = World(FakeGroup(numbers(3)))
    puts = 0
    put = world.sink.put

    async def hang_once(batch: SinkBatch) -> None:
        nonlocal puts
        puts += 1
        if puts == 1:
            await asyncio.Event().wait()
        await put(batch)

    world.sink.put = hang_once  # type: ignore[method-assign]
    await run_until(world.task(), lambda: len(world.sink.values) == 3)
    assert world.sink.values == texts(numbers(3))


async def test_what_a_sink_has_polled_is_counted_until_it_is_put() -> None:
    """As memory of the worker, for which sources make room; nothing of it is left where the task ends in the middle."""
    world = World(FakeGroup(numbers(15)))
    held: list[int] = []

    def look(batch: SinkBatch) -> Exception | None:
        held.append(world.memory.bytes_held)
        return Fatal("refused") if len(batch) == 5 else None

    world.sink.before_put = look
    with pytest.raises(Fatal, match="refused"):
        await world.task().run()
    assert len(held) == 2
    assert all(held)
    assert [event.bytes for event in world.told(MemoryHeldChanged)] == [held[0], 0, held[1], 0]
    assert world.memory.bytes_held == 0


async def test_a_stop_while_retrying_leaves_the_batch_uncommitted() -> None:
    """It does not wait for the sink, and the records come again."""
    world = World(FakeGroup(numbers(15)))
    world.sink.before_put = lambda batch: Retriable("away") if len(batch) == 5 else None
    await run_until(world.task(), lambda: len(world.told(RetryScheduled)) > 1)
    assert world.group.committed == 10


async def test_retries_may_have_an_end() -> None:
    """``errors.retry.timeout`` over: the task fails with the sink's reason."""
    world = World(FakeGroup(numbers(1)), retry_seconds_max=10)
    world.sink.before_put = lambda _batch: Retriable("away")
    with pytest.raises(Fatal, match="away"):
        await world.task().run()
    assert world.group.committed is None


async def test_a_fatal_put_ends_the_task_and_commits_nothing_of_it() -> None:
    """What was put before is not lost: it was committed or comes again."""
    world = World(FakeGroup(numbers(15)))
    world.sink.before_put = lambda batch: Fatal("refused") if len(batch) == 5 else None
    with pytest.raises(Fatal, match="refused"):
        await world.task().run()
    assert world.group.committed == 10
    assert world.log[-1] == "stop"
    assert world.clients[0].is_stopped


async def test_never_more_than_was_flushed_is_committed() -> None:
    """A sink may hold back; one that claims too much is not believed."""
    world = World(FakeGroup(numbers(10)))
    world.sink.safe = lambda offsets: {partition: end - 4 for partition, end in offsets.items()}
    await run_until(world.task(), lambda: len(world.sink.values) == 10)
    assert world.group.committed == 6
    greedy = World(FakeGroup(numbers(10)))
    greedy.sink.safe = lambda offsets: {partition: end + 4 for partition, end in offsets.items()}
    await run_until(greedy.task(), lambda: len(greedy.sink.values) == 10)
    assert greedy.group.committed == 10


async def test_a_failed_commit_is_made_up_for() -> None:
    """Brokers that are away for a while do not end the task; an outdated one is told as such."""
    failures: list[Exception | None] = [kafka.KafkaConnectionError(), kafka.CommitFailedError(), None]
    world = World(FakeGroup(numbers(3), fail_commit=lambda: failures.pop(0) if failures else None), flush_seconds=5)
    await run_until(world.task(), lambda: world.group.committed == 3)
    assert [event.is_outdated for event in world.told(SinkCommitFailed)] == [False, True]
    assert world.sink.values == texts(numbers(3))


async def test_a_rebalance_commits_first() -> None:
    """What was put is flushed, committed and closed before the partitions go, so that it does not come again."""
    world = World(FakeGroup(numbers(30)))

    def rebalance_once(batch: SinkBatch) -> None:
        if batch.ends == {("lines", 0): 20} and "open [20]" not in world.log:
            world.group.rebalance()

    world.sink.before_put = rebalance_once
    await run_until(world.task(), lambda: len(world.sink.values) == 30)
    assert world.sink.values == texts(numbers(30))
    assert world.log[5:9] == ["flush [20]", "commit 20", "committed [20]", "close 1"]
    assert world.log[9] == "open [20]"


async def test_a_rebalance_during_retries_passes_over_nothing() -> None:
    """However long the sink opens: nothing is taken meanwhile, and what was in hand is read again, not put twice."""
    world = World(FakeGroup(numbers(32)))
    tries = 0
    open_ = world.sink.open

    async def open_slowly(partitions: Mapping[Partition, int | None]) -> Offsets:
        if tries:
            await asyncio.sleep(20)
        return await open_(partitions)

    def fail_a_while(batch: SinkBatch) -> Exception | None:
        nonlocal tries
        is_second = batch.ends == {("lines", 0): 20}
        tries += is_second
        if is_second and tries == 2:
            world.group.rebalance()
        return Retriable("away") if is_second and tries < 5 else None

    world.sink.before_put = fail_a_while
    world.sink.open = open_slowly  # type: ignore[method-assign]
    await run_until(world.task(), lambda: len(world.sink.values) >= 32, seconds_max=100)
    assert world.sink.values == texts(numbers(32))
    assert world.group.committed == 32


async def test_nothing_is_put_from_before_where_the_sink_begins() -> None:
    """``open`` takes its time and then asks for a later offset: no record before it is handed over."""
    world = World(FakeGroup(numbers(15)))

    async def open_later(_partitions: Mapping[Partition, int | None]) -> Offsets:
        await asyncio.sleep(20)
        return {("lines", 0): 7}

    world.sink.open = open_later  # type: ignore[method-assign, assignment]
    await run_until(world.task(), lambda: len(world.sink.values) >= 8)
    assert world.sink.values == texts(numbers(8, begin=7))


async def test_what_no_converter_takes_fails_the_task() -> None:
    """Without tolerance, before anything of its batch is put; the message says where it stands."""
    world = World(FakeGroup([*numbers(2), b"\xff", b"3"]))
    with pytest.raises(RecordRejectedError, match=r"not UTF-8 at byte 0; topic 'lines', partition 0, offset 2"):
        await world.task().run()
    assert world.sink.values == []
    assert world.group.committed is None
    assert [event.is_tolerated for event in world.told(RecordsRejected)] == [False]


async def test_dead_letters_are_written_before_their_offsets() -> None:
    """Of converters and of the sink; each once, though the batch is put again."""
    world = World(FakeGroup([*numbers(2), b"\xff", b"odd"]), rules=TOLERANT)
    is_first = True

    def refuse_odd(batch: SinkBatch) -> Exception | None:
        nonlocal is_first
        values = batch.records.column("value").to_pylist()
        batch.refuse(values.index("odd"), "odd", "this is odd")
        was_first, is_first = is_first, False
        return Retriable("away") if was_first else None

    world.sink.before_put = refuse_odd
    await run_until(world.task(), lambda: world.group.committed == 4)
    assert world.letters.values == [b"\xff", b"odd"]
    assert world.log.index("letters 2") < world.log.index("commit 4")
    assert [event.count for event in world.told(DeadLettersWritten)] == [2]
    assert {(event.stage, event.reason) for event in world.told(RecordsRejected)} == {
        ("VALUE_CONVERTER", "invalid_utf8"),
        ("TASK_PUT", "odd"),
    }


async def test_records_whose_dead_letters_fail_are_not_committed() -> None:
    """The task ends and starts anew from the group's offsets."""
    world = World(FakeGroup([b"\xff"]), rules=TOLERANT)
    world.letters.fail = lambda: DeliveryRetriable("away")
    with pytest.raises(DeliveryRetriable):
        await world.task().run()
    assert world.group.committed is None
    assert [event.count for event in world.told(SinkDeadLettersFailed)] == [1]


async def test_tolerance_without_a_topic_passes_over() -> None:
    """As in Connect: the record is counted and nothing else."""
    world = World(FakeGroup([b"\xff", b"1"]), rules=DeadLetterRules(is_tolerant=True))
    await run_until(world.task(), lambda: world.group.committed == 2)
    assert world.sink.values == ["1"]
    assert [event.count for event in world.told(RecordsRejected)] == [1]
    assert not world.told(DeadLettersWritten)


async def test_idle_at_the_end_and_not_before() -> None:
    """Idleness begins when everything is read and put."""
    world = World(FakeGroup(numbers(15)))
    task = world.task()
    world.sink.before_put = lambda batch: (
        Retriable("away") if len(batch) == 5 and len(world.told(RetryScheduled)) < 3 else None
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(task.run())
        await asyncio.sleep(2)
        assert task.activity.idle_seconds is None
        await asyncio.sleep(20)
        assert task.activity.idle_seconds is not None
        assert task.activity.records_in_hand == 0
        task.request_stop()
    assert [event.records for event in world.told(SinkLagMeasured)][-1] == 0
    assert sum(event.records for event in world.told(SinkRecordsPut)) == 15


async def test_a_cancelled_task_leaves_the_group_and_commits_nothing() -> None:
    """The last stage of a stop."""
    world = World(FakeGroup(numbers(10)))
    hanging = asyncio.Event()

    async def hang(batch: SinkBatch) -> None:
        assert len(batch) == 10
        hanging.set()
        await asyncio.Event().wait()

    world.sink.put = hang  # type: ignore[method-assign]
    task = world.task()
    async with asyncio.TaskGroup() as group:
        work = group.create_task(task.run())
        await hanging.wait()
        work.cancel()
    assert world.clients[0].is_stopped
    assert world.log == ["start sink-0", "open [None]", "stop"]


def hang_once(world: World, call: str) -> None:
    """Let one call of the sink never return, the first time."""
    original, is_first = getattr(world.sink, call), True

    async def called(*arguments: object) -> object:
        nonlocal is_first
        was_first, is_first = is_first, False
        if was_first:
            await asyncio.Event().wait()
        return await original(*arguments)

    setattr(world.sink, call, called)


@pytest.mark.parametrize("call", ["start", "open", "close", "stop"])
async def test_a_call_that_hangs_once_does_not_fail_the_task_for_good(call: str) -> None:
    """It is given up after its time limit, and the task ends for a restart, as when Kafka is away."""
    world = World(FakeGroup(numbers(5)))
    hang_once(world, call)
    with pytest.raises(ExceptionGroup) as ended:
        await run_until(world.task(), lambda: world.group.committed == 5)
    assert recovery_of(ended.value) is Recovery.RETRY
    assert described(root_of(ended.value)) == f"CallTimedOut: {call} did not return within 60 s"
    await run_until(world.task(), lambda: world.group.committed == 5)


@pytest.mark.parametrize("call", ["start", "open", "put", "stop"])
async def test_a_sink_that_wants_to_end_the_process_ends_its_task(call: str) -> None:
    """Such an exception, once in the event loop, would end the worker with all its connectors."""
    world = World(FakeGroup(numbers(5)))

    async def end(*_arguments: object) -> None:
        raise SystemExit(3)

    setattr(world.sink, call, end)
    with pytest.raises((ConnectorExitError, ExceptionGroup)) as ended:
        await run_until(world.task(), lambda: world.group.committed == 5)
    assert isinstance(root_of(ended.value), ConnectorExitError)


@pytest.mark.parametrize("call", ["flush", "committed"])
async def test_a_flush_that_hangs_once_is_tried_again(call: str) -> None:
    """When the next commit is due; the task goes on."""
    world = World(FakeGroup(numbers(5)), flush_seconds=1)
    hang_once(world, call)
    await run_until(world.task(), lambda: world.group.committed == 5)
    assert [event.error_class for event in world.told(SinkCommitFailed)] == ["CallTimedOut"]


async def test_a_sink_that_does_not_stop_hides_nothing() -> None:
    """A task that has failed for good is not started anew because its sink hangs at the end."""
    world = World(FakeGroup(numbers(5)))
    world.sink.before_put = lambda _batch: Fatal("refused")
    world.sink.stop = asyncio.Event().wait  # type: ignore[method-assign, assignment]
    with pytest.raises(Fatal, match="refused") as failed:
        await world.task().run()
    assert failed.value.__notes__ == ["stop did not return within 60 s"]


async def test_filtered_records_are_done_and_counted() -> None:
    """Their offsets are committed, though the sink is handed none of them; nothing of them is a dead letter."""
    world = World(FakeGroup(numbers(25)))
    task = world.task()
    steps = (Step("f", Filter()),)
    task.settings = replace(task.settings, decoding=replace(task.settings.decoding, steps=steps))
    await run_until(task, lambda: world.group.committed == 25)
    assert world.sink.values == []
    assert sum(event.count for event in world.told(RecordsFiltered)) == 25
    assert not world.told(SinkRecordsPut)
    assert not world.told(RecordsRejected)
