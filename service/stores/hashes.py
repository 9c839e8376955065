"""A set of 16-byte hashes that grows to millions: sorted runs, merged like a binary counter.

Half of each hash orders the runs (`high`), the other half decides (`low`). Questions come as sorted
columns too, so that a look-up is a walk through memory and not a jump for every hash. Runs over a size
are no longer merged, which bounds how long one addition can take, and may be moved to a file.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt

HASH_BYTES = 16
_MERGED_HASHES_MAX = 1_000_000
_UPPER_HALF = np.uint64(1 << 63)


@dataclass(frozen=True)
class Run:
    """Hashes ordered by their high half; equal high halves may stand in any order."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    is_in_memory: bool = True

    @classmethod
    def of(cls, hashes: npt.NDArray[np.uint8]) -> Run:
        """Sort an (n, 16) matrix."""
        high, low = halves(hashes)
        order = np.argsort(high)
        return cls(high[order], low[order])

    def __len__(self) -> int:
        """How many hashes there are."""
        return len(self.high)

    def contains(self, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of the hashes asked for (ordered by `high`) are in this run."""
        found = np.zeros(len(high), dtype=bool)
        place = np.searchsorted(self.high, high)
        asked = np.flatnonzero(place < len(self.high))
        while len(asked):
            at = place[asked]
            is_same = self.high[at] == high[asked]
            asked, at = asked[is_same], at[is_same]
            is_found = self.low[at] == low[asked]
            found[asked[is_found]] = True
            # The same high half twice is one in 2⁶⁴, but it may not decide wrongly: look at the next one too.
            place[asked] += 1
            asked = asked[~is_found & (place[asked] < len(self.high))]
        return found

    def merged(self, other: Run) -> Run:
        """Both in one; stable sorting makes use of the two halves being sorted already."""
        high = np.concatenate([self.high, other.high])
        order = np.argsort(high, kind="stable")
        return Run(high[order], np.concatenate([self.low, other.low])[order])

    def spilled(self, directory: Path) -> Run:
        """Move the hashes to a file that no longer has a name, so that no kill can leave it behind.

        Raises OSError (disk full).
        """
        with tempfile.TemporaryFile(dir=directory) as file:
            # Not `tofile`: it loses the error of the last bytes that it buffers.
            for half in (self.high, self.low):
                file.write(half.data)
            file.flush()
            mapped = np.memmap(file, dtype=np.uint64, mode="r")
        return Run(mapped[: len(self)], mapped[len(self) :], is_in_memory=False)


class HashSet:
    """Sorted runs of distinct hashes."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        """Hold these, which have no hash in common."""
        self.runs = list(runs)

    def __len__(self) -> int:
        """How many hashes there are."""
        return sum(map(len, self.runs))

    @property
    def memory_bytes(self) -> int:
        """Bytes held in memory, without those in files."""
        return sum(len(run) * HASH_BYTES for run in self.runs if run.is_in_memory)

    def contains(self, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of the hashes (ordered by `high`) are in the set."""
        found = np.zeros(len(high), dtype=bool)
        for run in self.runs:
            missing = np.flatnonzero(~found)
            found[missing] = run.contains(high[missing], low[missing])
        return found

    def with_complements(self) -> npt.NDArray[np.uint8]:
        """The hashes whose complements are in the set too, and those, (n, 16)."""
        lower = [np.empty((0, 2), dtype=np.uint64)]
        for run in self.runs:
            # Of each two one stands in the lower half; its complement stands as far from the end, so ask backwards.
            end = int(np.searchsorted(run.high, _UPPER_HALF))
            high, low = run.high[:end], run.low[:end]
            is_paired = self.contains(~high[::-1], ~low[::-1])[::-1]
            lower.append(np.stack([high[is_paired], low[is_paired]], axis=1))
        found = np.concatenate(lower)
        return np.concatenate([found, ~found]).astype("<u8").view(np.uint8).reshape(-1, HASH_BYTES)

    def add(self, run: Run) -> None:
        """Add hashes that are not in the set yet."""
        if not len(run):
            return
        while self.runs and self.runs[-1].is_in_memory and len(self.runs[-1]) <= 2 * len(run):
            if len(self.runs[-1]) + len(run) > _MERGED_HASHES_MAX:
                break
            run = self.runs.pop().merged(run)
        self.runs.append(run)

    def spill(self, directory: Path, *, bytes_wanted: int) -> int:
        """Move the largest runs to files until that many bytes of memory are free; how many were freed.

        Raises OSError (disk full).
        """
        freed = 0
        for index in sorted(range(len(self.runs)), key=lambda index: -len(self.runs[index])):
            if freed >= bytes_wanted:
                break
            run = self.runs[index]
            if run.is_in_memory:
                self.runs[index] = run.spilled(directory)
                freed += len(run) * HASH_BYTES
        return freed


def halves(hashes: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """High and low half of each row of an (n, 16) matrix."""
    words = np.ascontiguousarray(hashes).view("<u8")
    return words[:, 0].copy(), words[:, 1].copy()


def ordered(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Order by hash, equal hashes in order of arrival."""
    # A stable sort takes more than twice the time, and few columns have anything twice.
    order = np.argsort(high)
    ordered_high = high[order]
    is_torn = ordered_high[1:] == ordered_high[:-1]
    if not is_torn.any():
        return order
    order = np.argsort(high, kind="stable")
    ordered_low = low[order]
    is_torn &= ordered_low[1:] != ordered_low[:-1]
    return np.lexsort((low, high)) if is_torn.any() else order


def is_first(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """True for each hash of an ordered column that differs from the one before it."""
    is_new = np.ones(len(high), dtype=bool)
    is_new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return is_new


def numbered(hashes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """A number for each row of an (n, 16) matrix, from 0, the same for equal ones."""
    high, low = halves(hashes)
    order = ordered(high, low)
    numbers = np.empty(len(hashes), dtype=np.int64)
    numbers[order] = np.cumsum(is_first(high[order], low[order])) - 1
    return numbers
