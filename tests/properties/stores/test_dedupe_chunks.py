"""Chunks are merged, and nothing is lost, doubled or put out of order by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from service.stores.dedupe import NO_WINDOW
from service.stores.dedupe_chunks import CHUNK_BYTES_MAX, MERGED_CHUNKS, SEALED_HASHES, LiveChunks, TaskChunks
from service.stores.hashes import HASH_BYTES

SMALL_CHUNKS_MAX = 3 * MERGED_CHUNKS
"""Of each of three tiers fewer than are merged at once."""
RECORDS_MAX = 1_000_000


@dataclass
class Topic:
    """What is in the topic of one task, and the task's chunks, by their window and number."""

    records_max: int = RECORDS_MAX
    live: LiveChunks = field(default_factory=dict)
    next_sequence: int = 0

    def open(self) -> TaskChunks:
        """A new incarnation."""
        chunks = TaskChunks(records_max=self.records_max)
        chunks.restore(self.live, next_sequence=self.next_sequence, partition=0)
        return chunks

    def hashes(self, window: str) -> list[bytes]:
        """In the order in which an incarnation takes them in."""
        packed = b"".join(packed for _, (label, packed) in sorted(self.live.items()) if label == window)
        return [packed[start : start + HASH_BYTES] for start in range(0, len(packed), HASH_BYTES)]

    def commit(self, chunks: TaskChunks, fresh: dict[str, bytes], *, is_heard: bool = True) -> None:
        """Write what is planned; the task may die before it hears of it."""
        change = chunks.plan(fresh, [])
        for window, place, packed in change.written:
            assert 0 < len(packed) <= CHUNK_BYTES_MAX
            self.live[place] = (window, packed)
        for _, place in change.forgotten:
            del self.live[place]
        self.next_sequence = max([self.next_sequence, *(sequence + 1 for _, (sequence, _), _ in change.written)])
        if is_heard:
            chunks.apply(change)


def numbered(numbers: range) -> bytes:
    """Hashes that tell their number."""
    return b"".join(number.to_bytes(HASH_BYTES, "big") for number in numbers)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([1, 2, 15, 16, 300, 5000]), st.sampled_from(["committed", "aborted", "killed"])),
        max_size=120,
    ),
    window=st.sampled_from([NO_WINDOW, "2024-01-01"]),
)
@settings(max_examples=60, deadline=None)
def test_what_was_committed_is_there_once_and_in_order(steps: list[tuple[int, str]], window: str) -> None:
    """Over aborts and kills; and there are few small chunks at any time."""
    topic = Topic()
    chunks = topic.open()
    delivered = 0
    for size, fate in steps:
        fresh = {window: numbered(range(delivered, delivered + size))}
        if fate == "aborted":
            chunks.plan(fresh, [])
            continue
        topic.commit(chunks, fresh, is_heard=fate == "committed")
        delivered += size
        if fate == "killed":
            chunks = topic.open()
    assert b"".join(topic.hashes(window)) == numbered(range(delivered))
    assert sum(len(packed) < SEALED_HASHES * HASH_BYTES for _, packed in topic.live.values()) <= SMALL_CHUNKS_MAX


@given(sizes=st.lists(st.sampled_from([1, 3, 40, 700]), max_size=150), records_max=st.integers(1, 2000))
@settings(max_examples=60, deadline=None)
def test_the_sliding_window_remembers_the_newest(sizes: list[int], records_max: int) -> None:
    """Never fewer than it may, in order, and little more: it gives up whole chunks."""
    topic = Topic(records_max)
    chunks = topic.open()
    delivered = 0
    for size in sizes:
        topic.commit(chunks, {NO_WINDOW: numbered(range(delivered, delivered + size))})
        delivered += size
        left = topic.hashes(NO_WINDOW)
        assert b"".join(left) == numbered(range(delivered - len(left), delivered))
        assert len(left) >= min(delivered, records_max)
    assert len(topic.hashes(NO_WINDOW)) <= records_max + 2 * max(sizes, default=0) + records_max // 4 + 1
