"""What a fetcher tells through its context."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

import pytest

from fetchers.sdk import Inbox, InboxLimits, Offset, Retriable, SystemClock, listen
from fetchers.sdk.context import BlockingCalls, partition_key
from fetchers.sdk.inbox import MESSAGE_HEALTHY_SECONDS
from metrics.events import Event, RetryScheduled, SourceCaughtUp, SourceLagMeasured
from service.domain.ids import TaskId
from service.pipeline.activity import Activity
from service.pipeline.context import TaskContext
from tests.unit.pipeline.fakes import PARTITION, HttpUnused, InThreads, page

pytestmark = pytest.mark.looptime
T = TypeVar("T")


def new_context(
    told: list[Event],
    activity: Activity,
    stored: Offset | None = None,
    *,
    blocking: BlockingCalls | None = None,
) -> TaskContext:
    """Of a task with one source partition."""
    return TaskContext(
        TaskId("c", 0),
        partition=PARTITION,
        offsets={} if stored is None else {partition_key(PARTITION): stored},
        http=HttpUnused(),
        clock=SystemClock(),
        emit=told.append,
        activity=activity,
        blocking=blocking or InThreads(),
    )


async def test_what_a_fetcher_does_to_its_offset_changes_nothing_that_is_stored() -> None:
    """All tasks of a worker share what was read of the offset topic; the next incarnation would skip records."""
    stored = {"position": 1}
    context = new_context([], Activity(SystemClock()), stored)
    for offset in (context.offset, context.offset_of(PARTITION), *context.offsets.values()):
        cast("dict[str, int]", offset)["position"] += 10
        assert (stored, context.offset) == ({"position": 1}, {"position": 1})


async def test_offsets_that_others_have_stored_since_are_told_when_they_are_read() -> None:
    """In place of those that were handed over; not before, and as copies."""
    found = {partition_key(PARTITION): {"position": 7}}

    async def read() -> dict[tuple[tuple[str, Any], ...], Offset]:
        return dict(found)

    context = new_context([], Activity(SystemClock()), {"position": 1})
    context.read = read
    context.advance(page(b"{}", position=2))
    assert context.offset == {"position": 2}
    await context.read_offsets()
    assert context.offset == {"position": 7}


async def test_an_unchanged_lag_is_no_news() -> None:
    """Except as the first sign of life after a retry: health waits for it."""
    told: list[Event] = []
    activity = Activity(SystemClock())
    context = new_context(told, activity)
    for seconds in (0.0, 0.0, 3.0, 0.0, 0.0):
        context.finish_round()
        context.report_lag(seconds)
    assert [event.seconds for event in told if isinstance(event, SourceLagMeasured)] == [0.0, 3.0, 0.0]
    activity.is_retrying = True
    context.finish_round()
    context.report_lag(0.0)
    context.report_lag(0.0)
    assert sum(isinstance(event, SourceLagMeasured) for event in told) == 4
    assert sum(isinstance(event, SourceCaughtUp) for event in told) == 1


async def test_a_fetcher_that_tries_again_by_itself_is_told_of_and_not_idle() -> None:
    """As if the worker tried: event, wait, and the end of patience."""
    told: list[Event] = []
    activity = Activity(SystemClock())
    context = new_context(told, activity)
    context.finish_round()
    context.patience_seconds = 10.0
    for attempt in (1, 2):
        await context.wait_to_retry(Retriable("away"), attempt=attempt, wait_seconds=6.0)
        assert activity.idle_seconds is None
    with pytest.raises(Retriable, match="away"):
        await context.wait_to_retry(Retriable("away"), attempt=3, wait_seconds=6.0)
    retries = [(event.attempt, event.wait_seconds) for event in told if isinstance(event, RetryScheduled)]
    assert retries == [(1, 6.0), (2, 6.0)]
    context.advance(page(b"1"))
    assert not context.is_patience_over


@pytest.mark.parametrize(("stands_seconds", "is_ended"), [(0.0, True), (MESSAGE_HEALTHY_SECONDS, False)])
async def test_a_storm_of_short_connections_ends_with_patience(*, stands_seconds: float, is_ended: bool) -> None:
    """A source that connects, says something and hangs up is failing; one that stands for a while was well."""
    told: list[Event] = []
    context = new_context(told, Activity(SystemClock()))
    context.patience_seconds = 60.0

    async def receive(inbox: Inbox) -> None:
        inbox.connected(is_resumed=True)
        await inbox.put([b"hello"], offset={"id": 1})
        await asyncio.sleep(stands_seconds)

    async def forward() -> None:
        async for each in listen(context, receive):
            context.advance(each)

    with pytest.raises(Retriable if is_ended else TimeoutError):
        async with asyncio.timeout(3_600):
            await forward()
    assert context.is_patience_over == is_ended
    attempts = [event.attempt for event in told if isinstance(event, RetryScheduled)]
    assert max(attempts) > 1 if is_ended else set(attempts) == {1}


async def test_an_empty_queue_is_when_an_inbox_hands_over_what_it_has() -> None:
    """Until then it collects a larger page."""
    context = new_context([], Activity(SystemClock()))
    inbox = context.inbox(InboxLimits(page_age_seconds_max=1000.0))
    context.hear_of_queue(is_empty=False)
    await inbox.put([b"1"], offset={"id": 1})
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(inbox.take())
        await asyncio.sleep(5)
        assert not taking.done()
        context.hear_of_queue(is_empty=True)
    assert taking.result() is not None
    assert asyncio.get_running_loop().time() == 5


async def test_blocking_calls_of_one_subject_are_made_one_after_the_other() -> None:
    """A driver's connection is used by one thread at a time."""
    running: list[str] = []

    class Watched(InThreads):
        async def run(self, call: Callable[[], T], *, subject: Hashable, seconds_max: float | None = None) -> T:
            assert (str(subject) not in running, seconds_max) == (True, 300.0)
            running.append(str(subject))
            try:
                await asyncio.sleep(1)
                return call()
            finally:
                running.remove(str(subject))

    context = new_context([], Activity(SystemClock()), blocking=Watched())
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(context.run_blocking(lambda: 7, subject=name)) for name in ("a", "a", "b")]
    assert [call.result() for call in calls] == [7, 7, 7]
    assert asyncio.get_running_loop().time() == 2
