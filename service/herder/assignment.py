"""Which worker runs which connector and which task: a fold over the config log, the same on every worker. Pure.

A generation of the group begins with a base that its leader hands to all (``rebased``). After that every worker folds
the records of the config log one by one (``folded``), so creating, deleting and resizing connectors costs no round of
the group: workers that have read to the same record agree. Connectors and tasks are balanced separately, as Kafka
Connect does, each to within one over the members that are present. Only a removal can make a move necessary.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from service.domain.cluster import ClusterConfig, ConfigChange, ConnectorEntry, Member, Roster
from service.domain.ids import ConnectorId, InstanceId, TaskId

Kind = TypeVar("Kind", bound=InstanceId)


@dataclass(frozen=True, slots=True)
class Shares(Generic[Kind]):
    """Who has what, of one kind of instance."""

    owners: Mapping[Kind, Member] = field(default_factory=dict)
    loads: Mapping[Member, int] = field(default_factory=dict)
    """How much each has; kept with the owners because counting them is the dear part of a change."""
    moved: tuple[Kind, ...] = field(default=(), compare=False)
    """What the change that made these shares took from whoever had it."""

    @classmethod
    def of(cls, owners: Mapping[Kind, Member]) -> Shares[Kind]:
        """Shares of these owners, with how much each has counted."""
        return cls(owners, Counter(owners.values()))


def changed(
    shares: Shares[Kind], members: Sequence[Member], *, gone: Iterable[Kind] = (), new: Iterable[Kind] = ()
) -> Shares[Kind]:
    """Shares without ``gone``, with ``new`` given to the least loaded members, and evened out among ``members``.

    Owners that are no members keep what they have. Adding to even shares moves nothing.
    """
    owners, loads = dict(shares.owners), Counter(shares.loads)
    for instance in gone:
        loads[owners.pop(instance)] -= 1
    new, moved = list(new), list[Kind]()
    for member, excess in _excess(loads, members, len(new)):
        moved += sorted(instance for instance, owner in owners.items() if owner == member)[-excess:]
        loads[member] -= excess
    _deal(sorted(new + moved), owners, loads, members)
    return Shares(owners, +loads, tuple(moved))


def _excess(loads: Mapping[Member, int], members: Sequence[Member], new: int) -> list[tuple[Member, int]]:
    """Members above their fair part, with how much they have to give; the remainder is granted to who has most."""
    present = sorted(((-loads.get(member, 0), index) for index, member in enumerate(members)))
    fair, remainder = divmod(new - sum(load for load, _ in present), len(members))
    above = [(members[index], -load - fair - (place < remainder)) for place, (load, index) in enumerate(present)]
    return [(member, excess) for member, excess in above if excess > 0]


def _deal(pool: Iterable[Kind], owners: dict[Kind, Member], loads: Counter[Member], members: Sequence[Member]) -> None:
    """Give each of the pool to whoever has least then, the first in order among equals."""
    heap = [(loads[member], index) for index, member in enumerate(members)]
    heapq.heapify(heap)
    for instance in pool:
        load, index = heap[0]
        heapq.heapreplace(heap, (load + 1, index))
        owners[instance] = members[index]
        loads[members[index]] += 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """The owner of everything. An owner may be absent: then its work waits for it, or for the leader's next base."""

    members: tuple[Member, ...] = ()
    """Those that are present, sorted; new work goes to them."""
    connectors: Shares[ConnectorId] = field(default_factory=Shares)
    tasks: Shares[TaskId] = field(default_factory=Shares)

    @classmethod
    def of(cls, members: tuple[Member, ...], owners: Mapping[InstanceId, Member]) -> Assignment:
        """The assignment that a roster of these members begins with."""
        return cls(
            members,
            Shares.of({instance: owner for instance, owner in owners.items() if isinstance(instance, ConnectorId)}),
            Shares.of({instance: owner for instance, owner in owners.items() if isinstance(instance, TaskId)}),
        )

    def owner(self, instance: InstanceId) -> Member | None:
        """Whose it is; None for what does not exist."""
        if isinstance(instance, TaskId):
            return self.tasks.owners.get(instance)
        return self.connectors.owners.get(instance)

    def owned_by(self, member: Member) -> list[InstanceId]:
        """All connectors and tasks that a worker owns."""
        return [instance for instance, owner in self._items() if owner == member]

    def owners(self) -> dict[InstanceId, Member]:
        """All of it, as a roster tells it."""
        return dict(self._items())

    def tasks_of(self, connector: str) -> list[TaskId]:
        """The connector's tasks; their numbers have no gaps."""
        tasks: list[TaskId] = []
        while (task := TaskId(connector, len(tasks))) in self.tasks.owners:
            tasks.append(task)
        return tasks

    def _items(self) -> Iterator[tuple[InstanceId, Member]]:
        yield from self.connectors.owners.items()
        yield from self.tasks.owners.items()


def folded(assignment: Assignment, name: str, entry: ConnectorEntry | None) -> Assignment:
    """The assignment after one record of the config log; ``entry`` is the connector's with it, None = deleted."""
    connector = ConnectorId(name)
    is_known = connector in assignment.connectors.owners
    before, now = assignment.tasks_of(name), [] if entry is None else list(entry.task_ids)
    connectors, tasks = assignment.connectors, assignment.tasks
    if is_known != (entry is not None):
        gone, new = ([connector], []) if is_known else ([], [connector])
        connectors = changed(connectors, assignment.members, gone=gone, new=new)
    if len(before) != len(now):
        tasks = changed(tasks, assignment.members, gone=before[len(now) :], new=now[len(before) :])
    return Assignment(assignment.members, connectors, tasks)


def moved_between(before: Assignment, after: Assignment) -> Iterator[str]:
    """Connectors of which one record of the config log has moved something that was there, to even out the shares."""
    if after.connectors is not before.connectors:
        yield from (instance.connector for instance in after.connectors.moved)
    if after.tasks is not before.tasks:
        yield from (instance.connector for instance in after.tasks.moved)


def rebased(
    owners: Mapping[InstanceId, Member],
    config: ClusterConfig,
    *,
    members: tuple[Member, ...],
    held: Collection[Member] = (),
) -> Assignment:
    """What a new generation begins with: everything in ``config`` has an owner among ``members`` and ``held``.

    ``owners`` is what was known before. What is theirs stays with members and with the absent whose work is held for
    them; what has no such owner is handed out. More moves only where the members' shares differ by more than one.
    """
    keeping = {*members, *held}
    kept = {instance: owners[instance] for instance in _instances(config) if owners.get(instance) in keeping}
    before = Assignment.of(members, kept)
    return Assignment(
        members,
        changed(before.connectors, members, new=_without(map(ConnectorId, config.connectors), before.connectors)),
        changed(before.tasks, members, new=_without(_tasks(config), before.tasks)),
    )


def _without(instances: Iterable[Kind], shares: Shares[Kind]) -> list[Kind]:
    return [instance for instance in instances if instance not in shares.owners]


def _tasks(config: ClusterConfig) -> Iterator[TaskId]:
    for entry in config.connectors.values():
        yield from entry.task_ids


def _instances(config: ClusterConfig) -> Iterator[InstanceId]:
    yield from map(ConnectorId, config.connectors)
    yield from _tasks(config)


RECORDS_REMEMBERED_MAX = 10_000
"""Only records read between a worker's joining and the roster it gets are ever folded again: seconds of them."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One record of the config log, as far as it can change who owns what."""

    offset: int
    """Offset in the log after the step's own record."""
    connector: str
    entry: ConnectorEntry | None


class AssignmentTracker:
    """Who owns what, as far as this worker has read (`service.herder.ports.Owners`).

    Make it once the config log is read to its end, and give it every change from then on.
    """

    def __init__(self, config: ClusterConfig, *, remembered_max: int = RECORDS_REMEMBERED_MAX) -> None:
        """Begin at ``config``; nobody owns anything before the first roster."""
        self.config = config
        self.assignment = Assignment()
        self.generation = 0
        """Generation of the roster that ``assignment`` was folded from."""
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
        """The worker that owns a connector or a task; None while nobody does."""
        return self.assignment.owner(instance)

    def owned_by(self, member: Member) -> Iterable[InstanceId]:
        """All connectors and tasks that a worker owns."""
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
