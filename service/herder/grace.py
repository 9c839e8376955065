"""For how long a departed worker's work is held for it: Connect's ``scheduled.rebalance.max.delay.ms``. Pure.

Only for a worker that has taken leave (`service.herder.leading.without_lost`). Every worker keeps the book by its own
clock, so whoever leads next knows how much of a grace is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from service.domain.cluster import Member


@dataclass(frozen=True, slots=True)
class Grace:
    """Workers that have gone and still own something, each since when."""

    seconds: float
    since: Mapping[Member, float] = field(default_factory=dict)

    def seen(self, absent: Collection[Member], now: float) -> Grace:
        """The book when these are absent: who is new in it begins now, who is back is struck off."""
        return replace(self, since={member: self.since.get(member, now) for member in sorted(absent)})

    def held(self, now: float) -> frozenset[Member]:
        """Whose work still waits for them."""
        return frozenset(member for member, since in self.since.items() if now < since + self.seconds)

    @property
    def ends_at(self) -> float | None:
        """When the first grace in the book is over; None when nobody is absent."""
        return min(self.since.values()) + self.seconds if self.since else None
