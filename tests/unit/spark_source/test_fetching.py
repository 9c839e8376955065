"""What a fetcher in a process of Spark's tells, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from fetchers.sdk import SystemClock
from service.domain.ids import TaskId
from service.pipeline.activity import Activity
from service.spark_source.fetching import TOLD_AFTER_SECONDS, JobContext
from tests.unit.pipeline.fakes import PARTITION, HttpUnused, InThreads


@pytest.mark.looptime
async def test_a_long_wait_for_a_limit_is_told_once_and_a_short_one_never(caplog: pytest.LogCaptureFixture) -> None:
    """An hour without requests would look like a job that hangs."""
    activity = Activity(SystemClock())
    context = JobContext(
        TaskId("mixpanel", 0),
        partition=PARTITION,
        offsets={},
        http=HttpUnused(),
        clock=SystemClock(),
        emit=lambda _: None,
        activity=activity,
        blocking=InThreads(),
    )
    for seconds, told in ((TOLD_AFTER_SECONDS / 2, 0), (3600.0, 1)):
        with context.waiting_for_limit():
            assert activity.waits_for_limit == 1
            await asyncio.sleep(seconds)
        await asyncio.sleep(60)
        assert len(caplog.messages) == told
    assert activity.waits_for_limit == 0
    assert caplog.messages[0].startswith("mixpanel: the source's limit of requests is used up")
