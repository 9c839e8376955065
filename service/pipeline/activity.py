"""What a task is busy with; idleness is judged by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from fetchers.sdk import Clock


class Signal(Protocol):
    """Tells of one thing that has happened."""

    def __call__(self) -> None:
        """Tell that it has happened; returns at once."""


@dataclass(slots=True)
class Activity:
    """Counts of what is under way in one task; ``idle_seconds`` sums it up."""

    clock: Clock
    records_in_hand: int = 0
    """Fetched and not yet committed."""
    pages_in_hand: int = 0
    rounds: int = 0
    """Full rounds of the source since the start."""
    waits_for_limit: int = 0
    is_retrying: bool = False
    active_at: float = field(init=False)

    def __post_init__(self) -> None:
        """Starting counts as activity."""
        self.active_at = self.clock.monotonic()

    def touch(self) -> None:
        """Something was fetched or committed."""
        self.active_at = self.clock.monotonic()

    def take_in_hand(self, *, records: int) -> None:
        """A page was fetched: whatever was being retried works again. One without records is no activity."""
        self.pages_in_hand += 1
        self.records_in_hand += records
        self.is_retrying = False
        if records:
            self.touch()

    def put_down(self, *, pages: int, records: int) -> None:
        """Note that pages with so many records were committed."""
        self.pages_in_hand -= pages
        self.records_in_hand -= records
        if records:
            self.touch()

    def finish_round(self) -> None:
        """The source has been asked for everything it has.

        A round without news is no activity, unless it is the first one or ends a time of retrying: before it,
        nobody knew whether there was anything new.
        """
        if not self.rounds or self.is_retrying:
            self.touch()
        self.rounds += 1
        self.is_retrying = False

    @contextmanager
    def waiting_for_limit(self) -> Iterator[None]:
        """A wait that is no idleness."""
        self.waits_for_limit += 1
        try:
            yield
        finally:
            self.waits_for_limit -= 1
            self.touch()

    @property
    def idle_seconds(self) -> float | None:
        """For how long there has been nothing to do; None while anything is under way."""
        is_busy = self.pages_in_hand or self.waits_for_limit or self.is_retrying or not self.rounds
        return None if is_busy else self.clock.monotonic() - self.active_at
