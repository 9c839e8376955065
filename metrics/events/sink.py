"""Facts of a sink's task: partitions, batches read and put, offsets committed, lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from metrics.events.event import Level, TaskEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPartitionsChanged(TaskEvent):
    """The group has given the task this many partitions."""

    logger: ClassVar[str] = "headrace.sink"
    level: ClassVar[Level] = Level.INFO
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRecordsRead(TaskEvent):
    """A batch has come from Kafka; ``bytes`` counts keys and values."""

    logger: ClassVar[str] = "headrace.sink"
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRecordsPut(TaskEvent):
    """The sink has taken ``records`` records, ``seconds`` after it was handed them."""

    logger: ClassVar[str] = "headrace.sink"
    records: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOffsetsCommitted(TaskEvent):
    """The task's ``number``-th commit is done, ``seconds`` after flushing began; it settles ``records`` records."""

    logger: ClassVar[str] = "headrace.sink"
    number: int
    records: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCommitFailed(TaskEvent):
    """Offsets were not committed: they will be later, or (``is_outdated``) whoever has the partitions now does it."""

    logger: ClassVar[str] = "headrace.sink"
    level: ClassVar[Level] = Level.WARNING
    error_class: str
    is_outdated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDeadLettersFailed(TaskEvent):
    """``count`` dead letters could not be written; their records are read again."""

    logger: ClassVar[str] = "headrace.sink"
    level: ClassVar[Level] = Level.WARNING
    count: int
    error_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLagMeasured(TaskEvent):
    """``records`` lie behind the last one put, in the partition where most do."""

    logger: ClassVar[str] = "headrace.sink"
    records: int
