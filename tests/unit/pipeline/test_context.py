"""What a fetcher tells through its context."""

from __future__ import annotations

import pytest

from fetchers.sdk import SystemClock
from metrics.events import Event, SourceLagMeasured
from service.domain.ids import TaskId
from service.pipeline.activity import Activity
from service.pipeline.context import TaskContext
from tests.unit.pipeline.fakes import PARTITION, HttpUnused

pytestmark = pytest.mark.looptime


async def test_an_unchanged_lag_is_no_news() -> None:
    """Except as the first sign of life after a retry: health waits for it."""
    told: list[Event] = []
    clock = SystemClock()
    activity = Activity(clock)
    context = TaskContext(
        TaskId("c", 0),
        partition=PARTITION,
        offsets={},
        http=HttpUnused(),
        clock=clock,
        emit=told.append,
        activity=activity,
    )
    for seconds in (0.0, 0.0, 3.0, 0.0, 0.0):
        context.finish_round()
        context.report_lag(seconds)
    assert [event.seconds for event in told if isinstance(event, SourceLagMeasured)] == [0.0, 3.0, 0.0]
    activity.is_retrying = True
    context.finish_round()
    context.report_lag(0.0)
    context.report_lag(0.0)
    assert len(told) == 4
