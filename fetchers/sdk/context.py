"""What the worker gives a running fetcher: stored offsets, http, the clock, and ears for what happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fetchers.sdk.asker import Asker
from fetchers.sdk.clock import Clock, SystemClock
from fetchers.sdk.http import HttpAccess, HttpResponse
from fetchers.sdk.page import Offset, Partition

__all__ = ["Clock", "FetchContext", "HttpAccess", "HttpResponse", "SystemClock", "partition_key"]


class FetchContext(Asker, Protocol):
    """One task's view of the worker."""

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
        """The worker's http client, which counts requests and waits for this task."""

    def report_lag(self, seconds: float) -> None:
        """How far the fetcher is behind its source, by its own reckoning; 0 when it has read all there is."""


def partition_key(partition: Partition) -> tuple[tuple[str, Any], ...]:
    """A hashable form of a source partition, the same whatever the order of its keys."""
    return tuple(sorted(partition.items()))
