"""What a fetcher tells through its context."""

from __future__ import annotations

from typing import cast

import pytest

from fetchers.sdk import Offset, SystemClock
from fetchers.sdk.context import partition_key
from metrics.events import Event, SourceCaughtUp, SourceLagMeasured
from service.domain.ids import TaskId
from service.pipeline.activity import Activity
from service.pipeline.context import TaskContext
from tests.unit.pipeline.fakes import PARTITION, HttpUnused

pytestmark = pytest.mark.looptime


def new_context(told: list[Event], activity: Activity, stored: Offset | None = None) -> TaskContext:
    """Of a task with one source partition."""
    return TaskContext(
        TaskId("c", 0),
        partition=PARTITION,
        offsets={} if stored is None else {partition_key(PARTITION): stored},
        http=HttpUnused(),
        clock=SystemClock(),
        emit=told.append,
        activity=activity,
    )


async def test_what_a_fetcher_does_to_its_offset_changes_nothing_that_is_stored() -> None:
    """All tasks of a worker share what was read of the offset topic; the next incarnation would skip records."""
    stored = {"position": 1}
    context = new_context([], Activity(SystemClock()), stored)
    for offset in (context.offset, context.offset_of(PARTITION), *context.offsets.values()):
        cast("dict[str, int]", offset)["position"] += 10
        assert (stored, context.offset) == ({"position": 1}, {"position": 1})


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
