"""The accounts of a simulated X: what was asked, what was posted, told, told again and deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """One request and its answer."""

    at_seconds: float
    """Monotonic time of the simulator's clock."""
    method: str
    path: str
    query: Mapping[str, str]
    status: int


@dataclass(frozen=True, slots=True)
class Truth:
    """What must have come out by now."""

    published: int
    """Posts, matching or not; edits included."""
    matching: frozenset[str]
    """Ids of posts that met a rule when they were posted, or have been told since."""
    told: frozenset[str]
    """Ids of posts that were written to a client at least once, on the stream or in an answer of the search."""
    doubles: int
    """How often a post was told again."""
    deleted: frozenset[str]
    """Ids that a delete was told of, on the stream."""
    withheld: int
    """Posts that were held back by the rate of the stream, as ``limit`` messages tell."""

    @property
    def tellings(self) -> int:
        """How often any post was told."""
        return len(self.told) + self.doubles

    @property
    def never_told(self) -> frozenset[str]:
        """Matching posts that no client was ever told of."""
        return self.matching - self.told


@dataclass(slots=True)
class Ledger:
    """Counted while the simulator runs."""

    requests: list[RequestSeen] = field(default_factory=list)
    published: int = 0
    matching: set[str] = field(default_factory=set)
    told: Counter[str] = field(default_factory=Counter)
    deleted: set[str] = field(default_factory=set)
    withheld: int = 0

    def statuses(self, path: str) -> list[int]:
        """Status of each answer for a path, in order."""
        return [request.status for request in self.requests if request.path == path]
