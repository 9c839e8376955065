"""Retry policies as values, carried out by tenacity."""

from __future__ import annotations

from dataclasses import dataclass

from tenacity import RetryCallState
from tenacity.wait import wait_base, wait_exponential, wait_random_exponential


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

    def wait(self) -> wait_base:
        """The tenacity ``wait`` value of this policy."""
        longest_seconds = self.first_seconds + self.jitter_seconds
        cap_per_second = self.cap_seconds / longest_seconds if longest_seconds else 0.0
        steady = wait_exponential(multiplier=self.first_seconds, max=self.first_seconds * cap_per_second)
        return steady + wait_random_exponential(self.jitter_seconds, max=self.jitter_seconds * cap_per_second)

    def wait_seconds(self, attempt: int, *, asked_seconds: float | None = None) -> float:
        """Seconds before attempt ``attempt + 1`` (attempts count from 1); never less than what the source asked."""
        state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
        state.attempt_number = attempt
        return max(float(self.wait()(state)), asked_seconds or 0.0)
