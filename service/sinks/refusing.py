"""What becomes of records that are refused: dead letters, written before the offsets of their records are committed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from metrics.events import (
    DeadLettersWritten,
    RecordRejectedLogged,
    RecordsRejected,
    SinkDeadLettersFailed,
    TaskEvents,
)
from service.domain.errors import RecordRejectedError
from service.domain.ids import TaskId
from service.kafka.errors import KafkaFailure
from service.kafka.producer import Writer
from service.sinks.dead_letters import DeadLetterRules, Refused, dead_letter_records


@dataclass(slots=True)
class RefusedRecords:
    """Those of one task that nothing has been done about yet."""

    task_id: TaskId
    rules: DeadLetterRules
    writer: Writer | None
    """There where dead letters have a topic."""
    events: TaskEvents
    _waiting: dict[tuple[str, int, int], Refused] = field(default_factory=dict)
    """By place: a batch that is put again may refuse the same records again."""

    def add(self, refused: Refused) -> None:
        """A record was refused."""
        self._waiting[refused.place] = refused

    def forget(self) -> None:
        """Their partitions are gone, uncommitted: whoever has them now refuses the records again."""
        self._waiting.clear()

    async def settle(self) -> None:
        """Write them, durably. Raises RecordRejectedError without tolerance, DeliveryRetriable, DeliveryFatal."""
        letters = [self._waiting[place] for place in sorted(self._waiting)]
        self._waiting = {}
        if not letters:
            return
        self.demand_tolerance(letters)
        if self.writer is not None:
            await self._write(self.writer, letters)
        self._tell(letters)

    def demand_tolerance(self, letters: Sequence[Refused]) -> None:
        """Raise RecordRejectedError where there are any and none is tolerated."""
        if self.rules.is_tolerant or not letters:
            return
        first = letters[0]
        self.events(
            RecordsRejected, stage=first.refusal.stage, reason=first.refusal.reason, count=1, is_tolerated=False
        )
        raise RecordRejectedError(
            f"Tolerance exceeded in error handler: {first}. errors.tolerance=none fails the task: mend the record's "
            "producer or the converter, or set errors.tolerance=all and errors.deadletterqueue.topic.name"
        )

    async def _write(self, writer: Writer, letters: list[Refused]) -> None:
        try:
            await writer.commit([dead_letter_records(letters, self.task_id, self.rules)])
        except KafkaFailure as error:
            self.events(SinkDeadLettersFailed, count=len(letters), error_class=type(error).__name__)
            raise
        self.events(DeadLettersWritten, count=len(letters))

    def _tell(self, letters: list[Refused]) -> None:
        counts = Counter((letter.refusal.stage, letter.refusal.reason) for letter in letters)
        for (stage, reason), count in counts.items():
            self.events(RecordsRejected, stage=stage, reason=reason, count=count)
        for letter in letters if self.rules.is_logged else ():
            row = letter.row
            self.events(
                RecordRejectedLogged,
                stage=letter.refusal.stage,
                reason=letter.refusal.reason,
                message=letter.refusal.message,
                source_partition=json.dumps({"topic": row["topic"], "partition": row["partition"]}),
                source_offset=json.dumps({"offset": row["offset"]}),
            )
