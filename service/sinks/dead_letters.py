"""What becomes of records that are refused: dead letters, written before the offsets of their records are committed.

They are as Kafka Connect writes them (KIP-298): the record's own bytes, and headers that say why if they are wanted.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
from service.kafka.headers import PackedHeaders
from service.kafka.library import GroupMember
from service.kafka.records import Header, TopicRecords
from service.sinks.batch import Offsets, Partition, Refusal
from service.sinks.converters import in_thread
from service.sinks.readings import Rows


@dataclass(frozen=True, slots=True)
class DeadLetterRules:
    """What becomes of records that are refused."""

    is_tolerant: bool
    """False: the first one fails the task."""
    topic: str = ""
    """Where they go; empty: nowhere."""
    has_headers: bool = False
    is_logged: bool = False


@dataclass(slots=True, eq=False)
class Polled:
    """The records of one poll."""

    records: pa.Table
    """As ``service.kafka.fetched.RECORDS_SCHEMA`` says; the records of a partition stand together."""
    let_go: Callable[[], None] = lambda: None
    """Called when every record of it, and every one before it, is done: nobody holds it for commits any more."""
    is_done: npt.NDArray[np.bool_] = field(init=False)
    """For each row whether it was put, or refused."""
    slices: list[tuple[Partition, int, int]] = field(init=False)
    """Each partition with its first row and the row after its last."""
    reached: list[int] = field(init=False)
    """For each slice the row before which all are done, in this poll and in those before it: their offsets may be
    committed once they are flushed."""
    is_told: npt.NDArray[np.bool_] = field(init=False)
    """For each row whether its refusal was settled: a later one says nothing new."""

    def __post_init__(self) -> None:
        """Nothing is done."""
        self.is_done = np.zeros(self.records.num_rows, dtype=bool)
        self.is_told = np.zeros(self.records.num_rows, dtype=bool)
        topics, numbers = (self.records.column(name).combine_chunks() for name in ("topic", "partition"))
        codes: Any = topics.dictionary_encode()
        is_first = np.ones(self.records.num_rows, dtype=bool)
        is_first[1:] = (np.diff(codes.indices.to_numpy()) != 0) | (np.diff(numbers.to_numpy()) != 0)
        starts = np.flatnonzero(is_first).tolist()
        self.slices = [
            ((str(topics[begin]), numbers[begin].as_py()), begin, end)
            for begin, end in pairwise([*starts, self.records.num_rows])
        ]
        self.reached = [begin for _, begin, _ in self.slices]

    @property
    def ends(self) -> list[int]:
        """For each slice the row after its last."""
        return [end for _, _, end in self.slices]

    def before(self, offsets: Offsets) -> npt.NDArray[np.bool_]:
        """For each row whether it lies before its partition's offset; False where that has none."""
        own = self.records.column("offset").to_numpy()
        is_before = np.zeros(len(own), dtype=bool)
        for partition, begin, end in self.slices:
            is_before[begin:end] = own[begin:end] < offsets.get(partition, 0)
        return is_before

    def only(self, rows: Sequence[int]) -> Polled:
        """These rows of a poll of which all is done."""
        fewer = Polled(self.records.take(pa.array(rows, pa.int64())))
        fewer.is_done[:] = True
        fewer.reached = fewer.ends
        return fewer


class LetterWriter(Protocol):
    """``GroupWriter`` of ``service.kafka.producer``, or its ``IdempotentWriter`` for ``at_least_once``."""

    async def start(self) -> None:
        """See ``Writer``."""

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """See ``Writer``."""

    async def commit_with(self, writes: Sequence[TopicRecords], member: GroupMember, offsets: Offsets) -> bool:
        """Deliver all writes; returns whether the group's offsets were committed in the same transaction."""

    async def stop(self) -> None:
        """See ``Writer``."""


@dataclass(slots=True)
class RefusedRecords:
    """The refused records of one task whose dead letters have not been written yet.

    Refusals come from any thread: a sink may refuse records until they are flushed, while letters of others are
    written, and a put that was given up may go on in a thread of the sink and refuse what has its letter by then.
    """

    task_id: TaskId
    rules: DeadLetterRules
    writer: LetterWriter | None
    """There where dead letters have a topic."""
    events: TaskEvents
    _waiting: dict[Polled, dict[int, Refusal]] = field(default_factory=dict)
    """By row: records that are put again may be refused again."""
    _settling: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while dead letters are written: they are waiting until then, and another write would have them again."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """Held by whoever reads or changes what waits."""
    assignment: int = 0
    """Number of the partitions' assignment whose records are refused now."""

    def add(self, polled: Polled, refusal: Refusal) -> None:
        """Note that a record of a poll was refused; a second refusal replaces one whose letter is not written yet."""
        with self._lock:
            if not polled.is_told[refusal.row]:
                self._waiting.setdefault(polled, {})[refusal.row] = refusal

    def adder(self, polled: Polled) -> Callable[[Refusal], None]:
        """As ``add``, until its partitions are gone.

        A put that was given up may go on in a thread of the sink, and refuse what somebody else has in hand by then.
        """
        assignment = self.assignment

        def add(refusal: Refusal) -> None:
            with self._lock:
                if assignment == self.assignment:
                    self.add(polled, refusal)

        return add

    def forget(self) -> None:
        """Drop all: their partitions are gone, and whoever has them now refuses the records again."""
        with self._lock:
            self.assignment += 1
            self._waiting.clear()

    def demand_tolerance(self) -> None:
        """Raise RecordRejectedError where a record was refused and none may be."""
        with self._lock:
            if self.rules.is_tolerant or not self._waiting:
                return
            polled, refusals = next(iter(self._waiting.items()))
            first = refusals[min(refusals)]
        self.events(RecordsRejected, stage=first.stage, reason=first.reason, count=1, is_tolerated=False)
        raise RecordRejectedError(
            f"Tolerance exceeded in error handler: {_told(polled, first)}. errors.tolerance=none fails the task: mend "
            "the record's producer or the converter, or set errors.tolerance=all and "
            "errors.deadletterqueue.topic.name"
        )

    @property
    def has_waiting(self) -> bool:
        """Whether any dead letter is to be written."""
        return bool(self._waiting)

    async def settle(self, safe: Offsets, member: GroupMember) -> bool:
        """Write the dead letters of the records before ``safe``; in a transaction, if there is one, with these offsets.

        Returns whether the offsets are committed by it. Raises RecordRejectedError without tolerance,
        DeliveryRetriable (CommitOutdated where the group goes on without this member), DeliveryFatal.
        """
        async with self._settling:
            self.demand_tolerance()
            with self._lock:
                due = [letters for polled in self._waiting for letters in self._letters(polled, polled.before(safe))]
            is_committed = await self._write(due, lambda writer, writes: writer.commit_with(writes, member, safe))
            self._let_records_go()
            return bool(is_committed)

    async def settle_failed(self, polled: Polled, rows: Rows) -> None:
        """Write the dead letters of records whose put has failed for good; raises what ``settle`` does.

        The task ends, and nothing of them is committed: they come again when it is restarted.
        """
        async with self._settling:
            self.demand_tolerance()
            is_wanted = np.zeros(polled.records.num_rows, dtype=bool)
            is_wanted[rows] = True
            with self._lock:
                due = list(self._letters(polled, is_wanted))
            await self._write(due, lambda writer, writes: writer.commit(writes))

    def _letters(self, polled: Polled, is_wanted: npt.NDArray[np.bool_]) -> Iterator[_Letters]:
        refusals = self._waiting.get(polled, {})
        rows = sorted(row for row in refusals if is_wanted[row])
        if rows:
            yield _Letters(polled, [refusals[row] for row in rows])

    def _let_records_go(self) -> None:
        """Keep of polls that are done only what was refused: a sink may commit many polls later."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            for polled, refusals in waiting.items():
                rows = sorted(refusals)
                if polled.reached == polled.ends and len(rows) < polled.records.num_rows:
                    kept = {place: replace(refusals[row], row=place) for place, row in enumerate(rows)}
                    self._waiting[polled.only(rows)] = kept
                    polled.is_told[rows] = True
                else:
                    self._waiting[polled] = refusals

    def _drop(self, letters: _Letters) -> None:
        """They were written: who settles next must not find them, nor what was refused again meanwhile."""
        with self._lock:
            waiting = self._waiting.get(letters.polled, {})
            for refusal in letters.refusals:
                letters.polled.is_told[refusal.row] = True
                waiting.pop(refusal.row, None)
            if not waiting:
                self._waiting.pop(letters.polled, None)

    async def _write(
        self, due: Sequence[_Letters], commit: Callable[[LetterWriter, Sequence[TopicRecords]], Awaitable[Any]]
    ) -> Any:
        """Write letters, if they go anywhere, and forget that they wait; returns what the writer did."""
        done = None
        if due and self.writer is not None:
            count = sum(len(letters.refusals) for letters in due)
            records = [letters.records for letters in due]
            try:
                writes = await in_thread(lambda: [make(self.task_id, self.rules) for make in records], records=count)
                done = await commit(self.writer, writes)
            except KafkaFailure as error:
                self.events(SinkDeadLettersFailed, count=count, error_class=type(error).__name__)
                raise
            self.events(DeadLettersWritten, count=count)
        for letters in due:
            self._drop(letters)
        self._tell(due)
        return done

    def _tell(self, due: Sequence[_Letters]) -> None:
        counts = Counter((refusal.stage, refusal.reason) for letters in due for refusal in letters.refusals)
        for (stage, reason), count in counts.items():
            self.events(RecordsRejected, stage=stage, reason=reason, count=count)
        for letters in due if self.rules.is_logged else ():
            for refusal, (topic, partition, offset) in zip(letters.refusals, letters.places(), strict=True):
                self.events(
                    RecordRejectedLogged,
                    stage=refusal.stage,
                    reason=refusal.reason,
                    message=refusal.message,
                    source_partition=json.dumps({"topic": topic, "partition": partition}),
                    source_offset=json.dumps({"offset": offset}),
                )


@dataclass(frozen=True, slots=True)
class _Letters:
    """Refused records of one poll, in the order of their rows."""

    polled: Polled
    refusals: Sequence[Refusal]

    def places(self) -> Iterator[tuple[str, int, int]]:
        """Topic, partition and offset of each."""
        taken = _taken(self.polled.records, self.refusals).select(["topic", "partition", "offset"])
        return zip(*(column.to_pylist() for column in taken.columns), strict=True)

    def records(self, task_id: TaskId, rules: DeadLetterRules) -> TopicRecords:
        """As records of the dead-letter topic."""
        return dead_letter_records(self.polled.records, self.refusals, task_id, rules)


def dead_letter_records(
    polled: pa.Table, refusals: Sequence[Refusal], task_id: TaskId, rules: DeadLetterRules
) -> TopicRecords:
    """Refused rows of a poll as records of the dead-letter topic; costs some microseconds a record."""
    taken = _taken(polled, refusals)
    timestamps: Any = taken.column("timestamp")
    # Records of Kafka's oldest formats have none: −1.
    timestamps = pc.if_else(pc.greater_equal(timestamps, pa.scalar(0)), timestamps, pa.scalar(None, pa.int64()))
    has_headers = rules.has_headers or taken.column("headers").null_count < len(refusals)
    return TopicRecords(
        topic=rules.topic,
        keys=_whole(taken.column("key")),
        values=_whole(taken.column("value")),
        timestamps_ms=_whole(timestamps),
        headers=PackedHeaders.of(_headers(taken, refusals, task_id, rules)) if has_headers else None,
    )


def _taken(polled: pa.Table, refusals: Sequence[Refusal]) -> pa.Table:
    return polled.take(pa.array([refusal.row for refusal in refusals], pa.int64()))


def _whole(column: Any) -> pa.Array[Any]:
    return cast("pa.Array[Any]", column.combine_chunks())


def _headers(
    taken: pa.Table, refusals: Sequence[Refusal], task_id: TaskId, rules: DeadLetterRules
) -> Iterator[list[Header]]:
    """Each record's own headers, then those that say why."""
    names = ("topic", "partition", "offset", "headers")
    columns = (cast("list[Any]", taken.column(name).to_pylist()) for name in names)
    for refusal, topic, partition, offset, own in zip(refusals, *columns, strict=True):
        headers: list[Header] = [(header["name"], header["value"]) for header in own or ()]
        if rules.has_headers:
            headers += _context_headers(refusal, (topic, partition, offset), task_id)
        yield headers


def _context_headers(refusal: Refusal, place: tuple[str, int, int], task_id: TaskId) -> Iterator[Header]:
    topic, partition, offset = place
    texts = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "connector.name": task_id.connector,
        "task.id": str(task_id.task),
        "stage": refusal.stage,
        "class.name": refusal.class_name,
        "exception.class.name": refusal.exception,
        "exception.message": refusal.message,
        "exception.stacktrace": f"{refusal.exception}: {refusal.message}\n",
    }
    for name, text in texts.items():
        yield f"__connect.errors.{name}", text.encode(errors="backslashreplace")


def _told(polled: Polled, refusal: Refusal) -> str:
    """What is wrong and where; never the record's content."""
    [row] = polled.records.slice(refusal.row, 1).select(["topic", "partition", "offset"]).to_pylist()
    place = f"topic '{row['topic']}', partition {row['partition']}, offset {row['offset']}"
    return f"{refusal.message}; {place}, stage {refusal.stage}"
