"""Follows who owns what: the roster's base, and the config log folded onto it. Pure: no input or output.

A base speaks up to one record of the log. A worker that has not read so far yet waits with it; one that has read
further begins at the base and folds what it remembers of the records after it. So it does not matter in which order
rosters and records arrive, nor how many records come at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from service.domain.cluster import ClusterConfig, ConfigChange, ConnectorEntry, Member, Roster
from service.domain.ids import InstanceId
from service.herder.assignment import Assignment, folded, moved_between

RECORDS_REMEMBERED_MAX = 10_000
"""Only records read between a worker's joining and the roster it gets are ever folded again: seconds of them."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One record of the config log, as far as it can change who owns what."""

    offset: int
    """Of the next record."""
    connector: str
    entry: ConnectorEntry | None


class AssignmentTracker:
    """Who owns what, as far as this worker has read (`service.herder.parts.Owners`).

    Make it once the config log is read to its end, and give it every change from then on.
    """

    def __init__(self, config: ClusterConfig, *, remembered_max: int = RECORDS_REMEMBERED_MAX) -> None:
        """Begin at ``config``; nobody owns anything before the first roster."""
        self.config = config
        self.assignment = Assignment()
        self.generation = 0
        """Of the roster that ``assignment`` was folded from."""
        self._steps: deque[_Step] = deque()
        self._steps_max = remembered_max
        self._remembered_from = config.offset
        self._waiting: Roster | None = None
        self._moved: set[str] | None = None

    @property
    def offset(self) -> int:
        """How far the config log is read here."""
        return self.config.offset

    @property
    def is_behind(self) -> bool:
        """Whether the last roster speaks of records that are not read yet; until then the one before it holds."""
        return self._waiting is not None

    def owner(self, instance: InstanceId) -> Member | None:
        """Its owner; None while nobody is."""
        return self.assignment.owner(instance)

    def owned_by(self, member: Member) -> Iterable[InstanceId]:
        """Everything that is this worker's."""
        return self.assignment.owned_by(member)

    def take_moved(self) -> frozenset[str] | None:
        """See ``Owners``."""
        moved, self._moved = self._moved, set()
        return None if moved is None else frozenset(moved)

    def on_change(self, change: ConfigChange) -> None:
        """One more record of the config log."""
        if change.after.offset <= self.config.offset:
            return
        self.config = change.after
        step = None
        if change.connector is not None:
            step = _Step(change.after.offset, change.connector, change.after.connectors.get(change.connector))
            self._remember(step)
        waiting = self._waiting
        if waiting is None:
            self._fold([step] if step else [])
        elif waiting.base_offset <= self.config.offset:
            self.on_roster(waiting)

    def on_roster(self, roster: Roster) -> bool:
        """A new generation begins; False when its base is too old to be followed: then join again."""
        self._waiting = None
        if roster.base_offset > self.config.offset:
            self._waiting = roster
            return True
        if roster.base_offset < self._remembered_from:
            return False
        self.assignment = Assignment.of(roster.members, roster.base)
        self.generation = roster.generation
        self._moved = None
        self._fold(step for step in self._steps if step.offset > roster.base_offset)
        return True

    def _remember(self, step: _Step) -> None:
        self._steps.append(step)
        if len(self._steps) > self._steps_max:
            self._remembered_from = self._steps.popleft().offset

    def _fold(self, steps: Iterable[_Step]) -> None:
        if self.assignment.members:
            for step in steps:
                before, self.assignment = self.assignment, folded(self.assignment, step.connector, step.entry)
                if self._moved is not None:
                    self._moved |= {step.connector, *moved_between(before, self.assignment)}
