"""The task that a request is made for, as far as a request has to know it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from fetchers.sdk.clock import Clock
from metrics.events import Event


class Asker(Protocol):
    """Whose request it is, what time it is there, and who hears of it."""

    @property
    def connector(self) -> str:
        """Name of the connector, as in its config."""

    @property
    def task(self) -> int:
        """Number of the task, from 0."""

    @property
    def clock(self) -> Clock:
        """The clock by which the request waits; tests give one in virtual time."""

    def emit(self, event: Event) -> None:
        """Tell of a fact (metrics and log)."""

    def finish_round(self) -> None:
        """Say that the source has been asked for everything it has; what idleness is judged by."""

    def waiting_for_limit(self) -> AbstractContextManager[None]:
        """Mark a wait that the source's rate limit forces; it is no idleness."""
