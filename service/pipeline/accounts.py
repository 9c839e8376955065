"""What a task tells of its commits: in events, and to what judges its idleness."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import pyarrow as pa

from fetchers.sdk import Clock
from metrics.events import (
    DeadLettersWritten,
    EndToEndMeasured,
    OffsetCommitted,
    RecordRejectedLogged,
    RecordsCoerced,
    RecordsDeduplicated,
    RecordsDelivered,
    RecordsFiltered,
    RecordsRejected,
    TaskEvents,
    TransactionAborted,
    TransactionCommitted,
)
from service.kafka.errors import KafkaFailure
from service.kafka.records import TopicRecords
from service.pipeline.activity import Activity
from service.pipeline.dead_letters import DeadLetter, Rejects, WrittenLetters, run_off_loop
from service.pipeline.settlement import Settlement

_LOGGED_AT_ONCE = 1_000
"""Letters; then the event loop has its turn."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """What one task tells of its commits, in events and to its ``Activity``."""

    activity: Activity
    events: TaskEvents
    clock: Clock
    is_logged: bool = False
    """Whether each letter is a line in the log."""

    def committed(self, settlement: Settlement, letters: WrittenLetters, *, seconds: float) -> None:
        """Tell that a transaction is durable; ``seconds`` is how long its commit took."""
        now = self.clock.monotonic()
        self.activity.put_down(pages=len(settlement.pages), records=settlement.fetched)
        written = settlement.delivered + len(letters)
        self.events(TransactionCommitted, records=written, source_records=settlement.fetched, seconds=seconds)
        self.events(OffsetCommitted, seconds=seconds)
        if settlement.delivered:
            self.events(RecordsDelivered, records=settlement.delivered, bytes=_bytes(settlement.records))
        for name, count in settlement.coerced:
            self.events(RecordsCoerced, field=name, count=count)
        if settlement.deduplicated:
            self.events(RecordsDeduplicated, count=settlement.deduplicated)
        if settlement.filtered:
            self.events(RecordsFiltered, count=settlement.filtered)
        for (stage, reason), count in letters.counts.items():
            self.events(RecordsRejected, stage=stage, reason=reason, count=count)
        if len(letters):
            self.events(DeadLettersWritten, count=len(letters))
        for item in settlement.pages:
            if len(item.page):
                self.events(EndToEndMeasured, seconds=now - item.fetched_at, count=len(item.page))

    def aborted(self, error: KafkaFailure, letters: WrittenLetters) -> None:
        """A transaction is not, as far as anybody knows."""
        self.events(TransactionAborted, error_class=type(error).__name__, dead_letters=len(letters))

    def failed(self, letter: DeadLetter) -> None:
        """The task fails at a record."""
        self.events(RecordsRejected, stage=letter.stage, reason=letter.reason, count=1, is_tolerated=False)

    async def log(self, rejects: Rejects) -> None:
        """A line for each letter, if that is wanted."""
        if not self.is_logged:
            return
        portions = rejects.portions()
        while letters := await run_off_loop(partial(next, portions, ()), rows=len(rejects)):
            for number, letter in enumerate(letters, start=1):
                self._log(letter)
                if number % _LOGGED_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _log(self, letter: DeadLetter) -> None:
        self.events(
            RecordRejectedLogged,
            stage=letter.stage,
            reason=letter.reason,
            message=letter.message,
            source_partition=letter.partition,
            source_offset=letter.offset,
        )


def _bytes(records: Sequence[TopicRecords]) -> int:
    """Size of keys and values."""
    columns = (column for write in records for column in (write.values, write.keys) if column is not None)
    return sum(cast("pa.BinaryArray", column).total_values_length for column in columns)
