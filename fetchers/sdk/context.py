"""What the worker gives a running fetcher: stored offsets, http, the clock, and ears for what happens."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, TypeVar

from fetchers.sdk.asker import Asker
from fetchers.sdk.clock import Clock, SystemClock
from fetchers.sdk.errors import Retriable
from fetchers.sdk.http import HttpAccess, HttpResponse
from fetchers.sdk.inbox import Inbox, InboxLimits
from fetchers.sdk.page import Offset, Partition

__all__ = ["Clock", "FetchContext", "HttpAccess", "HttpResponse", "SystemClock", "WorkContext", "partition_key"]

T = TypeVar("T")
BLOCKING_SECONDS_MAX = 300.0
"""Time limit of one blocking call, unless it is given another."""


class BlockingCalls(Protocol):
    """Where blocking calls are made: a few threads for all tasks of a worker."""

    async def run(self, call: Callable[[], T], *, subject: Hashable, seconds_max: float | None = None) -> T:
        """What the call returns or raises; raises ``Retriable`` when it does neither in time.

        ``subject``: whose call it is; one at a time. A call that hangs keeps its thread, and no call of its subject
        is made beside it; those of others go on.
        """


class WorkContext(Protocol):
    """What ``SourceConnector.work_changed`` is given while it watches: a clock, and a door for blocking calls."""

    @property
    def clock(self) -> Clock:
        """The clock of the worker; virtual in tests."""

    async def run_blocking(self, call: Callable[[], T], *, seconds_max: float = BLOCKING_SECONDS_MAX) -> T:
        """What a blocking call returns or raises; one at a time. Raises ``Retriable`` when it is not back in time."""


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

    async def read_offsets(self) -> None:
        """Have ``offset_of`` and ``offsets`` tell what is stored by now, instead of what was handed over.

        For a source that tells that an earlier task of the connector has gone on with it meanwhile, not knowing that it
        was replaced.
        """

    @property
    def http(self) -> HttpAccess:
        """The worker's http client, which counts requests and waits for this task."""

    def inbox(self, limits: InboxLimits | None = None) -> Inbox:
        """A new inbox for what a source says by itself, at ``offset``; see ``fetchers.sdk.listening``."""

    async def wait_to_retry(self, error: Retriable, *, attempt: int, wait_seconds: float) -> None:
        """Tell of a failure after which the fetcher itself tries again, and wait; meanwhile the task is not idle.

        ``attempt``: failures in a row; 1 says that the source was well before. Raises ``error`` where the worker's
        patience (``errors.retry.timeout``) with them is over.
        """

    async def run_blocking(
        self, call: Callable[[], T], *, subject: str = "", seconds_max: float = BLOCKING_SECONDS_MAX
    ) -> T:
        """What a blocking call returns or raises, such as one of a driver or on a file.

        It runs in one of a few threads that all tasks share, one at a time for each ``subject`` of a task. Raises
        ``Retriable`` when it has not returned in time, and for further calls of its subject until it has. A task that
        is stopped does not wait for it: it must harm nobody if it ends later.
        """

    def report_lag(self, seconds: float) -> None:
        """How far the fetcher is behind its source, by its own reckoning; 0 when it has read all there is."""

    def report_backlog(self, size: int) -> None:
        """Bytes that the source keeps because they are not confirmed to it, such as log behind a replication slot."""


def partition_key(partition: Partition) -> tuple[tuple[str, Any], ...]:
    """A hashable form of a source partition, the same whatever the order of its keys."""
    return tuple(sorted(partition.items()))
