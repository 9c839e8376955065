"""A conversion that is lost with Spark is tried again, beside others first and then alone; not for ever."""

from __future__ import annotations

from itertools import count
from typing import Protocol, TypeVar

from fetchers.sdk import BackOff, Clock
from metrics.events import RetriesEnded, RetryScheduled, TaskEvents
from service.domain.errors import PoisonedBatchError, described
from spark_batch.errors import ConversionRetriable, SparkUnavailable

ALONE_AFTER_LOSSES = 2
"""From then on a micro-batch is tried beside no other: it may be what kills Spark."""
ATTEMPTS_MAX = 4
"""Losses of the conversion of one micro-batch; then it is the micro-batch's own doing."""
_numbers = count(1)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class TryConversion(Protocol[T_co]):
    """One try of a conversion."""

    async def __call__(self, *, is_alone: bool) -> T_co:
        """What it gives; ``is_alone``: with no other beside it. Raises ConversionRetriable where Spark is lost."""


async def tried_again(  # noqa: PLR0917 - one conversion, and what its owner waits with
    convert: TryConversion[T],
    records: int,
    events: TaskEvents,
    clock: Clock,
    back_off: BackOff,
    attempts_max: int = ATTEMPTS_MAX,
) -> T:
    """What ``convert`` gives, called again after a wait where Spark was lost, and alone after some losses.

    Raises ``PoisonedBatchError`` after ``attempts_max`` losses (that Spark does not start is none), and what else
    ``convert`` raises.
    """
    lost = attempt = 0
    part, is_told = next(_numbers), False
    try:
        while lost < attempts_max:
            attempt += 1
            try:
                return await convert(is_alone=lost >= ALONE_AFTER_LOSSES)
            except ConversionRetriable as error:
                lost += not isinstance(error, SparkUnavailable)
                wait_seconds = back_off.wait_seconds(attempt)
                events(
                    RetryScheduled,
                    stage="convert",
                    error_class=type(error).__name__,
                    attempt=attempt,
                    wait_seconds=wait_seconds,
                    message=described(error),
                    part=part,
                )
                is_told = True
                await clock.sleep(wait_seconds)
    finally:
        if is_told:
            events(RetriesEnded, stage="convert", part=part)
    message = f"the conversion of one micro-batch of {records} records was lost {attempts_max} times"
    raise PoisonedBatchError(message)
