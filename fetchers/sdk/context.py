"""What the worker gives a running fetcher: stored offsets, http, the clock, and ears for what happens."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fetchers.sdk.clock import Clock, SystemClock
from fetchers.sdk.http import HttpAccess, HttpResponse
from fetchers.sdk.page import Offset, Partition
from metrics.events import Event

__all__ = ["Clock", "FetchContext", "HttpAccess", "HttpResponse", "SystemClock", "partition_key"]


class FetchContext(Protocol):
    """One task's view of the worker."""

    @property
    def connector(self) -> str:
        """Name of the connector."""

    @property
    def task(self) -> int:
        """Number of the task, from 0."""

    @property
    def offset(self) -> Offset:
        """Where to resume in the connector's only source partition; empty when there is none yet."""

    def offset_of(self, partition: Partition) -> Offset:
        """Where to resume in this source partition; empty when there is none yet."""

    @property
    def offsets(self) -> Mapping[tuple[tuple[str, Any], ...], Offset]:
        """Every stored source offset of the connector, by ``partition_key(partition)``."""

    @property
    def http(self) -> HttpAccess:
        """Shared http client."""

    @property
    def clock(self) -> Clock:
        """Time."""

    def emit(self, event: Event) -> None:
        """Tell of a fact (metrics and log)."""

    def finish_round(self) -> None:
        """Say that the source has been asked for everything it has; what idleness is judged by."""

    def waiting_for_limit(self) -> AbstractContextManager[None]:
        """Mark a wait that the source's rate limit forces; it is no idleness."""

    def report_lag(self, seconds: float) -> None:
        """How far the newest record handed over is behind the source."""


def partition_key(partition: Partition) -> tuple[tuple[str, Any], ...]:
    """A hashable form of a source partition, the same whatever the order of its keys."""
    return tuple(sorted(partition.items()))
