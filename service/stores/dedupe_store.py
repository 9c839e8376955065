"""De-duplication state in Kafka: what a transaction delivers and what it remembers can never differ.

A compacted topic, beside that of the offsets, holds one chunk of hashes for each micro-batch and window: key
`["<connector>",<task>,"<window>",<sequence>]`, value the packed 16-byte hashes, null once the window is closed. A
micro-batch's chunks travel in its own transaction. Of a closed window only those records are remembered further, among
those without a window, that were rejected first and delivered later: their letters may be redriven at any time.

Chunks of slow sources are tiny, so a window's small chunks are rewritten as one now and then.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from metrics.events import Emit, StateRecordSkipped, discard
from service.kafka.admin import KafkaAdmin
from service.kafka.log import CompactedLog
from service.kafka.records import TopicRecords
from service.stores.dedupe import NO_WINDOW, DedupeIndex, DedupeLimits
from service.stores.hashes import HASH_BYTES
from service.stores.jackson import to_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from fetchers.sdk import DedupeScope
    from service.kafka.client import KafkaSettings

CHUNK_BYTES_MAX = 512 * 1024
PARTITIONS = 1
# A window with that many chunks below that size gets them rewritten as one.
SMALL_CHUNKS_MAX = 256
SMALL_CHUNK_BYTES = 1024


# Window and packed hashes of each sequence number.
LiveChunks: TypeAlias = dict[int, tuple[str, bytes]]


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
        """See `DedupeState`."""

    def fresh_mask(
        self, hashes: npt.NDArray[np.uint8], is_valid: npt.NDArray[np.bool_], window: str
    ) -> npt.NDArray[np.bool_]:
        """See `DedupeState`."""
        del is_valid, window
        return np.ones(len(hashes), dtype=bool)

    def known_mask(self, hashes: npt.NDArray[np.uint8], window: str) -> npt.NDArray[np.bool_]:
        """See `DedupeState`."""
        del window
        return np.zeros(len(hashes), dtype=bool)

    def encode(self, fresh: Sequence[tuple[DedupeScope | None, npt.NDArray[np.uint8]]]) -> list[TopicRecords]:
        """See `DedupeState`."""
        del fresh
        return []

    def commit(self) -> None:
        """See `DedupeState`."""

    def rollback(self) -> None:
        """See `DedupeState`."""


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
        live = await self._live(connector)
        if not live:
            return []
        return [TopicRecords(self.topic, pa.nulls(len(live), pa.binary()), pa.array(live, pa.binary()))]

    async def tasks_of(self, connector: str) -> list[int]:
        """Tasks of a connector that remember anything, in order. Raises DeliveryFatal, DeliveryRetriable."""
        return sorted(set((await self._live(connector)).values()))

    async def load_tasks(
        self, connector: str, tasks: Iterable[int], open_task: Callable[[int], StoredDedupe]
    ) -> dict[int, StoredDedupe]:
        """States of some tasks of a connector, loaded together. Raises DeliveryFatal, DeliveryRetriable."""
        states = {task: open_task(task) for task in tasks}
        live: dict[int, LiveChunks] = {task: {} for task in states}
        async with aclosing(self.chunks()) as chunks:
            async for key, value in chunks:
                place = _parse_key(key)
                if place is not None and place[0] == connector and place[1] in states:
                    states[place[1]].read(key, value, live[place[1]])
        for task, state in states.items():
            state.restore(live[task])
        return states

    async def _live(self, connector: str) -> dict[bytes, int]:
        """Keys of all chunks of a connector, with their tasks."""
        live: dict[bytes, int] = {}
        async with aclosing(self.chunks()) as chunks:
            async for key, value in chunks:
                place = _parse_key(key)
                if place is None or place[0] != connector:
                    continue
                if value is None:
                    live.pop(key, None)
                else:
                    live[key] = place[1]
        return live

    async def chunks(self) -> AsyncGenerator[tuple[bytes, bytes | None]]:
        """Keys and values of all chunks that are committed; what is no chunk is told of.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        async with aclosing(self.records()) as records:
            async for offset, key, value in records:
                if reason := _why_foreign(key, value):
                    self.emit(StateRecordSkipped(topic=self.topic, offset=offset, reason=reason))
                else:
                    yield key or b"", value

    async def records(self) -> AsyncGenerator[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of everything that is committed. Raises DeliveryFatal, DeliveryRetriable."""
        log = CompactedLog(self.settings, self.topic)
        try:
            async for records in log.read_to_end():
                for record in records:
                    yield record.offset, record.key, record.value
        finally:
            await log.close()

    def open(self, connector: str, task: int, *, limits: DedupeLimits | None = None) -> StoredDedupe:
        """State of one task; nothing is read before `load`."""
        return StoredDedupe(self, connector, task, index=DedupeIndex(limits or DedupeLimits()))


@dataclass
class _Chunk:
    """A chunk in the topic; small ones keep their bytes, to be rewritten."""

    sequence: int
    hashes: int
    small: bytes | None

    @classmethod
    def of(cls, sequence: int, packed: bytes) -> _Chunk:
        is_small = len(packed) <= SMALL_CHUNK_BYTES
        return cls(sequence, len(packed) // HASH_BYTES, packed if is_small else None)


@dataclass
class _Change:
    """What one micro-batch does to the chunks, once it is committed."""

    added: list[tuple[str, _Chunk]] = field(default_factory=list)
    gone: list[tuple[str, int]] = field(default_factory=list)
    oldest_open: str = NO_WINDOW
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)


@dataclass
class StoredDedupe:
    """The de-duplication state of one task: index in memory, chunks in the topic."""

    remembers_rejected: ClassVar[bool] = True

    store: DedupeStore
    connector: str
    task: int
    index: DedupeIndex
    _chunks: dict[str, list[_Chunk]] = field(default_factory=lambda: defaultdict(list))
    _next_sequence: int = 0
    _change: _Change = field(default_factory=_Change)

    async def load(self) -> None:
        """Read the committed state.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        live: LiveChunks = {}
        async with aclosing(self.store.chunks()) as chunks:
            async for key, value in chunks:
                self.read(key, value, live)
        self.restore(live)

    def read(self, key: bytes | None, value: bytes | None, live: LiveChunks) -> None:
        """Apply one record of the topic to the chunks that live; those of other tasks are passed over."""
        place = _parse_key(key)
        if place is None or place[:2] != (self.connector, self.task):
            return
        window, sequence = place[2:]
        # Numbers are never used twice, not even those of chunks that are gone.
        self._next_sequence = max(self._next_sequence, sequence + 1)
        if value is None:
            live.pop(sequence, None)
        else:
            live[sequence] = (window, value)

    def restore(self, live: LiveChunks) -> None:
        """Build the index from the chunks that live, oldest first."""
        for sequence, (window, packed) in sorted(live.items()):
            self._chunks[window].append(_Chunk.of(sequence, packed))
            hashes = np.frombuffer(packed, dtype=np.uint8).reshape(-1, HASH_BYTES)
            self.index.fresh_mask(hashes, np.ones(len(hashes), dtype=bool), window)
            self.index.commit()
        self.index.slide()

    def fresh_mask(
        self, hashes: npt.NDArray[np.uint8], is_valid: npt.NDArray[np.bool_], window: str
    ) -> npt.NDArray[np.bool_]:
        """See `DedupeState`."""
        is_asked = is_valid.copy()
        is_asked[is_valid] = ~self.index.known_in_open_windows(hashes[is_valid], window)
        return self.index.fresh_mask(hashes, is_asked, window) & (is_asked | ~is_valid)

    def known_mask(self, hashes: npt.NDArray[np.uint8], window: str) -> npt.NDArray[np.bool_]:
        """See `DedupeState`."""
        return self.index.known_in_open_windows(hashes, window)

    def encode(self, fresh: Sequence[tuple[DedupeScope | None, npt.NDArray[np.uint8]]]) -> list[TopicRecords]:
        """See `DedupeState`."""
        change = self._change = _Change()
        by_window: dict[str, list[bytes]] = defaultdict(list)
        for scope, hashes in fresh:
            window = NO_WINDOW if scope is None else scope.window
            by_window[window].append(hashes.tobytes())
            if scope is not None:
                change.oldest_open = max(change.oldest_open, scope.oldest_open)
        for window, parts in by_window.items():
            if window == NO_WINDOW or window >= change.oldest_open:
                self._add(change, window, b"".join(parts))
        self._close_windows(change, {*self._chunks, *by_window})
        self._slide(change)
        if not change.keys:
            return []
        return [
            TopicRecords(self.store.topic, pa.array(change.values, pa.binary()), pa.array(change.keys, pa.binary()))
        ]

    def _add(self, change: _Change, window: str, packed: bytes) -> None:
        if not packed:
            return
        small = [chunk for chunk in self._chunks[window] if chunk.small is not None]
        # The sliding window gives chunks up by age, so there they keep their places.
        if len(small) >= SMALL_CHUNKS_MAX and window != NO_WINDOW:
            packed = b"".join(chunk.small or b"" for chunk in small) + packed
            for chunk in small:
                self._drop(change, window, chunk.sequence)
        for start in range(0, len(packed), CHUNK_BYTES_MAX):
            part = packed[start : start + CHUNK_BYTES_MAX]
            chunk = _Chunk.of(self._next_sequence, part)
            self._next_sequence += 1
            change.added.append((window, chunk))
            change.keys.append(self._key(window, chunk.sequence))
            change.values.append(part)

    def _close_windows(self, change: _Change, windows: Iterable[str]) -> None:
        for window in sorted(windows):
            if window != NO_WINDOW and window < change.oldest_open:
                self._keep_delivered_letters(change, window)
                for chunk in self._chunks.get(window, ()):
                    self._drop(change, window, chunk.sequence)

    def _keep_delivered_letters(self, change: _Change, window: str) -> None:
        """What was rejected and delivered too lies in the dead letters still: a redrive must know it for longer.

        Also what the micro-batch itself delivers or rejects, of which a closed window gets no chunk.
        """
        hashes = self.index.with_complements(window)
        is_new = self.index.fresh_mask(hashes, np.ones(len(hashes), dtype=bool), NO_WINDOW)
        self._add(change, NO_WINDOW, hashes[is_new].tobytes())

    def _slide(self, change: _Change) -> None:
        chunks = [*self._chunks[NO_WINDOW], *(chunk for window, chunk in change.added if window == NO_WINDOW)]
        excess = sum(chunk.hashes for chunk in chunks) - self.index.limits.records_max
        for chunk in chunks[:-1]:
            # The index gives up whole eighths; the topic follows chunk by chunk and never forgets more than it.
            if excess < chunk.hashes:
                break
            excess -= chunk.hashes
            self._drop(change, NO_WINDOW, chunk.sequence)

    def _drop(self, change: _Change, window: str, sequence: int) -> None:
        change.gone.append((window, sequence))
        change.keys.append(self._key(window, sequence))
        change.values.append(None)

    def _key(self, window: str, sequence: int) -> bytes:
        return to_json([self.connector, self.task, window, sequence]).encode()

    def commit(self) -> None:
        """See `DedupeState`."""
        change, self._change = self._change, _Change()
        for window, chunk in change.added:
            self._chunks[window].append(chunk)
        gone: dict[str, set[int]] = defaultdict(set)
        for window, sequence in change.gone:
            gone[window].add(sequence)
        for window, sequences in gone.items():
            left = [chunk for chunk in self._chunks[window] if chunk.sequence not in sequences]
            if left:
                self._chunks[window] = left
            else:
                del self._chunks[window]
        self.index.commit()
        if change.oldest_open:
            self.index.forget_before(change.oldest_open)
        self.index.slide()

    def rollback(self) -> None:
        """See `DedupeState`; the sequence numbers that were given out stay unused."""
        self._change = _Change()
        self.index.rollback()


def _parse_key(key: bytes | None) -> tuple[str, int, str, int] | None:
    """Connector, task, window, sequence; None for a record that is not ours."""
    try:
        parts = json.loads(key or b"null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(parts, list) or [type(part) for part in parts] != [str, int, str, int]:
        return None
    connector, task, window, sequence = parts
    return connector, task, window, sequence


def _why_foreign(key: bytes | None, value: bytes | None) -> str | None:
    """Why a record is no chunk; None for one that is."""
    if _parse_key(key) is None:
        return "its key is none of de-duplication state"
    return "it holds no whole hashes" if value is not None and len(value) % HASH_BYTES else None
