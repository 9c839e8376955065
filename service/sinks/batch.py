"""What a sink is handed: a batch of decoded records as columns, and the way to refuse single ones.

Authors of sinks import these names from ``service.sinks.contract``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import BackOff
from service.sinks.headers import HeaderReader


class RefusalReason(StrEnum):
    """Why a sink refuses a record, in a word for metrics and logs: of converters first, then of transformations.

    The message of the refusal says the rest.
    """

    INVALID_UTF8 = "invalid_utf8"
    MALFORMED_JSON = "malformed_json"
    TOO_DEEP = "too_deep"
    NO_ENVELOPE = "no_envelope"
    NOT_AVRO = "not_avro"
    NO_SCHEMA = "no_schema"
    WRONG_TYPE = "wrong_type"
    MISSING_FIELD = "missing_field"
    DUPLICATE_FIELD = "duplicate_field"
    EXPRESSION_FAILED = "expression_failed"
    MISSING_TIMESTAMP = "missing_timestamp"
    UNUSABLE_DEFAULT = "unusable_default"
    UNUSABLE_ID = "unusable_id"
    NULL_VALUE = "null_value"
    NO_VERSION = "no_version"
    TOO_LARGE = "too_large"
    REFUSED_BY_TARGET = "refused_by_target"
    OUT_OF_RANGE = "out_of_range"


Partition: TypeAlias = tuple[str, int]
"""Name of a topic and number of a partition of it."""
Offsets: TypeAlias = Mapping[Partition, int]
"""For each partition the offset of the next record."""


class Form(StrEnum):
    """How a column of keys or values is to be read."""

    BYTES = "bytes"
    """``pa.binary()``: the bytes of the topic as they are."""
    TEXT = "text"
    """``pa.string()``: the bytes of the topic, which were valid UTF-8."""
    JSON = "json"
    """``pa.string()``: one JSON text each, digits and order of keys as they were written."""
    RECORD = "record"
    """A typed Arrow column, such as a struct; ``ValueType.schema`` is the Avro schema of its values."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """Form of one column; a batch has one of its keys and one of its values."""

    form: Form
    schema: str | None = None
    """RECORD: the Avro schema the records were written with. JSON: Connect's schema where they brought one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One record that the sink, or its converter, cannot take."""

    row: int
    """Row of the record in its poll."""
    stage: str
    """Where it was refused, by the name that Connect gives it in dead letters (KIP-298)."""
    reason: str
    """A short word for metrics."""
    message: str
    """One sentence; never the record's content or a secret."""
    class_name: str
    """Full name of the class that refused it: a converter, a transformation or the sink."""
    exception: str = "org.apache.kafka.connect.errors.DataException"
    """What Connect would have thrown."""


@dataclass(frozen=True, slots=True)
class PutLimits:
    """How much a sink is handed at once, how long it may take for it, and how often it is tried.

    A put that takes too long is given up and tried again with half the records; while puts are quick their size
    grows again.
    """

    records_max: int = 20_000
    bytes_max: int = 16_777_216
    """Of keys and values as they are in Kafka; a single record may have more."""
    seconds_max: float = 120.0
    puts_max: int = 1
    """Puts that may be under way at once. More than one is for sinks whose target takes records in any order: what is
    committed is then the offset before which every record is done."""
    retries_max: int | None = None
    """How often in a row a put is tried again; then the task fails. None: as long as ``errors.retry.timeout`` says, as
    after ``TargetFull`` in any case."""
    waits: BackOff | None = None
    """Waits between tries; None: those of ``errors.retry.delay.max.ms``."""


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Records of one or more partitions, in order within each.

    ``records`` has the columns topic, partition, offset, timestamp (milliseconds since the epoch), timestamp_type,
    key, value, headers (name and bytes), original_topic. A null value is a tombstone. A router changes the topic:
    what a sink notes of its own progress, as offsets do, goes by original_topic, partition and offset.
    """

    records: pa.Table
    key: ValueType
    value: ValueType
    refuse: Callable[[int, str, str], None]
    """``batch.refuse(row, reason, message)``: the record goes to the dead letters or fails the task, as configured.

    ``row`` counts in this batch. May be called until the offsets of the record were flushed.
    """
    header_reader: HeaderReader = field(default_factory=HeaderReader)

    def __len__(self) -> int:
        """How many records the batch has."""
        return self.records.num_rows

    def slice(self, start: int, count: int) -> SinkBatch:
        """Some consecutive records, as a batch of their own; without a copy."""

        def refuse(row: int, reason: str, message: str) -> None:
            self.refuse(start + row, reason, message)

        return replace(self, records=self.records.slice(start, count), refuse=refuse)

    def take(self, rows: npt.NDArray[np.int64]) -> SinkBatch:
        """Some records, ascending, as a batch of their own."""

        def refuse(row: int, reason: str, message: str) -> None:
            self.refuse(int(rows[row]), reason, message)

        return replace(self, records=self.records.take(rows), refuse=refuse)

    def connect_headers(self) -> pa.Array[Any]:
        """The headers as Connect has them: for each record a list of name, schema and value, both in JSON or null.

        They are read by the task's ``header.converter``; what transformations have made has the type that it had there.
        """
        return self.header_reader.read(cast("Any", self.records.column("headers")))

    def by_partition(self) -> Iterator[tuple[Partition, SinkBatch]]:
        """The records of each partition, as batches of their own and in order; partitions as they are in Kafka."""
        topics, numbers = (cast("Any", self.records.column(name)) for name in ("original_topic", "partition"))
        for topic, number in sorted(self.ends):
            is_here = pc.and_(pc.equal(topics, pa.scalar(topic)), pc.equal(numbers, pa.scalar(number, pa.int32())))
            rows = np.flatnonzero(is_here.to_numpy())
            is_whole = len(rows) == len(self)
            yield (topic, number), (self if is_whole else self.take(rows))

    @property
    def ends(self) -> dict[Partition, int]:
        """The offset after the last record of each partition, under the names that the topics have in Kafka."""
        return ends_of(self.records, topic_column="original_topic")


@dataclass(slots=True)
class Selection:
    """Which rows of a batch are written, and why others are not."""

    batch: SinkBatch
    is_dropped: bool = False
    """Whether unfit rows are passed over, and not refused."""
    is_sent: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        """At first all are."""
        self.is_sent = np.ones(len(self.batch), dtype=bool)

    def refuse(self, unfit: Any, reason: RefusalReason, message: str | Callable[[int], str]) -> None:
        """Refuse rows, or pass over them."""
        for row in np.flatnonzero(np.asarray(unfit) & self.is_sent).tolist():
            self.is_sent[row] = False
            if not self.is_dropped:
                self.batch.refuse(row, reason, message if isinstance(message, str) else message(row))


def ends_of(records: pa.Table, *, topic_column: str = "topic") -> dict[Partition, int]:
    """The offset after the last record of each partition of a table with columns of topics, partition and offset."""
    last: Any = records.group_by([topic_column, "partition"]).aggregate([("offset", "max")])
    topics, partitions, offsets = (last.column(name).to_pylist() for name in (topic_column, "partition", "offset_max"))
    return {(topic, number): offset + 1 for topic, number, offset in zip(topics, partitions, offsets, strict=True)}
