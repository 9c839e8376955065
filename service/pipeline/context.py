"""The worker's side of ``FetchContext``: what one running fetcher sees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from fetchers.sdk import (
    Clock,
    HttpAccess,
    HttpDoor,
    Inbox,
    InboxLimits,
    Offset,
    Page,
    Partition,
    Retriable,
)
from fetchers.sdk.context import BLOCKING_SECONDS_MAX, BlockingCalls, partition_key
from metrics.events import Emit, Event, RetryScheduled, SourceBacklogMeasured, SourceCaughtUp, SourceLagMeasured
from service.domain.errors import described
from service.domain.ids import TaskId
from service.pipeline.activity import Activity

T = TypeVar("T")


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
        blocking: BlockingCalls,
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
        self._blocking = blocking
        self._blocking_turns: dict[str, asyncio.Lock] = {}
        self.read: Callable[[], Awaitable[Mapping[tuple[tuple[str, Any], ...], Offset]]] | None = None
        """Reads the offsets from their topic once more; None: nobody else stores any."""
        self.patience_seconds: float | None = None
        """How long a source may be away before its task fails; None: for ever."""
        self._failing_since: float | None = None
        self._inboxes: list[Inbox] = []
        self._is_starved = True

    @property
    def connector(self) -> str:
        """Name of the connector, as in its config."""
        return self._task_id.connector

    @property
    def task(self) -> int:
        """Number of the task, from 0."""
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

    async def read_offsets(self) -> None:
        """What is stored by now, whoever has stored it."""
        if self.read is not None:
            self._offsets = dict(await self.read())

    @property
    def http(self) -> HttpAccess:
        """The worker's one http client, as this task uses it."""
        return self._http

    @property
    def clock(self) -> Clock:
        """The clock of the worker; virtual in tests."""
        return self._clock

    def emit(self, event: Event) -> None:
        """Hand an event to metrics and log; returns at once."""
        self._emit(event)

    def finish_round(self) -> None:
        """The source has been asked for everything it has, or has accepted to be listened to."""
        self._note_answer()
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

    def report_backlog(self, size: int) -> None:
        """Bytes that the source keeps for this task."""
        self._emit(SourceBacklogMeasured(self.connector, self.task, bytes=size))

    def inbox(self, limits: InboxLimits | None = None) -> Inbox:
        """Where a listener puts what its source says; a fetch that is tried again has a new one."""
        inbox = Inbox(self, offset=self.offset, is_starved=lambda: self._is_starved, limits=limits)
        self._inboxes = [inbox]
        return inbox

    @property
    def is_listening(self) -> bool:
        """Whether the fetcher is a listener: its rounds are connections, and say nothing of what is to come."""
        return bool(self._inboxes)

    def hear_of_queue(self, *, is_empty: bool) -> None:
        """An empty queue is when a listener hands over what it has, however little that is."""
        self._is_starved = is_empty
        if is_empty:
            for inbox in self._inboxes:
                inbox.nudge()

    async def wait_to_retry(self, error: Retriable, *, attempt: int, wait_seconds: float) -> None:
        """Tell of a failure and wait; raises it once patience is over.

        ``attempt``: failures in a row. The first one says that the source was well before it.
        """
        if attempt == 1 or self._failing_since is None:
            self._failing_since = self._clock.monotonic()
        if self.is_patience_over:
            raise error
        await self.wait_after(error, attempt=attempt, wait_seconds=wait_seconds)

    async def wait_after(self, error: Retriable, *, attempt: int, wait_seconds: float) -> None:
        """Tell of a failure and wait, whoever tries again; meanwhile the task is not idle."""
        self._emit(
            RetryScheduled(
                self.connector,
                self.task,
                stage="fetch",
                error_class=type(error).__name__,
                attempt=attempt,
                wait_seconds=wait_seconds,
                message=described(error),
            )
        )
        self._activity.is_retrying = True
        await self._clock.sleep(wait_seconds)

    @property
    def is_patience_over(self) -> bool:
        """Whether a fetcher that tries again by itself has done so for too long, without an answer in between."""
        if self.patience_seconds is None or self._failing_since is None:
            return False
        return self._clock.monotonic() - self._failing_since > self.patience_seconds

    def _note_answer(self) -> None:
        """Failures in a row are over; not those of a listener, whose source may connect, speak and hang up for ever."""
        if not self.is_listening:
            self._failing_since = None

    async def run_blocking(
        self, call: Callable[[], T], *, subject: str = "", seconds_max: float = BLOCKING_SECONDS_MAX
    ) -> T:
        """In a thread of the worker."""
        named = f"{self._task_id}: {subject}" if subject else str(self._task_id)
        async with self._blocking_turns.setdefault(subject, asyncio.Lock()):
            return await self._blocking.run(call, subject=named, seconds_max=seconds_max)

    def advance(self, page: Page) -> None:
        """Remember where to resume after a page that was handed over."""
        self._note_answer()
        partition = self._partition if page.partition is None else page.partition
        self._offsets[partition_key(partition)] = page.offset
