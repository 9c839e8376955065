"""The deliver stage: one Kafka transaction for each micro-batch, in order.

It carries the records, the dead letters, the de-duplication state and the source offsets. Only its commit moves
the source offset: whatever dies before is fetched again, whatever dies after is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from fetchers.sdk import Offset, Partition, Retriable
from service.domain.errors import RecordRejectedError
from service.domain.ids import TaskId
from service.kafka.errors import DeliveryFatal, KafkaFailure, RecordsRefused, RefusedRecord
from service.kafka.producer import Writer
from service.kafka.records import TopicRecords
from service.pipeline.accounts import Accounts
from service.pipeline.converting import ConvertedBatch
from service.pipeline.dead_letters import DeadLetterRules, Rejected, WrittenLetters, run_off_loop, written
from service.pipeline.settlement import Settlement, SettlementRules, settle
from service.stores.dedupe_store import DedupeState, NoDedupe

HEARING_SECONDS_MAX = 30.0
"""Time a fetcher has in ``on_committed`` for the pages of one commit; delivery waits for it no longer."""


class SourceOffsets(Protocol):
    """Committed source offsets of connectors; ``service.stores.connector_offsets`` keeps them in topics."""

    async def read(self, connector: str) -> Mapping[str, Mapping[str, object]]:
        """Last committed offset of each source partition (as JSON text); after the task's writer has started."""

    def encode(
        self, connector: str, offsets: Iterable[tuple[Mapping[str, object], Mapping[str, object] | None]], /
    ) -> Sequence[TopicRecords]:
        """Records that set these offsets, for the transaction of the data they stand for."""

    async def committed(
        self, connector: str, offsets: Iterable[tuple[Mapping[str, object], Mapping[str, object] | None]], /
    ) -> None:
        """Hear, before the next transaction, that the one with these offsets is committed."""


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
    accounts: Accounts

    async def run(self, converted: ConvertedBatch) -> None:
        """Settle and commit one micro-batch; raises ``RecordRejectedError`` after delivering what came before it."""
        settlement = await self._deliver(converted)
        if settlement.failure:
            self.accounts.failed(settlement.failure.letter)
            raise RecordRejectedError(str(settlement.failure))

    async def _deliver(self, converted: ConvertedBatch) -> Settlement:
        """Settle again without what its topic refuses, until that is nothing.

        Asked again, a topic may take what it refused: its settings were changed meanwhile, or time has passed.
        """
        refused: dict[int, RefusedRecord] = {}
        while True:
            settlement = await run_off_loop(
                partial(settle, converted, self.rules, self.dedupe, refused), rows=converted.records.num_rows
            )
            if not settlement.pages:
                return settlement
            try:
                await self._commit(settlement)
            except RecordsRefused:
                refused |= await _refused_rows(converted, self.rules, self.writer)
            else:
                return settlement

    async def _commit(self, settlement: Settlement) -> None:
        started_at = self.accounts.clock.monotonic()
        letters = await written(settlement.rejects, self.task_id, rules=self.dead_letters)
        try:
            await self.writer.commit(await self._writes(settlement, letters))
        except RecordsRefused as error:
            self.dedupe.rollback()
            if any(error.write is write for write in settlement.records):
                raise
            raise _without_way_out(error, settlement.rejects, letters) from error
        except KafkaFailure as error:
            self.dedupe.rollback()
            self.accounts.aborted(error, letters)
            raise
        self.dedupe.commit()
        await self.offsets.committed(self.task_id.connector, settlement.offsets)
        self.accounts.committed(settlement, letters, seconds=self.accounts.clock.monotonic() - started_at)
        await self.accounts.log(settlement.rejects)
        await self._let_source_hear(settlement)

    async def _let_source_hear(self, settlement: Settlement) -> None:
        """Of every page in its order; the limit is for all of them together."""
        limit = asyncio.timeout(HEARING_SECONDS_MAX)
        try:
            async with limit:
                for item in settlement.pages:
                    page = item.page
                    await self.on_committed(
                        self.rules.partition if page.partition is None else page.partition, page.offset
                    )
        except TimeoutError as error:
            if not limit.expired():
                raise
            message = f"the fetcher's on_committed did not return within {HEARING_SECONDS_MAX:.0f} s"
            raise Retriable(message) from error

    async def _writes(self, settlement: Settlement, letters: WrittenLetters) -> list[TopicRecords]:
        """What the transaction carries; the offsets come last, for writers without transactions.

        The state of a source with windows is encoded in a thread: a closed window may hold millions of hashes, however
        few records the micro-batch has. Nobody else uses the state meanwhile.
        """
        writes = list(settlement.records)
        writes.extend(letters.records)
        encode = partial(self.dedupe.encode, settlement.fresh_hashes)
        has_window = any(scope is not None for scope, _ in settlement.fresh_hashes)
        writes.extend(await asyncio.to_thread(encode) if has_window else encode())
        writes.extend(self.offsets.encode(self.task_id.connector, settlement.offsets))
        return writes


async def _refused_rows(converted: ConvertedBatch, rules: SettlementRules, writer: Writer) -> dict[int, RefusedRecord]:
    """Every row of the micro-batch that its topic would refuse, a duplicate or not."""
    tolerant = replace(rules, is_tolerant=True, has_dedupe=False)
    everything = await run_off_loop(partial(settle, converted, tolerant, NoDedupe()), rows=converted.records.num_rows)
    found: dict[int, RefusedRecord] = {}
    for write, mask in zip(everything.records, everything.rows, strict=True):
        rows = np.flatnonzero(mask)
        found |= {int(rows[record.row]): record for record in await writer.refused(write)}
    return found


def _without_way_out(error: RecordsRefused, rejects: Rejected, letters: WrittenLetters) -> DeliveryFatal:
    """What a dead letter, an offset or the state is over its own topic's limits."""
    first = letters.first_of(error.write)
    if first is None:
        return DeliveryFatal(str(error))
    letter = rejects.letter(first + error.refused[0].row)
    return DeliveryFatal(f"{error}; source partition {letter.partition}, offset {letter.offset}")
