"""What the instances that run here tell of themselves, told to the whole group by the status topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from service.domain.cluster import InstanceStatus, Properties
from service.domain.errors import Recovery
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State
from service.herder.view import ClusterView

_CAREFUL = frozenset({State.FAILED, State.UNASSIGNED})
"""Told only where no newer owner has told anything: whoever fails or lets go may long have been replaced."""


@dataclass(slots=True)
class StatusTeller:
    """An ``InstanceObserver``; task configs are handed on to ``publish``."""

    view: ClusterView
    publish: Callable[[str, Sequence[Properties], Properties], None]
    hide: Callable[[str], str] = str
    """Takes secrets out of traces: every reader of the status topic and of ``/status`` sees them."""
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
        view = self.view
        shown = None if trace is None else self.hide(trace)
        status = InstanceStatus(state, view.me.worker_id, view.generation, shown, version)
        self._note(instance, status, failure)
        if not view.exists(instance):
            view.statuses.remove(instance)
        elif state in _CAREFUL:
            view.statuses.put_safe(instance, status)
        else:
            view.statuses.put(instance, status)

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
        generation = self.view.generation
        fenced = {instance for instance in self._fenced if self.began.get(instance, generation) < generation}
        return fenced | self._superseded

    def begin_anew(self, instances: Iterable[InstanceId]) -> None:
        """These were asked to restart in the present generation."""
        begun = set(instances)
        self.began.update(dict.fromkeys(begun, self.view.generation))
        self._superseded -= begun

    def on_task_configs(self, connector: ConnectorId, tasks: Sequence[Properties], made_from: Properties) -> None:
        """Hand them on to ``publish``, which sees that they come into the config log."""
        self.publish(connector.connector, tasks, made_from)

    def on_topic(self, task: TaskId, topic: str) -> None:
        """Remember which topics a connector uses, unless ``topic.tracking.enable`` is off."""
        if self.view.settings.has_topic_tracking and task.connector in self.view.config.connectors:
            self.view.statuses.add_topic(topic, task)

    def tell_again(self) -> None:
        """A former owner that let go late may have overwritten what runs here: say it again."""
        view = self.view
        for instance, status in self.told.items():
            if not view.is_mine(instance):
                # This worker is the former owner, and its task does not end: the word is its successor's.
                continue
            seen = view.statuses.instance(instance)
            if (seen is None or seen.worker_id != view.me.worker_id) and view.exists(instance):
                view.statuses.put(instance, status)
