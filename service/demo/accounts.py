"""What the worker says it did: sums over its events, by connector."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from metrics.events import (
    DeadLettersWritten,
    Event,
    PageFetched,
    RecordsDeduplicated,
    RecordsDelivered,
    RecordsRejected,
)


@dataclass(slots=True)
class Accounts:
    """An observer; every count is of committed records, but for ``fetched``."""

    fetched: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    dead_lettered: Counter[str] = field(default_factory=Counter)
    deduplicated: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, PageFetched):
            self.fetched[event.connector] += event.records
        elif isinstance(event, RecordsDelivered):
            self.delivered[event.connector] += event.records
        elif isinstance(event, DeadLettersWritten):
            self.dead_lettered[event.connector] += event.count
        elif isinstance(event, RecordsDeduplicated):
            self.deduplicated[event.connector] += event.count
        elif isinstance(event, RecordsRejected):
            self.reasons[event.reason] += event.count

    @property
    def settled(self) -> int:
        """Records whose fate is committed."""
        return self.delivered.total() + self.dead_lettered.total() + self.deduplicated.total()
