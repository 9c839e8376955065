"""What instances say of themselves, told to the whole group by the status topic (`connect-storage`, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from service.domain.cluster import InstanceStatus, Member, Properties, Roster
from service.domain.errors import Recovery
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State
from service.herder.ports import ConfigStore, StatusStore
from service.herder.whereabouts import Whereabouts

_HELD = frozenset({State.RUNNING, State.PAUSED, State.RESTARTING})
_CAREFUL = frozenset({State.FAILED, State.UNASSIGNED})
"""Told only where no newer owner has told anything: whoever fails or lets go may long have been replaced."""


@dataclass(slots=True)
class StatusTeller:
    """An ``InstanceObserver``; task configs are handed on."""

    configs: ConfigStore
    statuses: StatusStore
    whereabouts: Whereabouts
    has_topic_tracking: bool
    publish: Callable[[str, Sequence[Properties], Properties], None]
    told: dict[InstanceId, InstanceStatus] = field(default_factory=dict)
    """Last told of what runs here."""
    began: dict[InstanceId, int] = field(default_factory=dict)
    """The group's generation in which the present incarnation of what runs here began."""
    failed: set[InstanceId] = field(default_factory=set)
    """What is FAILED here."""
    _fenced: set[InstanceId] = field(default_factory=set)
    """What is FAILED here because it was fenced."""
    _superseded: set[InstanceId] = field(default_factory=set)
    """What is FAILED here because the config log did not ask for it when it started."""
    _is_ending: bool = False

    def on_state(
        self,
        instance: InstanceId,
        state: State,
        *,
        trace: str | None,
        version: str | None,
        failure: Recovery | None = None,
    ) -> None:
        """Tell a state; of what has been deleted meanwhile, that it is gone."""
        whereabouts = self.whereabouts
        status = InstanceStatus(state, whereabouts.membership.me.worker_id, whereabouts.generation, trace, version)
        self._note(instance, status, failure)
        if not exists(self.configs, instance):
            self.statuses.remove(instance)
        elif state in _CAREFUL:
            self.statuses.put_safe(instance, status)
        else:
            self.statuses.put(instance, status)

    def keep_failures(self) -> None:
        """The worker stops: what is FAILED now, or fails while it stops, counts at the end."""
        self._is_ending = True

    def _note(self, instance: InstanceId, status: InstanceStatus, failure: Recovery | None) -> None:
        if status.state is State.FAILED:
            self.failed.add(instance)
        elif not self._is_ending:
            self.failed.discard(instance)
        for recovery, failed_so in ((Recovery.FENCED, self._fenced), (Recovery.SUPERSEDED, self._superseded)):
            if status.state is State.FAILED and failure is recovery:
                failed_so.add(instance)
            else:
                failed_so.discard(instance)
        if status.state is State.RUNNING:
            self.began[instance] = status.generation
        if status.state is State.UNASSIGNED:
            self.told.pop(instance, None)
            self.began.pop(instance, None)
        else:
            self.told[instance] = status

    def running(self) -> set[InstanceId]:
        """What was last told to run here."""
        return {instance for instance, status in self.told.items() if status.state is State.RUNNING}

    def fenced_by_successor(self) -> set[InstanceId]:
        """What is FAILED because it was fenced, and began in a generation that is over; or was not asked for then.

        What is fenced in its own generation has met a stranger with its transactional id, and stays FAILED.
        """
        generation = self.whereabouts.generation
        fenced = {instance for instance in self._fenced if self.began.get(instance, generation) < generation}
        return fenced | self._superseded

    def begin_anew(self, instances: Iterable[InstanceId]) -> None:
        """These were asked to restart in the present generation."""
        begun = set(instances)
        self.began.update(dict.fromkeys(begun, self.whereabouts.generation))
        self._superseded -= begun

    def on_task_configs(self, connector: ConnectorId, tasks: Sequence[Properties], made_from: Properties) -> None:
        """See that they come into the config log."""
        self.publish(connector.connector, tasks, made_from)

    def on_topic(self, task: TaskId, topic: str) -> None:
        """Remember which topics a connector uses, unless that is off."""
        if self.has_topic_tracking and task.connector in self.configs.config.connectors:
            self.statuses.add_topic(topic, task)

    def tell_again(self) -> None:
        """A former owner that let go late may have overwritten what runs here: say it again."""
        me = self.whereabouts.membership.me
        for instance, status in self.told.items():
            if self.whereabouts.owners.owner(instance) != me:
                # This worker is the former owner, and its task does not end: the word is its successor's.
                continue
            seen = current(self.statuses, instance)
            if (seen is None or seen.worker_id != me.worker_id) and exists(self.configs, instance):
                self.statuses.put(instance, status)


def current(statuses: StatusStore, instance: InstanceId) -> InstanceStatus | None:
    """What is told of an instance now."""
    return statuses.instance(instance)


def is_told_running(statuses: StatusStore, instance: InstanceId, owner: Member) -> bool:
    """Whether this owner was the last to tell of the instance, and told that it has it: running, paused, restarting."""
    status = current(statuses, instance)
    return status is not None and status.state in _HELD and status.worker_id == owner.worker_id


def is_told_held(statuses: StatusStore, instance: InstanceId, roster: Roster | None) -> bool:
    """Whether any worker that is there has told that it has the instance, and not yet that it has let go."""
    members = () if roster is None else roster.members
    return any(is_told_running(statuses, instance, member) for member in members)


def exists(configs: ConfigStore, instance: InstanceId) -> bool:
    """Whether the config log knows of the instance."""
    entry = configs.config.connectors.get(instance.connector)
    if entry is None:
        return False
    return isinstance(instance, ConnectorId) or instance.task < len(entry.tasks or ())
