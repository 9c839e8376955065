"""Dead letters of a source: the original bytes, and headers that say what happened and where they came from.

Kafka Connect has dead letters for sinks only (KIP-298). The same ``__connect.errors.*`` headers are used here,
plus ``__headrace.errors.*`` for what only a source has: its partition, its offset, and a short reason.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from fetchers.sdk import Offset, Partition
from service.domain.ids import TaskId
from service.kafka.records import Header, TopicRecords

CONNECTOR_HEADER = "__connect.errors.connector.name"
PAGE_TOPIC_HEADER = "__headrace.errors.page.topic"
PARTITION_HEADER = "__headrace.errors.source.partition"
OFFSET_HEADER = "__headrace.errors.source.offset"


@dataclass(frozen=True, slots=True)
class DeadLetterRules:
    """Where rejected records go, and who is told."""

    topic: str
    class_name: str
    """Shown in ``__connect.errors.class.name``: the converter of the values."""
    connector: str | None = None
    """Whose letters they are; the task's own when not given."""
    has_headers: bool = True
    is_logged: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One rejected record."""

    key: bytes | None
    value: bytes | None
    stage: str
    reason: str
    message: str
    topic: str
    """Topic it would have gone to, before any transformation chose another."""
    partition: Partition
    offset: Offset
    page_topic: str | None = None
    """Topic that its page named."""


def as_json(values: Partition | Offset) -> str:
    """A source partition or offset in one line, keys sorted."""
    return json.dumps(dict(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def dead_letter_headers(letter: DeadLetter, task_id: TaskId, *, class_name: str) -> list[Header]:
    """Headers of one dead letter; every value is UTF-8 text, with a lone surrogate as JSON's escape for it."""
    texts = {
        "__connect.errors.topic": letter.topic,
        CONNECTOR_HEADER: task_id.connector,
        "__connect.errors.task.id": str(task_id.task),
        "__connect.errors.stage": letter.stage,
        "__connect.errors.class.name": class_name,
        "__connect.errors.exception.class.name": "org.apache.kafka.connect.errors.DataException",
        "__connect.errors.exception.message": letter.message,
        "__headrace.errors.reason": letter.reason,
        PARTITION_HEADER: as_json(letter.partition),
        OFFSET_HEADER: as_json(letter.offset),
    }
    if letter.page_topic is not None:
        texts[PAGE_TOPIC_HEADER] = letter.page_topic
    return [(name, text.encode(errors="backslashreplace")) for name, text in texts.items()]


def dead_letter_records(letters: Sequence[DeadLetter], task_id: TaskId, *, rules: DeadLetterRules) -> TopicRecords:
    """The letters as records of the dead-letter topic."""
    headers = None
    if rules.has_headers:
        owner = TaskId(rules.connector or task_id.connector, task_id.task)
        headers = [dead_letter_headers(letter, owner, class_name=rules.class_name) for letter in letters]
    return TopicRecords(
        topic=rules.topic,
        keys=pa.array([letter.key for letter in letters], pa.binary()),
        values=pa.array([letter.value for letter in letters], pa.binary()),
        headers=headers,
    )
