"""What becomes of each record of a converted micro-batch: delivered, dead-lettered, dropped as a duplicate.

Pure: columns in, columns and counts out. Only rejected records are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import DedupeScope, Offset, Partition
from fetchers.sdk.context import partition_key
from service.kafka.errors import RefusedRecord
from service.kafka.records import Column, TopicRecords
from service.pipeline.converting import ConvertedBatch
from service.pipeline.dead_letters import PORTION_LETTERS_MAX, DeadLetter, PageLetters
from service.pipeline.duplicates import Hashes, Judged, Mask, SeenHashes, fresh_among
from service.pipeline.queue import QueuedPage
from service.stores.dedupe import NO_WINDOW

Numbers = npt.NDArray[np.int64]
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
            f"{self.letter.partition}, offset {self.letter.offset}. errors.tolerance=none fails the task: "
            "mend the contract or the source, or set errors.tolerance=all to send such records to the dead letters"
        )


@dataclass(frozen=True, slots=True)
class Settlement:
    """Everything one transaction carries, and the accounts of it."""

    pages: tuple[QueuedPage, ...]
    records: tuple[TopicRecords, ...]
    rows: tuple[Mask, ...]
    """For each of ``records`` the rows of the micro-batch that it holds."""
    rejects: Rejected
    """The records that become dead letters."""
    offsets: tuple[tuple[Partition, Offset], ...]
    """The last offset of each source partition."""
    fresh_hashes: tuple[tuple[DedupeScope | None, Hashes], ...]
    fetched: int
    delivered: int
    deduplicated: int
    failure: FirstFailure | None = None


@dataclass(frozen=True, slots=True)
class SettlementRules:
    """What a task's config says about the fate of its records."""

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
        failure = FirstFailure(Rejected(rows, np.array([first])).letter(0))
        rows = rows.up_to_page_of(first)
        rejected = rejected[: rows.count]
    fresh, fresh_hashes = _fresh(rows, rejected, seen)
    delivered = fresh & ~rejected
    written = list(rows.records(delivered))
    return Settlement(
        pages=rows.pages,
        records=tuple(write for write, _ in written),
        rows=tuple(mask for _, mask in written),
        rejects=Rejected(rows, np.flatnonzero(fresh & rejected)),
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
    for scope, members in rows.windows():
        window = scope.window if scope else NO_WINDOW
        fresh[members], noted = fresh_among(judged.rows(members), seen, window=window)
        added.append((scope, noted))
    return fresh, tuple(added)


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows that become dead letters; see ``Rejects``."""

    rows: _Rows
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
                {name: column[number] for name, column in columns.items()} | self._refusal(row),
            )
            for number, (row, page) in enumerate(zip(chosen.tolist(), pages.tolist(), strict=True))
        )

    def _of_page(self, index: int) -> PageLetters:
        rules = self.rows.rules
        return PageLetters.of(self.rows.pages[index].page, topic=rules.topic, partition=rules.partition)

    def _refusal(self, row: int) -> dict[str, str]:
        """The topic's verdict on a row, where it has one."""
        record = self.rows.refused.get(row)
        return {} if record is None else {"stage": DELIVER_STAGE, "reason": record.reason, "message": record.message}


@dataclass(frozen=True, slots=True)
class _Rows:
    """The records of some whole pages, with their verdicts."""

    pages: tuple[QueuedPage, ...]
    starts: Numbers
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
            own = np.fromiter((rejection.index for rejection in item.page.rejections), dtype=np.int64)
            mask[start + own] = True
        return mask

    def up_to_page_of(self, row: int) -> _Rows:
        """Only the pages before the one that holds ``row``."""
        page = int(self.page_indexes(np.array([row]))[0])
        count = int(self.starts[page])
        return replace(
            self,
            pages=self.pages[:page],
            starts=self.starts[: page + 1],
            input=self.input.slice(0, count),
            outcome=self.outcome.slice(0, count),
        )

    def windows(self) -> Iterator[tuple[DedupeScope | None, slice]]:
        """The rows of each run of pages with one de-duplication scope, in order."""
        start = 0
        ends = zip(self.pages, self.starts[1:].tolist(), strict=True)
        for scope, run in groupby(ends, key=lambda each: each[0].page.dedupe):
            *_, (_, end) = run
            yield scope, slice(start, end)
            start = end

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

    def page_indexes(self, rows: Numbers) -> Numbers:
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
