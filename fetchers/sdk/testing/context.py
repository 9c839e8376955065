"""A worker for one task, made of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fetchers.sdk.context import partition_key
from fetchers.sdk.http import HttpAccess, HttpDoor
from fetchers.sdk.page import Offset, Page, Partition
from fetchers.sdk.testing.clock import FakeClock
from metrics.events import Event

PartitionKey = tuple[tuple[str, Any], ...]


class FakeContext:
    """A ``FetchContext`` that records what it is told."""

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
        self.events: list[Event] = []
        self.rounds = 0
        self.lags: list[float] = []
        self.limit_waits = 0
        self.is_waiting_for_limit = False
        self.on_round: Callable[[int], None] | None = None
        """Called with the count of rounds each time one is finished."""
        self._own: PartitionKey = partition_key(partition or {})
        self._http = http.for_task(self) if http is not None else None

    @property
    def offset(self) -> Offset:
        """Where to resume in the only source partition."""
        return self.offsets.get(self._own, {})

    def offset_of(self, partition: Partition) -> Offset:
        """Where to resume in this source partition."""
        return self.offsets.get(partition_key(partition), {})

    @property
    def http(self) -> HttpAccess:
        """The http client that was given. Raises LookupError when there is none."""
        if self._http is None:
            message = "this FakeContext was made without http"
            raise LookupError(message)
        return self._http

    def emit(self, event: Event) -> None:
        """Keep the event."""
        self.events.append(event)

    def finish_round(self) -> None:
        """Count the round."""
        self.rounds += 1
        if self.on_round is not None:
            self.on_round(self.rounds)

    @contextmanager
    def waiting_for_limit(self) -> Iterator[None]:
        """Count the wait."""
        self.limit_waits += 1
        self.is_waiting_for_limit = True
        try:
            yield
        finally:
            self.is_waiting_for_limit = False

    def report_lag(self, seconds: float) -> None:
        """Keep the figure."""
        self.lags.append(seconds)

    def commit(self, page: Page, *, default: Partition | None = None) -> None:
        """Store the offset of a page, as the worker does after the Kafka commit."""
        partition = page.partition if page.partition is not None else (default or {})
        self.offsets[partition_key(partition)] = page.offset
