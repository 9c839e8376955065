"""When a micro-batch is complete: a pure decision over pages and a clock reading.

It closes by count, bytes or age, whichever is first, or at once while no conversion is running (then waiting
would only add latency). It never splits a page, and it never closes inside a transaction of the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from service.pipeline.queue import QueuedPage


class CloseReason(StrEnum):
    """Why a micro-batch was closed."""

    COUNT = "count"
    BYTES = "bytes"
    AGE = "age"
    IDLE = "idle"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a micro-batch is full."""

    records_max: int = 50_000
    bytes_max: int = 32 * 1024 * 1024
    age_seconds_max: float = 0.5


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Whole pages, in source order."""

    pages: tuple[QueuedPage, ...]
    reason: CloseReason
    age_seconds: float
    """How long the first page waited here."""

    @property
    def records(self) -> int:
        """Count of records."""
        return sum(len(item.page) for item in self.pages)

    @property
    def bytes(self) -> int:
        """Size of the payloads."""
        return sum(item.page.bytes for item in self.pages)


class Batcher:
    """Collects pages; says when they are a micro-batch."""

    def __init__(self, limits: BatchLimits) -> None:
        """An empty one."""
        self._limits = limits
        self._pages: list[QueuedPage] = []
        self._records = 0
        self._bytes = 0
        self._opened_at = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to close."""
        return not self._pages

    @property
    def is_closable(self) -> bool:
        """Whether closing now would cut no transaction of the source in two."""
        return bool(self._pages) and self._pages[-1].page.ends_transaction

    @property
    def due_at(self) -> float:
        """Monotonic time at which age closes it; only of meaning when not empty."""
        return self._opened_at + self._limits.age_seconds_max

    def would_overflow(self, item: QueuedPage) -> bool:
        """Whether this page must open the next micro-batch instead."""
        return self.is_closable and (
            self._records + len(item.page) > self._limits.records_max
            or self._bytes + item.page.bytes > self._limits.bytes_max
        )

    def add(self, item: QueuedPage, *, now: float) -> None:
        """Append a page."""
        if not self._pages:
            self._opened_at = now
        self._pages.append(item)
        self._records += len(item.page)
        self._bytes += item.page.bytes

    def reason_to_close(self, *, now: float, is_converting: bool) -> CloseReason | None:
        """Why to close now, or None to go on collecting."""
        if not self.is_closable:
            return None
        if self._records >= self._limits.records_max:
            return CloseReason.COUNT
        if self._bytes >= self._limits.bytes_max:
            return CloseReason.BYTES
        if not is_converting:
            return CloseReason.IDLE
        return CloseReason.AGE if now >= self.due_at else None

    def overflow_reason(self, item: QueuedPage) -> CloseReason:
        """Which limit ``item`` would break."""
        by_count = self._records + len(item.page) > self._limits.records_max
        return CloseReason.COUNT if by_count else CloseReason.BYTES

    def close(self, reason: CloseReason, *, now: float) -> MicroBatch:
        """Hand over what was collected, and start anew."""
        batch = MicroBatch(tuple(self._pages), reason, now - self._opened_at)
        self._pages, self._records, self._bytes = [], 0, 0
        return batch
