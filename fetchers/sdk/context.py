"""What the worker gives a running fetcher: stored offsets, http, the clock, and ears for what happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from fetchers.sdk.page import Offset, Partition
from metrics.events import Event


class Clock(Protocol):
    """Time; replaced by a virtual one in tests."""

    def now(self) -> datetime:
        """Wall clock, aware, UTC."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellation ends it at once."""


class HttpResponse(Protocol):
    """A whole answer of an API, its body limited in size."""

    @property
    def status(self) -> int:
        """HTTP status code."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields, names without regard to case."""

    @property
    def body(self) -> bytes:
        """Decoded (gunzipped) body."""

    def records(self, path: str = "", *, newer_than: tuple[str, Any] | None = None) -> Any:  # noqa: ANN401 - see below
        """Raw slices of the body: the elements of the array at ``path``.

        With ``newer_than=(field path, value)`` only elements whose field is greater; the result's ``highest``
        is the greatest value seen. (A list of ``bytes``; the concrete class is the toolkit's ``RecordSlices``.)
        """


class HttpAccess(Protocol):
    """The shared http client, bound to one task: its time-outs, limits, rate budget and metrics."""

    def poll(self, url: str, *, every: float, **request: Any) -> AsyncIterator[HttpResponse]:  # noqa: ANN401 - httplike
        """Ask again and again, ``every`` seconds apart; each turn is one round of the source.

        Failures with a retriable status raise ``Retriable``, others ``Fatal`` (see the toolkit's status table).
        """

    async def request(self, method: str, url: str, **request: Any) -> HttpResponse:  # noqa: ANN401 - httplike
        """One request with its whole answer."""

    def stream(self, method: str, url: str, **request: Any) -> AbstractAsyncContextManager[Any]:  # noqa: ANN401
        """One request whose body is read in chunks and never held whole."""


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
