"""What a connector remembers of its records, for the redrive of its letters.

A connector that de-duplicates knows what it has delivered, and under the complement of their hashes what it has
rejected. A letter that passes now may have come by itself meanwhile, because its source reads again what may have
changed; and what the redrive delivers must not come once more that way. So a redrive looks at what all tasks of the
connector remember, and adds to it where the rejected record is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fetchers.sdk import DedupeScope
from service.kafka.records import TopicRecords
from service.pipeline.duplicates import Hashes, Mask
from service.stores.dedupe import NO_WINDOW
from service.stores.dedupe_store import StoredDedupe

FIRST_TASK = 0
_CLOSES_NONE = ""
"""As a scope's oldest open window: a redrive closes none."""


@dataclass(slots=True)
class RememberedByTasks:
    """Obeys ``DedupeState``: the states of all tasks of a connector as one, in the place of its first task."""

    find_tasks: Callable[[], Awaitable[Sequence[int]]]
    """Tasks that remember anything, none of which can write any more."""
    open_task: Callable[[int], StoredDedupe]
    remembers_rejected: bool = False
    """A letter that fails again stays, although it is remembered as rejected."""
    _states: dict[int, StoredDedupe] = field(default_factory=dict)

    async def load(self) -> None:
        """See ``DedupeState``."""
        for task in {FIRST_TASK, *await self.find_tasks()}:
            state = self._states[task] = self.open_task(task)
            await state.load()

    def fresh_mask(self, hashes: Hashes, is_valid: Mask, window: str) -> Mask:
        """True for rows that no task has delivered in any window, and that do not stand here twice."""
        asked = hashes[is_valid]
        is_first = np.zeros(len(asked), dtype=bool)
        is_first[np.unique(asked, axis=0, return_index=True)[1]] = True
        is_first &= ~self.known_mask(asked, window)
        fresh = np.ones(len(hashes), dtype=bool)
        fresh[is_valid] = is_first
        return fresh

    def known_mask(self, hashes: Hashes, window: str) -> Mask:
        """True for rows that any task has delivered, in any window: a letter does not say in which it was read."""
        del window
        known = np.zeros(len(hashes), dtype=bool)
        for _, _, found in self._places_of(hashes):
            known |= found
        return known

    def encode(self, fresh: Sequence[tuple[DedupeScope | None, Hashes]]) -> list[TopicRecords]:
        """Note each where it is remembered as rejected; without a window where no task remembers it."""
        hashes = np.concatenate([part for _, part in fresh])
        is_left = np.ones(len(hashes), dtype=bool)
        notes: dict[int, list[tuple[DedupeScope, Hashes]]] = defaultdict(list)
        for task, window, found in self._places_of(~hashes):
            notes[task].append((DedupeScope(window, _CLOSES_NONE), hashes[found & is_left]))
            is_left &= ~found
        notes[FIRST_TASK].append((DedupeScope(NO_WINDOW, _CLOSES_NONE), hashes[is_left]))
        return [write for task, noted in notes.items() for write in self._noted(self._states[task], noted)]

    def commit(self) -> None:
        """See ``DedupeState``."""
        for state in self._states.values():
            state.commit()

    def rollback(self) -> None:
        """See ``DedupeState``."""
        for state in self._states.values():
            state.rollback()

    def _places_of(self, hashes: Hashes) -> Iterator[tuple[int, str, Mask]]:
        """Task and window that remember some of these, and which."""
        for task, state in self._states.items():
            for window in state.index.windows:
                yield task, window, state.index.known_mask(hashes, window)

    def _noted(self, state: StoredDedupe, notes: Sequence[tuple[DedupeScope, Hashes]]) -> list[TopicRecords]:
        for scope, hashes in notes:
            state.fresh_mask(hashes, np.ones(len(hashes), dtype=bool), scope.window)
        return state.encode(notes)
