"""The de-duplication index says "fresh" exactly once for each hash of a window."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from service.domain.errors import Recovery, recovery_of
from service.kafka.errors import DeliveryRetriable
from service.stores.dedupe import DedupeIndex, DedupeLimits
from service.stores.hashes import HASH_BYTES, HashSet, Run

# Few distinct values, half of them equal in the half that orders, so that both kinds of meeting happen.
HASHES = [high * 8 + low * 8 for high in (b"a", b"b") for low in (b"1", b"2", b"3")] + [b"z" * 16]

batches = st.lists(st.one_of(st.none(), st.sampled_from(HASHES)), max_size=12)
windows = st.sampled_from(["2024-01-01", "2024-01-02", "2024-01-03"])


def matrix(hashes: list[bytes | None]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Hashes as a matrix, and which rows have one."""
    packed = b"".join(value or bytes(HASH_BYTES) for value in hashes)
    valid = np.array([value is not None for value in hashes], dtype=bool)
    return np.frombuffer(packed, dtype=np.uint8).reshape(-1, HASH_BYTES), valid


def expected_mask(hashes: list[bytes | None], seen: set[bytes]) -> list[bool]:
    """The rule itself, one by one; adds to `seen`."""
    mask = []
    for value in hashes:
        mask.append(value is None or value not in seen)
        if value is not None:
            seen.add(value)
    return mask


class IndexAgainstSets(RuleBasedStateMachine):
    """Any order of batches, commits, roll-backs and closed windows agrees with plain sets."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.index = DedupeIndex()
        self.committed: dict[str, set[bytes]] = {}
        self.tentative: dict[str, set[bytes]] = {}

    @rule(hashes=batches, window=windows)
    def see(self, hashes: list[bytes | None], window: str) -> None:
        """A batch is asked about."""
        seen = self.tentative.setdefault(window, set(self.committed.get(window, set())))
        column, valid = matrix(hashes)
        assert self.index.fresh_mask(column, valid, window).tolist() == expected_mask(hashes, seen)

    @rule(hashes=batches, window=windows)
    def see_everywhere(self, hashes: list[bytes | None], window: str) -> None:
        """A batch is asked about in all windows, and what is new is noted in its own."""
        column, valid = matrix(hashes)
        known = set[bytes]().union(*self.committed.values(), *self.tentative.values())
        expected = expected_mask(hashes, set(known))
        assert self.index.fresh_in_open_windows(column, valid, window).tolist() == expected
        own = self.tentative.setdefault(window, set(self.committed.get(window, set())))
        own |= {value for value in hashes if value is not None} - known

    @rule(hashes=batches, window=windows)
    def ask_all(self, hashes: list[bytes | None], window: str) -> None:
        """What is known anywhere is known in any window; a source without windows has seen none of it."""
        column, valid = matrix(hashes)
        known = set[bytes]().union(*self.committed.values(), *self.tentative.values())
        expected = [value in known for value in hashes if value is not None]
        assert self.index.known_in_open_windows(column[valid], window).tolist() == expected
        assert not self.index.known_in_open_windows(column[valid], "").any()

    @rule()
    def commit(self) -> None:
        """The transaction is committed."""
        self.index.commit()
        self.committed |= self.tentative
        self.tentative = {}

    @rule()
    def roll_back(self) -> None:
        """The transaction is aborted: what was seen in it is fresh again."""
        self.index.rollback()
        self.tentative = {}

    @rule(window=windows)
    def close_windows(self, window: str) -> None:
        """Older windows are closed, between transactions."""
        self.commit()
        self.index.forget_before(window)
        self.committed = {label: held for label, held in self.committed.items() if label >= window}

    @invariant()
    def counts_agree(self) -> None:
        """Only committed hashes are counted."""
        assert len(self.index) == sum(map(len, self.committed.values()))


TestIndexAgainstSets = IndexAgainstSets.TestCase
TestIndexAgainstSets.settings = settings(deadline=None)


@settings(deadline=None)
@given(st.lists(batches, max_size=20))
def test_without_windows_repeats_are_dropped_too(every: list[list[bytes | None]]) -> None:
    """A source without windows has one sliding window over all its batches."""
    index, seen = DedupeIndex(), set[bytes]()
    for hashes in every:
        column, valid = matrix(hashes)
        assert index.fresh_mask(column, valid).tolist() == expected_mask(hashes, seen)
        index.commit()


def test_the_sliding_window_gives_up_the_oldest() -> None:
    """Over the limit the oldest eighths go, the newest stay, and memory stays bounded."""
    random = np.random.default_rng(7)
    index = DedupeIndex(DedupeLimits(records_max=800))
    every = [random.integers(0, 256, (50, HASH_BYTES), dtype=np.uint8) for _ in range(60)]
    valid = np.ones(50, dtype=bool)
    for hashes in every:
        index.fresh_mask(hashes, valid)
        index.commit()
        index.slide()
        assert len(index) <= 800
    assert not index.fresh_mask(every[-1], valid).any()
    assert not index.fresh_mask(every[-14], valid).any()
    assert index.fresh_mask(every[0], valid).all()


def test_hashes_over_the_memory_limit_go_to_files_and_are_still_known(tmp_path: Path) -> None:
    """Above the limit runs are mapped from nameless files: memory falls, answers stay, no file is left."""
    random = np.random.default_rng(7)
    limit = 64 * 1024
    index = DedupeIndex(DedupeLimits(memory_bytes_max=limit, spill_directory=tmp_path / "spill"))
    every = [random.integers(0, 256, (1000, HASH_BYTES), dtype=np.uint8) for _ in range(20)]
    valid = np.ones(1000, dtype=bool)
    for hashes in every:
        assert index.fresh_mask(hashes, valid, "day").all()
        index.commit()
        assert index.memory_bytes <= limit
    assert len(index) == 20_000
    for hashes in every:
        assert not index.fresh_mask(hashes, valid, "day").any()
    assert list((tmp_path / "spill").iterdir()) == []


def test_many_equal_high_halves_are_told_apart() -> None:
    """Hashes that agree in the ordering half are found and missed by the other half alone."""
    low = np.arange(100, dtype=np.uint64)
    run = Run(np.full(50, 9, np.uint64), low[::2].copy())
    found = run.contains(np.full(100, 9, np.uint64), low)
    assert found.tolist() == [number % 2 == 0 for number in range(100)]


def test_adding_merges_runs_of_like_size() -> None:
    """Many small additions leave few runs, so that look-ups stay quick."""
    held = HashSet()
    random = np.random.default_rng(7)
    for _ in range(1000):
        held.add(Run.of(random.integers(0, 256, (10, HASH_BYTES), dtype=np.uint8)))
    assert len(held) == 10_000
    assert len(held.runs) <= 14
    for run in held.runs:
        assert (run.high[1:] >= run.high[:-1]).all()


def test_a_disk_without_room_is_no_end_of_the_task(tmp_path: Path) -> None:
    """What is committed is in Kafka, so the task starts anew until there is room."""
    taken = tmp_path / "spill"
    taken.write_bytes(b"a file where the folder should be")
    index = DedupeIndex(DedupeLimits(memory_bytes_max=16, spill_directory=taken))
    index.fresh_mask(np.arange(64, dtype=np.uint8).reshape(4, 16), np.ones(4, dtype=bool))
    with pytest.raises(DeliveryRetriable, match="no room in") as refused:
        index.commit()
    assert recovery_of(refused.value) is Recovery.RESTART


@contextmanager
def files_no_larger_than(size_bytes: int) -> Iterator[None]:
    """A disk that is full there."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@pytest.mark.parametrize("missing_bytes", [1, 100, 3_000])
def test_a_disk_that_is_full_for_the_last_bytes_is_noticed(tmp_path: Path, missing_bytes: int) -> None:
    """Else a look-up would find the end of the file where its hashes should be."""
    count = 4_500
    index = DedupeIndex(DedupeLimits(memory_bytes_max=16, spill_directory=tmp_path))
    hashes = np.random.default_rng(7).integers(0, 256, (count, HASH_BYTES), dtype=np.uint8)
    index.fresh_mask(hashes, np.ones(count, dtype=bool))
    with files_no_larger_than(count * HASH_BYTES - missing_bytes), pytest.raises(DeliveryRetriable, match="no room in"):
        index.commit()
