"""Records of the config topic: what they mean, and the bytes Kafka Connect 4.1 writes for them.

Pure. `decode(*encode(record)) == record` for every record.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from service.domain.cluster import Properties, RestartRequest, SessionKey
from service.domain.ids import TaskId
from service.domain.states import TargetState
from service.stores.jackson import to_json

_CONNECTOR, _TASK, _COMMIT, _TARGET = "connector-", "task-", "commit-", "target-state-"
_DELETED = "deleted-"
"""Of ours; Kafka Connect passes over keys that it does not know."""
_FENCING, _SESSION_KEY, _RESTART, _LOGGER = "tasks-fencing-", "session-key", "restart-connector-", "logger-cluster-"
_TASK_DIGITS_MAX = 10
"""A task's number is a 32-bit integer; ``int`` itself refuses some thousand digits with an error of its own."""


class UnreadableRecordError(ValueError):
    """A record that no worker of any version could have meant; the text never has its value."""


@dataclass(frozen=True, slots=True)
class ConnectorConfig:
    """A connector's config; None = it is deleted."""

    connector: str
    config: Properties | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a source was that is deleted, and has something to take away outside; None = that is over."""

    connector: str
    config: Properties | None


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """One task's config; nothing until its commit."""

    connector: str
    task: int
    config: Properties


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """Makes the task configs before it visible, ``tasks`` of them."""

    connector: str
    tasks: int


@dataclass(frozen=True, slots=True)
class Target:
    """What a connector is asked to be; None = forgotten, with its connector."""

    connector: str
    state: TargetState | None


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How many tasks the generation that may start has; the older ones are fenced."""

    connector: str
    tasks: int


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """The key that signs requests between workers."""

    key: SessionKey


@dataclass(frozen=True, slots=True)
class Restart:
    """Restart a connector, with or without its tasks; only for who reads it live."""

    request: RestartRequest


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """Log at this level, on every worker; only for who reads it live."""

    namespace: str
    level: str


ConfigRecord: TypeAlias = (
    ConnectorConfig | Deleted | TaskConfig | TaskCommit | Target | TaskCount | PublishedKey | Restart | LoggerLevel
)


def encode(record: ConfigRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    key, fields = _written(record)
    return key.encode(), None if fields is None else to_json(fields).encode()


def _written(record: ConfigRecord) -> tuple[str, Mapping[str, object] | None]:
    match record:
        case ConnectorConfig(name, config):
            return f"{_CONNECTOR}{name}", None if config is None else {"properties": config}
        case Deleted(name, config):
            return f"{_DELETED}{name}", None if config is None else {"properties": config}
        case TaskConfig(name, task, config):
            return f"{_TASK}{name}-{task}", {"properties": config}
        case TaskCommit(name, tasks):
            return f"{_COMMIT}{name}", {"tasks": tasks}
        case Target(name, state):
            return f"{_TARGET}{name}", None if state is None else _shown_target(state)
        case _:
            return _written_to_all(record)


def _written_to_all(record: TaskCount | PublishedKey | Restart | LoggerLevel) -> tuple[str, Mapping[str, object]]:
    match record:
        case TaskCount(name, tasks):
            return f"{_FENCING}{name}", {"task-count": tasks}
        case PublishedKey(key):
            text = base64.b64encode(key.key).decode()
            return _SESSION_KEY, {"key": text, "algorithm": key.algorithm, "creation-timestamp": key.created_ms}
        case Restart(request):
            asked = {"include-tasks": request.has_tasks, "only-failed": request.is_failed_only}
            return f"{_RESTART}{request.connector}", asked
        case LoggerLevel(namespace, level):
            return f"{_LOGGER}{namespace}", {"level": level}


def _shown_target(state: TargetState) -> Mapping[str, object]:
    # Workers before 3.5 know no STOPPED and read the first name alone.
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return {"state": old.value, "state.v2": state.value}


def decode(key: bytes | None, value: bytes | None) -> ConfigRecord:
    """The meaning of a record.

    Raises UnreadableRecordError, which says what was expected.
    """
    name = _text(key)
    if name.startswith(_CONNECTOR):
        config = None if value is None else _properties(_fields(value))
        return ConnectorConfig(name.removeprefix(_CONNECTOR), config)
    if name.startswith(_DELETED):
        config = None if value is None else _properties(_fields(value))
        return Deleted(name.removeprefix(_DELETED), config)
    if name.startswith(_TARGET):
        state = None if value is None else _target_state(_fields(value))
        return Target(name.removeprefix(_TARGET), state)
    return _decode_written_once(name, _fields(value))


def _decode_written_once(name: str, fields: Mapping[str, Any]) -> ConfigRecord:
    """Records that are never deleted."""
    if name.startswith(_TASK):
        task = parse_task(name.removeprefix(_TASK))
        if task is not None:
            return TaskConfig(task.connector, task.task, _properties(fields))
    if name.startswith(_COMMIT):
        return TaskCommit(name.removeprefix(_COMMIT), _count(fields, "tasks"))
    if name.startswith(_FENCING):
        return TaskCount(name.removeprefix(_FENCING), _count(fields, "task-count"))
    if name == _SESSION_KEY:
        return PublishedKey(_session_key(fields))
    if name.startswith(_RESTART):
        is_failed_only, has_tasks = (fields.get(field) is True for field in ("only-failed", "include-tasks"))
        return Restart(RestartRequest(name.removeprefix(_RESTART), is_failed_only=is_failed_only, has_tasks=has_tasks))
    if name.startswith(_LOGGER) and isinstance(fields.get("level"), str):
        return LoggerLevel(name.removeprefix(_LOGGER), fields["level"])
    raise UnreadableRecordError("its key is none of Kafka Connect's")


def parse_task(text: str) -> TaskId | None:
    """The task that ``<connector>-<number>`` names; None if it names none."""
    connector, separator, number = text.rpartition("-")
    is_number = number.isdecimal() and len(number) <= _TASK_DIGITS_MAX
    return TaskId(connector, int(number)) if separator and is_number else None


def why_unreadable(error: ValueError | RecursionError) -> str:
    """For an event; of an error that is not ours only the class: its text may have the value."""
    return str(error) if isinstance(error, UnreadableRecordError) else f"reading it ended in {type(error).__name__}"


def _text(key: bytes | None) -> str:
    try:
        return (key or b"").decode()
    except UnicodeDecodeError:
        raise UnreadableRecordError("its key is not UTF-8") from None


def _fields(value: bytes | None) -> Mapping[str, Any]:
    try:
        fields = json.loads(value or b"null")
    except (ValueError, RecursionError):
        raise UnreadableRecordError("its value is not JSON") from None
    if not isinstance(fields, dict):
        raise UnreadableRecordError("its value is not a JSON object")
    return fields


def _properties(fields: Mapping[str, Any]) -> Properties:
    properties = fields.get("properties")
    if not isinstance(properties, dict) or not all(isinstance(item, str | None) for item in properties.values()):
        raise UnreadableRecordError("its value has no object 'properties' of texts")
    return {name: item for name, item in properties.items() if item is not None}


def _target_state(fields: Mapping[str, Any]) -> TargetState:
    for name in ("state.v2", "state"):
        state = fields.get(name)
        if isinstance(state, str) and state in TargetState.__members__:
            return TargetState[state]
    raise UnreadableRecordError("its value has no known 'state.v2' and no known 'state'")


def _count(fields: Mapping[str, Any], name: str) -> int:
    count = fields.get(name)
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise UnreadableRecordError(f"its value has no number '{name}'")
    return count


def _session_key(fields: Mapping[str, Any]) -> SessionKey:
    match fields:
        case {"key": str(key), "algorithm": str(algorithm), "creation-timestamp": int(created_ms)}:
            try:
                return SessionKey(base64.b64decode(key, validate=True), algorithm, created_ms)
            except ValueError:
                # binascii.Error, or a plain one for what is not ASCII.
                raise UnreadableRecordError("its key is not base64") from None
    raise UnreadableRecordError("its value is no session key")
