"""The fetch stage: iterates the fetcher, waits for room in the queue, retries what may pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fetchers.sdk import BackOff, Clock, Page, Retriable, SourceConnector
from metrics.events import (
    MemoryWaitBegan,
    MemoryWaited,
    PageFetched,
    QueueStalled,
    QueueWaitBegan,
    TaskEvents,
)
from service.domain.errors import ConnectorExitError
from service.pipeline.activity import Activity
from service.pipeline.context import TaskContext
from service.pipeline.memory import COUNTED_TIMES, MemoryShare
from service.pipeline.queue import BoundedQueue, QueuedPage


@dataclass(frozen=True, slots=True)
class FetchRetry:
    """How often and how long a failing fetch is tried again."""

    back_off: BackOff = BackOff()
    seconds_max: float | None = None
    """Time since the first of several failures in a row after which the next fails the task; None: never."""


@dataclass(slots=True)
class FetchStage:
    """One task's fetcher and where its pages go."""

    connector: SourceConnector[Any]
    context: TaskContext
    queue: BoundedQueue
    memory: MemoryShare
    activity: Activity
    events: TaskEvents
    clock: Clock
    retry: FetchRetry
    transaction_bytes_max: int | None = None
    """Of a transaction of the source, after which whoever takes the pages splits it; None: it is never split."""
    pages_handed_over: int = 0
    """Since the start; progress resets the back-off."""
    _open_bytes: int = 0
    """Of the transaction that is fetched."""

    def __post_init__(self) -> None:
        """A fetcher that tries again by itself has no more patience than this stage."""
        self.context.patience_seconds = self.retry.seconds_max

    async def run(self) -> None:
        """Fetch until the source has no more; raises ``Fatal``, and ``Retriable`` when patience is over."""
        attempt = 0
        failing_since = self.clock.monotonic()
        while True:
            progress_before = self._progress
            try:
                await self._fetch_once()
            except SystemExit as error:
                raise ConnectorExitError.of(error) from error
            except Retriable as error:
                if not attempt or self._progress > progress_before:
                    attempt, failing_since = 0, self.clock.monotonic()
                attempt += 1
                if self._is_patience_over(failing_since) or self.context.is_patience_over:
                    raise
                wait_seconds = self.retry.back_off.wait_seconds(attempt, asked_seconds=error.wait_seconds)
                await self.context.wait_after(error, attempt=attempt, wait_seconds=wait_seconds)
            else:
                self.context.finish_round()
                return

    @property
    def _progress(self) -> int:
        """Grows whenever the source answered: with a page, or with a round that had no news."""
        return self.pages_handed_over + self.activity.rounds

    async def _fetch_once(self) -> None:
        async with _closing(self.connector.fetch(self.context)) as pages:
            asked_at = self.clock.monotonic()
            async for page in pages:
                await self._hand_over(page, asked_at=asked_at)
                if self._is_given_back(page) and not self.memory.has_room:
                    await self._wait_for_memory()
                asked_at = self.clock.monotonic()

    def _is_given_back(self, page: Page) -> bool:
        """Whether all that is held is delivered without any further page: else nobody may wait for its memory.

        Pages of an unfinished transaction are given back once it is whole, or so large that it is split. Then there is
        nothing to be kept any more, and what is on its way has no more memory than what was kept.
        """
        limit = self.transaction_bytes_max
        self._open_bytes = 0 if page.ends_transaction else self._open_bytes + page.bytes
        is_split = limit is not None and self._open_bytes > limit
        self.memory.bytes_max = COUNTED_TIMES * limit if limit is not None and is_split else None
        return page.ends_transaction or is_split

    async def _hand_over(self, page: Page, *, asked_at: float) -> None:
        fetched_at = self.clock.monotonic()
        self.activity.take_in_hand(records=len(page))
        self.memory.add_page(page)
        self.events(PageFetched, records=len(page), bytes=page.payload_bytes, seconds=fetched_at - asked_at)
        # A fetcher that has its next page at once would otherwise keep the loop until the queue is full.
        await asyncio.sleep(0)
        if self.queue.has_room_for(page):
            await self.queue.put(QueuedPage(page, fetched_at))
        else:
            await self._put_when_there_is_room(QueuedPage(page, fetched_at))
        self.context.advance(page)
        self.pages_handed_over += 1

    async def _put_when_there_is_room(self, item: QueuedPage) -> None:
        """Tell of the wait when it begins: one that does not end is what someone must hear of."""
        waiting_since = self.clock.monotonic()
        self.events(QueueWaitBegan)
        try:
            await self.queue.put(item)
        finally:
            self.events(QueueStalled, seconds=self.clock.monotonic() - waiting_since)

    async def _wait_for_memory(self) -> None:
        """Tell of the wait when it begins, as of one for the queue."""
        waiting_since = self.clock.monotonic()
        self.events(MemoryWaitBegan)
        try:
            await self.memory.wait_for_room()
        finally:
            self.events(MemoryWaited, seconds=self.clock.monotonic() - waiting_since)

    def _is_patience_over(self, failing_since: float) -> bool:
        patience = self.retry.seconds_max
        return patience is not None and self.clock.monotonic() - failing_since > patience


@asynccontextmanager
async def _closing(pages: AsyncIterator[Page]) -> AsyncIterator[AsyncIterator[Page]]:
    """Close a generator at the end of the block, whatever ends it; other iterators have nothing to close."""
    try:
        yield pages
    finally:
        close = getattr(pages, "aclose", None)
        if close is not None:
            await close()
