"""What becomes of each record of a converted micro-batch: delivered, dead-lettered, dropped as a duplicate.

Pure: columns in, columns and counts out. Only rejected records are looked at one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import DedupeScope, Offset, Page, Partition
from fetchers.sdk.context import partition_key
from service.kafka.errors import RefusedRecord
from service.kafka.records import Column, TopicRecords
from service.pipeline.converting import ConvertedBatch
from service.pipeline.dead_letters import DeadLetter
from service.pipeline.duplicates import Hashes, Judged, Mask, SeenHashes, fresh_among
from service.pipeline.queue import QueuedPage

FETCH_STAGE = "TASK_POLL"
"""Connect's name of the stage at which a fetcher itself could not vouch for a record."""
DELIVER_STAGE = "KAFKA_PRODUCE"
"""Connect's name of the stage at which a topic does not take a record."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The record at which a task with ``errors.tolerance=none`` fails."""

    letter: DeadLetter

    def __str__(self) -> str:
        """One line for status and log: never the record's content."""
        return (
            f"record rejected ({self.letter.reason}): {self.letter.message}; source partition "
            f"{dict(self.letter.partition)}, offset {dict(self.letter.offset)}. errors.tolerance=none fails the task: "
            "mend the contract or the source, or set errors.tolerance=all to send such records to the dead letters"
        )


@dataclass(frozen=True, slots=True)
class Settlement:
    """Everything one transaction carries, and the accounts of it."""

    pages: tuple[QueuedPage, ...]
    records: tuple[TopicRecords, ...]
    rows: tuple[Mask, ...]
    """For each of ``records`` the rows of the micro-batch that it holds."""
    letters: tuple[DeadLetter, ...]
    offsets: tuple[tuple[Partition, Offset], ...]
    """The last offset of each source partition."""
    fresh_hashes: tuple[tuple[DedupeScope | None, Hashes], ...]
    fetched: int
    delivered: int
    deduplicated: int
    failure: FirstFailure | None = None

    @property
    def rejected(self) -> Counter[tuple[str, str]]:
        """Dead letters by (stage, reason)."""
        return Counter((letter.stage, letter.reason) for letter in self.letters)


@dataclass(frozen=True, slots=True)
class SettlementRules:
    """A task's choices."""

    topic: str
    partition: Partition
    """Of pages that name none."""
    is_tolerant: bool
    has_dedupe: bool


def settle(
    converted: ConvertedBatch,
    rules: SettlementRules,
    seen: SeenHashes,
    refused: Mapping[int, RefusedRecord] = MappingProxyType({}),
) -> Settlement:
    """Decide about every record, in source order. ``refused``: rows that their topics do not take."""
    rows = _Rows.of(converted, rules, refused)
    rejected = rows.rejected_mask()
    failure = None
    if not rules.is_tolerant and rejected.any():
        first = int(np.argmax(rejected))
        failure = FirstFailure(*rows.letters(np.arange(rows.count) == first))
        rows = rows.up_to_page_of(first)
        rejected = rejected[: rows.count]
    fresh, fresh_hashes = _fresh(rows, rejected, seen)
    delivered = fresh & ~rejected
    written = list(rows.records(delivered))
    return Settlement(
        pages=rows.pages,
        records=tuple(write for write, _ in written),
        rows=tuple(mask for _, mask in written),
        letters=rows.letters(fresh & rejected),
        offsets=_last_offsets(rows.pages, rules),
        fresh_hashes=fresh_hashes,
        fetched=rows.count,
        delivered=int(delivered.sum()),
        deduplicated=rows.count - int(fresh.sum()),
        failure=failure,
    )


def _last_offsets(pages: tuple[QueuedPage, ...], rules: SettlementRules) -> tuple[tuple[Partition, Offset], ...]:
    last: dict[Any, tuple[Partition, Offset]] = {}
    for item in pages:
        partition = rules.partition if item.page.partition is None else item.page.partition
        last[partition_key(partition)] = (partition, item.page.offset)
    return tuple(last.values())


def _fresh(rows: _Rows, rejected: Mask, seen: SeenHashes) -> tuple[Mask, tuple[tuple[DedupeScope | None, Hashes], ...]]:
    """Which records are no duplicates, and the new hashes of each run of pages with one window."""
    if not rows.rules.has_dedupe or not rows.count:
        return np.ones(rows.count, dtype=bool), ()
    judged = Judged.of(_contiguous(rows.outcome.column("dedupe")), rejected)
    fresh = np.empty(rows.count, dtype=bool)
    added = []
    for scope, start, end in rows.scopes():
        fresh[start:end], noted = fresh_among(judged.rows(start, end), seen, window=scope.window if scope else "")
        added.append((scope, noted))
    return fresh, tuple(added)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The records of some whole pages, with their verdicts."""

    pages: tuple[QueuedPage, ...]
    starts: npt.NDArray[np.int64]
    """First row of each page, and the count of rows at the end."""
    input: pa.Table
    outcome: pa.Table
    rules: SettlementRules
    refused: Mapping[int, RefusedRecord]

    @classmethod
    def of(cls, converted: ConvertedBatch, rules: SettlementRules, refused: Mapping[int, RefusedRecord]) -> _Rows:
        pages = converted.batch.pages
        starts = np.concatenate(([0], np.cumsum([len(item.page) for item in pages], dtype=np.int64)))
        return cls(pages, starts, converted.records, converted.outcome, rules, refused)

    @property
    def count(self) -> int:
        return int(self.starts[-1])

    def rejected_mask(self) -> Mask:
        """Rows that conversion or their topic refused, or that their fetcher could not vouch for."""
        mask = _as_mask(pc.is_valid(_contiguous(self.outcome.column("reason"))))
        mask[list(self.refused)] = True
        for start, item in zip(self.starts, self.pages, strict=False):
            for rejection in item.page.rejections:
                mask[int(start) + rejection.index] = True
        return mask

    def up_to_page_of(self, row: int) -> _Rows:
        """Only the pages before the one that holds ``row``."""
        page = int(self._page_indexes(np.array([row]))[0])
        count = int(self.starts[page])
        return replace(
            self,
            pages=self.pages[:page],
            starts=self.starts[: page + 1],
            input=self.input.slice(0, count),
            outcome=self.outcome.slice(0, count),
        )

    def scopes(self) -> Iterator[tuple[DedupeScope | None, int, int]]:
        """Runs of pages with one de-duplication window, with their rows."""
        run_start = 0
        for index, item in enumerate(self.pages):
            is_last = index + 1 == len(self.pages)
            if is_last or self.pages[index + 1].page.dedupe != item.page.dedupe:
                yield item.page.dedupe, run_start, int(self.starts[index + 1])
                run_start = int(self.starts[index + 1])

    def records(self, mask: Mask) -> Iterator[tuple[TopicRecords, Mask]]:
        """The chosen rows, as columns for each topic, and which they are."""
        if not mask.any():
            return
        topics = self._topics()
        if topics is None:
            yield self._topic_records(self.rules.topic, mask), mask
            return
        for topic in cast("list[str]", topics.unique().to_pylist()):
            chosen = mask & _as_mask(pc.equal(cast("Any", topics), cast("Any", topic)))
            if chosen.any():
                yield self._topic_records(topic, chosen), chosen

    def letters(self, mask: Mask) -> tuple[DeadLetter, ...]:
        """The chosen rows with their original bytes."""
        rows = np.flatnonzero(mask)
        if not len(rows):
            return ()
        chosen = pa.array(mask)
        payloads = self.input.select(["key", "value"]).filter(chosen).to_pydict()
        verdicts = self.outcome.select(["stage", "reason", "message"]).filter(chosen).to_pydict()
        places = zip(rows.tolist(), self._page_indexes(rows).tolist(), strict=True)
        return tuple(
            self._letter(
                self.pages[page_index].page,
                row - int(self.starts[page_index]),
                {name: column[number] for name, column in (payloads | verdicts).items()} | self._refusal(row),
            )
            for number, (row, page_index) in enumerate(places)
        )

    def _refusal(self, row: int) -> dict[str, str]:
        """The topic's verdict on a row, where it has one."""
        record = self.refused.get(row)
        return {} if record is None else {"stage": DELIVER_STAGE, "reason": record.reason, "message": record.message}

    def _letter(self, page: Page, index: int, row: Mapping[str, Any]) -> DeadLetter:
        """``row``: the record's payload and its verdict, by the names of their columns."""
        own = next((rejection for rejection in page.rejections if rejection.index == index), None)
        partition, offset = self._origin(page, index)
        return DeadLetter(
            key=row["key"],
            value=row["value"],
            stage=FETCH_STAGE if own else row["stage"],
            reason=own.reason if own else row["reason"],
            message=own.message if own else row["message"] or "",
            topic=page.topic or self.rules.topic,
            partition=partition,
            offset=offset,
            page_topic=page.topic,
        )

    def _origin(self, page: Page, index: int) -> tuple[Partition, Offset]:
        """Where a record came from, as exactly as its page knows."""
        if page.origins is not None:
            return page.origins[index]
        partition = self.rules.partition if page.partition is None else page.partition
        if page.positions is None:
            return partition, page.offset
        return partition, {**page.offset, page.position_name: cast("Any", page.positions[index]).as_py()}

    def _page_indexes(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The page that holds each row; empty pages hold none."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def _topics(self) -> Column | None:
        """The topic of each row; None when all rows go to the configured one."""
        routed = _contiguous(self.outcome.column("topic"))
        has_own = any(item.page.topic for item in self.pages)
        if not has_own and routed.null_count == len(routed):
            return None
        own = np.repeat(
            np.array([item.page.topic or self.rules.topic for item in self.pages], dtype=object), np.diff(self.starts)
        )
        return pc.coalesce(routed, pa.array(own, pa.string()))

    def _topic_records(self, topic: str, mask: Mask) -> TopicRecords:
        """Columns of the rows in ``mask``; without copying when that is all of them."""
        table = self.outcome.select(["key", "value", "timestamp"])
        headers = self._headers(mask)
        if not mask.all():
            table = table.filter(pa.array(mask))
        keys, timestamps = _contiguous(table.column("key")), _contiguous(table.column("timestamp"))
        return TopicRecords(
            topic=topic,
            values=_contiguous(table.column("value")),
            keys=None if keys.null_count == len(keys) else keys,
            timestamps_ms=None if timestamps.null_count == len(timestamps) else timestamps,
            headers=headers,
        )

    def _headers(self, mask: Mask) -> list[Any] | None:
        if all(item.page.headers is None for item in self.pages):
            return None
        every: list[Any] = []
        for item in self.pages:
            every.extend(item.page.headers if item.page.headers is not None else [()] * len(item.page))
        return [every[row] for row in np.flatnonzero(mask)]


def _contiguous(column: pa.ChunkedArray[Any]) -> Column:
    joined: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return cast("Column", joined)


def _as_mask(values: Any) -> Mask:
    """A writable mask of a boolean array without nulls."""
    return np.array(values.to_numpy(zero_copy_only=False), dtype=bool)
