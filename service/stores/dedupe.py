"""Which records were seen before: an index of hashes by window, in memory, tentative until committed.

A source that reads a day again (Mixpanel) puts its records into the window of that day, and closes
windows that cannot change any more. A source without windows gets a sliding one: the newest
`records_max` hashes, given up in eighths.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from service.kafka.errors import DeliveryRetriable
from service.stores.hashes import HashSet, Run, halves, is_first, ordered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt

NO_WINDOW = ""
RECORDS_MAX = 10_000_000
MEMORY_BYTES_MAX = 128 * 1_048_576
_SEGMENTS = 8


@dataclass(frozen=True)
class DedupeLimits:
    """`records_max` bounds sources without windows; above `memory_bytes_max` hashes go to `spill_directory`."""

    records_max: int = RECORDS_MAX
    memory_bytes_max: int = MEMORY_BYTES_MAX
    spill_directory: Path | None = None


@dataclass
class DedupeIndex:
    """The hashes of one task. `fresh_mask` takes note tentatively; `commit` or `rollback` decides."""

    limits: DedupeLimits = field(default_factory=DedupeLimits)
    _windows: dict[str, HashSet] = field(default_factory=dict)
    # Of the source without windows, oldest first; the last one is being filled.
    _segments: list[HashSet] = field(default_factory=lambda: [HashSet()])
    _pending: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))

    def __len__(self) -> int:
        """How many committed hashes there are."""
        return sum(map(len, self._every_set()))

    @property
    def memory_bytes(self) -> int:
        """Bytes of committed hashes held in memory."""
        return sum(held.memory_bytes for held in self._every_set())

    def fresh_mask(
        self, hashes: npt.NDArray[np.uint8], is_valid: npt.NDArray[np.bool_], window: str = NO_WINDOW
    ) -> npt.NDArray[np.bool_]:
        """True for each row seen for the first time in its *own* window, in this column too; note them tentatively.

        `hashes`: (n, 16) uint8. Rows where `is_valid` is False have no hash and are always fresh.
        """
        return self._noted(hashes, is_valid, window, self._held([window]))

    def fresh_in_open_windows(
        self, hashes: npt.NDArray[np.uint8], is_valid: npt.NDArray[np.bool_], window: str
    ) -> npt.NDArray[np.bool_]:
        """As `fresh_mask`, of rows seen for the first time in *any* window, as `known_in_open_windows` says which."""
        return self._noted(hashes, is_valid, window, self._held(self._open_beside(window)))

    def _noted(
        self,
        hashes: npt.NDArray[np.uint8],
        is_valid: npt.NDArray[np.bool_],
        window: str,
        held: Iterable[HashSet | Run],
    ) -> npt.NDArray[np.bool_]:
        """True for rows without a hash, and for those that are new; takes note of those."""
        fresh = np.ones(len(hashes), dtype=bool)
        rows = np.flatnonzero(is_valid)
        high, low = halves(hashes[rows])
        order = ordered(high, low)
        rows, high, low = rows[order], high[order], low[order]
        is_new = is_first(high, low)
        candidates = np.flatnonzero(is_new)
        for known in held:
            seen = known.contains(high[candidates], low[candidates])
            is_new[candidates[seen]] = False
            candidates = candidates[~seen]
        fresh[rows] = is_new
        self._pending[window].append(Run(high[candidates], low[candidates]))
        return fresh

    def known_mask(self, hashes: npt.NDArray[np.uint8], window: str = NO_WINDOW) -> npt.NDArray[np.bool_]:
        """True for each of these (n, 16) hashes that is committed in a window; takes no note."""
        high, low = halves(hashes)
        order = ordered(high, low)
        known = np.zeros(len(hashes), dtype=bool)
        for held in self._sets(window):
            known[order] |= held.contains(high[order], low[order])
        return known

    def known_in_open_windows(self, hashes: npt.NDArray[np.uint8], window: str) -> npt.NDArray[np.bool_]:
        """True for each of these (n, 16) hashes that is committed or noted in any window; takes no note.

        A source reads a record under the window in which it was found, and it may be found in two: of neighbouring
        days, say. For a source without windows (`NO_WINDOW`) only what that has seen counts, and never for one with.
        """
        high, low = halves(hashes)
        order = ordered(high, low)
        high, low = high[order], low[order]
        known = np.zeros(len(hashes), dtype=bool)
        missing = np.arange(len(hashes))
        for held in self._held(self._open_beside(window)):
            is_found = held.contains(high[missing], low[missing])
            known[order[missing[is_found]]] = True
            missing = missing[~is_found]
        return known

    def with_complements(self, window: str) -> npt.NDArray[np.uint8]:
        """Hashes of a window, committed or noted, that are there with their complements, both; (n, 16)."""
        runs = [run for held in self._sets(window) for run in held.runs]
        return HashSet([*runs, *self._pending.get(window, ())]).with_complements()

    @property
    def windows(self) -> list[str]:
        """Labels of all that hold something, and `NO_WINDOW`."""
        return [*self._windows, NO_WINDOW]

    def commit(self) -> None:
        """Keep what was noted since the last decision. Raises DeliveryRetriable where a disk is full that is needed."""
        for window, runs in self._pending.items():
            for run in runs:
                self._target(window).add(run)
        self._pending.clear()
        self._spill()

    def rollback(self) -> None:
        """Forget what was noted since the last decision."""
        self._pending.clear()

    def forget_before(self, window: str) -> None:
        """Drop all windows whose label sorts before this one."""
        for label in [label for label in self._windows if label < window]:
            del self._windows[label]

    def slide(self) -> int:
        """Without windows: give up the oldest eighths above the limit; how many hashes went."""
        gone = 0
        while len(self._segments) > 1 and sum(map(len, self._segments)) > self.limits.records_max:
            gone += len(self._segments.pop(0))
        return gone

    def _open_beside(self, window: str) -> list[str]:
        """Labels of the windows in which a record of this one may have been seen, its own among them."""
        return [NO_WINDOW] if window == NO_WINDOW else [*{*self._windows, *self._pending} - {NO_WINDOW}]

    def _held(self, windows: Iterable[str]) -> list[HashSet | Run]:
        """What is committed and noted in these windows."""
        return [held for label in windows for held in (*self._sets(label), *self._pending.get(label, ()))]

    def _every_set(self) -> list[HashSet]:
        return [*self._windows.values(), *self._segments]

    def _sets(self, window: str) -> list[HashSet]:
        if window == NO_WINDOW:
            return self._segments
        return [self._windows[window]] if window in self._windows else []

    def _target(self, window: str) -> HashSet:
        if window != NO_WINDOW:
            return self._windows.setdefault(window, HashSet())
        if len(self._segments[-1]) >= max(1, self.limits.records_max // _SEGMENTS):
            self._segments.append(HashSet())
        return self._segments[-1]

    def _spill(self) -> None:
        directory = self.limits.spill_directory
        excess = self.memory_bytes - self.limits.memory_bytes_max
        if directory is None or excess <= 0:
            return
        # More than needed, so that not every later batch writes a small file.
        wanted = excess + self.limits.memory_bytes_max // 4
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for held in sorted(self._every_set(), key=lambda held: -held.memory_bytes):
                if wanted <= 0:
                    break
                wanted -= held.spill(directory, bytes_wanted=wanted)
        except OSError as error:
            # All that is committed is in Kafka; a disk has room again some day.
            raise DeliveryRetriable(f"de-duplication state has no room in {directory}: {error.strerror}") from error
