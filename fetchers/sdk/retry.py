"""Retry policies as values, carried out by tenacity."""

from __future__ import annotations

from dataclasses import dataclass

from tenacity import RetryCallState
from tenacity.wait import wait_base, wait_exponential_jitter


@dataclass(frozen=True, slots=True)
class BackOff:
    """Exponential back-off with jitter: first, first × 2, first × 4 … up to a cap, all in seconds."""

    first_seconds: float = 0.3
    cap_seconds: float = 60.0
    jitter_seconds: float = 0.3

    def wait(self) -> wait_base:
        """The tenacity ``wait`` value of this policy."""
        return wait_exponential_jitter(multiplier=self.first_seconds, max=self.cap_seconds, jitter=self.jitter_seconds)

    def wait_seconds(self, attempt: int, *, asked_seconds: float | None = None) -> float:
        """Seconds before attempt ``attempt + 1`` (attempts count from 1); never less than what the source asked."""
        state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
        state.attempt_number = attempt
        return max(float(self.wait()(state)), asked_seconds or 0.0)
