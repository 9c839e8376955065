"""What is known of states and topics: what the log says, and over it what this worker has told and not read back.

Pure of input and output. Without the upper layer a state told twice in a row would be shown the old way again, when
the first is read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.domain.cluster import InstanceStatus
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State
from service.stores.status_records import StatusKey, TopicKey, TopicUse


def may_put_safely(known: InstanceStatus | None, status: InstanceStatus) -> bool:
    """Whether ``status`` may replace ``known``: no newer generation of another worker has told a state."""
    return known is None or known.worker_id == status.worker_id or known.generation <= status.generation


def is_overtaken(known: InstanceStatus | None, status: InstanceStatus) -> bool:
    """Whether ``status`` is the farewell of an owner whose successor runs already.

    The owner's own farewell counts: work moves between workers without a new generation.
    """
    return (
        known is not None
        and status.state is State.UNASSIGNED
        and known.state is State.RUNNING
        and known.generation >= status.generation
        and known.worker_id != status.worker_id
    )


@dataclass(slots=True)
class _Told:
    """What is known of one connector."""

    connector: InstanceStatus | None = None
    tasks: dict[int, InstanceStatus] = field(default_factory=dict)
    topics: dict[str, TopicUse] = field(default_factory=dict)


@dataclass(slots=True)
class StatusTable:
    """States and topics by connector."""

    _by_connector: dict[str, _Told] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Connectors of which anything is known: a state of their own or of a task, a topic."""
        return list(self._by_connector)

    def connector(self, name: str) -> InstanceStatus | None:
        """State of the connector itself."""
        told = self._by_connector.get(name)
        return None if told is None else told.connector

    def tasks(self, name: str) -> Mapping[int, InstanceStatus]:
        """States of its tasks, sorted by number."""
        told = self._by_connector.get(name)
        return {} if told is None else dict(sorted(told.tasks.items()))

    def value(self, key: StatusKey) -> InstanceStatus | TopicUse | None:
        """What is known under a key."""
        told = self._by_connector.get(key.connector)
        if told is None:
            return None
        match key:
            case ConnectorId():
                return told.connector
            case TaskId(_, task):
                return told.tasks.get(task)
            case TopicKey(_, topic):
                return told.topics.get(topic)

    def instance(self, instance: InstanceId) -> InstanceStatus | None:
        """State of a connector or a task."""
        value = self.value(instance)
        return value if isinstance(value, InstanceStatus) else None

    def topics(self, name: str) -> list[str]:
        """Topics the connector has used, sorted."""
        told = self._by_connector.get(name)
        return [] if told is None else sorted(told.topics)

    def read(self, key: StatusKey, value: InstanceStatus | TopicUse | None) -> None:
        """Take in a record, in the order of the log."""
        if isinstance(key, TaskId) and isinstance(value, InstanceStatus) and is_overtaken(self.instance(key), value):
            return
        self.set(key, value)

    def set(self, key: StatusKey, value: InstanceStatus | TopicUse | None) -> None:
        """Know it so from now on."""
        told = self._by_connector.setdefault(key.connector, _Told())
        match key, value:
            case ConnectorId(), InstanceStatus() | None:
                told.connector = value
                if value is None:
                    # As Connect reads it: a connector that is gone has no tasks.
                    told.tasks.clear()
            case TaskId(_, task), InstanceStatus():
                told.tasks[task] = value
            case TaskId(_, task), None:
                told.tasks.pop(task, None)
            case TopicKey(_, topic), TopicUse():
                told.topics[topic] = value
            case TopicKey(_, topic), None:
                told.topics.pop(topic, None)
        if told == _Told():
            del self._by_connector[key.connector]
