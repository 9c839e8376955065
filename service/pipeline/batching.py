"""When a micro-batch is complete: a pure decision over pages and a clock reading.

It closes by count, bytes or age, whichever is first, or at once while none before it is being converted or waits for
its delivery to begin (then waiting would only add latency). It never splits a page, nor a transaction of the source:
pages of one that has not ended yet stay behind for the next micro-batch. Only a page or transaction larger than a
limit exceeds it. A transaction of the source that is larger than what may be held of one is split between its pages,
unless its connector declares that it must not be. All of it, what was held and what still comes, is handed over by the
ordinary limits then: there is nothing whole left to keep, and a piece that is converted and delivered is in memory
several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.domain.errors import SourceTransactionTooLargeError
from service.pipeline.queue import QueuedPage

OPEN_TRANSACTION_PAGES_MAX = 100_000
"""Pages without records, too, take memory."""


class CloseReason(StrEnum):
    """Why a micro-batch was closed."""

    COUNT = "count"
    BYTES = "bytes"
    AGE = "age"
    IDLE = "idle"
    STOP = "stop"
    TRANSACTION = "transaction"
    """A transaction of the source has become too large to be held until its end, and is split here; or a piece more of
    what was held of it."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a micro-batch is full."""

    records_max: int = 50_000
    bytes_max: int = 32 * 1024 * 1024
    age_seconds_max: float = 0.5
    transaction_bytes_max: int = 256 * 1024 * 1024
    """What is held of a transaction of the source that has not ended."""
    is_transaction_split: bool = True
    """Whether a larger one is split; otherwise it fails the task."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Whole pages, in source order."""

    pages: tuple[QueuedPage, ...]
    reason: CloseReason
    age_seconds: float
    """How long the first page waited here."""

    @property
    def records(self) -> int:
        """How many records its pages hold."""
        return sum(len(item.page) for item in self.pages)

    @property
    def bytes(self) -> int:
        """Memory of the payloads, as the limit counts it."""
        return sum(item.page.bytes for item in self.pages)


@dataclass(frozen=True, slots=True)
class _Held:
    """A page that waits for its micro-batch to be complete, and since when."""

    item: QueuedPage
    since: float


class Batcher:
    """Collects pages; says when they are a micro-batch."""

    def __init__(self, limits: BatchLimits) -> None:
        """Begin without any page; ``limits`` say when a micro-batch is full."""
        self._limits = limits
        self._held: list[_Held] = []
        self._closable_pages = 0
        """Up to the last end of a transaction of the source."""
        self._records = 0
        self._bytes = 0
        self._is_split = False
        """Whether what is closable is of a transaction that was held until it became too large, and more than one
        micro-batch."""
        self._is_rest = False
        """Whether the open transaction has been split before."""

    @property
    def is_empty(self) -> bool:
        """Whether no page is held, complete or not."""
        return not self._held

    @property
    def is_closable(self) -> bool:
        """Whether there is anything that closing now would hand over."""
        return self._closable_pages > 0

    @property
    def due_at(self) -> float:
        """Monotonic time at which age closes it; only of meaning when it is closable."""
        return self._held[0].since + self._limits.age_seconds_max

    def add(self, item: QueuedPage, *, now: float) -> None:
        """Append a page; raises ``SourceTransactionTooLargeError`` where a transaction may not be split."""
        self._held.append(_Held(item, now))
        self._records += len(item.page)
        self._bytes += item.page.bytes
        if item.page.ends_transaction or self._is_rest:
            self._closable_pages = len(self._held)
            self._is_rest = not item.page.ends_transaction
        self._split_what_is_too_large()

    def reason_to_close_before(self, item: QueuedPage) -> CloseReason | None:
        """The limit that ``item`` would break, so that it must open the next micro-batch; None when it fits."""
        if not self.is_closable:
            return None
        if self._is_split:
            return CloseReason.TRANSACTION
        if self._records + len(item.page) > self._limits.records_max:
            return CloseReason.COUNT
        return CloseReason.BYTES if self._bytes + item.page.bytes > self._limits.bytes_max else None

    def reason_to_close(self, *, now: float, is_converting: bool) -> CloseReason | None:
        """Why to close now, or None to go on collecting; raises as ``add`` does.

        A transaction that is too large may have waited behind what was closed last, and nobody fetches more of it.
        """
        self._split_what_is_too_large()
        if not self.is_closable:
            return None
        if self._is_split:
            return CloseReason.TRANSACTION
        if self._records >= self._limits.records_max:
            return CloseReason.COUNT
        if self._bytes >= self._limits.bytes_max:
            return CloseReason.BYTES
        if not is_converting:
            return CloseReason.IDLE
        return CloseReason.AGE if now >= self.due_at else None

    def close(self, reason: CloseReason, *, now: float) -> MicroBatch:
        """Hand over what is complete; pages of an unfinished transaction of the source stay."""
        count = self._pages_that_fit() if self._is_split else self._closable_pages
        complete, self._held = self._held[:count], self._held[count:]
        self._closable_pages -= count
        self._records = sum(len(held.item.page) for held in self._held)
        self._bytes = sum(held.item.page.bytes for held in self._held)
        self._is_split = self._is_split and self._closable_pages > self._pages_that_fit()
        return MicroBatch(tuple(held.item for held in complete), reason, _age_seconds(complete, now))

    def _pages_that_fit(self) -> int:
        """Of what is held, how many pages from the first on are one micro-batch by the ordinary limits."""
        records = size = 0
        for number, held in enumerate(self._held):
            records, size = records + len(held.item.page), size + held.item.page.bytes
            if number and (records > self._limits.records_max or size > self._limits.bytes_max):
                return number
        return len(self._held)

    def _split_what_is_too_large(self) -> None:
        """Every page's offset is a place to resume from, those within a transaction too."""
        is_too_large = self._bytes > self._limits.transaction_bytes_max or len(self._held) > OPEN_TRANSACTION_PAGES_MAX
        if self.is_closable or not is_too_large:
            return
        if not self._limits.is_transaction_split:
            message = (
                f"one transaction of the source has more than {self._limits.transaction_bytes_max} bytes or "
                f"{OPEN_TRANSACTION_PAGES_MAX} pages: raise source.transaction.bytes.max if there is memory for it, "
                "or let it be split by source.transaction.overflow=split"
            )
            raise SourceTransactionTooLargeError(message)
        self._closable_pages = len(self._held)
        self._is_split = self._is_rest = True


def _age_seconds(held: Sequence[_Held], now: float) -> float:
    return now - held[0].since if held else 0.0
