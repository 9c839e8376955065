"""Judged pages as rows: the columns of a DataFrame, whole columns at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from fetchers.sdk import Page, Partition
from service.pipeline.batching import CloseReason, MicroBatch
from service.pipeline.converting import input_table
from service.pipeline.dead_letters import FETCH_STAGE
from service.pipeline.duplicates import Judged, Mask, fresh_among
from service.pipeline.queue import QueuedPage
from service.spark_source.options import REJECTED, SOURCE, Rejects, SourceOptions
from service.stores.dedupe import NO_WINDOW, DedupeIndex
from spark_batch.judge_rows import judge_rows
from spark_batch.row_types import row_type

pc: Any = pyarrow.compute

_PLACE: dict[str, Any] = {"partition": pa.string(), "offset": pa.string(), "position": pa.int64()}
"""Where a record came from: source partition and offset as JSON (the offset is that after its page)."""
_SOURCE: dict[str, Any] = {"topic": pa.string(), "key": pa.binary(), "timestamp": pa.timestamp("us", "UTC"), **_PLACE}
_WHY: dict[str, Any] = {"stage": pa.string(), "reason": pa.string(), "message": pa.string(), "payload": pa.binary()}
_LOOSE: dict[str, Any] = {"value": pa.binary(), **_SOURCE}
"""What there is without a contract."""


class RecordRejectedError(ValueError):
    """A record that the contract rejects, where that fails the read."""


def rows_schema(options: SourceOptions) -> pa.Schema:
    """The columns that the options ask for."""
    if options.rejects is Rejects.ONLY:
        return pa.schema({**_WHY, **_SOURCE})
    record = options.plan.record
    columns: list[Any] = list(_LOOSE.items()) if record is None else list(row_type(record))
    if options.rejects is Rejects.COLUMN:
        columns.append((REJECTED, pa.struct({**_WHY, **_PLACE})))
    if options.has_source_column:
        columns.append((SOURCE, pa.struct(_SOURCE)))
    return pa.schema(columns)


class SeenRecords:
    """What one part of a batch read remembers for de-duplication; the rules are those of ``StoredDedupe``."""

    remembers_rejected = True

    def __init__(self) -> None:
        self._index = DedupeIndex()

    def fresh_mask(self, hashes: npt.NDArray[np.uint8], is_valid: Mask, window: str) -> Mask:
        """See ``SeenHashes``."""
        return self._index.fresh_in_open_windows(hashes, is_valid, window)

    def known_mask(self, hashes: npt.NDArray[np.uint8], window: str) -> Mask:
        """See ``SeenHashes``."""
        return self._index.known_in_open_windows(hashes, window)

    def keep(self, pages: Sequence[Page]) -> None:
        """Remember what was noted of these pages, and forget windows that they close."""
        self._index.commit()
        self._index.forget_before(max((page.dedupe.oldest_open for page in pages if page.dedupe), default=NO_WINDOW))
        self._index.slide()


@dataclass(frozen=True)
class RowMaker:
    """Makes rows of the pages of one connector."""

    options: SourceOptions
    partition: Partition
    """Source partition of pages that name none."""
    topic: str

    def batch(self, pages: Sequence[Page], seen: SeenRecords | None) -> pa.RecordBatch:
        """The rows of whole pages. Raises RecordRejectedError at the first rejected one where that is asked for."""
        queued = tuple(QueuedPage(page, 0.0) for page in pages)
        table = input_table(MicroBatch(queued, CloseReason.STOP, 0.0))
        judged = judge_rows(self.options.plan, table)
        places = _Places.of(pages, self.topic, self.partition)
        rows = _Rows(places, _whole(table, "value"), judged.records, _with_own_rejections(judged.outcome, places))
        is_kept, rejects = self._fresh(rows, seen), self.options.rejects
        if rejects is Rejects.FAIL and (rows.is_rejected & is_kept).any():
            raise rows.refusal(int(np.argmax(rows.is_rejected & is_kept)))
        if rejects in {Rejects.ONLY, Rejects.WITHOUT}:
            is_kept = is_kept & (rows.is_rejected == (rejects is Rejects.ONLY))
        columns = self._columns(rows)
        arrays = [columns[name] for name in self.schema.names]
        if not is_kept.all():
            kept: Any = pa.array(np.flatnonzero(is_kept))
            arrays = [array.take(kept) for array in arrays]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @property
    def schema(self) -> pa.Schema:
        """Of every batch."""
        return rows_schema(self.options)

    def _fresh(self, rows: _Rows, seen: SeenRecords | None) -> Mask:
        """Which records are no duplicates of others of this part; all where nothing is de-duplicated."""
        fresh = np.ones(len(rows.is_rejected), dtype=bool)
        if seen is None or not self.options.plan.dedupe_fields or not len(fresh):
            return fresh
        judged = Judged.of(_whole(rows.outcome, "dedupe"), rows.is_rejected)
        pages, starts = rows.places.pages, rows.places.starts.tolist()
        for scope, run in groupby(zip(pages, pairwise(starts), strict=True), key=lambda each: each[0].dedupe):
            bounds = [bound for _, bound in run]
            members = slice(bounds[0][0], bounds[-1][1])
            window = NO_WINDOW if scope is None else scope.window
            fresh[members], _ = fresh_among(judged.rows(members), seen, window=window)
        seen.keep(pages)
        return fresh

    def _columns(self, rows: _Rows) -> dict[str, Any]:
        """Every column that is asked for, of all rows."""
        options = self.options
        if options.rejects is Rejects.ONLY:
            return {**rows.why(), **rows.source()}
        if rows.records is None:
            columns = {"value": rows.payloads, **rows.source()}
        else:
            names = [field.name for field in rows.records.type]
            columns = dict(zip(names, rows.records.flatten(), strict=True))
        if options.rejects is Rejects.COLUMN:
            columns[REJECTED] = rows.rejected(self.schema.field(REJECTED).type)
        if options.has_source_column:
            columns[SOURCE] = pa.StructArray.from_arrays(list(rows.source().values()), fields=list(pa.schema(_SOURCE)))
        return columns


@dataclass(frozen=True)
class _Rows:
    """The records of some pages with their verdicts."""

    places: _Places
    payloads: Any
    records: Any | None
    outcome: pa.Table

    @cached_property
    def is_rejected(self) -> Mask:
        """Which of them are."""
        return np.asarray(_whole(self.outcome, "reason").is_valid())

    def why(self) -> dict[str, Any]:
        """As ``_WHY``; of use where they are rejected."""
        return {**{name: _whole(self.outcome, name) for name in _WHY if name != "payload"}, "payload": self.payloads}

    def source(self) -> dict[str, Any]:
        """As ``_SOURCE``."""
        stamps = _whole(self.outcome, "timestamp").cast(pa.timestamp("ms", "UTC")).cast(_SOURCE["timestamp"])
        key = _whole(self.outcome, "key")
        return {"topic": self.places.topics(), "key": key, "timestamp": stamps, **self.places.columns()}

    def rejected(self, kind: Any) -> Any:
        """Null but for the few rejected; their bytes are copied, and nobody else's."""
        if not self.is_rejected.any():
            return pa.nulls(len(self.is_rejected), kind)
        rows: Any = pa.array(np.flatnonzero(self.is_rejected))
        few = [column.take(rows) for column in (*self.why().values(), *self.places.columns().values())]
        structs: Any = pa.StructArray.from_arrays(few, fields=list(kind))
        return structs.take(pa.array(np.cumsum(self.is_rejected) - 1, mask=~self.is_rejected))

    def refusal(self, row: int) -> RecordRejectedError:
        """What ends the read at a row."""
        reason, message = (self.outcome.column(name)[row].as_py() for name in ("reason", "message"))
        place = {name: column[row].as_py() for name, column in self.places.columns().items()}
        return RecordRejectedError(
            f"record rejected ({reason}): {message}; source partition {place['partition']}, offset {place['offset']}, "
            f"position {place['position']}. headrace.rejected=fail ends the read: mend the contract or the source, or "
            "ask for rejected records with headrace.rejected=column or only, or to be left out with without"
        )


@dataclass(frozen=True)
class _Places:
    """Where the rows of some pages come from."""

    pages: Sequence[Page]
    starts: npt.NDArray[np.int64]
    """First row of each page, and the count of rows at the end."""
    topic: str
    partition: Partition

    @classmethod
    def of(cls, pages: Sequence[Page], topic: str, partition: Partition) -> _Places:
        starts = np.concatenate(([0], np.cumsum([len(page) for page in pages], dtype=np.int64)))
        return cls(pages, starts, topic, partition)

    def columns(self) -> dict[str, Any]:
        """As ``_PLACE``."""
        positions: list[Any] = [
            pa.nulls(len(page), pa.int64()) if page.positions is None else page.positions for page in self.pages
        ]
        partitions = [self.partition if page.partition is None else page.partition for page in self.pages]
        return {
            "partition": self._repeated([_text(partition) for partition in partitions]),
            "offset": self._repeated([_text(page.told_offset or page.offset) for page in self.pages]),
            "position": pa.concat_arrays(positions) if positions else pa.nulls(0, pa.int64()),
        }

    def topics(self) -> Any:
        """Of each row."""
        return self._repeated([page.topic or self.topic for page in self.pages])

    def _repeated(self, texts: Sequence[str]) -> Any:
        rows = np.repeat(np.arange(len(texts)), np.diff(self.starts))
        values: Any = pa.array(texts, pa.string())
        return values.take(pa.array(rows))


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False)


def _with_own_rejections(outcome: pa.Table, places: _Places) -> pa.Table:
    """The verdicts, with those of fetchers on what they could not vouch for."""
    own = [
        (int(start) + rejection.index, rejection)
        for start, page in zip(places.starts, places.pages, strict=False)
        for rejection in page.rejections
    ]
    if not own:
        return outcome
    rows = [row for row, _ in own]
    picks = np.arange(outcome.num_rows)
    picks[rows] = outcome.num_rows + np.arange(len(rows))
    told = {
        "stage": [FETCH_STAGE] * len(own),
        "reason": [rejection.reason for _, rejection in own],
        "message": [rejection.message for _, rejection in own],
    }
    for name, values in told.items():
        column = pa.concat_arrays([_whole(outcome, name), pa.array(values, pa.string())]).take(pa.array(picks))
        outcome = outcome.set_column(outcome.column_names.index(name), name, column)
    return outcome


def _whole(table: pa.Table, name: str) -> Any:
    column: Any = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
