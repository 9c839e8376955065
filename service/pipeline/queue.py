"""The bounded queue between a fetcher and the poll loop.

Bounded in records and in bytes; full means that the fetcher waits. A page larger than the whole bound is
let through when the queue is empty, so that no bound can ever deadlock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from fetchers.sdk import Page


class QueueClosed(Exception):
    """Nothing more will come: the queue is closed and empty."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What the queue holds at most; bytes are the memory of its payloads (``Page.bytes``)."""

    records_max: int = 200_000
    bytes_max: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """What the queue holds now."""

    records: int
    bytes: int
    pages: int
    is_closed: bool


@dataclass(frozen=True, slots=True)
class QueuedPage:
    """A page and when it was fetched (monotonic seconds)."""

    page: Page
    fetched_at: float


class BoundedQueue:
    """First in, first out; one fetcher puts, one poll loop gets, on one event loop."""

    def __init__(self, limits: QueueLimits, *, on_change: Callable[[QueueStatistics], None] | None = None) -> None:
        """``on_change`` hears of the statistics after each put and get."""
        self._limits = limits
        self._pages: deque[QueuedPage] = deque()
        self._records = 0
        self._bytes = 0
        self._is_closed = False
        self._changed = asyncio.Condition()
        self._on_change = on_change or (lambda _: None)

    def statistics(self) -> QueueStatistics:
        """What the queue holds at this moment."""
        return QueueStatistics(self._records, self._bytes, len(self._pages), self._is_closed)

    def has_room_for(self, page: Page) -> bool:
        """Whether the page fits; an empty queue takes any page.

        A page takes the room of at least one record: pages that only move the offset are no way around the bound.
        """
        records = max(self._records + len(page), len(self._pages) + 1)
        fits_bytes = self._bytes + page.bytes <= self._limits.bytes_max
        return not self._pages or (records <= self._limits.records_max and fits_bytes)

    async def put(self, item: QueuedPage) -> None:
        """Wait for room, then append. A closed queue raises ``QueueClosed``."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed or self.has_room_for(item.page))
            if self._is_closed:
                raise QueueClosed
            self._pages.append(item)
            self._count(item.page, sign=1)
            self._changed.notify_all()

    async def wait_for_news(self, *, is_news: Callable[[], bool] = lambda: False) -> None:
        """Return when a page is there, the queue is closed, or ``is_news`` holds after a ``nudge``."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._pages) or self._is_closed or is_news())

    async def nudge(self) -> None:
        """Have waiters of ``wait_for_news`` look again."""
        async with self._changed:
            self._changed.notify_all()

    def peek(self) -> QueuedPage | None:
        """The oldest page, left where it is; None when there is none."""
        return self._pages[0] if self._pages else None

    async def take(self) -> QueuedPage:
        """Remove the oldest page without waiting for one; ``QueueClosed`` when there is none."""
        async with self._changed:
            if not self._pages:
                raise QueueClosed
            item = self._pages.popleft()
            self._count(item.page, sign=-1)
            self._changed.notify_all()
            return item

    async def close(self) -> None:
        """Take no more; what is inside can still be taken."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _count(self, page: Page, *, sign: int) -> None:
        self._records += sign * len(page)
        self._bytes += sign * page.bytes
        self._on_change(self.statistics())
