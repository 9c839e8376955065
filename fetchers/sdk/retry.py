"""Retry policies as values, carried out by tenacity: at once, linear, exponential, and when to connect again.

"Not before a moment" is no policy but a fact of one failure: ``Retriable(wait_seconds=…)``. Whatever the policy says,
no wait is shorter than that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from tenacity import RetryCallState
from tenacity.wait import wait_base, wait_exponential, wait_incrementing, wait_random_exponential

from fetchers.sdk.errors import Disconnected, RateLimited, Retriable

_DOUBLINGS_MAX = 64
"""More would be no finite number."""


class Waits(Protocol):
    """How long to wait before each try."""

    def wait_seconds(self, attempt: int, *, asked_seconds: float | None = None) -> float:
        """Seconds before attempt ``attempt + 1`` (attempts count from 1); never less than what the source asked."""

    def is_at_cap(self, attempt: int) -> bool:
        """Whether the wait after this attempt grows no more."""


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
        return max(_seconds(self.wait(), attempt), asked_seconds or 0.0)

    def is_at_cap(self, attempt: int) -> bool:
        """Whether the wait after this attempt grows no more."""
        doublings = min(attempt - 1, _DOUBLINGS_MAX)
        return (self.first_seconds + self.jitter_seconds) * 2.0**doublings >= self.cap_seconds


@dataclass(frozen=True, slots=True)
class Linear:
    """At once, then after one step, two steps … up to a cap, in seconds. With a step of 0 it is always at once."""

    step_seconds: float = 0.25
    cap_seconds: float = 16.0

    def wait_seconds(self, attempt: int, *, asked_seconds: float | None = None) -> float:
        """Seconds before attempt ``attempt + 1``, as of ``BackOff``."""
        steady = wait_incrementing(start=0, increment=self.step_seconds, max=self.cap_seconds)
        return max(_seconds(steady, attempt), asked_seconds or 0.0)

    def is_at_cap(self, attempt: int) -> bool:
        """Whether the wait after this attempt grows no more; where it is always at once there is no ceiling."""
        return self.step_seconds > 0 and self.step_seconds * (attempt - 1) >= self.cap_seconds


@dataclass(frozen=True, slots=True)
class Reconnect:
    """When a listener connects again, by what it was that failed.

    Each kind counts its own failures. A connection that brought a message and stood for five seconds, or stood for a
    minute, begins all of them anew; a shorter one does not, whatever it brought.
    The defaults are what a vendor of a large stream asks its clients for
    (https://docs.x.com/x-api/fundamentals/handling-disconnections).
    """

    disconnected: Waits = Linear()
    """After ``Disconnected``."""
    refused: Waits = BackOff(first_seconds=5.0, cap_seconds=320.0, jitter_seconds=0.5)
    """After an answer that refuses for now, such as a 503: any other ``Retriable``."""
    limited: Waits = BackOff(first_seconds=60.0, cap_seconds=320.0, jitter_seconds=1.0)
    """After ``RateLimited``."""

    def waits_after(self, error: Retriable) -> Waits:
        """The policy for this failure."""
        match error:
            case Disconnected():
                return self.disconnected
            case RateLimited():
                return self.limited
            case _:
                return self.refused


@dataclass(slots=True)
class Failures:
    """The failures in a row of one listener, by the policy that they fall under."""

    policy: Reconnect
    total: int = 0
    """Of all kinds."""
    _by_kind: dict[Waits, int] = field(default_factory=dict)

    def forget(self) -> None:
        """The source is healthy: the next failure is the first one."""
        self.total = 0
        self._by_kind.clear()

    def note(self, error: Retriable) -> tuple[float, bool]:
        """Count a failure; gives the seconds to wait, and whether that is the ceiling for the first time."""
        waits = self.policy.waits_after(error)
        self.total += 1
        attempt = self._by_kind[waits] = self._by_kind.get(waits, 0) + 1
        is_new_ceiling = waits.is_at_cap(attempt) and not (attempt > 1 and waits.is_at_cap(attempt - 1))
        return waits.wait_seconds(attempt, asked_seconds=error.wait_seconds), is_new_ceiling


def _seconds(wait: wait_base, attempt: int) -> float:
    state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
    state.attempt_number = attempt
    return float(wait(state))
