"""What becomes of each record of a converted micro-batch: delivered, dead-lettered, filtered, dropped as a duplicate.

Pure: columns in, columns and counts out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from fetchers.sdk import DedupeScope, Offset, Partition
from fetchers.sdk.context import partition_key
from service.kafka.errors import RefusedRecord
from service.kafka.records import TopicRecords
from service.pipeline.converting import ConvertedBatch
from service.pipeline.dead_letters import DeadLetter, Rejected
from service.pipeline.duplicates import Hashes, Judged, Mask, SeenHashes, fresh_among
from service.pipeline.queue import QueuedPage
from service.pipeline.rows import Rows, contiguous
from service.stores.dedupe import NO_WINDOW


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
    filtered: int = 0
    """Dropped by a transformation."""
    failure: FirstFailure | None = None
    coerced: tuple[tuple[str, int], ...] = ()
    """Fields in which texts were taken for values, and in how many of the delivered records."""


@dataclass(frozen=True, slots=True)
class SettlementRules:
    """What a task's config says about the fate of its records."""

    topic: str
    partition: Partition
    """Source partition of pages that name none."""
    is_tolerant: bool
    has_dedupe: bool
    coerced_fields: tuple[str, ...] = ()
    """Names of the bits of the outcome's column ``coerced``."""


def settle(
    converted: ConvertedBatch,
    rules: SettlementRules,
    seen: SeenHashes,
    refused: Mapping[int, RefusedRecord] = MappingProxyType({}),
) -> Settlement:
    """Decide about every record, in source order. ``refused``: rows that their topics do not take."""
    rows = Rows.of(converted, refused, topic=rules.topic, partition=rules.partition)
    rejected = rows.rejected_mask()
    failure = None
    if not rules.is_tolerant and rejected.any():
        first = int(np.argmax(rejected))
        failure = FirstFailure(Rejected(rows, np.array([first])).letter(0))
        rows = rows.up_to_page_of(first)
        rejected = rejected[: rows.count]
    fresh, fresh_hashes = _fresh(rows, rejected, seen, has_dedupe=rules.has_dedupe)
    # What a filter has dropped has no hash, so that it is fresh always.
    dropped = rows.dropped_mask() & ~rejected
    delivered = fresh & ~rejected & ~dropped
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
        filtered=int((fresh & dropped).sum()),
        failure=failure,
        coerced=_coerced(rows, delivered, rules.coerced_fields),
    )


def _coerced(rows: Rows, delivered: Mask, names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    if not names:
        return ()
    column: Any = contiguous(rows.outcome.column("coerced"))
    bits = column.fill_null(0).to_numpy(zero_copy_only=False)[delivered]
    counts = [(name, int(np.count_nonzero(bits >> at & 1))) for at, name in enumerate(names)]
    return tuple((name, count) for name, count in counts if count)


def _last_offsets(pages: tuple[QueuedPage, ...], rules: SettlementRules) -> tuple[tuple[Partition, Offset], ...]:
    last: dict[Any, tuple[Partition, Offset]] = {}
    for item in pages:
        partition = rules.partition if item.page.partition is None else item.page.partition
        last[partition_key(partition)] = (partition, item.page.offset)
    return tuple(last.values())


def _fresh(
    rows: Rows, rejected: Mask, seen: SeenHashes, *, has_dedupe: bool
) -> tuple[Mask, tuple[tuple[DedupeScope | None, Hashes], ...]]:
    """Which records are no duplicates, and the new hashes of each run of pages with one window."""
    if not has_dedupe or not rows.count:
        return np.ones(rows.count, dtype=bool), ()
    judged = Judged.of(contiguous(rows.outcome.column("dedupe")), rejected)
    fresh = np.empty(rows.count, dtype=bool)
    added = []
    for scope, members in rows.windows():
        window = scope.window if scope else NO_WINDOW
        fresh[members], noted = fresh_among(judged.rows(members), seen, window=window)
        added.append((scope, noted))
    return fresh, tuple(added)
