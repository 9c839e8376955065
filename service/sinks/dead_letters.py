"""Dead letters of a sink, as Kafka Connect writes them (KIP-298): the record's own bytes, and headers if wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from service.domain.ids import TaskId
from service.kafka.records import Header, TopicRecords
from service.sinks.batch import Refusal


@dataclass(frozen=True, slots=True)
class DeadLetterRules:
    """What becomes of records that are refused."""

    is_tolerant: bool
    """False: the first one fails the task."""
    topic: str = ""
    """Where they go; empty: nowhere."""
    has_headers: bool = False
    is_logged: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused record of a polled batch."""

    records: pa.Table
    """The batch as it was polled."""
    refusal: Refusal

    @property
    def row(self) -> dict[str, Any]:
        """The record, by column."""
        found: dict[str, Any] = self.records.slice(self.refusal.row, 1).to_pylist()[0]
        return found

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        row = self.row
        return row["topic"], row["partition"], row["offset"]

    def __str__(self) -> str:
        """Where it stands and what is wrong; never its content."""
        topic, partition, offset = self.place
        place = f"topic '{topic}', partition {partition}, offset {offset}"
        return f"{self.refusal.message}; {place}, stage {self.refusal.stage}"


def dead_letter_records(letters: Sequence[Refused], task_id: TaskId, rules: DeadLetterRules) -> TopicRecords:
    """The letters as records of the dead-letter topic."""
    rows = [letter.row for letter in letters]
    headers = [
        [*_own_headers(row), *(_context_headers(letter.refusal, row, task_id) if rules.has_headers else ())]
        for letter, row in zip(letters, rows, strict=True)
    ]
    return TopicRecords(
        topic=rules.topic,
        keys=pa.array([row["key"] for row in rows], pa.binary()),
        values=pa.array([row["value"] for row in rows], pa.binary()),
        timestamps_ms=pa.array([_timestamp_ms(row) for row in rows], pa.int64()),
        headers=headers if any(headers) else None,
    )


def _own_headers(row: dict[str, Any]) -> list[Header]:
    return [(header["name"], header["value"]) for header in row["headers"] or ()]


def _timestamp_ms(row: dict[str, Any]) -> int | None:
    """Records of Kafka's oldest formats have none: −1."""
    timestamp_ms: int | None = row["timestamp"]
    return None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms


def _context_headers(refusal: Refusal, row: dict[str, Any], task_id: TaskId) -> list[Header]:
    texts = {
        "topic": row["topic"],
        "partition": str(row["partition"]),
        "offset": str(row["offset"]),
        "connector.name": task_id.connector,
        "task.id": str(task_id.task),
        "stage": refusal.stage,
        "class.name": refusal.class_name,
        "exception.class.name": refusal.exception,
        "exception.message": refusal.message,
        "exception.stacktrace": f"{refusal.exception}: {refusal.message}\n",
    }
    return [(f"__connect.errors.{name}", text.encode(errors="backslashreplace")) for name, text in texts.items()]
