"""De-duplication state in Kafka: what a transaction delivers and what it remembers can never differ.

A compacted topic, beside that of the offsets, holds chunks of hashes: key
`["<connector>",<task>,"<window>",<sequence>]`, value the packed 16-byte hashes, null once the chunk is merged into
another or its window is closed. What a micro-batch changes travels in its own transaction. Of a closed window only
those records are remembered further, among those without a window, that were rejected first and delivered later: their
letters may be redriven at any time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import numpy as np

from metrics.events import Emit, StateRecordSkipped, discard
from service.kafka.admin import KafkaAdmin
from service.kafka.reader import partition_count, read_topic
from service.kafka.records import TopicRecords
from service.stores.dedupe import NO_WINDOW, DedupeIndex, DedupeLimits
from service.stores.dedupe_chunks import Change, TaskChunks
from service.stores.dedupe_records import TaskKey, TaskRecords, chunk_writes, parse_key, partition_of, why_foreign
from service.stores.hashes import HASH_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from fetchers.sdk import DedupeScope
    from service.kafka.client import KafkaSettings

PARTITIONS = 25
_AT_ONCE_HASHES = 262_144
"""Added to the index in one step when a task starts."""
_STEPS_OF_WINDOW = 64
_READ_INLINE_RECORDS_MAX = 100

TopicRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None]
"""Partition, offset, key and value."""


class DedupeState(Protocol):
    """What the deliver stage asks: notes are tentative until the transaction's fate is known."""

    @property
    def remembers_rejected(self) -> bool:
        """Whether a rejected record is looked up and noted too, under the complement of its hash."""

    async def load(self) -> None:
        """Read the committed state; call it once, after the task's writer has started."""

    def fresh_mask(
        self, hashes: npt.NDArray[np.uint8], is_valid: npt.NDArray[np.bool_], window: str
    ) -> npt.NDArray[np.bool_]:
        """True for rows seen for the first time in any window that is open, in this column too; note them there."""

    def known_mask(self, hashes: npt.NDArray[np.uint8], window: str) -> npt.NDArray[np.bool_]:
        """True for rows that are committed or noted, in any window that is open; takes no note."""

    def encode(self, fresh: Sequence[tuple[DedupeScope | None, npt.NDArray[np.uint8]]]) -> list[TopicRecords]:
        """Records that make the fresh hashes, and the closing of windows, last."""

    def commit(self) -> None:
        """Tell that the transaction is committed."""

    def rollback(self) -> None:
        """Tell that it is not."""


class NoDedupe:
    """The state of a task that does not de-duplicate: everything is fresh, nothing is kept."""

    remembers_rejected = False

    async def load(self) -> None:
        """Nothing is remembered, so nothing is read."""

    def fresh_mask(
        self, hashes: npt.NDArray[np.uint8], is_valid: npt.NDArray[np.bool_], window: str
    ) -> npt.NDArray[np.bool_]:
        """True for every row: none was ever seen."""
        del is_valid, window
        return np.ones(len(hashes), dtype=bool)

    def known_mask(self, hashes: npt.NDArray[np.uint8], window: str) -> npt.NDArray[np.bool_]:
        """False for every row: nothing is remembered."""
        del window
        return np.zeros(len(hashes), dtype=bool)

    def encode(self, fresh: Sequence[tuple[DedupeScope | None, npt.NDArray[np.uint8]]]) -> list[TopicRecords]:
        """No records, for nothing is remembered."""
        del fresh
        return []

    def commit(self) -> None:
        """Nothing has to be kept."""

    def rollback(self) -> None:
        """Nothing has to be forgotten."""


@dataclass(frozen=True)
class DedupeStore:
    """The topic; `open` gives the state of one task."""

    settings: KafkaSettings
    topic: str
    emit: Emit = discard

    async def ensure(self, *, replication: int | None = None, config: Mapping[str, str] | None = None) -> None:
        """Create the topic if it is missing, and check that it is compacted.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        async with KafkaAdmin.opened(self.settings) as admin:
            await admin.ensure_topic(
                self.topic,
                partitions=PARTITIONS,
                replication=replication,
                config={**(config or {}), "cleanup.policy": "compact"},
            )
            await admin.demand_compacted(self.topic, worker_key="dedupe.storage.topic", purpose="de-duplication state")

    async def forgotten(self, connector: str) -> list[TopicRecords]:
        """Records that make all tasks of a connector forget what they have seen; to be written while none runs.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        found = await self.read(lambda task: task[0] == connector)
        gone = {
            task: [(window, place, None) for place, (window, _) in records.live.items()]
            for task, records in found.items()
        }
        return [write for task, changes in gone.items() for write in chunk_writes(self.topic, task, changes)]

    async def tasks_of(self, connector: str) -> list[int]:
        """Tasks of a connector that remember anything, in order. Raises DeliveryFatal, DeliveryRetriable."""
        found = await self.read(lambda task: task[0] == connector)
        return sorted(number for (_, number), records in found.items() if records.live)

    async def load_tasks(
        self, connector: str, tasks: Iterable[int], open_task: Callable[[int], StoredDedupe]
    ) -> dict[int, StoredDedupe]:
        """States of some tasks of a connector, loaded together. Raises DeliveryFatal, DeliveryRetriable."""
        states = {task: open_task(task) for task in tasks}
        found = await self.read(lambda task: task[0] == connector and task[1] in states)
        count = await self._partition_count()
        for number, state in states.items():
            records = found.get((connector, number)) or TaskRecords()
            records.home = partition_of((connector, number), count)
            await asyncio.to_thread(state.restore, records)
        return states

    async def load_task(self, task: TaskKey) -> TaskRecords:
        """What is remembered of one task. Raises DeliveryFatal, DeliveryRetriable.

        All partitions are read where the task's own holds nothing, or only what former versions may have placed there.
        """
        counts: list[int] = []

        def own(count: int) -> int:
            counts.append(count)
            return partition_of(task, count)

        async def found(only_partition: Callable[[int], int] | None) -> TaskRecords:
            records = (await self.read(lambda each: each == task, only_partition=only_partition)).get(task)
            records = records or TaskRecords()
            records.home = partition_of(task, counts[0])
            return records

        records = await found(own)
        return await found(None) if counts[0] > 1 and records.may_be_a_part(task, counts[0]) else records

    async def read(
        self, is_wanted: Callable[[TaskKey], bool], *, only_partition: Callable[[int], int] | None = None
    ) -> dict[TaskKey, TaskRecords]:
        """All that is committed of these tasks; what is no chunk is told of. Raises DeliveryFatal, DeliveryRetriable.

        `only_partition` is as `read_topic`'s. Many records are gone through in threads.
        """
        found: dict[TaskKey, TaskRecords] = {}

        def take(records: Sequence[TopicRecord]) -> list[StateRecordSkipped]:
            foreign = []
            for partition, offset, key, value in records:
                place = parse_key(key)
                if reason := why_foreign(place, value):
                    foreign.append(StateRecordSkipped(topic=self.topic, offset=offset, reason=reason))
                elif place is not None and is_wanted(place[:2]):
                    found.setdefault(place[:2], TaskRecords()).take(place[2], (place[3], partition), value)
            return foreign

        async with aclosing(self.records(only_partition)) as lists:
            async for records in lists:
                is_short = len(records) <= _READ_INLINE_RECORDS_MAX
                for skipped in take(records) if is_short else await asyncio.to_thread(take, records):
                    self.emit(skipped)
        return found

    async def records(self, only_partition: Callable[[int], int] | None = None) -> AsyncGenerator[list[TopicRecord]]:
        """Everything that is committed, or that in one partition. Raises DeliveryFatal, DeliveryRetriable."""
        async with aclosing(read_topic(self.settings, self.topic, only_partition=only_partition)) as lists:
            async for records in lists:
                yield [(record.partition, record.offset, record.key, record.value) for record in records]

    async def _partition_count(self) -> int:
        return await partition_count(self.settings, self.topic)

    def open(self, connector: str, task: int, *, limits: DedupeLimits | None = None) -> StoredDedupe:
        """State of one task; nothing is read before `load`."""
        return StoredDedupe(self, connector, task, index=DedupeIndex(limits or DedupeLimits()))


@dataclass
class StoredDedupe:
    """The de-duplication state of one task: index in memory, chunks in the topic."""

    remembers_rejected: ClassVar[bool] = True

    store: DedupeStore
    connector: str
    task: int
    index: DedupeIndex
    _change: Change | None = None
    _oldest_open: str = NO_WINDOW

    def __post_init__(self) -> None:
        """Know no chunk before `load`."""
        self._chunks = TaskChunks(records_max=self.index.limits.records_max)

    async def load(self) -> None:
        """Read the committed state.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        found = await self.store.load_task((self.connector, self.task))
        await asyncio.to_thread(self.restore, found)

    def restore(self, found: TaskRecords) -> None:
        """Build the index from the chunks that live, oldest first; for a thread, if they are many."""
        self._chunks.restore(found.live, next_sequence=found.next_sequence, partition=found.partition)
        by_window: dict[str, list[bytes]] = defaultdict(list)
        for _, (window, packed) in sorted(found.live.items()):
            by_window[window].append(packed)
        # The sliding index gives up what came together in one step.
        step = min(_AT_ONCE_HASHES, max(1, self.index.limits.records_max // _STEPS_OF_WINDOW))
        for window, parts in by_window.items():
            hashes = np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(-1, HASH_BYTES)
            for start in range(0, len(hashes), step):
                part = hashes[start : start + step]
                self.index.fresh_mask(part, np.ones(len(part), dtype=bool), window)
                self.index.commit()
        self.index.slide()

    def fresh_mask(
        self, hashes: npt.NDArray[np.uint8], is_valid: npt.NDArray[np.bool_], window: str
    ) -> npt.NDArray[np.bool_]:
        """True for rows that equal no delivered record of an open window and no row before, see `DedupeState`."""
        return self.index.fresh_in_open_windows(hashes, is_valid, window)

    def known_mask(self, hashes: npt.NDArray[np.uint8], window: str) -> npt.NDArray[np.bool_]:
        """True for rows that are committed in an open window, see `DedupeState`."""
        return self.index.known_in_open_windows(hashes, window)

    def encode(self, fresh: Sequence[tuple[DedupeScope | None, npt.NDArray[np.uint8]]]) -> list[TopicRecords]:
        """Records for the transaction: chunks that are new, merged and forgotten, see `DedupeState`."""
        self._oldest_open = NO_WINDOW
        by_window: dict[str, list[bytes]] = defaultdict(list)
        for scope, hashes in fresh:
            window = NO_WINDOW if scope is None else scope.window
            by_window[window].append(hashes.tobytes())
            if scope is not None:
                self._oldest_open = max(self._oldest_open, scope.oldest_open)
        closing = self._chunks.windows_before(self._oldest_open)
        closing |= {window for window in by_window if NO_WINDOW != window < self._oldest_open}
        for window in sorted(closing):
            by_window.pop(window, None)
            by_window[NO_WINDOW].append(self._delivered_letters(window))
        self._change = change = self._chunks.plan(
            {window: b"".join(parts) for window, parts in by_window.items()}, closing
        )
        changes = [*change.written, *((window, place, None) for window, place in change.forgotten)]
        return chunk_writes(self.store.topic, (self.connector, self.task), changes)

    def _delivered_letters(self, window: str) -> bytes:
        """What was rejected and delivered too lies in the dead letters still: a redrive must know it for longer.

        Also what the micro-batch itself delivers or rejects, of which a closed window gets no chunk.
        """
        hashes = self.index.with_complements(window)
        is_new = self.index.fresh_mask(hashes, np.ones(len(hashes), dtype=bool), NO_WINDOW)
        return hashes[is_new].tobytes()

    def commit(self) -> None:
        """Keep what `encode` planned: its transaction is committed."""
        change, self._change = self._change, None
        if change is not None:
            self._chunks.apply(change)
        self.index.commit()
        if change is not None and self._oldest_open:
            self.index.forget_before(self._oldest_open)
        self.index.slide()

    def rollback(self) -> None:
        """See `DedupeState`; the sequence numbers that were given out stay unused."""
        self._change = None
        self.index.rollback()
