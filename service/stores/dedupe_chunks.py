"""Which chunks of hashes a task has in the topic, and how they stay few. Pure.

A commit adds one chunk a window. Chunks of a size are merged sixteen at a time into one, which is written in the next
commit's place, until a chunk has `SEALED_HASHES`; so a hash is written three times at most beside its first, whatever
the source brings at once, and there is one chunk for some thousand hashes and some forty that are smaller. What a
commit costs does not grow with what is remembered.

Only neighbours are merged, so the chunks of the sliding window stay in the order in which their hashes came.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from service.stores.dedupe import NO_WINDOW
from service.stores.hashes import HASH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CHUNK_BYTES_MAX = 512 * 1024
SEALED_HASHES = 4096
"""So large a chunk is never merged."""
MERGED_CHUNKS = 16
_SEALED_SHARE = 64
"""A chunk is not merged further beyond this share of what the sliding window remembers, which gives up whole chunks."""
_BITS_OF_A_TIER = 4

Place: TypeAlias = tuple[int, int]
"""Sequence number and partition of a chunk: former versions spread the chunks of a task over all partitions."""
LiveChunks: TypeAlias = dict[Place, tuple[str, bytes]]
"""Window and packed hashes of the chunk at each place."""


@dataclass(slots=True, eq=False)
class Chunk:
    """Hashes that lie together in the topic, or will."""

    places: tuple[Place, ...]
    """Of its records there: one, or several that are still to be merged into the last of them."""
    hashes: int
    packed: bytes | None = None
    """The hashes, as long as they may have to be written again."""
    is_gone: bool = False


@dataclass(slots=True)
class _WindowChunks:
    """The chunks of one window, oldest first: those that stay as they are, then those that may be merged."""

    sealed: deque[Chunk] = field(default_factory=deque)
    open: list[Chunk] = field(default_factory=list)
    hashes: int = 0

    def add(self, chunk: Chunk, *, is_sealed: bool) -> None:
        self.hashes += chunk.hashes
        if is_sealed:
            self.sealed.append(chunk)
        else:
            self.open.append(chunk)

    def drop_last(self, count: int) -> None:
        """Take away the newest ``count`` chunks of those that may still be merged."""
        if count:
            self.hashes -= sum(chunk.hashes for chunk in self.open[-count:])
            del self.open[-count:]

    def drop_first(self, count: int) -> None:
        for _ in range(count):
            chunk = self.sealed.popleft() if self.sealed else self.open.pop(0)
            self.hashes -= chunk.hashes

    def every(self) -> Iterable[Chunk]:
        yield from self.sealed
        yield from self.open


@dataclass(slots=True)
class Change:
    """What one commit does to the chunks; until it is committed nothing is done."""

    written: list[tuple[str, Place, bytes]] = field(default_factory=list)
    """Window, place and hashes of records to write."""
    forgotten: list[tuple[str, Place]] = field(default_factory=list)
    """Those to write tombstones for, after the others."""
    added: list[tuple[str, Chunk, bool]] = field(default_factory=list)
    merged: list[tuple[str, int]] = field(default_factory=list)
    slid: int = 0
    closed: list[str] = field(default_factory=list)
    settled: Chunk | None = None
    gone: list[Chunk] = field(default_factory=list)


class TaskChunks:
    """The chunks of one task, by window. `plan` says what a commit writes; `apply` that it is committed."""

    def __init__(self, *, records_max: int) -> None:
        """Nothing is in the topic; `records_max` bounds the sliding window."""
        self._records_max = records_max
        self._windows: dict[str, _WindowChunks] = {}
        self._next_sequence = 0
        self._partition = 0
        self._unsettled: deque[tuple[str, Chunk]] = deque()
        """Merged here, and still apart in the topic: of former versions, which did not merge."""

    def restore(self, live: LiveChunks, *, next_sequence: int, partition: int) -> None:
        """Take over what is in the topic; new chunks go to `partition`.

        Numbers are never used twice, not even those of chunks that are gone.
        """
        self._next_sequence = max(self._next_sequence, next_sequence)
        self._partition = partition
        for place, (window, packed) in sorted(live.items()):
            chunks = self._windows.setdefault(window, _WindowChunks())
            sealed_at = self._sealed_at(window)
            chunk = Chunk((place,), len(packed) // HASH_BYTES, packed)
            taken = _taken(chunks.open, chunk.hashes, sealed_at)
            parts = [*chunks.open[len(chunks.open) - taken :], chunk]
            # What would become too large for one record stays as it is.
            if taken and sum(part.hashes for part in parts) * HASH_BYTES > CHUNK_BYTES_MAX:
                for part in chunks.open:
                    chunks.sealed.append(part)
                chunks.open.clear()
                parts = [chunk]
            else:
                chunks.drop_last(taken)
            chunk = _joined(parts)
            chunks.add(chunk, is_sealed=chunk.hashes >= sealed_at)
        for window, chunks in self._windows.items():
            for chunk in chunks.every():
                if len(chunk.places) > 1:
                    self._unsettled.append((window, chunk))
            for chunk in chunks.sealed:
                if len(chunk.places) == 1:
                    chunk.packed = None

    def windows_before(self, window: str) -> set[str]:
        """Those that sort before this one; the sliding one is none of them."""
        return {label for label in self._windows if NO_WINDOW != label < window}

    def plan(self, fresh: Mapping[str, bytes], closing: Iterable[str]) -> Change:
        """Add these packed hashes by window, and forget the windows in ``closing``."""
        change = Change()
        for window, packed in fresh.items():
            if packed:
                self._append(change, window, packed)
        for window in sorted(closing):
            for chunk in self._windows.get(window, _WindowChunks()).every():
                _forget(change, window, chunk)
            change.closed.append(window)
        self._slide(change)
        self._settle(change)
        return change

    def apply(self, change: Change) -> None:
        """Take over what was planned, once its transaction is committed."""
        for chunk in change.gone:
            chunk.is_gone = True
        if change.slid:
            self._windows[NO_WINDOW].drop_first(change.slid)
        for window, count in change.merged:
            self._windows[window].drop_last(count)
        for window, chunk, is_sealed in change.added:
            self._windows.setdefault(window, _WindowChunks()).add(chunk, is_sealed=is_sealed)
        for window in change.closed:
            self._windows.pop(window, None)
        if (settled := change.settled) is not None:
            settled.places = settled.places[-1:]
        while self._unsettled and (self._unsettled[0][1].is_gone or len(self._unsettled[0][1].places) == 1):
            window, chunk = self._unsettled.popleft()
            if chunk.hashes >= self._sealed_at(window):
                chunk.packed = None

    def _append(self, change: Change, window: str, packed: bytes) -> None:
        sealed_at = self._sealed_at(window)
        open_chunks = self._windows.get(window, _WindowChunks()).open
        taken = _taken(open_chunks, len(packed) // HASH_BYTES, sealed_at)
        merged = open_chunks[len(open_chunks) - taken :]
        if taken:
            change.merged.append((window, taken))
        for chunk in merged:
            _forget(change, window, chunk)
        packed = b"".join([*(chunk.packed or b"" for chunk in merged), packed])
        for start in range(0, len(packed), CHUNK_BYTES_MAX):
            part = packed[start : start + CHUNK_BYTES_MAX]
            is_sealed = len(packed) // HASH_BYTES >= sealed_at
            chunk = Chunk(
                ((self._next_sequence, self._partition),), len(part) // HASH_BYTES, None if is_sealed else part
            )
            self._next_sequence += 1
            change.added.append((window, chunk, is_sealed))
            change.written.append((window, chunk.places[0], part))

    def _slide(self, change: Change) -> None:
        """Give up the oldest of the sliding window: chunk by chunk, so that never more than it has too many go."""
        chunks = self._windows.get(NO_WINDOW)
        if chunks is None:
            return
        added = sum(chunk.hashes for window, chunk, _ in change.added if window == NO_WINDOW)
        merged = sum(count for window, count in change.merged if window == NO_WINDOW)
        left = chunks.open[: len(chunks.open) - merged]
        gone_by_merging = sum(chunk.hashes for chunk in chunks.open[len(left) :])
        excess = chunks.hashes - gone_by_merging + added - self._records_max
        for chunk in chain(chunks.sealed, left):
            if excess < chunk.hashes:
                break
            excess -= chunk.hashes
            change.slid += 1
            _forget(change, NO_WINDOW, chunk)

    def _settle(self, change: Change) -> None:
        """Write one of those that are merged here only: a commit more or less, and the topic is as it is here."""
        for window, chunk in self._unsettled:
            if chunk.is_gone or len(chunk.places) == 1:
                continue
            if chunk not in change.gone and chunk.packed is not None:
                change.settled = chunk
                change.written.append((window, chunk.places[-1], chunk.packed))
                change.forgotten += [(window, place) for place in chunk.places[:-1]]
            return

    def _sealed_at(self, window: str) -> int:
        return min(SEALED_HASHES, max(1, self._records_max // _SEALED_SHARE)) if window == NO_WINDOW else SEALED_HASHES


def _taken(open_chunks: Sequence[Chunk], hashes: int, sealed_at: int) -> int:
    """How many of the last chunks a new one of this size takes in."""
    taken = 0
    while True:
        if hashes >= sealed_at:
            # Nothing in front of it could ever be merged with what comes behind.
            return len(open_chunks)
        tier = _tier(hashes)
        count = 0
        for chunk in reversed(open_chunks[: len(open_chunks) - taken]):
            if _tier(chunk.hashes) > tier:
                break
            count += 1
        if count < MERGED_CHUNKS - 1:
            return taken
        merged = open_chunks[len(open_chunks) - taken - count : len(open_chunks) - taken]
        hashes += sum(chunk.hashes for chunk in merged)
        taken += count


def _tier(hashes: int) -> int:
    return (hashes.bit_length() - 1) // _BITS_OF_A_TIER


def _joined(parts: Sequence[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    return Chunk(
        tuple(place for part in parts for place in part.places),
        sum(part.hashes for part in parts),
        b"".join(part.packed or b"" for part in parts),
    )


def _forget(change: Change, window: str, chunk: Chunk) -> None:
    change.gone.append(chunk)
    change.forgotten += [(window, place) for place in chunk.places]
