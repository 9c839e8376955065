"""What is told of conversions that Spark loses; in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fetchers.sdk import BackOff, SystemClock
from metrics.events import Event, RetriesEnded, RetryScheduled, TaskEvents
from service.domain.errors import PoisonedBatchError
from service.pipeline.lost_conversions import ATTEMPTS_MAX, tried_again
from service.rest.health import Health
from spark_batch.errors import ConversionRetriable, SparkUnavailable

pytestmark = pytest.mark.looptime
BACK_OFF = BackOff(first_seconds=1, cap_seconds=1, jitter_seconds=0)


class Told:
    """Events of one task, and the page that shows them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.health = Health()

    def convert(self, losses: int, error: type[ConversionRetriable] = ConversionRetriable) -> Any:
        """A conversion of one micro-batch that is lost so often."""
        left = losses

        async def convert(*, is_alone: bool) -> str:
            nonlocal left
            del is_alone
            left -= 1
            if left >= 0:
                message = "Spark is gone"
                raise error(message)
            return "converted"

        return tried_again(convert, 1, TaskEvents(self._take, "c", 0), SystemClock(), BACK_OFF)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self.health(event)

    @property
    def is_retrying(self) -> bool:
        """Whether the page says so."""
        return "retrying" in self.health.report(has_reasons=True)["tasks"].get("c-0", {})

    def parts(self, kind: type[RetryScheduled | RetriesEnded]) -> list[int | None]:
        """Which conversions were told of."""
        return [event.part for event in self.events if isinstance(event, kind)]


async def test_a_conversion_that_is_tried_again_is_told_until_it_is_done() -> None:
    """Also where nothing else tells of conversions, as at a sink."""
    told = Told()
    async with asyncio.TaskGroup() as group:
        group.create_task(told.convert(2))
        await asyncio.sleep(1.5)
        assert told.is_retrying
    assert not told.is_retrying
    assert told.parts(RetryScheduled) == [told.parts(RetriesEnded)[0]] * 2


async def test_one_that_is_done_hides_no_other() -> None:
    """A task converts several micro-batches at once."""
    told = Told()
    async with asyncio.TaskGroup() as group:
        group.create_task(told.convert(3))
        await told.convert(1)
        assert told.is_retrying
    assert not told.is_retrying
    assert len(set(told.parts(RetryScheduled))) == 2


async def test_one_that_is_never_lost_is_not_told() -> None:
    """Most are not."""
    told = Told()
    assert await told.convert(0) == "converted"
    assert told.events == []


async def test_one_that_is_given_up_is_not_told_any_more() -> None:
    """By who waits for it, where Spark was lost or does not start; or for good."""
    told = Told()
    for error in (ConversionRetriable, SparkUnavailable):
        async with asyncio.TaskGroup() as group:
            converting = group.create_task(told.convert(3, error))
            await asyncio.sleep(0.5)
            assert told.is_retrying
            converting.cancel()
        assert not told.is_retrying
    with pytest.raises(PoisonedBatchError):
        await told.convert(ATTEMPTS_MAX)
    assert not told.is_retrying
