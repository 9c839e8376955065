"""The deliver stage by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from fetchers.sdk import DedupeScope, Offset, Page, Partition, Retriable, SystemClock
from metrics.events import TaskEvents, discard
from service.domain.ids import TaskId
from service.kafka.errors import DeliveryFatal, DeliveryRetriable, RefusedRecord
from service.kafka.records import TopicRecords
from service.pipeline.accounts import Accounts
from service.pipeline.activity import Activity
from service.pipeline.batching import CloseReason, MicroBatch
from service.pipeline.converting import ConvertedBatch, input_table
from service.pipeline.dead_letters import PORTION_LETTERS_MAX, ROWS_INLINE_MAX, DeadLetterRules
from service.pipeline.delivering import DeliverStage
from service.pipeline.duplicates import Hashes, Mask
from service.pipeline.settlement import SettlementRules
from service.stores.dedupe_store import DedupeState
from spark_batch.plan import ConversionPlan, PayloadFormat
from tests.unit.pipeline.fake_kafka import LETTERS, TOPIC, FakeKafka, FakeOffsets, MemoryDedupe
from tests.unit.pipeline.fakes import PARTITION, page, queued, verdicts

_PLAN = ConversionPlan(PayloadFormat.BYTES, dedupe_fields=("id",))


def converted(*payloads: bytes, **options: Any) -> ConvertedBatch:
    """A micro-batch of one page."""
    return converted_pages(page(*payloads, **options))


def converted_pages(*pages: Page) -> ConvertedBatch:
    """A micro-batch of these pages."""
    batch = MicroBatch(tuple(map(queued, pages)), CloseReason.COUNT, 0.0)
    records = input_table(batch)
    return ConvertedBatch(batch, records, verdicts(_PLAN, records))


async def hear_nothing(partition: Partition, offset: Offset) -> None:
    """A fetcher to which commits are nothing."""
    del partition, offset


async def stage(
    kafka: FakeKafka, dedupe: DedupeState, on_committed: Callable[[Partition, Offset], Awaitable[None]] = hear_nothing
) -> DeliverStage:
    """With a started writer."""
    writer, clock = kafka.writer(), SystemClock()
    await writer.start()
    return DeliverStage(
        TaskId("c", 0),
        writer,
        FakeOffsets(kafka),
        dedupe,
        SettlementRules(TOPIC, PARTITION, is_tolerant=True, has_dedupe=True),
        DeadLetterRules(LETTERS, "JsonConverter"),
        on_committed,
        Accounts(Activity(clock), TaskEvents(discard, "c", 0), clock),
    )


@dataclass(slots=True)
class WaitingDedupe(MemoryDedupe):
    """Answers once the event loop has gone on."""

    has_gone_on: threading.Event = field(default_factory=threading.Event)

    def fresh_mask(self, hashes: Hashes, is_valid: Mask, window: str) -> Mask:
        """On the event loop it would wait in vain."""
        assert self.has_gone_on.wait(60)
        return MemoryDedupe.fresh_mask(self, hashes, is_valid, window)


async def test_many_records_are_settled_beside_the_event_loop() -> None:
    """A page of a million rows must not silence the heartbeats of its worker."""
    kafka, dedupe = FakeKafka(), WaitingDedupe()
    deliver = await stage(kafka, dedupe)
    count = ROWS_INLINE_MAX + 1
    async with asyncio.TaskGroup() as group:
        group.create_task(deliver.run(converted(*(b"%d" % number for number in range(count)))))
        await asyncio.sleep(0)
        dedupe.has_gone_on.set()
    assert len(kafka.values(TOPIC)) == count


async def test_a_letter_over_its_topics_limit_is_told_with_its_place_whatever_portion_it_is_in() -> None:
    """Letters are written in portions; the refused row counts from the first of its portion."""

    def refuse(write: TopicRecords) -> list[RefusedRecord]:
        rows = [row for row, value in enumerate(write.values.to_pylist()) if value == b"bad%d" % PORTION_LETTERS_MAX]
        return [RefusedRecord(row, "too_large", "takes 9 bytes") for row in rows]

    deliver = await stage(FakeKafka(refuse=refuse), MemoryDedupe())
    count = PORTION_LETTERS_MAX + 1
    batch = converted(*(b"bad%d" % number for number in range(count)), positions=range(count))
    with pytest.raises(DeliveryFatal, match=f'takes 9 bytes; source partition .* offset .*"position":{count - 1}}}'):
        await deliver.run(batch)


async def test_a_time_out_of_the_fetchers_own_is_told_as_what_it_is() -> None:
    """Not as the end of the time that it has in ``on_committed``."""

    async def hear(*_: Any) -> None:
        raise TimeoutError("the source's broker said nothing")

    deliver = await stage(FakeKafka(), MemoryDedupe(), hear)
    with pytest.raises(TimeoutError, match="the source's broker said nothing"):
        await deliver.run(converted(b"1"))


@dataclass(slots=True)
class WaitingEncoding(MemoryDedupe):
    """Closes a window once the event loop has gone on."""

    has_gone_on: threading.Event = field(default_factory=threading.Event)

    def encode(self, fresh: Sequence[tuple[Any, Hashes]]) -> list[TopicRecords]:
        """On the event loop it would wait in vain."""
        assert self.has_gone_on.wait(60)
        return MemoryDedupe.encode(self, fresh)


async def test_a_window_is_closed_beside_the_event_loop() -> None:
    """It may hold millions of hashes, whatever few records come in the micro-batch that closes it."""
    kafka, dedupe = FakeKafka(), WaitingEncoding()
    deliver = await stage(kafka, dedupe)
    async with asyncio.TaskGroup() as group:
        group.create_task(deliver.run(converted(b"1", dedupe=DedupeScope("2024-01-02", "2024-01-02"))))
        group.create_task(_go_on(dedupe))
    assert kafka.values(TOPIC) == [b"1"]


async def _go_on(dedupe: WaitingEncoding) -> None:
    dedupe.has_gone_on.set()


async def test_a_source_hears_of_each_page_in_order_after_its_commit() -> None:
    """Receipts are by page, not by micro-batch, and none is sent before what it is for can be read."""
    kafka = FakeKafka()
    heard: list[tuple[Any, Any, int]] = []

    async def hear(partition: Partition, offset: Offset) -> None:
        heard.append((partition, offset, len(kafka.values(TOPIC))))

    deliver = await stage(kafka, MemoryDedupe(), hear)
    await deliver.run(converted_pages(page(b"1", position=1), page(b"2", b"3", position=3), page(position=4)))
    assert heard == [(PARTITION, {"position": position}, 3) for position in (1, 3, 4)]


async def test_a_receipt_that_fails_ends_the_task_and_later_pages_are_not_heard_of() -> None:
    """What is committed stays so; the task starts anew behind it."""
    kafka = FakeKafka()
    heard: list[Any] = []

    async def hear(_partition: Partition, offset: Offset) -> None:
        heard.append(offset["position"])
        if offset["position"] == 2:
            raise Retriable("the broker of the source is away")

    deliver = await stage(kafka, MemoryDedupe(), hear)
    with pytest.raises(Retriable):
        await deliver.run(converted_pages(*(page(b"%d" % number, position=number) for number in (1, 2, 3))))
    assert heard == [1, 2]
    assert len(kafka.values(TOPIC)) == 3


async def test_nothing_is_heard_of_a_commit_that_failed() -> None:
    """The source would let go of what nobody has."""
    heard: list[Any] = []

    async def hear(*offset: Any) -> None:
        heard.append(offset)

    deliver = await stage(FakeKafka(before_commit=lambda _: DeliveryRetriable("lost")), MemoryDedupe(), hear)
    with pytest.raises(DeliveryRetriable):
        await deliver.run(converted(b"1"))
    assert heard == []
