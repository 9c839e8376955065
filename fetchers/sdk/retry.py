"""Retry policies as values."""

from __future__ import annotations

import random
from dataclasses import dataclass

_DOUBLINGS_MAX = 64
"""Far beyond every cap, and still a number."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """Exponential back-off with jitter: first, first × 2, first × 4 … up to a cap, all in seconds.

    The jitter grows with the wait and is part of it at the cap too: tasks that lost one source in one moment would
    otherwise come back to it together, again and again.
    """

    first_seconds: float = 0.3
    cap_seconds: float = 60.0
    jitter_seconds: float = 0.3
    """At most so much is added to the first wait, and to later ones in the same proportion."""

    def wait_seconds(self, attempt: int, *, asked_seconds: float | None = None) -> float:
        """Seconds before attempt ``attempt + 1`` (attempts count from 1); never less than what the source asked."""
        times = 2.0 ** min(attempt - 1, _DOUBLINGS_MAX)
        shortest, longest = self.first_seconds * times, (self.first_seconds + self.jitter_seconds) * times
        if longest > self.cap_seconds:
            shortest, longest = shortest * self.cap_seconds / longest, self.cap_seconds
        wait = random.uniform(shortest, longest)
        return max(wait, asked_seconds or 0.0)
