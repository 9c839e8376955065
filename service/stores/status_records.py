"""Records of the status topic: what they mean, and the bytes Kafka Connect 4.1 writes for them.

Pure. `decode(*encode(record)) == record` for every record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from service.domain.cluster import InstanceStatus
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State
from service.stores.config_records import UnreadableRecordError, parse_task
from service.stores.jackson import to_json

_CONNECTOR, _TASK, _TOPIC, _OF_CONNECTOR = "status-connector-", "status-task-", "status-topic-", ":connector-"


@dataclass(frozen=True, slots=True)
class TopicUse:
    """A connector has used a topic; ``task`` noticed it first."""

    topic: str
    connector: str
    task: int
    discovered_ms: int


@dataclass(frozen=True, slots=True)
class TopicKey:
    """A topic of a connector."""

    connector: str
    topic: str


StatusKey: TypeAlias = InstanceId | TopicKey
StatusRecord: TypeAlias = tuple[StatusKey, InstanceStatus | TopicUse | None]
"""None: the instance is gone, the topic is forgotten."""


def encode(key: StatusKey, told: InstanceStatus | TopicUse | None) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    return _encode_key(key).encode(), None if told is None else to_json(_shown(told)).encode()


def decode(key: bytes | None, value: bytes | None) -> StatusRecord:
    """The meaning of a record.

    Raises UnreadableRecordError, which says what was expected.
    """
    of = _decode_key(key)
    if value is None:
        return of, None
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError):
        raise UnreadableRecordError("its value is not JSON") from None
    if not isinstance(fields, dict):
        raise UnreadableRecordError("its value is not a JSON object")
    return of, _topic_use(fields) if isinstance(of, TopicKey) else _status(fields)


def _encode_key(key: StatusKey) -> str:
    match key:
        case ConnectorId(connector):
            return f"{_CONNECTOR}{connector}"
        case TaskId(connector, task):
            return f"{_TASK}{connector}-{task}"
        case TopicKey(connector, topic):
            return f"{_TOPIC}{topic}{_OF_CONNECTOR}{connector}"


def _decode_key(key: bytes | None) -> StatusKey:
    try:
        name = (key or b"").decode()
    except UnicodeDecodeError:
        raise UnreadableRecordError("its key is not UTF-8") from None
    if name.startswith(_CONNECTOR):
        return ConnectorId(name.removeprefix(_CONNECTOR))
    if name.startswith(_TASK):
        task = parse_task(name.removeprefix(_TASK))
        if task is not None:
            return task
    if name.startswith(_TOPIC):
        # A topic's name has no colon, a connector's may.
        topic, separator, connector = name.removeprefix(_TOPIC).partition(_OF_CONNECTOR)
        if separator and ":" not in topic:
            return TopicKey(connector, topic)
    raise UnreadableRecordError("its key is none of Kafka Connect's")


def _shown(told: InstanceStatus | TopicUse) -> Mapping[str, object]:
    match told:
        case InstanceStatus():
            return {
                "state": told.state.value,
                "trace": told.trace,
                "worker_id": told.worker_id,
                "generation": told.generation,
                "version": told.version,
            }
        case TopicUse(topic, connector, task, discovered_ms):
            names = {"name": topic, "connector": connector, "task": task, "discoverTimestamp": discovered_ms}
            return {"topic": names}


def _status(fields: Mapping[str, Any]) -> InstanceStatus | None:
    match fields:
        case {"state": "DESTROYED"}:
            return None
        case {"state": str(state), "worker_id": str(worker_id), "generation": int(generation)}:
            trace, version = fields.get("trace"), fields.get("version")
            if state in State.__members__ and isinstance(trace, str | None) and isinstance(version, str | None):
                return InstanceStatus(State[state], worker_id, generation, trace, version)
    raise UnreadableRecordError("its value is no state")


def _topic_use(fields: Mapping[str, Any]) -> TopicUse:
    match fields.get("topic"):
        case {"name": str(name), "connector": str(connector), "task": int(task), "discoverTimestamp": int(at_ms)}:
            return TopicUse(name, connector, task, at_ms)
    raise UnreadableRecordError("its value says nothing of a topic")
