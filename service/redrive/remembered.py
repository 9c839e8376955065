"""What a connector remembers of its records, for the redrive of its letters.

A connector that de-duplicates knows what it has delivered, and under the complement of their hashes what it has
rejected. A letter that passes now may have come by itself meanwhile, because its source reads again what may have
changed; and what the redrive delivers must not come once more that way. So a redrive looks at what all tasks of the
connector remember, and adds to it where the rejected record is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fetchers.sdk import DedupeScope
from service.kafka.records import TopicRecords
from service.pipeline.duplicates import Hashes, Mask
from service.stores.dedupe import NO_WINDOW
from service.stores.dedupe_store import StoredDedupe
from service.stores.hashes import HASH_BYTES, numbered

FIRST_TASK = 0
_CLOSES_NONE = ""
"""As a scope's oldest open window: a redrive closes none."""
_Place = tuple[int, str]
"""A task, and a window of it."""


@dataclass(slots=True)
class RememberedByTasks:
    """Obeys ``DedupeState``: the states of all tasks of a connector as one, in the place of its first task."""

    load_tasks: Callable[[], Awaitable[Mapping[int, StoredDedupe]]]
    """The first task's state and all others that remember anything, loaded once none of them can write any more."""
    remembers_rejected: bool = False
    """A letter that fails again stays, although it is remembered as rejected."""
    _states: Mapping[int, StoredDedupe] = field(default_factory=dict)

    async def load(self) -> None:
        """See ``DedupeState``."""
        self._states = await self.load_tasks()

    def fresh_mask(self, hashes: Hashes, is_valid: Mask, window: str) -> Mask:
        """True for rows that were not delivered where they were rejected, and that do not stand here twice."""
        del window  # a letter does not say in which it was read
        fresh = np.ones(len(hashes), dtype=bool)
        fresh[is_valid] = False
        rows = np.flatnonzero(is_valid)
        for _, taken in self._shares(hashes[rows]):
            fresh[rows[taken]] = True
        return fresh

    def known_mask(self, hashes: Hashes, window: str) -> Mask:
        """True for rows that were delivered where they were rejected; anywhere, where nobody knows that."""
        del window
        is_placed, is_open, is_delivered = (np.zeros(len(hashes), dtype=bool) for _ in range(3))
        for _, rejected, delivered in self._looks(hashes):
            is_placed |= rejected
            is_open |= rejected & ~delivered
            is_delivered |= delivered
        return np.where(is_placed, ~is_open, is_delivered)

    def encode(self, fresh: Sequence[tuple[DedupeScope | None, Hashes]]) -> list[TopicRecords]:
        """Note each where it was rejected; in every window where nobody knows that."""
        hashes = np.concatenate([np.empty((0, HASH_BYTES), dtype=np.uint8), *(part for _, part in fresh)])
        notes: dict[int, list[tuple[DedupeScope, Hashes]]] = defaultdict(list)
        for place, taken in self._shares(hashes):
            for task, window in self._everywhere() if place is None else (place,):
                notes[task].append((DedupeScope(window, _CLOSES_NONE), hashes[taken]))
        return [write for task, noted in notes.items() for write in _noted(self._states[task], noted)]

    def commit(self) -> None:
        """See ``DedupeState``."""
        for state in self._states.values():
            state.commit()

    def rollback(self) -> None:
        """See ``DedupeState``."""
        for state in self._states.values():
            state.rollback()

    def _shares(self, hashes: Hashes) -> Iterator[tuple[_Place | None, npt.NDArray[np.int64]]]:
        """The rows that are to be delivered, by the place of the rejected record; None where nobody knows that.

        Of several rows with one hash each place gets one: so many records were rejected.
        """
        left = ~self.known_mask(hashes, NO_WINDOW)
        is_placed = np.zeros(len(hashes), dtype=bool)
        for place, rejected, delivered in self._looks(hashes):
            taken = _first_of_each(hashes, left & rejected & ~delivered)
            left[taken] = False
            is_placed |= rejected
            yield place, taken
        yield None, _first_of_each(hashes, left & ~is_placed)

    def _looks(self, hashes: Hashes) -> Iterator[tuple[_Place, Mask, Mask]]:
        """For each place which rows were rejected there, and which were delivered."""
        for task, state in self._states.items():
            for window in state.index.windows:
                rejected, delivered = (state.index.known_mask(each, window) for each in (~hashes, hashes))
                yield (task, window), rejected, delivered

    def _everywhere(self) -> Sequence[_Place]:
        """All windows that the source may read again; without any, the sliding one of the first task."""
        places = [(task, window) for task, state in self._states.items() for window in state.index.windows]
        return [place for place in places if place[1] != NO_WINDOW] or [(FIRST_TASK, NO_WINDOW)]


def _noted(state: StoredDedupe, notes: Sequence[tuple[DedupeScope, Hashes]]) -> list[TopicRecords]:
    for scope, hashes in notes:
        state.index.fresh_mask(hashes, np.ones(len(hashes), dtype=bool), scope.window)
    return state.encode(notes)


def _first_of_each(hashes: Hashes, mask: Mask) -> npt.NDArray[np.int64]:
    """The first of the chosen rows with each hash, in order."""
    rows = np.flatnonzero(mask)
    return np.sort(rows[np.unique(numbered(hashes[rows]), return_index=True)[1]])
