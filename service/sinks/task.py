"""One sink task: a member of the connector's consumer group, readable as its summary.

Poll, decode, put, and from time to time flush and commit. A rebalance waits for the put under way, then flushes,
commits and closes what goes, so that whoever gets it begins where this task has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from fetchers.sdk import BackOff, Clock, Fatal, Retriable
from metrics.events import (
    Emit,
    RetryScheduled,
    SinkLagMeasured,
    SinkPartitionsChanged,
    SinkRecordsPut,
    SinkRecordsRead,
    TaskEvents,
    TaskStarted,
)
from service.domain.errors import described
from service.domain.ids import TaskId
from service.kafka.group_consumer import GroupListener
from service.kafka.producer import Writer
from service.pipeline.activity import Activity, Signal
from service.sinks.batch import Offsets, Partition, SinkBatch, ends_of
from service.sinks.committing import CommitStage
from service.sinks.contract import SinkConnector, SinkContext
from service.sinks.dead_letters import DeadLetterRules
from service.sinks.putting import Decoded, Decoding
from service.sinks.refusing import RefusedRecords

POLL_SECONDS = 0.5
"""How long a poll waits for records; a stop is noticed after it at the latest."""
PUT_SECONDS_MAX = 120.0
HOOK_SECONDS_MAX = 60.0
"""Time a sink has to start, to open, to close and to stop."""


class Consumer(Protocol):
    """A member of the group (`service.kafka.group_consumer`)."""

    async def start(self) -> None:
        """Connect and begin to join."""

    async def poll(self, *, seconds_max: float) -> pa.Table | None:
        """What has come."""

    async def commit(self, offsets: Offsets) -> None:
        """Commit offsets."""

    def pause(self) -> None:
        """Let polls bring nothing."""

    def resume(self) -> None:
        """Undo it."""

    def lags(self) -> Mapping[Partition, int | None]:
        """Records behind what polls have given."""

    async def stop(self) -> None:
        """Leave the group."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Limits and rules of one task."""

    decoding: Decoding
    dead_letters: DeadLetterRules
    flush_seconds: float = 60.0
    put_back_off: BackOff = field(default_factory=BackOff)
    put_retry_seconds_max: float | None = None
    """How long a put is tried again; None: for ever."""


@dataclass(slots=True)
class SinkTask:
    """One incarnation of a task; a restart makes a new one."""

    task_id: TaskId
    connector: SinkConnector[Any]
    settings: SinkSettings
    open_consumer: Callable[[GroupListener], Consumer]
    open_writer: Callable[[], Writer] | None
    """Of dead letters; None where they go nowhere."""
    clock: Clock
    emit: Emit
    on_running: Signal = lambda: None
    use_topic: Callable[[str], None] = lambda _topic: None
    """Hears of every topic of which records were put, again and again."""
    activity: Activity = field(init=False)
    events: TaskEvents = field(init=False)
    _stop: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    """Held by whoever speaks to the sink: the flow, or a rebalance."""
    _epoch: int = field(init=False, default=0)
    """Raised by each rebalance: what was polled before it is no longer this task's to put."""
    _partitions: tuple[Partition, ...] = field(init=False, default=())
    _is_retrying: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Nothing runs yet."""
        self.activity = Activity(self.clock)
        self.events = TaskEvents(self.emit, self.task_id.connector, self.task_id.task)

    def request_stop(self) -> None:
        """Take no more; what was put is flushed and committed."""
        self._stop.set()

    async def run(self) -> None:
        """Until asked to stop; raises what ended it otherwise."""
        started_at = self.clock.monotonic()
        is_started = False
        try:
            async with self._parts() as (consumer, commits):
                is_started = True
                seconds = self.clock.monotonic() - started_at
                self.events(TaskStarted, is_success=True, seconds=seconds, kind="sink")
                self.on_running()
                await self._flow(consumer, commits)
        finally:
            if not is_started:
                seconds = self.clock.monotonic() - started_at
                self.events(TaskStarted, is_success=False, seconds=seconds, kind="sink")

    @asynccontextmanager
    async def _parts(self) -> AsyncIterator[tuple[Consumer, CommitStage]]:
        """The dead letters' writer, the sink, the group; ended in reverse order."""
        writer = self.open_writer() if self.open_writer is not None else None
        refused = RefusedRecords(self.task_id, self.settings.dead_letters, writer, self.events)
        group = _Group(self)
        consumer = self.open_consumer(group)
        commits = CommitStage(self.connector, consumer, refused, self.events, self.clock, self.settings.flush_seconds)
        group.commits, group.consumer = commits, consumer
        async with AsyncExitStack() as stack:
            if writer is not None:
                stack.push_async_callback(writer.stop)
                await writer.start()
            stack.push_async_callback(self._stop_sink)
            async with asyncio.timeout(HOOK_SECONDS_MAX):
                await self.connector.start(
                    SinkContext(self.task_id.connector, self.task_id.task, self.clock, self.emit)
                )
            stack.push_async_callback(consumer.stop)
            await consumer.start()
            yield consumer, commits

    async def _stop_sink(self) -> None:
        async with asyncio.timeout(HOOK_SECONDS_MAX):
            await self.connector.stop()

    async def _flow(self, consumer: Consumer, commits: CommitStage) -> None:
        while not self._stop.is_set():
            polled = await consumer.poll(seconds_max=POLL_SECONDS)
            if polled is not None:
                await self._take(polled, self._epoch, consumer, commits)
            if commits.is_due:
                async with self._turn:
                    await commits.run()
            self._tell_lag(consumer, is_quiet=polled is None)
        async with self._turn:
            await commits.run()
            await self._close()

    async def _take(self, polled: pa.Table, epoch: int, consumer: Consumer, commits: CommitStage) -> None:
        """Decode, put and settle one batch, unless a rebalance takes its partitions away first."""
        self.activity.take_in_hand(records=polled.num_rows)
        self.events(SinkRecordsRead, records=polled.num_rows, bytes=_bytes(polled))
        try:
            decoded = await self.settings.decoding.decode(polled, refuse=commits.refused.add)
            if await self._put_all(decoded, epoch, consumer, commits):
                async with self._turn:
                    if epoch == self._epoch:
                        for refused in decoded.refused:
                            commits.refused.add(refused)
                        await commits.refused.settle()
                        commits.note_put(ends_of(polled), records=polled.num_rows)
        finally:
            self.activity.put_down(pages=1, records=polled.num_rows)
        for topic in polled.column("topic").unique().to_pylist():
            self.use_topic(str(topic))

    async def _put_all(self, decoded: Decoded, epoch: int, consumer: Consumer, commits: CommitStage) -> bool:
        """Put every batch, each as often as it takes; False when they are no longer this task's, or at a stop."""
        waiting, attempt, began_at = deque(decoded.batches), 0, self.clock.monotonic()
        while True:
            async with self._turn:
                if epoch != self._epoch:
                    return False
                commits.refused.demand_tolerance(decoded.refused)
                if not waiting:
                    return True
                error = await self._put(waiting[0])
            if error is None:
                waiting.popleft()
                attempt, began_at = 0, self.clock.monotonic()
                continue
            attempt += 1
            self._demand_time(error, seconds=self.clock.monotonic() - began_at)
            await self._wait_to_retry(error, attempt, consumer)
            if self._stop.is_set():
                return False

    def _demand_time(self, error: Retriable, *, seconds: float) -> None:
        limit_seconds = self.settings.put_retry_seconds_max
        if limit_seconds is not None and seconds > limit_seconds:
            raise Fatal(f"errors.retry.timeout is over: {error}") from error

    async def _put(self, batch: SinkBatch) -> Retriable | None:
        """One try; what it raised for a while is its result."""
        started_at = self.clock.monotonic()
        try:
            async with asyncio.timeout(PUT_SECONDS_MAX):
                await self.connector.put(batch)
        except Retriable as error:
            return error
        except TimeoutError as error:
            failure = Retriable(f"put did not return within {PUT_SECONDS_MAX:.0f} s")
            failure.__cause__ = error
            return failure
        self.events(SinkRecordsPut, records=len(batch), seconds=self.clock.monotonic() - started_at)
        return None

    async def _wait_to_retry(self, error: Retriable, attempt: int, consumer: Consumer) -> None:
        """Wait, polling all the time so that the group does not take the partitions away."""
        seconds = self.settings.put_back_off.wait_seconds(attempt, asked_seconds=error.wait_seconds)
        self.events(
            RetryScheduled,
            stage="put",
            error_class=type(error).__name__,
            message=described(error),
            attempt=attempt,
            wait_seconds=seconds,
        )
        until = self.clock.monotonic() + seconds
        self._is_retrying = self.activity.is_retrying = True
        consumer.pause()
        try:
            while (left_seconds := until - self.clock.monotonic()) > 0 and not self._stop.is_set():
                await consumer.poll(seconds_max=min(left_seconds, POLL_SECONDS))
        finally:
            self._is_retrying = self.activity.is_retrying = False
            consumer.resume()

    def _tell_lag(self, consumer: Consumer, *, is_quiet: bool) -> None:
        lags = consumer.lags().values()
        known = [lag for lag in lags if lag is not None]
        if known:
            self.events(SinkLagMeasured, records=max(known))
        if is_quiet and self._epoch and len(known) == len(lags) and not any(known):
            self.activity.finish_round()

    async def revoke(self, commits: CommitStage) -> None:
        """The group takes all partitions back: last chance to commit what was put of them."""
        async with self._turn:
            self._epoch += 1
            try:
                await commits.run()
            finally:
                commits.forget()
                await self._close()
        self.events(SinkPartitionsChanged, count=0)

    async def _close(self) -> None:
        partitions, self._partitions = self._partitions, ()
        if partitions:
            async with asyncio.timeout(HOOK_SECONDS_MAX):
                await self.connector.close(partitions)

    async def assign(self, committed: Mapping[Partition, int | None], consumer: Consumer) -> Offsets:
        """The group gives partitions."""
        async with self._turn:
            self._epoch += 1
            self._partitions = tuple(committed)
            async with asyncio.timeout(HOOK_SECONDS_MAX):
                positions = await self.connector.open(committed)
            if self._is_retrying:
                consumer.pause()
        self.events(SinkPartitionsChanged, count=len(committed))
        return positions


class _Group:
    """The group's ear of a task."""

    commits: CommitStage
    consumer: Consumer

    def __init__(self, task: SinkTask) -> None:
        self._task = task

    async def on_revoked(self, partitions: Collection[Partition]) -> None:
        del partitions  # all of them, always
        await self._task.revoke(self.commits)

    async def on_assigned(self, committed: Mapping[Partition, int | None]) -> Offsets:
        return await self._task.assign(committed, self.consumer)


def _bytes(polled: pa.Table) -> int:
    """Size of keys and values."""
    return polled.column("key").nbytes + polled.column("value").nbytes
