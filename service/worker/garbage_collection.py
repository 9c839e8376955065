"""Keeps Python's cycle collector from holding up the event loop of a worker with many connectors.

A full collection looks at every object there is: a second for a thousand connectors, during which nothing else goes
on. So what has survived one is set aside (``gc.freeze``) and not looked at again until as much again has been set
aside: then all of it is, once, because what has ended since may hide among it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

GROWTH = 2.0
"""Everything is looked at again when so many times the objects are set aside that were alive at the last such look."""
_OLDEST = 2
_THRESHOLDS = (700, 10, 5)
"""Python's own last threshold is 10: a full collection meets half as many new objects, in some 30 ms."""


@dataclass(slots=True)
class GentleCollection:
    """What to do before and after a collection (see ``gc.callbacks``)."""

    alive: int = 0
    """Objects that were left after everything was looked at."""
    is_whole_due: bool = False

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        """``phase``: start or stop."""
        if info["generation"] != _OLDEST:
            return
        if phase == "start":
            if self.is_whole_due:
                gc.unfreeze()
            return
        gc.freeze()
        aside = gc.get_freeze_count()
        if self.is_whole_due:
            self.alive, self.is_whole_due = aside, False
        elif aside > GROWTH * self.alive:
            self.is_whole_due = True


@contextmanager
def collecting_gently() -> Iterator[None]:
    """For the length of the block; what is there at its beginning counts as alive."""
    thresholds = gc.get_threshold()
    gc.freeze()
    collection = GentleCollection(alive=gc.get_freeze_count())
    gc.callbacks.append(collection)
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collection)
        gc.unfreeze()
