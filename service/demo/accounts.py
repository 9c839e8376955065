"""What the worker says it did: sums over its events, by connector."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from metrics.events import (
    DeadLettersWritten,
    Event,
    ListenerConnected,
    MessagesPassedOver,
    PageFetched,
    RecordsDeduplicated,
    RecordsDelivered,
    RecordsFiltered,
    RecordsRejected,
    SourceGap,
)


@dataclass(slots=True)
class Accounts:
    """An observer; every count is of committed records, but for ``fetched``."""

    fetched: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    dead_lettered: Counter[str] = field(default_factory=Counter)
    deduplicated: Counter[str] = field(default_factory=Counter)
    filtered: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    """Of listeners."""
    gap_messages: Counter[str] = field(default_factory=Counter)
    """Messages that are missing, by the reason of the gap."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Messages that were left out, by the reason for which they were."""

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
        elif isinstance(event, RecordsFiltered):
            self.filtered[event.connector] += event.count
        elif isinstance(event, RecordsRejected):
            self.reasons[event.reason] += event.count
        elif isinstance(event, ListenerConnected):
            self.connections += 1
        elif isinstance(event, SourceGap):
            self.gap_messages[event.reason] += event.messages or 0
        elif isinstance(event, MessagesPassedOver):
            self.passed_over[event.reason] += event.messages

    @property
    def settled(self) -> int:
        """Records whose fate is committed."""
        dropped = self.deduplicated.total() + self.filtered.total()
        return self.delivered.total() + self.dead_lettered.total() + dropped
