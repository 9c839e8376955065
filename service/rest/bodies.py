"""Bodies of answers: the domain's values in Connect's JSON shapes (`connect-rest.md`, section 3). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from metrics.log_levels import LoggerLevel
from service.domain.cluster import ConnectorInfo, ConnectorStatus, InstanceStatus, Properties
from service.domain.ids import TaskId
from service.herder.api import OffsetEntry

Json = dict[str, Any]
NO_VERSION = "undefined"
_encode = msgspec.json.Encoder().encode


def json_answer(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """An answer with a JSON body."""
    return web.Response(body=_encode(body), status=status, headers=headers, content_type="application/json")


def empty_answer(status: int) -> web.Response:
    """An answer without a body."""
    return web.Response(status=status)


def error_answer(status: int, message: str, *, headers: Mapping[str, str] | None = None) -> web.Response:
    """Connect's error body."""
    return json_answer({"error_code": status, "message": message}, status=status, headers=headers)


def task_id(task: TaskId) -> Json:
    """``{"connector", "task"}``."""
    return {"connector": task.connector, "task": task.task}


def connector_info(info: ConnectorInfo) -> Json:
    """ConnectorInfo."""
    return {
        "name": info.name,
        "config": info.config,
        "tasks": [task_id(task) for task in info.tasks],
        "type": info.type,
    }


def connector_status(status: ConnectorStatus) -> Json:
    """ConnectorStateInfo; tasks sorted by number."""
    return {
        "name": status.name,
        "connector": instance_state(status.connector),
        "tasks": [task_state(number, status.tasks[number]) for number in sorted(status.tasks)],
        "type": status.type,
    }


def task_state(number: int, status: InstanceStatus) -> Json:
    """A task's state."""
    return {"id": number, **instance_state(status)}


def instance_state(status: InstanceStatus) -> Json:
    """A state; the trace only where there is one, the version only where it is known."""
    state: Json = {"state": status.state.value, "worker_id": status.worker_id}
    if status.trace:
        state["trace"] = status.trace
    if status.version and status.version != NO_VERSION:
        state["version"] = status.version
    return state


def task_infos(configs: Sequence[tuple[TaskId, Properties]]) -> list[Json]:
    """Tasks with their configs."""
    return [{"id": task_id(task), "config": config} for task, config in configs]


def offsets(entries: Sequence[OffsetEntry]) -> Json:
    """ConnectorOffsets."""
    return {"offsets": [{"partition": partition, "offset": offset} for partition, offset in entries]}


def logger_level(level: LoggerLevel) -> Json:
    """A logger's level and when it was changed."""
    return {"level": level.level, "last_modified": level.modified_ms}
