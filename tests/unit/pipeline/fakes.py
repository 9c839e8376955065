"""A world of memory for one task: source, conversion, Kafka. Its await points can be counted, hung and crashed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pyarrow as pa
import pytest

from fetchers.sdk import Clock, FetchContext, FetcherConfig, HttpAccess, Offset, Page, SourceConnector, SystemClock
from fetchers.sdk.asker import Asker
from metrics.events import Event
from service.domain.errors import root_of
from service.domain.ids import TaskId
from service.pipeline.batching import BatchLimits
from service.pipeline.dead_letters import DeadLetterRules
from service.pipeline.memory import MemoryBudget
from service.pipeline.queue import QueuedPage, QueueLimits
from service.pipeline.task import FlowParts, FlowSettings, SourceTask
from service.stores.dedupe_store import DedupeState, NoDedupe
from spark_batch.outcome import OUTCOME_SCHEMA
from spark_batch.plan import ConversionPlan, PayloadFormat
from tests.unit.pipeline.fake_kafka import LETTERS, TOPIC, FakeKafka, FakeOffsets, FakeWriter, MemoryDedupe

T = TypeVar("T")
PARTITION = {"source": "numbers"}
BAD = b"bad"
"""Payloads that begin with this are rejected by the fake conversion."""
DROPPED = b"dropped"
"""And those are dropped by a filter, as if there were one."""


def page(*payloads: bytes | None, position: int = 0, **options: Any) -> Page:
    """A page that is resumed after at ``position``."""
    return Page(list(payloads), {"position": position}, **options)


def queued(item: Page, *, fetched_at: float = 0.0) -> QueuedPage:
    """The page as the queue holds it."""
    return QueuedPage(item, fetched_at)


class InThreads:
    """Blocking calls, each in a thread of its own."""

    async def run(self, call: Callable[[], T], *, subject: Hashable, seconds_max: float | None = None) -> T:
        """What it returns or raises."""
        del subject
        async with asyncio.timeout(seconds_max):
            return await asyncio.to_thread(call)


class HttpUnused:
    """An http door for fetchers that speak no http."""

    def for_task(self, asker: Asker) -> HttpAccess:
        """Nothing that could be used."""
        del asker
        return cast("HttpAccess", None)


def verdicts(plan: ConversionPlan, records: pa.Table) -> pa.Table:
    """What a conversion says: payloads that begin with ``bad`` are rejected, ``to:X:…`` go to topic X."""
    payloads = cast("list[bytes | None]", records.column("value").to_pylist())
    rows = [(payload is not None and payload.startswith(BAD), payload) for payload in payloads]
    hashes = [None if payload is None else hashlib.md5(payload.removeprefix(BAD)).digest() for payload in payloads]  # noqa: S324
    columns: dict[str, list[Any]] = {
        "ordinal": list(range(len(rows))),
        "key": [
            None if is_bad else key for (is_bad, _), key in zip(rows, records.column("key").to_pylist(), strict=True)
        ],
        "value": [None if is_bad else payload for is_bad, payload in rows],
        "timestamp": records.column("timestamp").to_pylist(),
        "dedupe": hashes if plan.dedupe_fields else [None] * len(rows),
        "coerced": [None] * len(rows),
        "headers": [None] * len(rows),
        "topic": [_route(payload) for _, payload in rows],
        "is_dropped": [payload is not None and payload.startswith(DROPPED) for payload in payloads],
        "stage": ["VALUE_CONVERTER" if is_bad else None for is_bad, _ in rows],
        "reason": ["malformed_json" if is_bad else None for is_bad, _ in rows],
        "message": ["not what the contract says" if is_bad else None for is_bad, _ in rows],
    }
    arrays: Any = [pa.array(values, OUTCOME_SCHEMA.field(name).type) for name, values in columns.items()]
    return pa.Table.from_arrays(arrays, schema=OUTCOME_SCHEMA)


def _route(payload: bytes | None) -> str | None:
    return payload.split(b":")[1].decode() if payload is not None and payload.startswith(b"to:") else None


@dataclass(slots=True)
class FakeConversion:
    """The worker's conversion service; ``script`` gives the seconds or the error of each call (numbers from 1)."""

    script: Callable[[int], float | Exception] = lambda _: 0.0
    kafka: FakeKafka | None = None
    calls: int = 0
    running: int = 0
    running_most: int = 0
    records: list[int] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)

    async def __call__(self, plan: ConversionPlan, records: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """Verdicts on a micro-batch."""
        self.alone.append(is_alone)
        self.calls += 1
        step = self.script(self.calls)
        self.running += 1
        self.running_most = max(self.running_most, self.running)
        self.records.append(records.num_rows)
        try:
            if self.kafka is not None:
                await self.kafka.pass_turn("convert")
            if isinstance(step, Exception):
                await asyncio.sleep(0)
                raise step
            await asyncio.sleep(step)
            return verdicts(plan, records)
        finally:
            self.running -= 1


class NumbersConfig(FetcherConfig):
    """A source of numbered records."""


class Numbers(SourceConnector[NumbersConfig]):
    """Hands over ``payloads`` in pages and then ends, or waits for ever; resumes by position."""

    def __init__(self, config: NumbersConfig) -> None:
        """Empty; ``numbers`` fills it."""
        super().__init__(config)
        self.payloads: Sequence[bytes] = ()
        self.page_records = 2
        self.waits_at_end = True
        self.topic_from: Callable[[int], str | None] = lambda _: None
        """Topic of the page that begins at a position; None for the connector's own."""
        self.script: Callable[[int], Any] = lambda _: None
        """Awaited or raised before each page, given its first position."""
        self.kafka: FakeKafka | None = None
        self.opened = self.closed = 0
        self.heard: list[tuple[Any, Any]] = []

    def partition(self) -> Mapping[str, str]:
        """Its only one."""
        return PARTITION

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Pages from the stored position on."""
        self.opened += 1
        try:
            position = cast("int", context.offset.get("position", 0))
            while position < len(self.payloads):
                await self._act(position)
                part, topic = self.payloads[position : position + self.page_records], self.topic_from(position)
                position += len(part)
                places = range(position - len(part), position)
                yield Page(part, {"position": position}, positions=places, topic=topic)
            context.finish_round()
            if self.waits_at_end:
                await asyncio.Event().wait()
        finally:
            self.closed += 1

    async def on_committed(self, partition: Mapping[str, Any], offset: Offset) -> None:
        """Remember what was heard."""
        self.heard.append((dict(partition), dict(offset)))

    async def _act(self, position: int) -> None:
        if self.kafka is not None:
            await self.kafka.pass_turn("fetch")
        step = self.script(position)
        if isinstance(step, Exception):
            raise step
        if step is not None:
            await step


def numbers(payloads: Sequence[bytes], **options: Any) -> Numbers:
    """A source of these payloads."""
    source = Numbers(NumbersConfig.model_validate({"topic": TOPIC}))
    source.payloads = payloads
    for name, value in options.items():
        setattr(source, name, value)
    return source


@dataclass(slots=True)
class World:
    """Everything a task is lent, and what it told."""

    kafka: FakeKafka = field(default_factory=FakeKafka)
    conversion: FakeConversion = field(default_factory=FakeConversion)
    clock: Clock = field(default_factory=SystemClock)
    memory: MemoryBudget = field(default_factory=lambda: MemoryBudget(2**30))
    """May be shared by several worlds."""
    events: list[Event] = field(default_factory=list)
    writers: list[FakeWriter] = field(default_factory=list)
    has_dedupe: bool = False
    name: str = "numbers"
    """Of the connector."""

    def task(self, connector: SourceConnector[Any], **settings: Any) -> SourceTask:
        """A new incarnation of the task."""
        parts = FlowParts(
            offsets=FakeOffsets(self.kafka),
            convert=self.conversion,
            http=HttpUnused(),
            memory=self.memory,
            clock=self.clock,
            emit=self.events.append,
            blocking=InThreads(),
        )
        return SourceTask(
            TaskId(self.name, 0),
            connector,
            flow_settings(has_dedupe=self.has_dedupe, **settings),
            parts,
            open_writer=self._open_writer,
            open_dedupe=self._open_dedupe,
            confirm=lambda: self.kafka.pass_turn("confirm"),
        )

    def told(self, kind: type[Event]) -> list[Any]:
        """Events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def _open_writer(self) -> FakeWriter:
        self.writers.append(self.kafka.writer())
        return self.writers[-1]

    def _open_dedupe(self) -> DedupeState:
        return MemoryDedupe(self.kafka) if self.has_dedupe else NoDedupe()


def flow_settings(*, has_dedupe: bool = False, **settings: Any) -> FlowSettings:
    """Small limits, tolerant unless told otherwise."""
    plan = ConversionPlan(PayloadFormat.BYTES, dedupe_fields=("id",) if has_dedupe else ())
    defaults: dict[str, Any] = {
        "topic": TOPIC,
        "plan": plan,
        "dead_letters": DeadLetterRules(LETTERS, "JsonConverter"),
        "is_tolerant": True,
        "queue": QueueLimits(records_max=8, bytes_max=10_000),
        "batch": BatchLimits(records_max=4, bytes_max=1_000, age_seconds_max=0.5),
    }
    return FlowSettings(**{**defaults, **settings})


def payloads(count: int, *, bad: Iterable[int] = ()) -> list[bytes]:
    """Numbered payloads, some of them bad."""
    rejected = set(bad)
    return [(BAD if number in rejected else b"") + b"%d" % number for number in range(count)]


@asynccontextmanager
async def running(task: SourceTask) -> AsyncIterator[asyncio.Task[None]]:
    """The task runs while the block does; then it is stopped in the staged way."""
    async with asyncio.TaskGroup() as group:
        run = group.create_task(task.run())
        yield run
        task.request_stop()


async def fail(task: SourceTask) -> BaseException:
    """The error that ends the task."""
    try:
        await task.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
        return root_of(error)
    pytest.fail("the task did not fail")


async def wait_until(condition: Callable[[], bool], *, step_seconds: float = 0.1) -> None:
    """Let (virtual) time pass until ``condition`` holds; a condition that never holds is a TimeoutError."""
    async with asyncio.timeout(1_000):
        while not condition():
            await asyncio.sleep(step_seconds)
