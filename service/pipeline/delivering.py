"""The deliver stage: one Kafka transaction for each micro-batch, in order.

It carries the records, the dead letters, the de-duplication state and the source offsets. Only its commit moves
the source offset: whatever dies before is fetched again, whatever dies after is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pyarrow as pa

from fetchers.sdk import Clock, Offset, Partition, Retriable
from metrics.events import (
    DeadLettersWritten,
    EndToEndMeasured,
    OffsetCommitted,
    RecordRejectedLogged,
    RecordsDeduplicated,
    RecordsDelivered,
    RecordsRejected,
    TaskEvents,
    TransactionAborted,
    TransactionCommitted,
)
from service.domain.errors import RecordRejectedError
from service.domain.ids import TaskId
from service.kafka.errors import DeliveryFatal, KafkaFailure, RecordsRefused, RefusedRecord
from service.kafka.producer import Writer
from service.kafka.records import TopicRecords
from service.pipeline.activity import Activity
from service.pipeline.converting import ConvertedBatch
from service.pipeline.dead_letters import DeadLetterRules, as_json, dead_letter_records
from service.pipeline.offsets import SourceOffsets
from service.pipeline.settlement import Settlement, SettlementRules, settle
from service.stores.dedupe_store import DedupeState

HEARING_SECONDS_MAX = 30.0
"""Time a fetcher has in ``on_committed``; a source that hangs there must not hold up delivery for ever."""


@dataclass(frozen=True, slots=True)
class DeliverStage:
    """One task's door to Kafka."""

    task_id: TaskId
    writer: Writer
    offsets: SourceOffsets
    dedupe: DedupeState
    rules: SettlementRules
    dead_letters: DeadLetterRules
    on_committed: Callable[[Partition, Offset], Awaitable[None]]
    activity: Activity
    events: TaskEvents
    clock: Clock

    async def run(self, converted: ConvertedBatch) -> None:
        """Settle and commit one micro-batch; raises ``RecordRejectedError`` after delivering what came before it."""
        settlement = await self._deliver(converted)
        if settlement.failure:
            letter = settlement.failure.letter
            self.events(RecordsRejected, stage=letter.stage, reason=letter.reason, count=1, is_tolerated=False)
            raise RecordRejectedError(str(settlement.failure))

    async def _deliver(self, converted: ConvertedBatch) -> Settlement:
        """Settle again without what its topic refuses, until that is nothing.

        Asked again, a topic may take what it refused: its settings were changed meanwhile, or time has passed.
        """
        refused: dict[int, RefusedRecord] = {}
        while True:
            settlement = settle(converted, self.rules, self.dedupe, refused)
            if not settlement.pages:
                return settlement
            try:
                await self._commit(settlement)
            except RecordsRefused as error:
                self.dedupe.rollback()
                if not any(error.write is write for write in settlement.records):
                    raise self._without_way_out(error, settlement) from error
                refused |= await self._refused(converted)
            else:
                return settlement

    async def _refused(self, converted: ConvertedBatch) -> dict[int, RefusedRecord]:
        """Every row of the micro-batch that its topic would refuse, a duplicate or not."""
        everything = replace(self.rules, is_tolerant=True, has_dedupe=False)
        settlement = settle(converted, everything, self.dedupe)
        found: dict[int, RefusedRecord] = {}
        for write, mask in zip(settlement.records, settlement.rows, strict=True):
            rows = np.flatnonzero(mask)
            found |= {int(rows[record.row]): record for record in await self.writer.refused(write)}
        return found

    def _without_way_out(self, error: RecordsRefused, settlement: Settlement) -> DeliveryFatal:
        """What a dead letter, an offset or the state is over its own topic's limits."""
        if error.write.topic != self.dead_letters.topic:
            return error
        letter = settlement.letters[error.refused[0].row]
        place = f"source partition {as_json(letter.partition)}, offset {as_json(letter.offset)}"
        return DeliveryFatal(f"{error}; {place}")

    async def _commit(self, settlement: Settlement) -> None:
        started_at = self.clock.monotonic()
        writes = self._writes(settlement)
        try:
            await self.writer.commit(writes)
        except RecordsRefused:
            raise
        except KafkaFailure as error:
            self.dedupe.rollback()
            self.events(TransactionAborted, error_class=type(error).__name__, dead_letters=len(settlement.letters))
            raise
        self.dedupe.commit()
        self._tell(settlement, seconds=self.clock.monotonic() - started_at)
        for partition, offset in settlement.offsets:
            await self._let_source_hear(partition, offset)

    async def _let_source_hear(self, partition: Partition, offset: Offset) -> None:
        try:
            async with asyncio.timeout(HEARING_SECONDS_MAX):
                await self.on_committed(partition, offset)
        except TimeoutError as error:
            message = f"the fetcher's on_committed did not return within {HEARING_SECONDS_MAX:.0f} s"
            raise Retriable(message) from error

    def _writes(self, settlement: Settlement) -> list[TopicRecords]:
        """What the transaction carries; the offsets come last, for writers without transactions."""
        writes = list(settlement.records)
        if settlement.letters:
            writes.append(dead_letter_records(settlement.letters, self.task_id, rules=self.dead_letters))
        writes.extend(self.dedupe.encode(settlement.fresh_hashes))
        writes.extend(self.offsets.encode(self.task_id.connector, settlement.offsets))
        return writes

    def _tell(self, settlement: Settlement, *, seconds: float) -> None:
        now = self.clock.monotonic()
        self.activity.put_down(pages=len(settlement.pages), records=settlement.fetched)
        written = settlement.delivered + len(settlement.letters)
        self.events(TransactionCommitted, records=written, source_records=settlement.fetched, seconds=seconds)
        self.events(OffsetCommitted, seconds=seconds)
        if settlement.delivered:
            self.events(RecordsDelivered, records=settlement.delivered, bytes=_bytes(settlement.records))
        if settlement.deduplicated:
            self.events(RecordsDeduplicated, count=settlement.deduplicated)
        for (stage, reason), count in settlement.rejected.items():
            self.events(RecordsRejected, stage=stage, reason=reason, count=count)
        if settlement.letters:
            self.events(DeadLettersWritten, count=len(settlement.letters))
        for item in settlement.pages:
            if len(item.page):
                self.events(EndToEndMeasured, seconds=now - item.fetched_at, count=len(item.page))
        if self.dead_letters.is_logged:
            self._log(settlement)

    def _log(self, settlement: Settlement) -> None:
        for letter in settlement.letters:
            self.events(
                RecordRejectedLogged,
                stage=letter.stage,
                reason=letter.reason,
                message=letter.message,
                source_partition=as_json(letter.partition),
                source_offset=as_json(letter.offset),
            )


def _bytes(records: Sequence[TopicRecords]) -> int:
    """Size of keys and values."""
    columns = (column for write in records for column in (write.values, write.keys) if column is not None)
    return sum(cast("pa.BinaryArray", column).total_values_length for column in columns)
