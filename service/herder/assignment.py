"""Which worker runs which connector and which task: a fold over the config log, the same on every worker. Pure.

A generation of the group begins with a base that its leader hands to all (``rebased``). After that every worker folds
the records of the config log one by one (``folded``), so creating, deleting and resizing connectors costs no round of
the group: workers that have read to the same record agree. Connectors and tasks are balanced separately, as Connect
does, each to within one over the members that are present. Only a removal can make a move necessary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from service.domain.cluster import ClusterConfig, ConnectorEntry, Member
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.herder.balance import Kind, Shares, changed


@dataclass(frozen=True, slots=True)
class Assignment:
    """The owner of everything. An owner may be absent: then its work waits for it, or for the leader's next base."""

    members: tuple[Member, ...] = ()
    """Those that are present, sorted; new work goes to them."""
    connectors: Shares[ConnectorId] = field(default_factory=Shares)
    tasks: Shares[TaskId] = field(default_factory=Shares)

    @classmethod
    def of(cls, members: tuple[Member, ...], owners: Mapping[InstanceId, Member]) -> Assignment:
        """As a roster tells it."""
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
        """Everything that is this worker's."""
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
