"""A world of memory for one task: source, conversion, Kafka. Its await points can be counted, hung and crashed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from fetchers.sdk import Clock, FetchContext, FetcherConfig, HttpAccess, Offset, Page, SourceConnector, SystemClock
from metrics.events import Event
from service.domain.ids import TaskId
from service.kafka.errors import DeliveryRetriable, WriterFenced
from service.kafka.records import TopicRecords
from service.pipeline.batching import BatchLimits
from service.pipeline.dead_letters import DeadLetterRules
from service.pipeline.queue import QueuedPage, QueueLimits
from service.pipeline.settlement import Hashes, Mask
from service.pipeline.task import FlowParts, FlowSettings, SourceTask
from service.stores.dedupe_store import DedupeState, NoDedupe
from service.stores.offsets import canonical_partition
from spark_batch.outcome import OUTCOME_SCHEMA
from spark_batch.plan import ConversionPlan, PayloadFormat

TOPIC, LETTERS, OFFSETS, STATE = "things", "things-dead-letters", "offsets", "state"
PARTITION = {"source": "numbers"}
BAD = b"bad"
"""Payloads that begin with this are rejected by the fake conversion."""


def page(*payloads: bytes | None, position: int = 0, **options: Any) -> Page:
    """A page that is resumed after at ``position``."""
    return Page(list(payloads), {"position": position}, **options)


def queued(item: Page, *, fetched_at: float = 0.0) -> QueuedPage:
    """The page as the queue holds it."""
    return QueuedPage(item, fetched_at)


class HttpUnused:
    """An http door for fetchers that speak no http."""

    def for_task(self, context: FetchContext) -> HttpAccess:
        """Nothing that could be used."""
        del context
        return cast("HttpAccess", None)


@dataclass(slots=True)
class Transaction:
    """What one commit made visible."""

    writes: tuple[TopicRecords, ...]

    def values(self, topic: str) -> list[bytes | None]:
        """Values written to a topic."""
        return [value for write in self.writes if write.topic == topic for value in write.values.to_pylist()]


@dataclass(slots=True)
class FakeKafka:
    """Committed transactions of all writers with one transactional id, newest epoch first in right."""

    transactions: list[Transaction] = field(default_factory=list)
    epoch: int = 0
    before_commit: Callable[[int], Exception | None] = lambda _: None
    """Given the number of the commit (from 1), the error that aborts it."""
    after_commit: Callable[[int], Exception | None] = lambda _: None
    """Likewise, but the transaction is committed and only its acknowledgement is lost."""
    commits: int = 0
    turn: Callable[[str], Any] | None = None
    """Awaited, when set, wherever the outside is asked."""
    commit_seconds: float = 0.0
    stop_seconds: float = 0.0

    def values(self, topic: str) -> list[bytes | None]:
        """Everything committed to a topic, in order."""
        return [value for transaction in self.transactions for value in transaction.values(topic)]

    def headers(self, topic: str) -> list[Any]:
        """Headers of everything committed to a topic, in order."""
        return [
            header
            for transaction in self.transactions
            for write in transaction.writes
            if write.topic == topic
            for header in (write.headers or [()] * len(write))
        ]

    async def pass_turn(self, place: str) -> None:
        """An await point of the outside."""
        if self.turn is not None:
            await self.turn(place)

    def writer(self) -> FakeWriter:
        """A writer that is not started."""
        return FakeWriter(self)


@dataclass(slots=True)
class FakeWriter:
    """Obeys ``Writer``: all or nothing, used up by any error, fenced by a newer one."""

    kafka: FakeKafka
    is_usable: bool = False
    is_stopped: bool = False
    epoch: int = 0

    async def start(self) -> None:
        """Fence older writers."""
        await self.kafka.pass_turn("writer.start")
        self.kafka.epoch += 1
        self.epoch = self.kafka.epoch
        self.is_usable = True

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """Append as a whole; cancelled before that moment, nothing is seen."""
        if not self.is_usable:
            message = "the writer is used up"
            raise DeliveryRetriable(message)
        self.is_usable = False
        kafka = self.kafka
        await kafka.pass_turn("commit.begin")
        await asyncio.sleep(kafka.commit_seconds)
        if self.epoch != kafka.epoch:
            message = "a newer writer took over"
            raise WriterFenced(message)
        kafka.commits += 1
        self._fail(kafka.before_commit)
        kafka.transactions.append(Transaction(tuple(writes)))
        self._fail(kafka.after_commit)
        await kafka.pass_turn("commit.end")
        self.is_usable = True

    def _fail(self, script: Callable[[int], Exception | None]) -> None:
        error = script(self.kafka.commits)
        if error is not None:
            raise error

    async def stop(self) -> None:
        """Harmless when repeated."""
        self.is_usable = False
        await asyncio.sleep(self.kafka.stop_seconds)
        self.is_stopped = True


@dataclass(slots=True)
class FakeOffsets:
    """The offset topic, read back from what was committed."""

    kafka: FakeKafka

    async def read(self, connector: str) -> Mapping[str, Mapping[str, object]]:
        """Last offset of each source partition."""
        await self.kafka.pass_turn("offsets.read")
        found: dict[str, dict[str, object]] = {}
        for transaction in self.kafka.transactions:
            for write in transaction.writes:
                if write.topic == OFFSETS and write.keys is not None:
                    for key, value in zip(_texts(write.keys), _texts(write.values), strict=True):
                        owner, partition = json.loads(key)
                        if owner == connector:
                            found[canonical_partition(partition)] = json.loads(value)
        return found

    def encode(
        self, connector: str, offsets: Iterable[tuple[Mapping[str, object], Mapping[str, object] | None]], /
    ) -> TopicRecords:
        """As ``OffsetStore`` does it."""
        pairs = [
            (json.dumps([connector, dict(place)]).encode(), json.dumps(offset).encode()) for place, offset in offsets
        ]
        keys, values = zip(*pairs, strict=True) if pairs else ((), ())
        return TopicRecords(OFFSETS, pa.array(values, pa.binary()), pa.array(keys, pa.binary()))


@dataclass(slots=True)
class MemoryDedupe:
    """Obeys ``DedupeState`` with a set for each window; its state is read back from committed transactions."""

    kafka: FakeKafka = field(default_factory=FakeKafka)
    seen: set[tuple[str, bytes]] = field(default_factory=set)
    tentative: set[tuple[str, bytes]] = field(default_factory=set)

    async def load(self) -> None:
        """Read what was committed."""
        await self.kafka.pass_turn("dedupe.load")
        for transaction in self.kafka.transactions:
            for write in transaction.writes:
                if write.topic == STATE and write.keys is not None:
                    pairs = zip(_texts(write.keys), _texts(write.values), strict=True)
                    self.seen |= {(key.decode(), value) for key, value in pairs}

    def fresh_mask(self, hashes: Hashes, is_valid: Mask, window: str) -> Mask:
        """First of each hash in its window."""
        fresh = np.ones(len(hashes), dtype=bool)
        for row in np.flatnonzero(is_valid):
            mark = (window, hashes[row].tobytes())
            fresh[row] = mark not in self.seen and mark not in self.tentative
            self.tentative.add(mark)
        return fresh

    def encode(self, fresh: Sequence[tuple[Any, Hashes]]) -> list[TopicRecords]:
        """A record for each hash."""
        marks = [(scope.window if scope else "", row.tobytes()) for scope, hashes in fresh for row in hashes]
        if not marks:
            return []
        keys = pa.array([window.encode() for window, _ in marks], pa.binary())
        return [TopicRecords(STATE, pa.array([mark for _, mark in marks], pa.binary()), keys)]

    def commit(self) -> None:
        """Keep."""
        self.seen |= self.tentative
        self.tentative = set()

    def rollback(self) -> None:
        """Forget."""
        self.tentative = set()


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
        "topic": [_route(payload) for _, payload in rows],
        "stage": ["VALUE_CONVERTER" if is_bad else None for is_bad, _ in rows],
        "reason": ["malformed_json" if is_bad else None for is_bad, _ in rows],
        "message": ["not what the contract says" if is_bad else None for is_bad, _ in rows],
    }
    arrays: Any = [pa.array(values, OUTCOME_SCHEMA.field(name).type) for name, values in columns.items()]
    return pa.Table.from_arrays(arrays, schema=OUTCOME_SCHEMA)


def _texts(column: Any) -> list[bytes]:
    return cast("list[bytes]", column.to_pylist())


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

    async def __call__(self, plan: ConversionPlan, records: pa.Table) -> pa.Table:
        """Verdicts on a micro-batch."""
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
                part = self.payloads[position : position + self.page_records]
                position += len(part)
                yield Page(part, {"position": position}, positions=range(position - len(part), position))
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
    events: list[Event] = field(default_factory=list)
    writers: list[FakeWriter] = field(default_factory=list)
    has_dedupe: bool = False

    def task(self, connector: SourceConnector[Any], **settings: Any) -> SourceTask:
        """A new incarnation of the task."""
        parts = FlowParts(
            offsets=FakeOffsets(self.kafka),
            convert=self.conversion,
            http=HttpUnused(),
            clock=self.clock,
            emit=self.events.append,
        )
        return SourceTask(
            TaskId("numbers", 0),
            connector,
            flow_settings(has_dedupe=self.has_dedupe, **settings),
            parts,
            open_writer=self._open_writer,
            open_dedupe=self._open_dedupe,
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


async def wait_until(condition: Callable[[], bool], *, step_seconds: float = 0.01) -> None:
    """Let (virtual) time pass until ``condition`` holds; a condition that never holds is a TimeoutError."""
    async with asyncio.timeout(1_000):
        while not condition():
            await asyncio.sleep(step_seconds)
