"""The records of a converted micro-batch as rows of columns: the page of each, which are rejected, where each goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import DedupeScope, Partition
from service.kafka.errors import RefusedRecord
from service.kafka.records import Column, TopicRecords
from service.pipeline.converting import ConvertedBatch
from service.pipeline.duplicates import Mask
from service.pipeline.headers import Headers
from service.pipeline.queue import QueuedPage

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """The records of some whole pages, with their verdicts."""

    pages: tuple[QueuedPage, ...]
    starts: Numbers
    """First row of each page, and the count of rows at the end."""
    input: pa.Table
    outcome: pa.Table
    topic: str
    """Topic of pages that name none."""
    partition: Partition
    """Source partition of pages that name none."""
    refused: Mapping[int, RefusedRecord]
    """Rows that their topics do not take."""
    headers: Sequence[Headers] | None = None
    """Of every row; None where none has any."""

    @classmethod
    def of(
        cls, converted: ConvertedBatch, refused: Mapping[int, RefusedRecord], *, topic: str, partition: Partition
    ) -> Rows:
        """All rows of a micro-batch."""
        pages = converted.batch.pages
        starts = np.concatenate(([0], np.cumsum([len(item.page) for item in pages], dtype=np.int64)))
        headers = converted.headers()
        return cls(pages, starts, converted.records, converted.outcome, topic, partition, refused, headers)

    @property
    def count(self) -> int:
        """How many records there are."""
        return int(self.starts[-1])

    def rejected_mask(self) -> Mask:
        """Rows that conversion or their topic refused, or that their fetcher could not vouch for."""
        mask = _as_mask(pc.is_valid(contiguous(self.outcome.column("reason"))))
        mask[list(self.refused)] = True
        for start, item in zip(self.starts, self.pages, strict=False):
            own = np.fromiter((rejection.index for rejection in item.page.rejections), dtype=np.int64)
            mask[start + own] = True
        return mask

    def dropped_mask(self) -> Mask:
        """Rows that a filter has dropped."""
        return _as_mask(pc.fill_null(contiguous(self.outcome.column("is_dropped")), pa.scalar(value=False)))

    def up_to_page_of(self, row: int) -> Rows:
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
            yield self._topic_records(self.topic, mask), mask
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
        routed = contiguous(self.outcome.column("topic"))
        has_own = any(item.page.topic for item in self.pages)
        if not has_own and routed.null_count == len(routed):
            return None
        own = np.repeat(
            np.array([item.page.topic or self.topic for item in self.pages], dtype=object), np.diff(self.starts)
        )
        return pc.coalesce(routed, pa.array(own, pa.string()))

    def _topic_records(self, topic: str, mask: Mask) -> TopicRecords:
        """Columns of the rows in ``mask``; without copying when that is all of them."""
        table = self.outcome.select(["key", "value", "timestamp"])
        headers = self._headers(mask)
        if not mask.all():
            table = table.filter(pa.array(mask))
        keys, timestamps = contiguous(table.column("key")), contiguous(table.column("timestamp"))
        return TopicRecords(
            topic=topic,
            values=contiguous(table.column("value")),
            keys=None if keys.null_count == len(keys) else keys,
            timestamps_ms=None if timestamps.null_count == len(timestamps) else timestamps,
            headers=headers,
        )

    def _headers(self, mask: Mask) -> list[Any] | None:
        headers = self.headers
        return None if headers is None else [headers[row] for row in np.flatnonzero(mask).tolist()]


def contiguous(column: pa.ChunkedArray[Any]) -> Column:
    """The column in one piece, which costs nothing where it is one already."""
    joined: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return cast("Column", joined)


def _as_mask(values: Any) -> Mask:
    """A writable mask of a boolean array without nulls."""
    return np.array(values.to_numpy(zero_copy_only=False), dtype=bool)
