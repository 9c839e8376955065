"""The worker's side of ``FetchContext``: what one running fetcher sees."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from fetchers.sdk import Clock, HttpAccess, HttpDoor, Offset, Page, Partition
from fetchers.sdk.context import partition_key
from metrics.events import Emit, Event, SourceCaughtUp, SourceLagMeasured
from service.domain.ids import TaskId
from service.pipeline.activity import Activity


class TaskContext:
    """Stored offsets first, then those of the pages handed over: a retried fetch resumes after the last page."""

    def __init__(
        self,
        task_id: TaskId,
        *,
        partition: Partition,
        offsets: Mapping[tuple[tuple[str, Any], ...], Offset],
        http: HttpDoor,
        clock: Clock,
        emit: Emit,
        activity: Activity,
    ) -> None:
        """``partition``: the connector's only one, for ``offset``; ``offsets``: as read from the offset topic."""
        self._task_id = task_id
        self._partition = partition
        self._offsets = dict(offsets)
        self._http = http.for_task(self)
        self._clock = clock
        self._emit = emit
        self._activity = activity
        self._told_lag_seconds: float | None = None

    @property
    def connector(self) -> str:
        """Name of the connector."""
        return self._task_id.connector

    @property
    def task(self) -> int:
        """Number of the task."""
        return self._task_id.task

    @property
    def offset(self) -> Offset:
        """Where to resume in the only source partition."""
        return self.offset_of(self._partition)

    def offset_of(self, partition: Partition) -> Offset:
        """Where to resume in this source partition; a copy, for what is committed is not the fetcher's to change."""
        return dict(self._offsets.get(partition_key(partition), {}))

    @property
    def offsets(self) -> Mapping[tuple[tuple[str, Any], ...], Offset]:
        """Where to resume in every source partition."""
        return {key: dict(offset) for key, offset in self._offsets.items()}

    @property
    def http(self) -> HttpAccess:
        """Shared http client."""
        return self._http

    @property
    def clock(self) -> Clock:
        """The clock of the worker; virtual in tests."""
        return self._clock

    def emit(self, event: Event) -> None:
        """Hand an event to metrics and log; returns at once."""
        self._emit(event)

    def finish_round(self) -> None:
        """The source has been asked for everything it has."""
        if self._activity.is_retrying:
            self._told_lag_seconds = None
        if not self._activity.rounds:
            self._emit(SourceCaughtUp(self.connector, self.task))
        self._activity.finish_round()

    def waiting_for_limit(self) -> AbstractContextManager[None]:
        """Mark a wait that is no idleness."""
        return self._activity.waiting_for_limit()

    def report_lag(self, seconds: float) -> None:
        """How far behind the source the newest record is.

        Told when it has changed, or is the first sign of life after a retry: a thousand idle tasks have no news.
        """
        if seconds != self._told_lag_seconds or self._activity.is_retrying:
            self._emit(SourceLagMeasured(self.connector, self.task, seconds=seconds))
        self._told_lag_seconds = seconds

    def advance(self, page: Page) -> None:
        """Remember where to resume after a page that was handed over."""
        partition = self._partition if page.partition is None else page.partition
        self._offsets[partition_key(partition)] = page.offset
