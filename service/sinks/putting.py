"""Puts: how much a sink is handed at once, for how long, and what becomes of a put that failed for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import BackOff, Clock, Fatal, Retriable
from metrics.events import RetryScheduled, SinkRecordsPut, TaskEvents
from service.domain.errors import ConnectorExitError, described
from service.sinks.batch import PutLimits, SinkBatch
from service.sinks.contract import SinkConnector
from service.sinks.decoding import Decoded

_QUICK_SHARE = 0.25
"""A put that needs less than this share of its time limit may be followed by one of twice as many records."""


class CallTimedOut(Retriable):
    """A call of the sink did not return within its time limit."""


@asynccontextmanager
async def limited(seconds_max: float, *, call: str) -> AsyncIterator[None]:
    """Give a call of the sink so much time. A TimeoutError of the sink's own is Retriable.

    Raises CallTimedOut, and ConnectorExitError where the sink wants to end the process.
    """
    limit = asyncio.timeout(seconds_max)
    try:
        async with limit:
            yield
    except SystemExit as error:
        raise ConnectorExitError.of(error) from error
    except TimeoutError as error:
        if limit.expired():
            raise CallTimedOut(f"{call} did not return within {seconds_max:.0f} s") from error
        raise Retriable(f"{call}: {str(error) or 'timed out'}") from error


@dataclass(slots=True)
class Remainder:
    """What of one poll has not been put yet: whole batches, and where in the first of them the next put begins."""

    decoded: Decoded
    polled: pa.Table
    _index: int = 0
    _begin: int = 0
    _ends_bytes: npt.NDArray[np.int64] = field(init=False)
    """For each row of the poll the bytes of keys and values up to its end."""

    def __post_init__(self) -> None:
        """Measure the records as they are in Kafka."""
        self._ends_bytes = np.cumsum(sizes_bytes(self.polled))

    def next_batch(self, *, records_max: int, bytes_max: int) -> SinkBatch | None:
        """Records to be put next, one at least; None when all were put."""
        if self._index == len(self.decoded.batches):
            return None
        batch, rows = self.decoded.batches[self._index], self.decoded.rows[self._index]
        ends = self._ends_bytes[rows[self._begin : self._begin + records_max]]
        begin_row = int(rows[self._begin])
        before = int(self._ends_bytes[begin_row - 1]) if begin_row else 0
        count = max(1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        return batch if count == len(batch) else batch.slice(self._begin, count)

    def advance(self, count: int) -> int:
        """So many more records were put. Returns the first row of the poll that is not done."""
        self._begin += count
        if self._begin == len(self.decoded.batches[self._index]):
            self._index, self._begin = self._index + 1, 0
        if self._index == len(self.decoded.batches):
            return self.polled.num_rows
        return int(self.decoded.rows[self._index][self._begin])


def sizes_bytes(polled: pa.Table) -> npt.NDArray[np.int64]:
    """For each record of a poll the bytes of its key and value."""
    total = np.zeros(polled.num_rows, np.int64)
    for name in ("key", "value"):
        lengths: Any = pc.binary_length(polled.column(name))
        total += pc.fill_null(lengths, 0).to_numpy()
    return total


@dataclass(slots=True)
class Putter:
    """Hands batches to the sink of one task, and knows how the last puts went."""

    connector: SinkConnector[Any]
    limits: PutLimits
    back_off: BackOff
    retry_seconds_max: float | None
    """How long a put is tried again; None: for ever."""
    clock: Clock
    events: TaskEvents
    records_max: int = field(init=False)
    """How many records the next put may have: fewer after one that took too long."""
    _attempts: int = 0
    _failing_since: float | None = None

    def __post_init__(self) -> None:
        """Begin with as many as the sink takes."""
        self.records_max = self.limits.records_max

    async def put(self, batch: SinkBatch) -> Retriable | None:
        """Try once. Returns what failed for a while; raises what fails the task."""
        began_at = self.clock.monotonic()
        try:
            async with limited(self.limits.seconds_max, call="put"):
                await self.connector.put(batch)
        except Retriable as error:
            if isinstance(error, CallTimedOut):
                self.records_max = max(1, len(batch) // 2)
            self._attempts += 1
            self._failing_since = began_at if self._failing_since is None else self._failing_since
            return error
        self._attempts, self._failing_since = 0, None
        seconds = self.clock.monotonic() - began_at
        if seconds < _QUICK_SHARE * self.limits.seconds_max:
            self.records_max = min(self.limits.records_max, self.records_max * 2)
        self.events(SinkRecordsPut, records=len(batch), seconds=seconds)
        return None

    def seconds_to_wait(self, error: Retriable) -> float:
        """How long to wait until the next try. Raises Fatal where ``errors.retry.timeout`` is over."""
        failing_since = self.clock.monotonic() if self._failing_since is None else self._failing_since
        if self.retry_seconds_max is not None and self.clock.monotonic() - failing_since > self.retry_seconds_max:
            raise Fatal(f"errors.retry.timeout is over: {error}") from error
        seconds = self.back_off.wait_seconds(self._attempts, asked_seconds=error.wait_seconds)
        self.events(
            RetryScheduled,
            stage="put",
            error_class=type(error).__name__,
            message=described(error),
            attempt=self._attempts,
            wait_seconds=seconds,
        )
        return seconds
