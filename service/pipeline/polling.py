"""The poll loop: drains the queue into micro-batches and never fetches, converts or sleeps itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from fetchers.sdk import Clock
from service.pipeline.batching import Batcher, BatchLimits, CloseReason, MicroBatch
from service.pipeline.queue import BoundedQueue


async def poll(
    queue: BoundedQueue, *, limits: BatchLimits, is_converting: Callable[[], bool], clock: Clock
) -> AsyncGenerator[MicroBatch, None]:
    """Yield micro-batches until the queue is closed and empty.

    ``is_converting``: whether micro-batches before this one are converted, or wait for their delivery to begin. Whoever
    ends that must ``queue.nudge()``: it may be the moment to close an unfinished one.
    Pages of an unfinished source transaction that the queue's end cuts off are left out: they are fetched again.
    """
    batcher = Batcher(limits)
    while True:
        reason = await _collect(queue, batcher, clock)
        if reason is None:
            reason = batcher.reason_to_close(now=clock.monotonic(), is_converting=is_converting())
        if reason is None and queue.statistics().is_closed:
            if not batcher.is_closable:
                return
            reason = CloseReason.STOP
        if reason is None and batcher.is_closable:
            reason = await _wait_for_age(batcher.due_at, queue, is_converting, clock)
        elif reason is None:
            await queue.wait_for_news()
        if reason is not None:
            yield batcher.close(reason, now=clock.monotonic())


async def _collect(queue: BoundedQueue, batcher: Batcher, clock: Clock) -> CloseReason | None:
    """Move what is there; stop at a limit and say which. None: the queue is empty."""
    while (item := queue.peek()) is not None:
        reason = batcher.reason_to_close_before(item)
        if reason is not None:
            return reason
        batcher.add(await queue.take(), now=clock.monotonic())
        reason = batcher.reason_to_close(now=clock.monotonic(), is_converting=True)
        if reason in {CloseReason.COUNT, CloseReason.BYTES}:
            return reason
    return None


async def _wait_for_age(
    due_at: float, queue: BoundedQueue, is_converting: Callable[[], bool], clock: Clock
) -> CloseReason | None:
    """Wait for a page or the end of the conversions (None), or until the age limit.

    The clock is not asked again at the limit: it may stand a rounding error before it, for ever if time is virtual.
    """
    try:
        async with asyncio.timeout(max(0.0, due_at - clock.monotonic())):
            await queue.wait_for_news(is_news=lambda: not is_converting())
    except TimeoutError:
        return CloseReason.AGE
    return None
