"""Fetches the first records of a source by its connector's config: no Kafka, no offsets, nothing kept.

The fetcher runs as in a task, from the beginning of its source, until there are records enough, the source has no more,
or a limit is met. Nothing is acknowledged (``on_committed`` is never called), so that a source that moves or deletes
what was committed keeps everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute

from fetchers.catalog import shared_http
from fetchers.sdk import HttpDoor, Page, Retriable, SourceConnector, SystemClock
from fetchers.sdk.page import Column, Offset, Partition
from metrics.events import Event
from service.config.definition import ConnectorDefinition
from service.domain.errors import ConnectorExitError
from service.domain.ids import TaskId
from service.pipeline.activity import Activity
from service.pipeline.context import TaskContext
from service.version import VERSION
from service.worker.foreign_calls import ForeignCalls

pc: Any = pyarrow.compute

CLOSE_SECONDS_MAX = 2.0
"""For a fetcher to end once it is told to; one that does not is left behind."""
WAIT_SECONDS_MIN = 1.0
"""Before a source is asked again, also where it asks for less: one that says 0 for ever is not to be hammered."""
_COLUMNS = ("payloads", "keys", "timestamps_ms", "positions")
_LISTS = ("headers", "origins", "tries")


@dataclass(frozen=True, slots=True)
class SampleLimits:
    """What a sample may cost; whichever is met first ends it."""

    records_max: int = 20
    bytes_max: int = 16 << 20
    """Of all payloads together; the first is taken whatever its size (a fetcher bounds its pages itself)."""
    seconds_max: float = 30.0


class SampleEnd(StrEnum):
    """Why a sample has no further records."""

    SOURCE = "source"
    """The source had no more at that time."""
    RECORDS = "records"
    BYTES = "bytes"
    TIME = "time"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Sample:
    """The first records of a source, as its fetcher handed them over."""

    pages: tuple[Page, ...]
    """Those with records, the last one cut to the limit; their ``offset`` is that of the whole page."""
    end: SampleEnd
    left: int = 0
    """Records that the last page had beyond the limits."""
    offsets: tuple[tuple[Partition, Offset], ...] = ()
    """For each source partition where its fetcher would resume after the last page, which may have been cut."""
    error: Exception | None = None
    """What the fetcher raised, where that is the end: a ``FetchError`` is the source's, anything else a bug's."""

    @property
    def records(self) -> int:
        """How many there are, tombstones included."""
        return sum(map(len, self.pages))

    @property
    def has_more(self) -> bool | None:
        """Whether the source had more records; None where nobody asked it."""
        return False if self.end is SampleEnd.SOURCE else True if self.left else None


def sampled_connector(definition: ConnectorDefinition) -> SourceConnector[Any]:
    """An instance that has the connector's whole work, as that of a single task.

    Runs the connector's own code, which may block. Raises ValueError where its task config is not valid.
    """
    tasks = definition.for_task({}).task_configs(1)
    return definition.for_task(next(iter(tasks), {}))


async def sample(
    definition: ConnectorDefinition, limits: SampleLimits, *, connector: SourceConnector[Any] | None = None
) -> Sample:
    """The first records of a connector's source, within the addresses and paths of its definition's ``reach``.

    ``connector``: from ``sampled_connector``, where that was called elsewhere. Called by ``preview`` and by whatever
    else wants to know a source's records; never raises for what the source does (see ``Sample.error``), and leaves
    nothing behind when it is cancelled.
    """
    connector = connector or sampled_connector(definition)
    reach = definition.reach
    async with shared_http(version=VERSION, paths=reach.paths, addresses=reach.addresses) as http:
        return await sample_of(connector, limits, name=definition.name, http=http)


async def sample_of(connector: SourceConnector[Any], limits: SampleLimits, *, name: str, http: HttpDoor) -> Sample:
    """As ``sample``, of an instance, with an http client that is open already."""
    taken = _Taken(connector, limits)
    clock = SystemClock()
    rounds = _Rounds(clock)
    blocking = ForeignCalls()
    context = TaskContext(
        TaskId(name, 0),
        partition=connector.partition(),
        offsets={},
        http=http,
        clock=clock,
        emit=_unheard,
        activity=rounds,
        blocking=blocking,
    )
    # A listener whose source is away says so at once, and is not over when it is connected.
    context.patience_seconds = -1.0
    rounds.is_listening = lambda: context.is_listening
    end, error = SampleEnd.TIME, None
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.seconds_max):
                end, error = await _fetched(connector, context, rounds, taken)
    finally:
        blocking.close()
    return Sample(tuple(taken.pages), end, taken.left, tuple(taken.offsets.values()), error)


def _unheard(_: Event) -> None:
    """What a fetcher tells for metrics and logs is not about a connector that runs."""


class _Rounds(Activity):
    """Hears that the source has been asked for everything it has."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(clock)
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_listening: Callable[[], bool] = lambda: False

    def finish_round(self) -> None:
        super().finish_round()
        if not self.is_over.done() and not self.is_listening():
            self.is_over.set_result(None)


@dataclass(slots=True)
class _Taken:
    """Records taken so far."""

    connector: SourceConnector[Any]
    limits: SampleLimits
    pages: list[Page] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    left: int = 0
    offsets: dict[str, tuple[Partition, Offset]] = field(default_factory=dict)

    def take(self, page: Page) -> SampleEnd | None:
        """Add what the limits allow of a page; says which of them is met by it."""
        partition = self.connector.partition() if page.partition is None else page.partition
        self.offsets[repr(sorted(partition.items()))] = (partition, page.offset)
        lengths = _lengths(page)
        room = self.limits.bytes_max - self.bytes
        within_bytes = int(np.searchsorted(np.cumsum(lengths), room, side="right"))
        if not self.records:
            within_bytes = max(within_bytes, 1)
        count = min(len(page), self.limits.records_max - self.records, within_bytes)
        if count:
            self.pages.append(page if count == len(page) else first_records(page, count))
        self.records += count
        self.bytes += int(lengths[:count].sum())
        self.left = len(page) - count
        if self.records >= self.limits.records_max:
            return SampleEnd.RECORDS
        return SampleEnd.BYTES if self.left or self.bytes >= self.limits.bytes_max else None


def _lengths(page: Page) -> npt.NDArray[np.int64]:
    """Bytes of each payload; rows, which have no bytes of their own, share their memory equally."""
    if page.schema is not None:
        return np.full(len(page), page.bytes // max(len(page), 1), dtype=np.int64)
    return np.asarray(pc.fill_null(pc.binary_length(page.payload_column), 0), dtype=np.int64)


def first_records(page: Page, count: int) -> Page:
    """A page of the first ``count`` records, without the memory of the others."""
    cut: dict[str, Any] = {name: _first(getattr(page, name), count) for name in _COLUMNS}
    cut |= {name: None if getattr(page, name) is None else getattr(page, name)[:count] for name in _LISTS}
    return replace(page, **cut, rejections=tuple(each for each in page.rejections if each.index < count))


def _first(column: Column | None, count: int) -> Column | None:
    return None if column is None else column.take(np.arange(count))


async def _fetched(
    connector: SourceConnector[Any], context: TaskContext, rounds: _Rounds, taken: _Taken
) -> tuple[SampleEnd, Exception | None]:
    """Fetch until something ends it; a wait that the source asks for is made, within the time limit."""
    while True:
        try:
            return await _fetched_once(connector, context, rounds, taken), None
        except Retriable as error:
            if error.wait_seconds is None:
                return SampleEnd.ERROR, error
            await asyncio.sleep(max(error.wait_seconds, WAIT_SECONDS_MIN))
        except Exception as error:  # noqa: BLE001 - a connector's own code may raise anything; it is told, not hidden
            return SampleEnd.ERROR, error


async def _fetched_once(
    connector: SourceConnector[Any], context: TaskContext, rounds: _Rounds, taken: _Taken
) -> SampleEnd:
    """One run of the fetcher, all of it in one task, as in the worker: it closes things where it opened them."""
    # In no TaskGroup, which would wait for ever for a fetcher that swallows its cancellation.
    fetching = asyncio.get_running_loop().create_task(_taken_until_full(connector, context, taken))
    try:
        await asyncio.wait((fetching, rounds.is_over), return_when=asyncio.FIRST_COMPLETED)
        # A fetcher may say that it has everything just before it hands over the last page.
        await asyncio.sleep(0)
        return fetching.result() if fetching.done() else SampleEnd.SOURCE
    finally:
        fetching.cancel()
        await asyncio.wait((fetching,), timeout=CLOSE_SECONDS_MAX)


async def _taken_until_full(connector: SourceConnector[Any], context: TaskContext, taken: _Taken) -> SampleEnd:
    try:
        stream = connector.fetch(context)
        try:
            async for page in stream:
                context.advance(page)
                if (end := taken.take(page)) is not None:
                    return end
                # One that never waits would keep the event loop, and with it the time limit.
                await asyncio.sleep(0)
            return SampleEnd.SOURCE
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
    except SystemExit as error:
        # Here, not where the task is awaited: an event loop ends with the first task that ends with it.
        raise ConnectorExitError.of(error) from error
