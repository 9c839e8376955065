"""One sink task: a member of the connector's consumer group, readable as its summary.

Poll, decode, put, and from time to time flush and commit. A rebalance waits for the put under way, then flushes,
commits and closes what goes, so that whoever gets it begins where this task has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from fetchers.sdk import BackOff, Clock, Fatal, HttpDoor, Retriable
from metrics.events import (
    Emit,
    RecordsFiltered,
    SinkLagMeasured,
    SinkPartitionsChanged,
    SinkRecordsRead,
    SourceCaughtUp,
    TaskEvents,
    TaskStarted,
)
from service.domain.errors import root_of
from service.domain.ids import TaskId
from service.kafka.group_consumer import GroupConsumer, GroupListener
from service.pipeline.activity import Activity, Signal
from service.pipeline.memory import MemoryShare
from service.sinks.batch import Offsets, Partition, PutLimits
from service.sinks.committing import Commits
from service.sinks.contract import SinkConnector, SinkContext
from service.sinks.dead_letters import DeadLetterRules, LetterWriter, Polled, RefusedRecords
from service.sinks.decoding import Decoded, Decoding
from service.sinks.putting import CallLimits, Holders, Put, Putter, Turns, cut
from service.sinks.readings import Rows

POLL_SECONDS = 0.5
"""How long a poll waits for records; a stop is noticed after it at the latest."""
CALL_SECONDS_MAX = 60.0
"""Time a sink has to start, to open, to close and to stop."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Limits and rules of one task."""

    decoding: Decoding
    dead_letters: DeadLetterRules
    put_limits: PutLimits
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
    open_consumer: Callable[[GroupListener], GroupConsumer]
    open_writer: Callable[[], LetterWriter] | None
    """Of dead letters; None where they go nowhere."""
    clock: Clock
    emit: Emit
    memory: MemoryShare
    """Of the worker's budget."""
    http: HttpDoor
    """The worker's http client."""
    on_running: Signal = lambda: None
    use_topic: Callable[[str], None] = lambda _topic: None
    """Hears of every topic of which records were put, again and again."""
    activity: Activity = field(init=False)
    events: TaskEvents = field(init=False)
    _refused: RefusedRecords = field(init=False)
    _consumer: GroupConsumer = field(init=False)
    _commits: Commits = field(init=False)
    _putter: Putter = field(init=False)
    _calls: CallLimits = field(init=False, default_factory=CallLimits)
    _stop: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _group: asyncio.TaskGroup = field(init=False)
    """Of the puts."""
    _puts: set[asyncio.Task[None]] = field(init=False, default_factory=set)
    """Under way, or waiting to be tried again."""
    _retrying: int = field(init=False, default=0)
    _turns: Turns = field(init=False)
    _rebalances: int = field(init=False, default=0)
    """Counted at each end of an assignment, and at each begin: what was polled before is not this task's to put."""
    _partitions: tuple[Partition, ...] = field(init=False, default=())
    _has_failed: bool = field(init=False, default=False)
    """Nothing is committed any more: a rebalance may come before the task has ended."""

    def __post_init__(self) -> None:
        """Prepare; nothing is connected before `run`."""
        self.activity = Activity(self.clock)
        self._turns = Turns(self.settings.put_limits.puts_max)
        self.events = TaskEvents(self.emit, self.task_id.connector, self.task_id.task)

    def take_over(self, keys: Collection[str], make: Callable[[], Awaitable[object]]) -> bool:
        """A sink has nothing to lose by a start."""
        del keys, make
        return False

    def request_stop(self) -> None:
        """Take no more; what was put is flushed and committed."""
        self._calls.is_extended = False
        self._stop.set()

    async def run(self) -> None:
        """Work until asked to stop; raises what ended it otherwise."""
        started_at = self.clock.monotonic()
        is_started = False
        try:
            async with self._parts():
                is_started = True
                seconds = self.clock.monotonic() - started_at
                self.events(TaskStarted, is_success=True, seconds=seconds, kind="sink")
                self.on_running()
                with self.memory:
                    await self._flow()
        finally:
            if not is_started:
                seconds = self.clock.monotonic() - started_at
                self.events(TaskStarted, is_success=False, seconds=seconds, kind="sink")

    @asynccontextmanager
    async def _parts(self) -> AsyncIterator[None]:
        """The dead letters' writer, the sink, the group; ended in reverse order."""
        settings = self.settings
        writer = self.open_writer() if self.open_writer is not None else None
        self._refused = RefusedRecords(self.task_id, settings.dead_letters, writer, self.events)
        self._consumer = self.open_consumer(self)
        self._commits = Commits(
            self.connector, self._calls, self._consumer, self._refused, self.events, self.clock, settings.flush_seconds
        )
        self._putter = Putter(
            self.connector,
            self._calls,
            settings.put_limits,
            settings.put_back_off,
            settings.put_retry_seconds_max,
            self.clock,
            self.events,
        )
        async with AsyncExitStack() as stack:
            if writer is not None:
                stack.push_async_callback(writer.stop)
                await writer.start()
            stack.push_async_exit(self._stop_sink)
            async with self._calls.limited(CALL_SECONDS_MAX, call="start"):
                await self.connector.start(self._context())
            stack.push_async_callback(self._consumer.stop)
            await self._consumer.start()
            yield

    def _context(self) -> SinkContext:
        return SinkContext(
            self.task_id.connector,
            self.task_id.task,
            self.clock,
            self.emit,
            door=self.http,
            request_flush=self._commits.request,
            generation=lambda: self._consumer.generation,
            ends=self._consumer.ends,
            note_progress=self._calls.note_progress,
        )

    async def _stop_sink(
        self, _kind: type[BaseException] | None, ended_by: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """What ended the task is not hidden by a sink that does not stop either."""
        self._calls.is_extended = False
        try:
            async with self._calls.limited(CALL_SECONDS_MAX, call="stop"):
                await self.connector.stop()
        except Retriable as error:
            if ended_by is None:
                raise
            ended_by.add_note(str(error))

    async def _flow(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._group:
                with self._failures():
                    await self._poll_and_put()
        except BaseExceptionGroup as group:
            # Who hears of it is told of the error, not of how puts are run.
            raise root_of(group) from group
        with self._failures():
            async with self._turns.alone():
                await self._commits.run()
                await self._close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Note that the block has failed, before a rebalance that waits for it goes on."""
        try:
            yield
        except BaseException:
            # A cancellation too: what it cut short is not done, and must not be committed.
            self._has_failed = True
            raise

    async def _poll_and_put(self) -> None:
        while not self._stop.is_set():
            if self._puts and not self.memory.has_room:
                # A record that waits to be put again holds up the commit of all behind it, and so all that is polled.
                await self._wait_for_a_put()
                continue
            records = await self._consumer.poll(seconds_max=self._commits.wait_seconds(POLL_SECONDS))
            if records is not None:
                await self._take(Polled(records), self._rebalances)
            await self._commit_if_due()
            self._tell_lag(is_quiet=records is None and not self._puts)

    async def _take(self, polled: Polled, rebalances: int) -> None:
        """Decode and begin to put the records of a poll, unless a rebalance takes their partitions away first."""
        records = polled.records
        self.activity.take_in_hand(records=records.num_rows)
        size_bytes = records.column("key").nbytes + records.column("value").nbytes
        self.events(SinkRecordsRead, records=records.num_rows, bytes=size_bytes)
        # Once as it was polled, and once as it is decoded.
        self.memory.add(2 * size_bytes)
        with Holders(lambda: self._put_down(records.num_rows, 2 * size_bytes)) as holders:
            decoded = await self._decoded(polled, rebalances)
            if decoded is None:
                return
            for refusal in decoded.refusals:
                self._refused.add(polled, refusal)
            self._refused.demand_tolerance()
            holders.add()
            polled.let_go = holders.remove
            if decoded.filtered:
                self.events(RecordsFiltered, count=decoded.filtered)
            self._commits.note_polled(polled)
            self._commits.note_done(polled, decoded.left_out(records.num_rows))
            await self._put_all(polled, decoded, holders)
        for topic in records.column("topic").unique().to_pylist():
            self.use_topic(str(topic))

    async def _decoded(self, polled: Polled, rebalances: int) -> Decoded | None:
        """Decode, as a member of the group, which goes on; None where a stop or a rebalance comes first.

        The registry, and Spark where `Sql` is to be carried out, may keep it waiting for long.
        """
        decoding = self._group.create_task(self._decode(polled), name=f"{self.task_id} decodes")
        try:
            while not decoding.done() and not self._stop.is_set() and rebalances == self._rebalances:
                await asyncio.wait((decoding,), timeout=POLL_SECONDS)
                if not decoding.done():
                    await self._commit_if_due()
                    await self._consumer.keep_membership(seconds_max=0)
            return decoding.result() if decoding.done() and rebalances == self._rebalances else None
        finally:
            decoding.cancel()

    async def _decode(self, polled: Polled) -> Decoded:
        try:
            return await self.settings.decoding.decode(polled.records, refuse=self._refused.adder(polled))
        except Exception:
            # As in `_failures`; a cancellation is only that of a poll that is not wanted any more.
            self._has_failed = True
            raise

    def _put_down(self, records: int, size_bytes: int) -> None:
        self.activity.put_down(pages=1, records=records)
        self.memory.add(-size_bytes)

    async def _put_all(self, polled: Polled, decoded: Decoded, holders: Holders) -> None:
        """Put batch after batch, as many at once as the sink takes; what is put may be committed before the next."""
        rebalances, bytes_max = self._rebalances, self.settings.put_limits.bytes_max
        cuts = cut(decoded, polled.records, records_max=lambda: self._putter.records_max, bytes_max=bytes_max)
        for batch, rows in cuts:
            if self._stop.is_set() or rebalances != self._rebalances:
                return
            put = self._group.create_task(self._put_out(polled, Put(batch, rows), rebalances))
            self._puts.add(put)
            holders.add()
            put.add_done_callback(holders.remove)
            put.add_done_callback(self._puts.discard)
            await self._wait_for_room()
        await self._settle_letters(rebalances)

    async def _wait_for_room(self) -> None:
        """Wait until one more put may begin, as a member of the group, which would take the partitions away else."""
        while len(self._puts) >= self.settings.put_limits.puts_max:
            await self._wait_for_a_put()

    async def _wait_for_a_put(self) -> None:
        """Wait a moment for one of them to end; what is done meanwhile may be committed."""
        await asyncio.wait(self._puts, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        await self._commit_if_due()
        await self._consumer.keep_membership(seconds_max=0)

    async def _settle_letters(self, rebalances: int) -> None:
        """Commit early where there are dead letters: they are written with the offsets of their records."""
        if self._refused.has_waiting:
            await self._commit(rebalances)

    async def _put_out(self, polled: Polled, put: Put, rebalances: int) -> None:
        """Put one batch, as often as it takes."""
        with self._failures(), self._putter.tries(put):
            while len(put.batch) and not self._stop.is_set():
                async with self._turns.one:
                    if rebalances != self._rebalances:
                        return
                    done, error = await self._put_once(polled, put)
                    self._commits.note_done(polled, done)
                    self._refused.demand_tolerance()
                if error is not None and len(put.batch):
                    await self._wait_to_retry(self._putter.seconds_to_wait(put, error))

    async def _put_once(self, polled: Polled, put: Put) -> tuple[Rows, Retriable | None]:
        """Try once. What the sink refused before it failed for good is told in dead letters."""
        try:
            return await self._putter.put(put)
        except Fatal:
            await self._refused.settle_failed(polled, put.rows)
            raise

    async def _wait_to_retry(self, seconds: float) -> None:
        """Wait for so long, or for a stop; the flow is the group's member meanwhile."""
        self._retrying += 1
        self.activity.is_retrying = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stop.wait()
        finally:
            self._retrying -= 1
            self.activity.is_retrying = self._retrying > 0

    async def _commit_if_due(self) -> None:
        if self._commits.is_due:
            await self._commit(self._rebalances)

    async def _commit(self, rebalances: int) -> None:
        """Flush and commit, unless a rebalance has or a put has failed, as a member of the group, which goes on."""
        committing = self._group.create_task(self._commit_alone(rebalances), name=f"{self.task_id} commits")
        while not committing.done():
            await asyncio.wait((committing,), timeout=POLL_SECONDS)
            if not committing.done():
                await self._consumer.keep_membership(seconds_max=0)
        await committing

    async def _commit_alone(self, rebalances: int) -> None:
        with self._failures():
            async with self._turns.alone():
                if rebalances == self._rebalances and not self._has_failed:
                    await self._commits.run()

    def _tell_lag(self, *, is_quiet: bool) -> None:
        lags = self._consumer.lags().values()
        known = [lag for lag in lags if lag is not None]
        if known:
            self.events(SinkLagMeasured, records=max(known))
        if is_quiet and self._rebalances and len(known) == len(lags) and not any(known):
            if not self.activity.rounds:
                self.events(SourceCaughtUp)
            self.activity.finish_round()

    async def on_revoked(self, partitions: Collection[Partition]) -> None:
        """The group takes all partitions back: last chance to commit what was put of them, unless the task has failed.

        Whoever gets them then puts again what was not committed.
        """
        del partitions  # all of them, always
        self._calls.is_extended = False
        async with self._turns.alone():
            self._rebalances += 1
            try:
                if not self._has_failed:
                    await self._commits.run()
            finally:
                self._commits.forget()
                await self._close()
                self._calls.is_extended = not self._stop.is_set()
        self.events(SinkPartitionsChanged, count=0)

    async def on_assigned(self, committed: Mapping[Partition, int | None]) -> Offsets:
        """The group gives partitions; nothing of them is polled before this has returned."""
        async with self._turns.alone():
            self._rebalances += 1
            self._partitions = tuple(committed)
            async with self._calls.limited(CALL_SECONDS_MAX, call="open"):
                positions = await self.connector.open(committed)
        self.events(SinkPartitionsChanged, count=len(committed))
        return positions

    async def _close(self) -> None:
        partitions, self._partitions = self._partitions, ()
        if partitions:
            async with self._calls.limited(CALL_SECONDS_MAX, call="close"):
                await self.connector.close(partitions)
