"""A stand-in for the worker: a context that keeps in memory what a fetcher tells it, for tests to look at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from fetchers.sdk.context import BLOCKING_SECONDS_MAX, partition_key
from fetchers.sdk.errors import Retriable
from fetchers.sdk.http import HttpAccess, HttpDoor
from fetchers.sdk.inbox import Inbox, InboxLimits
from fetchers.sdk.page import Offset, Page, Partition
from fetchers.sdk.testing.clock import FakeClock
from metrics.events import Event

T = TypeVar("T")
PartitionKey = tuple[tuple[str, Any], ...]


class FakeContext:
    """A ``FetchContext`` that keeps what it is told: ``events``, ``rounds``, ``lags``, ``limit_waits``."""

    def __init__(
        self,
        *,
        offset: Offset | None = None,
        partition: Partition | None = None,
        offsets: Mapping[PartitionKey, Offset] | None = None,
        http: HttpDoor | None = None,
        clock: FakeClock | None = None,
        connector: str = "test",
        task: int = 0,
    ) -> None:
        """``offset`` is that of ``partition`` (of the only one when not given); ``http`` a real client, opened."""
        self.connector = connector
        self.task = task
        self.clock = clock or FakeClock()
        self.offsets: dict[PartitionKey, Offset] = dict(offsets or {})
        if offset is not None:
            self.offsets[partition_key(partition or {})] = offset
        self.stored: dict[PartitionKey, Offset] = {}
        """What others have stored since, which the fetcher has to ask for."""
        self.events: list[Event] = []
        self.rounds = 0
        self.lags: list[float] = []
        self.backlogs: list[int] = []
        self.retries: list[tuple[Retriable, float]] = []
        """Failures after which the fetcher tries again by itself, and the seconds that it waits."""
        self.inboxes: list[Inbox] = []
        self.is_starved = True
        """Whether the pipeline has nothing waiting, so that an inbox hands over what it has at once."""
        self.limit_waits = 0
        self.is_waiting_for_limit = False
        self.on_round: Callable[[int], None] | None = None
        """Called with the count of rounds each time one is finished."""
        self._turns: dict[str, asyncio.Lock] = {}
        self._running: dict[str, asyncio.Future[Any]] = {}
        """The last blocking call of each subject."""
        self._own: PartitionKey = partition_key(partition or {})
        self._http = http.for_task(self) if http is not None else None

    @property
    def offset(self) -> Offset:
        """Where to resume in the only source partition."""
        return self.offsets.get(self._own, {})

    def offset_of(self, partition: Partition) -> Offset:
        """Where to resume in this source partition."""
        return self.offsets.get(partition_key(partition), {})

    async def read_offsets(self) -> None:
        """Take over ``stored``."""
        self.offsets |= self.stored

    @property
    def http(self) -> HttpAccess:
        """The http client that was given. Raises LookupError when there is none."""
        if self._http is None:
            message = "this FakeContext was made without http"
            raise LookupError(message)
        return self._http

    def emit(self, event: Event) -> None:
        """Add the event to ``events``."""
        self.events.append(event)

    def finish_round(self) -> None:
        """Add one to ``rounds``, and call ``on_round`` with the sum."""
        self.rounds += 1
        if self.on_round is not None:
            self.on_round(self.rounds)

    @contextmanager
    def waiting_for_limit(self) -> Iterator[None]:
        """Add one to ``limit_waits``; ``is_waiting_for_limit`` is true inside the block."""
        self.limit_waits += 1
        self.is_waiting_for_limit = True
        try:
            yield
        finally:
            self.is_waiting_for_limit = False

    def inbox(self, limits: InboxLimits | None = None) -> Inbox:
        """One at the offset of the only source partition."""
        self.inboxes.append(Inbox(self, offset=self.offset, is_starved=lambda: self.is_starved, limits=limits))
        return self.inboxes[-1]

    async def wait_to_retry(self, error: Retriable, *, attempt: int, wait_seconds: float) -> None:
        """Keep the failure, and wait in virtual time; patience has no end."""
        del attempt
        self.retries.append((error, wait_seconds))
        await self.clock.sleep(wait_seconds)

    async def run_blocking(
        self, call: Callable[[], T], *, subject: str = "", seconds_max: float = BLOCKING_SECONDS_MAX
    ) -> T:
        """In a thread; raises Retriable when it takes too long, and for calls of its subject until it has returned."""
        async with self._turns.setdefault(subject, asyncio.Lock()):
            return await self._in_thread(call, subject, seconds_max)

    async def _in_thread(self, call: Callable[[], T], subject: str, seconds_max: float) -> T:
        if (running := self._running.get(subject)) is not None and not running.done():
            message = f"{subject}: an earlier call still hangs"
            raise Retriable(message)
        limit = asyncio.timeout(seconds_max)
        running = self._running[subject] = asyncio.get_running_loop().run_in_executor(None, call)
        # Nobody may be left to hear of its error.
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            async with limit:
                answer: T = await asyncio.shield(running)
                return answer
        except TimeoutError as error:
            if not limit.expired():
                raise
            message = f"{subject}: the call did not return within {seconds_max:g} s"
            raise Retriable(message) from error

    def report_lag(self, seconds: float) -> None:
        """Add the seconds to ``lags``."""
        self.lags.append(seconds)

    def report_backlog(self, size: int) -> None:
        """Add the bytes to ``backlogs``."""
        self.backlogs.append(size)

    def commit(self, page: Page, *, default: Partition | None = None) -> None:
        """Store the offset of a page, as the worker does after the Kafka commit."""
        partition = page.partition if page.partition is not None else (default or {})
        self.offsets[partition_key(partition)] = page.offset
