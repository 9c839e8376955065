"""One source task: the wiring of the flow, readable as its summary.

``run`` ends when the task was asked to stop and everything fetched is delivered, or with the error that ended it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from fetchers.sdk import Clock, HttpDoor, Offset, Retriable, SourceConnector
from fetchers.sdk.context import BlockingCalls, partition_key
from metrics.events import BatchClosed, Emit, QueueChanged, TaskEvents, TaskStarted
from service.domain.errors import PoisonedBatchError
from service.domain.ids import TaskId
from service.kafka.errors import KafkaFailure
from service.kafka.producer import Writer
from service.pipeline.accounts import Accounts
from service.pipeline.activity import Activity, Signal
from service.pipeline.batching import BatchLimits, MicroBatch
from service.pipeline.context import TaskContext
from service.pipeline.converting import (
    Admit,
    Convert,
    ConvertedBatch,
    ConvertStage,
    MakeTopics,
    PlanRows,
    RowPlans,
    admit_every_topic,
    make_no_topics,
    refuse_rows,
)
from service.pipeline.dead_letters import DeadLetterRules
from service.pipeline.delivering import DeliverStage, SourceOffsets
from service.pipeline.fetching import FetchRetry, FetchStage
from service.pipeline.memory import MemoryBudget, MemoryShare
from service.pipeline.polling import poll
from service.pipeline.queue import BoundedQueue, QueueClosed, QueueLimits, QueueStatistics
from service.pipeline.settlement import SettlementRules
from service.registry.errors import RegistryFailure
from service.stores.dedupe_store import DedupeState
from spark_batch.errors import ConversionError
from spark_batch.plan import ConversionPlan

CLEANUP_SECONDS_MAX = 2.0
"""Time a fetcher has to let go once it is cancelled, before it is cancelled again."""
ConversionFailure: TypeAlias = ConversionError | PoisonedBatchError | RegistryFailure | KafkaFailure
Conversion = asyncio.Task[ConvertedBatch | ConversionFailure]


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Limits and rules of one task's flow."""

    topic: str
    plan: ConversionPlan
    dead_letters: DeadLetterRules
    is_tolerant: bool = False
    queue: QueueLimits = QueueLimits()
    batch: BatchLimits = BatchLimits()
    conversions_max: int = 2
    """Micro-batches of this task in conversion at once."""
    fetch_retry: FetchRetry = FetchRetry()
    """Its back-off is that of conversions too; its patience is for the source alone."""


@dataclass(frozen=True, slots=True)
class FlowParts:
    """What the worker lends to a task."""

    offsets: SourceOffsets
    convert: Convert
    http: HttpDoor
    memory: MemoryBudget
    """That of all tasks together."""
    clock: Clock
    emit: Emit
    blocking: BlockingCalls
    """Threads for blocking calls of fetchers."""


@dataclass(slots=True)
class SourceTask:
    """One incarnation of a task; a restart makes a new one."""

    task_id: TaskId
    connector: SourceConnector[Any]
    settings: FlowSettings
    parts: FlowParts
    open_writer: Callable[[], Writer]
    open_dedupe: Callable[[], DedupeState]
    confirm: Callable[[], Awaitable[None]]
    """Returns while the task is wanted as it was begun, and raises what ends it otherwise."""
    on_running: Signal = lambda: None
    admit: Admit = admit_every_topic
    make_topics: MakeTopics = make_no_topics
    """Asked before the first record for a topic that a page names is converted."""
    plan_rows: PlanRows = refuse_rows
    """Asked before the first row of a schema, for a topic, is converted."""
    activity: Activity = field(init=False)
    _stop: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _ahead: int = field(init=False, default=0)
    """Micro-batches that are converted, or wait for those before them to be delivered."""
    _fetch_failure: Exception | None = field(init=False, default=None)
    _changes: asyncio.Queue[Callable[[], Awaitable[Any]]] = field(init=False, default_factory=asyncio.Queue)
    """Configs to take over."""

    def __post_init__(self) -> None:
        """Nothing runs yet."""
        self.activity = Activity(self.parts.clock)

    def request_stop(self) -> None:
        """Stop fetching; what is fetched is still delivered."""
        self._stop.set()

    def take_over(self, keys: Collection[str], make: Callable[[], Awaitable[Any]]) -> bool:
        """Whether this goes on under another config, that of the task that ``make`` makes; see ``RunnableTask``."""
        if self._stop.is_set() or not self.connector.takes_over(keys):
            return False
        self._changes.put_nowait(make)
        return True

    async def run(self) -> None:
        """Initialise the writer, *then* read the offsets, then flow.

        In this order a zombie can change no offset that was read here: it is fenced before (KIP-618). That this is no
        zombie itself is asked before, to fence nobody then, and again behind the fence.
        """
        events = TaskEvents(self.parts.emit, self.task_id.connector, self.task_id.task)
        started_at = self.parts.clock.monotonic()
        is_started = False
        try:
            await self.confirm()
            async with self._writer() as writer:
                await self.confirm()
                fetch, deliver, queue = await self._wire(writer, events)
                is_started = True
                events(TaskStarted, is_success=True, seconds=self.parts.clock.monotonic() - started_at)
                self.on_running()
                with fetch.memory:
                    await self._flow(fetch, deliver, queue, events)
        finally:
            if not is_started:
                events(TaskStarted, is_success=False, seconds=self.parts.clock.monotonic() - started_at)

    @asynccontextmanager
    async def _writer(self) -> AsyncIterator[Writer]:
        writer = self.open_writer()
        try:
            await writer.start()
            yield writer
        finally:
            await writer.stop()

    async def _wire(self, writer: Writer, events: TaskEvents) -> tuple[FetchStage, DeliverStage, BoundedQueue]:
        """Read what was committed, and put the stages together."""
        parts, settings = self.parts, self.settings

        async def read() -> dict[tuple[tuple[str, Any], ...], Offset]:
            stored = await parts.offsets.read(self.task_id.connector)
            return {partition_key(json.loads(text)): cast("Offset", offset) for text, offset in stored.items()}

        offsets = await read()
        dedupe = self.open_dedupe()
        await dedupe.load()
        context = TaskContext(
            self.task_id,
            partition=self.connector.partition(),
            offsets=offsets,
            http=parts.http,
            clock=parts.clock,
            emit=parts.emit,
            activity=self.activity,
            blocking=parts.blocking,
        )
        context.read = read

        def on_change(now: QueueStatistics) -> None:
            self._tell_queue(events, now)
            context.hear_of_queue(is_empty=not now.pages)

        queue = BoundedQueue(settings.queue, on_change=on_change)
        memory = parts.memory.share(self.task_id, parts.emit)
        fetch = FetchStage(
            self.connector,
            context,
            queue,
            memory,
            self.activity,
            events,
            parts.clock,
            settings.fetch_retry,
            settings.batch.transaction_bytes_max,
        )
        deliver = DeliverStage(
            task_id=self.task_id,
            writer=writer,
            offsets=parts.offsets,
            dedupe=dedupe,
            rules=SettlementRules(
                topic=settings.topic,
                partition=self.connector.partition(),
                is_tolerant=settings.is_tolerant,
                has_dedupe=bool(settings.plan.dedupe_fields),
                coerced_fields=settings.plan.coerced_fields,
            ),
            dead_letters=settings.dead_letters,
            on_committed=self.connector.on_committed,
            accounts=Accounts(self.activity, events, parts.clock, settings.dead_letters.is_logged),
        )
        return fetch, deliver, queue

    async def _flow(self, fetch: FetchStage, deliver: DeliverStage, queue: BoundedQueue, events: TaskEvents) -> None:
        """Fetch, convert and deliver at the same time until stopped or failed, and drained."""
        ordered: asyncio.Queue[Conversion | None] = asyncio.Queue()
        slots = asyncio.Semaphore(self.settings.conversions_max)

        async def begun() -> None:
            """A delivery begins: the next micro-batch may be closed.

            Not sooner, for it would only wait behind others, and many small transactions take longer than a large one.
            """
            slots.release()
            self._ahead -= 1
            await queue.nudge()

        async with asyncio.TaskGroup() as group:
            fetching = group.create_task(self._fetch(fetch, queue), name=f"{self.task_id} fetch")
            group.create_task(self._stop_when_asked(fetching, queue), name=f"{self.task_id} stop")
            applying = group.create_task(self._apply_changes(fetch.context, queue), name=f"{self.task_id} config")
            delivering = self._deliver_in_order(ordered, deliver, fetch.memory, begun)
            group.create_task(delivering, name=f"{self.task_id} deliver")
            convert = ConvertStage(
                self.parts.convert,
                self.settings.plan,
                events,
                self.parts.clock,
                self.settings.fetch_retry.back_off,
                admit=self.admit,
                make_topics=self.make_topics,
                topic=self.settings.topic,
                row_plans=RowPlans(self.plan_rows),
            )
            async with aclosing(self._poll(queue)) as batches:
                async for batch in batches:
                    _tell_closed(events, batch)
                    await slots.acquire()
                    self._ahead += 1
                    work = self._convert(convert.run, batch, fetch.memory)
                    ordered.put_nowait(group.create_task(work, name=f"{self.task_id} convert"))
            ordered.put_nowait(None)
            applying.cancel()
            self._stop.set()
        if self._fetch_failure is not None:
            raise self._fetch_failure

    async def _fetch(self, fetch: FetchStage, queue: BoundedQueue) -> None:
        """A fetch that fails ends the task, but only after everything that was fetched before is delivered."""
        try:
            await fetch.run()
        except QueueClosed:
            return  # asked to stop while a page waited for room: it is fetched again
        except Exception as error:  # noqa: BLE001 - raised again once the flow is drained, whatever it is
            self._fetch_failure = error
            await queue.close()

    async def _apply_changes(self, context: TaskContext, queue: BoundedQueue) -> None:
        """The newest of several changes counts. One that fails ends the task as a fetch that fails does."""
        make, attempt = await self._changes.get(), 0
        try:
            while True:
                while not self._changes.empty():
                    make, attempt = self._changes.get_nowait(), 0
                try:
                    await self.connector.apply_config((await make()).connector.config)
                except Retriable as error:
                    attempt += 1
                    back_off = self.settings.fetch_retry.back_off
                    seconds = back_off.wait_seconds(attempt, asked_seconds=error.wait_seconds)
                    await context.wait_after(error, attempt=attempt, wait_seconds=seconds)
                else:
                    make, attempt = await self._changes.get(), 0
        except Exception as error:  # noqa: BLE001 - raised again once the flow is drained, whatever it is
            self._fetch_failure = error
            await queue.close()

    def _poll(self, queue: BoundedQueue) -> AsyncGenerator[MicroBatch, None]:
        return poll(queue, limits=self.settings.batch, is_converting=lambda: self._ahead > 0, clock=self.parts.clock)

    async def _convert(
        self,
        convert: Callable[[MicroBatch], Awaitable[ConvertedBatch]],
        batch: MicroBatch,
        memory: MemoryShare,
    ) -> ConvertedBatch | ConversionFailure:
        """A failure is handed on like a result, to be raised in its place: what was fetched before is delivered."""
        try:
            converted = await convert(batch)
            memory.add_outcome(converted)
            return converted
        except (ConversionError, PoisonedBatchError, RegistryFailure, KafkaFailure) as error:
            return error

    async def _deliver_in_order(
        self,
        ordered: asyncio.Queue[Conversion | None],
        deliver: DeliverStage,
        memory: MemoryShare,
        begun: Callable[[], Awaitable[None]],
    ) -> None:
        while (conversion := await ordered.get()) is not None:
            converted = await conversion
            await begun()
            if isinstance(converted, Exception):
                raise converted
            await deliver.run(converted)
            memory.remove(converted)

    async def _stop_when_asked(self, fetching: asyncio.Task[None], queue: BoundedQueue) -> None:
        """A fetcher that has no more leaves its task running and idle, as in Connect."""
        try:
            await self._stop.wait()
            await queue.close()
        except asyncio.CancelledError:
            await end_insistently(fetching, seconds=CLEANUP_SECONDS_MAX, is_cancelled=True)
            raise
        await end_insistently(fetching, seconds=CLEANUP_SECONDS_MAX)

    def _tell_queue(self, events: TaskEvents, now: QueueStatistics) -> None:
        limits = self.settings.queue
        events(
            QueueChanged,
            records=now.records,
            bytes=now.bytes,
            records_max=limits.records_max,
            bytes_max=limits.bytes_max,
        )


def _tell_closed(events: TaskEvents, batch: MicroBatch) -> None:
    events(
        BatchClosed,
        records=batch.records,
        bytes=batch.bytes,
        age_seconds=batch.age_seconds,
        reason=batch.reason.value,
    )


async def end_insistently(work: asyncio.Task[Any], *, seconds: float, is_cancelled: bool = False) -> None:
    """Cancel, and again every so many ``seconds`` until it has ended; being cancelled oneself is no way out of it.

    A task group would wait for ever for a child that hangs after its only cancellation. ``is_cancelled``: the group
    has just cancelled the work, as it does whenever it cancels this.
    """
    am_cancelled = False
    while not work.done():
        if not is_cancelled:
            work.cancel()
        is_cancelled = False
        try:
            await asyncio.wait({work}, timeout=seconds)
        except asyncio.CancelledError:
            is_cancelled = am_cancelled = True
    if am_cancelled:
        raise asyncio.CancelledError
