"""Puts: how much a sink is handed at once, for how long, and what becomes of a put that failed for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import numpy as np
import pyarrow as pa

from fetchers.sdk import BackOff, Clock, Fatal, Retriable
from metrics.events import RetriesEnded, RetryRepeated, RetryScheduled, SinkRecordsPut, TaskEvents
from service.domain.errors import ConnectorExitError, TargetFull, described
from service.kafka.fetching import sizes_bytes
from service.sinks.batch import PutLimits, SinkBatch
from service.sinks.contract import SinkConnector
from service.sinks.decoding import Decoded
from service.sinks.readings import Rows

_numbers = count(1)
_REMINDERS = BackOff(first_seconds=60, cap_seconds=3600, jitter_seconds=0)
"""How long the log is told nothing of a target that stays full."""
_QUICK_SHARE = 0.25
"""A put that needs less than this share of its time limit may be followed by one of twice as many records."""


class CallTimedOut(Retriable):
    """A call of the sink did not return within its time limit."""


class CallLimits:
    """Time limits of the calls of one sink that are under way.

    Each begins anew when the sink says that it goes on (``SinkContext.note_progress``), unless others wait for its end.
    """

    def __init__(self) -> None:
        """No call is under way."""
        self.is_extended = True
        """False while the group, or who stops the task, waits."""
        self._under_way: dict[asyncio.Timeout, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def note_progress(self) -> None:
        """Hear, from any thread, that the sink goes on."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._begin_anew)

    def _begin_anew(self) -> None:
        if self.is_extended and self._loop is not None:
            for limit, seconds_max in self._under_way.items():
                if not limit.expired():
                    limit.reschedule(self._loop.time() + seconds_max)

    @asynccontextmanager
    async def limited(self, seconds_max: float, *, call: str) -> AsyncIterator[None]:
        """Give a call of the sink so much time. A TimeoutError or CancelledError of the sink's own is Retriable.

        Raises CallTimedOut, and ConnectorExitError where the sink wants to end the process.
        """
        limit, self._loop = asyncio.timeout(seconds_max), asyncio.get_running_loop()
        try:
            async with limit:
                self._under_way[limit] = seconds_max
                yield
        except SystemExit as error:
            raise ConnectorExitError.of(error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Retriable(f"{call}: cancelled by the connector's own code") from error
        except TimeoutError as error:
            if limit.expired():
                raise CallTimedOut(f"{call} did not return within {seconds_max:.0f} s") from error
            raise Retriable(f"{call}: {str(error) or 'timed out'}") from error
        finally:
            self._under_way.pop(limit, None)


class Turns:
    """Who may speak to a sink: its puts, as many at once as it takes, or one other call alone."""

    def __init__(self, puts_max: int) -> None:
        """Nobody speaks to it."""
        self.one = asyncio.Semaphore(puts_max)
        """Held by each put that the sink is busy with."""
        self._puts_max = puts_max
        self._alone_lock = asyncio.Lock()
        """Held by who takes all turns: of two that each had some of them neither would go on."""

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait until no put is under way; those that wait to be tried again wait longer."""
        async with self._alone_lock, AsyncExitStack() as held:
            for _ in range(self._puts_max):
                await held.enter_async_context(self.one)
            yield


def cut(
    decoded: Decoded, polled: pa.Table, *, records_max: Callable[[], int], bytes_max: int
) -> Iterator[tuple[SinkBatch, Rows]]:
    """What of a poll is put at once, in order, each with the rows of its records in the poll.

    ``records_max`` is asked before each: it changes with how quick the sink is. A record over ``bytes_max`` goes alone.
    """
    ends_bytes = np.cumsum(sizes_bytes(polled))
    for batch, rows in zip(decoded.batches, decoded.rows, strict=True):
        begin = 0
        while begin < len(batch):
            ends = ends_bytes[rows[begin : begin + records_max()]]
            first = int(rows[begin])
            before = int(ends_bytes[first - 1]) if first else 0
            count = max(1, int(np.searchsorted(ends, before + bytes_max, side="right")))
            yield (batch if count == len(batch) else batch.slice(begin, count)), rows[begin : begin + count]
            begin += count


@dataclass(slots=True)
class Holders:
    """Who still holds a poll; the last one puts it down.

    They are the flow for the length of a block, each of its puts, and the commits until all before it is done too.
    """

    put_down: Callable[[], None]
    _count: int = 0

    def __enter__(self) -> Self:
        """Hold it."""
        self.add()
        return self

    def __exit__(self, *_ended_by: object) -> None:
        """Let go."""
        self.remove()

    def add(self) -> None:
        """One more."""
        self._count += 1

    def remove(self, _put: object = None) -> None:
        """One less."""
        self._count -= 1
        if not self._count:
            self.put_down()


@dataclass(slots=True)
class Put:
    """One batch on its way to the sink: what of it is left, and how the tries went."""

    batch: SinkBatch
    rows: Rows
    """Of its records, in their poll."""
    attempts: int = 0
    """In a row that failed."""
    failing_since: float | None = None
    number: int = field(init=False, default_factory=lambda: next(_numbers))
    """By which events tell it from others."""

    def keep(self, left: list[int]) -> Rows:
        """Only these rows of the batch are left, in order; returns the rows of the poll that are done."""
        is_left = np.zeros(len(self.rows), dtype=bool)
        is_left[left] = True
        done = self.rows[~is_left]
        self.batch, self.rows = self.batch.take(np.flatnonzero(is_left)), self.rows[is_left]
        return done


@dataclass(slots=True)
class Putter:
    """Hands batches to the sink of one task, and knows how quick it is."""

    connector: SinkConnector[Any]
    calls: CallLimits
    limits: PutLimits
    back_off: BackOff
    retry_seconds_max: float | None
    """How long a put is tried again; None: for ever."""
    clock: Clock
    events: TaskEvents
    records_max: int = field(init=False)
    """How many records the next put may have: fewer after one that took too long."""
    _retried: dict[int, bool] = field(init=False, default_factory=dict)
    """Numbers of the puts that are to be tried again, and whether the target has no room for them."""
    _reminders: int = field(init=False, default=0)
    """How often the log was told that the target is full, since it was not."""
    _reminder_due_at: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        """Begin with as many as the sink takes."""
        self.records_max = self.limits.records_max

    async def put(self, put: Put) -> tuple[Rows, Retriable | None]:
        """Try once, with as many of its records as a put may have now.

        Returns the rows of the poll that are done now, and what failed for a while; raises what fails the task.
        """
        began_at = self.clock.monotonic()
        count = min(len(put.batch), self.records_max)
        batch = put.batch if count == len(put.batch) else put.batch.slice(0, count)
        rest = list(range(count, len(put.batch)))
        try:
            async with self.calls.limited(self.limits.seconds_max, call="put"):
                await self.connector.put(batch)
        except Retriable as error:
            if isinstance(error, CallTimedOut):
                self.records_max = max(1, count // 2)
            left = range(count) if error.rows is None else sorted(set(error.rows))
            done = put.keep([*left, *rest])
            if len(done):
                # A server that takes some of them is not away: its next refusal is the first.
                put.attempts, put.failing_since = 0, None
                self.events(SinkRecordsPut, records=len(done), seconds=self.clock.monotonic() - began_at)
            # Who says that it is full is not away: of the tries to reach it this is the first.
            put.attempts = 1 if isinstance(error, TargetFull) else put.attempts + 1
            put.failing_since = began_at if put.failing_since is None else put.failing_since
            return done, error
        self._let_go(put)
        put.attempts, put.failing_since = 0, None
        seconds = self.clock.monotonic() - began_at
        if seconds < _QUICK_SHARE * self.limits.seconds_max:
            self.records_max = min(self.limits.records_max, self.records_max * 2)
        self.events(SinkRecordsPut, records=count, seconds=seconds)
        return put.keep(rest), None

    def seconds_to_wait(self, put: Put, error: Retriable) -> float:
        """How long to wait until the next try. Raises Fatal where there is to be none.

        That is where ``errors.retry.timeout`` is over, or the sink's own ``PutLimits.retries_max`` tries have failed.
        """
        failing_since = self.clock.monotonic() if put.failing_since is None else put.failing_since
        if self.retry_seconds_max is not None and self.clock.monotonic() - failing_since > self.retry_seconds_max:
            raise Fatal(f"errors.retry.timeout is over: {error}") from error
        is_counted = self.limits.retries_max is not None and not isinstance(error, TargetFull)
        if is_counted and put.attempts > (self.limits.retries_max or 0):
            raise Fatal(f"given up after {put.attempts} tries: {error}") from error
        waits = self.limits.waits or self.back_off
        seconds = waits.wait_seconds(put.attempts, asked_seconds=error.wait_seconds)
        self._retried[put.number] = isinstance(error, TargetFull)
        self.events(
            RetryRepeated if self._is_known(error) else RetryScheduled,
            stage="put",
            error_class=type(error).__name__,
            message=described(error),
            attempt=put.attempts,
            wait_seconds=seconds,
            part=put.number,
        )
        return seconds

    def _is_known(self, error: Retriable) -> bool:
        """Whether it is of an outage that the log was told of a short while ago."""
        if not isinstance(error, TargetFull):
            return False
        now = self.clock.monotonic()
        if self._reminders and now < self._reminder_due_at:
            return True
        self._reminders += 1
        self._reminder_due_at = now + _REMINDERS.wait_seconds(self._reminders)
        return False

    @contextmanager
    def tries(self, put: Put) -> Iterator[None]:
        """The block in which it is tried: behind it, done or not, it waits no more."""
        try:
            yield
        finally:
            self._let_go(put)

    def _let_go(self, put: Put) -> None:
        if self._retried.pop(put.number, None) is not None:
            self.events(RetriesEnded, stage="put", part=put.number)
        if not any(self._retried.values()):
            self._reminders = 0
