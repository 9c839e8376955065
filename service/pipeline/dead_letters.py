"""Dead letters of a source: the original bytes, and headers that say what happened and where they came from.

Kafka Connect has dead letters for sinks only (KIP-298). The same ``__connect.errors.*`` headers are used here,
plus ``__headrace.errors.*`` for what only a source has: its partition, its offset, and a short reason.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa

from fetchers.sdk import Offset, Page, Partition, Rejection
from service.domain.ids import TaskId
from service.kafka.errors import DeliveryFatal
from service.kafka.headers import CompressedHeaders
from service.kafka.records import Header, TopicRecords
from service.pipeline.rows import Numbers, Rows

TOPIC_HEADER = "__connect.errors.topic"
"""The first of a letter's headers, behind those that the record itself has."""
CONNECTOR_HEADER = "__connect.errors.connector.name"
STAGE_HEADER = "__connect.errors.stage"
MESSAGE_HEADER = "__connect.errors.exception.message"
REASON_HEADER = "__headrace.errors.reason"
PAGE_TOPIC_HEADER = "__headrace.errors.page.topic"
PARTITION_HEADER = "__headrace.errors.source.partition"
OFFSET_HEADER = "__headrace.errors.source.offset"
TIMESTAMP_HEADER = "__headrace.errors.source.timestamp"
"""Not the letter's own timestamp: by that a topic forgets, and may refuse what is old."""
DELIVER_STAGE = "KAFKA_PRODUCE"
"""Connect's name of the stage at which a topic does not take a record."""
TRIES_HEADER = "__headrace.errors.tries"
"""Only where they are more than one: a redrive tried the record again, and the letter stands for the one before."""
FETCH_STAGE = "TASK_POLL"
"""Connect's name of the stage at which a fetcher itself could not vouch for a record."""
PORTION_LETTERS_MAX = 5_000
"""So many are there singly at once; what is kept of them until they are written is their bytes, and little more."""
ROWS_INLINE_MAX = 1_000
"""With fewer rows a thread costs more than it spares the event loop."""
_ROW_WORKERS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="rows")
_T = TypeVar("_T")
HEADERS_BYTES_MAX = 512 * 1_048_576
"""Headers of a million letters or so, as they are sent: more do not fit the time that a transaction has."""


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
    headers_bytes_max: int = HEADERS_BYTES_MAX
    """Bytes that the headers of one micro-batch's letters may take; more fail the task."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One rejected record, with what its headers tell."""

    key: bytes | None
    value: bytes | None
    stage: str
    reason: str
    message: str
    topic: str
    """Topic it would have gone to, before any transformation chose another."""
    partition: str
    """Where it came from, as ``as_json`` says it."""
    offset: str
    page_topic: str | None = None
    """Topic that its page named."""
    timestamp_ms: int | None = None
    """That its page gave it."""
    headers: Sequence[Header] = ()
    """Those that its page gave it."""
    tries: int = 1
    """How often it was rejected, this time included."""


@dataclass(frozen=True, slots=True)
class PageLetters:
    """Makes the dead letters of one page, record by record."""

    page: Page
    topic: str
    partition: str
    offset: str
    """The page's source offset as JSON, without the position of a record."""
    own: Mapping[int, Rejection]
    """The fetcher's own verdicts, by their places in the page."""

    @classmethod
    def of(cls, page: Page, *, topic: str, partition: Partition) -> PageLetters:
        """``topic`` and ``partition``: of pages that name none."""
        told = page.offset if page.told_offset is None else page.told_offset
        if page.positions is not None:
            told = {name: value for name, value in told.items() if name != page.position_name}
        return cls(
            page,
            page.topic or topic,
            as_json(partition if page.partition is None else page.partition),
            as_json(told),
            {rejection.index: rejection for rejection in page.rejections},
        )

    def letter(self, index: int, row: Mapping[str, Any]) -> DeadLetter:
        """``row``: the record's payload and its verdict, by the names of their columns."""
        own = self.own.get(index)
        partition, offset = self._origin(index)
        return DeadLetter(
            key=row["key"],
            value=row["value"],
            stage=FETCH_STAGE if own else row["stage"],
            reason=own.reason if own else row["reason"],
            message=own.message if own else row["message"] or "",
            topic=self.topic,
            partition=partition,
            offset=offset,
            page_topic=self.page.topic,
            timestamp_ms=None
            if self.page.timestamps_ms is None
            else cast("Any", self.page.timestamps_ms[index]).as_py(),
            headers=() if self.page.headers is None else self.page.headers[index],
            tries=1 if self.page.tries is None else self.page.tries[index] + 1,
        )

    def _origin(self, index: int) -> tuple[str, str]:
        """Where a record came from, as exactly as its page knows."""
        if self.page.origins is not None:
            partition, offset = self.page.origins[index]
            return as_json(partition), as_json(offset)
        if self.page.positions is None:
            return self.partition, self.offset
        position = as_json({self.page.position_name: cast("Any", self.page.positions[index]).as_py()})
        return self.partition, position if self.offset == "{}" else f"{self.offset[:-1]},{position[1:]}"


class Rejects(Protocol):
    """The rejected records of a micro-batch, while they are rows of columns."""

    def __len__(self) -> int:
        """Their number."""

    def portions(self) -> Iterator[tuple[DeadLetter, ...]]:
        """Each of them, in order, at most ``PORTION_LETTERS_MAX`` at once; may be asked in a thread."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The rows of a micro-batch that become dead letters: see ``Rejects``."""

    rows: Rows
    chosen: Numbers

    def __len__(self) -> int:
        """Their number."""
        return len(self.chosen)

    def letter(self, number: int) -> DeadLetter:
        """The dead letter of the row with this number among the rejected ones."""
        return self._letters(self.chosen[number : number + 1])[0]

    def portions(self) -> Iterator[tuple[DeadLetter, ...]]:
        """All of them in order, with their original bytes, at most ``PORTION_LETTERS_MAX`` at once."""
        for start in range(0, len(self), PORTION_LETTERS_MAX):
            yield self._letters(self.chosen[start : start + PORTION_LETTERS_MAX])

    def _letters(self, chosen: Numbers) -> tuple[DeadLetter, ...]:
        payloads = self.rows.input.select(["key", "value"]).take(chosen).to_pydict()
        verdicts = self.rows.outcome.select(["stage", "reason", "message"]).take(chosen).to_pydict()
        columns = payloads | verdicts
        pages = self.rows.page_indexes(chosen)
        of_page = {page: self._of_page(page) for page in np.unique(pages).tolist()}
        return tuple(
            of_page[page].letter(
                row - int(self.rows.starts[page]),
                {name: column[number] for name, column in columns.items()}
                | self._original(page, row)
                | self._refusal(row),
            )
            for number, (row, page) in enumerate(zip(chosen.tolist(), pages.tolist(), strict=True))
        )

    def _of_page(self, index: int) -> PageLetters:
        return PageLetters.of(self.rows.pages[index].page, topic=self.rows.topic, partition=self.rows.partition)

    def _original(self, page: int, row: int) -> dict[str, bytes | None]:
        """Key and payload of a row that has no bytes of its own."""
        own = self.rows.pages[page].page
        if own.schema is None:
            return {}
        key, value = own.original(row - int(self.rows.starts[page]))
        return {"key": key, "value": value}

    def _refusal(self, row: int) -> dict[str, str]:
        """The topic's verdict on a row, where it has one."""
        record = self.rows.refused.get(row)
        return {} if record is None else {"stage": DELIVER_STAGE, "reason": record.reason, "message": record.message}


@dataclass(frozen=True, slots=True)
class WrittenLetters:
    """Dead letters, and what the transaction carries of them."""

    records: tuple[TopicRecords, ...] = ()
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By stage and reason."""

    def __len__(self) -> int:
        """Their number."""
        return sum(map(len, self.records))

    def first_of(self, records: TopicRecords) -> int | None:
        """Number of the first letter in some of ``records``; None for others."""
        first = 0
        for each in self.records:
            if each is records:
                return first
            first += len(each)
        return None


def as_json(values: Partition | Offset) -> str:
    """A source partition or offset in one line, keys sorted."""
    return json.dumps(dict(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def dead_letter_headers(letter: DeadLetter, task_id: TaskId, *, class_name: str) -> list[Header]:
    """Headers of one dead letter; every value is UTF-8 text, with a lone surrogate as JSON's escape for it."""
    texts = {
        TOPIC_HEADER: letter.topic,
        CONNECTOR_HEADER: task_id.connector,
        "__connect.errors.task.id": str(task_id.task),
        STAGE_HEADER: letter.stage,
        "__connect.errors.class.name": class_name,
        "__connect.errors.exception.class.name": "org.apache.kafka.connect.errors.DataException",
        MESSAGE_HEADER: letter.message,
        REASON_HEADER: letter.reason,
        PARTITION_HEADER: letter.partition,
        OFFSET_HEADER: letter.offset,
    }
    if letter.page_topic is not None:
        texts[PAGE_TOPIC_HEADER] = letter.page_topic
    if letter.timestamp_ms is not None:
        texts[TIMESTAMP_HEADER] = str(letter.timestamp_ms)
    if letter.tries > 1:
        texts[TRIES_HEADER] = str(letter.tries)
    return [(name, text.encode(errors="backslashreplace")) for name, text in texts.items()]


def dead_letter_records(letters: Sequence[DeadLetter], task_id: TaskId, *, rules: DeadLetterRules) -> TopicRecords:
    """The letters as records of the dead-letter topic; headers of their own they keep in any case."""
    headers = None
    if rules.has_headers:
        owner = TaskId(rules.connector or task_id.connector, task_id.task)
        headers = CompressedHeaders.of(
            [*letter.headers, *dead_letter_headers(letter, owner, class_name=rules.class_name)] for letter in letters
        )
    elif any(letter.headers for letter in letters):
        headers = CompressedHeaders.of(letter.headers for letter in letters)
    return TopicRecords(
        topic=rules.topic,
        keys=pa.array([letter.key for letter in letters], pa.binary()),
        values=pa.array([letter.value for letter in letters], pa.binary()),
        headers=headers,
    )


async def written(rejects: Rejects, task_id: TaskId, *, rules: DeadLetterRules) -> WrittenLetters:
    """All letters, made in a thread when they are many: an answer may be bad from its first row to its last.

    Raises ``DeliveryFatal`` for more than one transaction takes: a page is never split, so it would be so for ever.
    """

    def write() -> WrittenLetters:
        records: list[TopicRecords] = []
        counts: Counter[tuple[str, str]] = Counter()
        bytes_left = rules.headers_bytes_max
        for portion in rejects.portions():
            written = dead_letter_records(portion, task_id, rules=rules)
            bytes_left -= int(written.headers.lengths.sum()) if isinstance(written.headers, CompressedHeaders) else 0
            if bytes_left < 0:
                raise _too_many(rejects, rules)
            records.append(written)
            counts.update((letter.stage, letter.reason) for letter in portion)
        return WrittenLetters(tuple(records), counts)

    return await run_off_loop(write, rows=len(rejects))


async def run_off_loop(work: Callable[[], _T], *, rows: int) -> _T:
    """The result of ``work``, done in a thread where it is about many rows: the event loop of the worker goes on.

    Cancelled, it does not wait for the thread: what is worked on is given up then.
    """
    if rows <= ROWS_INLINE_MAX:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_ROW_WORKERS, work)


def _too_many(rejects: Rejects, rules: DeadLetterRules) -> DeliveryFatal:
    return DeliveryFatal(
        f"the headers of {len(rejects)} dead letters of one micro-batch are more than {rules.headers_bytes_max} bytes, "
        "more than one transaction takes: let the source make smaller pages, mend the contract, or set "
        "errors.deadletterqueue.context.headers.enable=false"
    )
