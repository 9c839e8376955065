"""Bodies of answers and of requests: the domain's values in Connect's JSON shapes, both ways.

In requests Jackson's ways are kept: numbers and booleans are taken for texts, digits as they were written. What Java
answers with 500 because the client was wrong is a 400 here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from metrics.log_levels import LoggerLevel
from service.domain.cluster import ConnectorInfo, ConnectorStatus, InstanceStatus, Properties
from service.domain.ids import TaskId
from service.domain.states import TargetState
from service.herder.api import OffsetEntry
from service.herder.errors import BadRequestError
from service.rest.ports import PREVIEW_RECORDS_DEFAULT, PREVIEW_RECORDS_MAX

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
    """An answer with Connect's error body: ``error_code``, equal to the status, and ``message``."""
    return json_answer({"error_code": status, "message": message}, status=status, headers=headers)


def task_id(task: TaskId) -> Json:
    """A task's id: ``connector``, its name, and ``task``, a number."""
    return {"connector": task.connector, "task": task.task}


def connector_info(info: ConnectorInfo) -> Json:
    """Connect's ConnectorInfo: name, config, task ids and type."""
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
    """A task's state with its number, as an item of Connect's ConnectorStateInfo."""
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
    """Connect's TaskInfo of each task: its id and its config."""
    return [{"id": task_id(task), "config": config} for task, config in configs]


def offsets(entries: Sequence[OffsetEntry]) -> Json:
    """Connect's ConnectorOffsets: a list of partitions, each with its offset."""
    return {"offsets": [{"partition": partition, "offset": offset} for partition, offset in entries]}


def logger_level(level: LoggerLevel) -> Json:
    """A logger's level and when it was changed."""
    return {"level": level.level, "last_modified": level.modified_ms}


T = TypeVar("T")
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_MAP = msgspec.json.Decoder(dict[str, Any])
_STRING = msgspec.json.Decoder(str)
_INITIAL_STATES = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}
_NUMBER = re.compile("[0-9]{1,9}")
_MISMATCH = "Connector name configuration ({}) doesn't match connector name in the URL ({})"
_INVALID = """\
Connector configuration is invalid and contains the following {count} error(s):
{errors}
You can also find the above list of errors at the endpoint `/connector-plugins/{{connectorType}}/config/validate`"""
_NULL_VALUE = "Null value can not be supplied as the configuration value."
_NO_OFFSETS = "Partitions / offsets need to be provided for an alter offsets request"


async def read_body(request: web.Request) -> bytes:
    """The body of a request that needs one: JSON, by its content type too."""
    body = await request.read()
    if not body:
        raise BadRequestError("The request needs a body in JSON.")
    content_type = request.content_type
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise web.HTTPUnsupportedMediaType
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"The body is not UTF-8: {error.reason} at byte {error.start}") from error
    return body


def parse_flag(text: str | None) -> bool:
    """As ``Boolean.valueOf`` reads it: everything but ``true`` is false."""
    return text is not None and text.lower() == "true"


def parse_config(body: bytes) -> dict[str, str | None]:
    """A flat map of texts."""
    return _texts(_object(body, about="the config"))


def parse_patch(body: bytes, *, name: str) -> dict[str, str | None]:
    """Changes to a config; a null removes its key, but nothing changes the name."""
    patch = parse_config(body)
    if "name" in patch:
        _check_name(patch["name"], name=name)
    return patch


def parse_create(body: bytes) -> tuple[str, dict[str, str | None], TargetState | None]:
    """Name, config (not yet complete) and initial target state of a new connector."""
    fields = _object(body, about="the request")
    _refuse_strangers(fields, known=("name", "config", "initial_state"))
    name = (_text("name", fields["name"]) if "name" in fields else None) or ""
    config = fields.get("config")
    if config is None or bytes(config) == b"null":
        raise BadRequestError("The request needs a config.")
    state = _text("initial_state", fields["initial_state"]) if "initial_state" in fields else None
    name = name.strip()
    return name, _texts(_object(bytes(config), about="the config")), _initial_state(state)


def complete_config(config: Mapping[str, str | None], *, name: str) -> dict[str, str]:
    """A config with its name in it and without nulls; refused where it has another name or a null."""
    if config.get("name") is not None:
        _check_name(config["name"], name=name)
    nulls = [key for key, value in config.items() if value is None and key != "name"]
    if nulls:
        raise BadRequestError(_INVALID.format(count=len(nulls), errors="\n".join([_NULL_VALUE] * len(nulls))))
    return {**{key: value for key, value in config.items() if value is not None}, "name": name}


def parse_preview(body: bytes) -> tuple[dict[str, str | None], int]:
    """A config, and how many records at most."""
    fields = _object(body, about="the request")
    _refuse_strangers(fields, known=("config", "max"))
    config = fields.get("config")
    if config is None or bytes(config) == b"null":
        raise BadRequestError("The request needs a config.")
    text = _text("max", fields["max"]) if "max" in fields else None
    count = PREVIEW_RECORDS_DEFAULT if text is None else int(text) if _NUMBER.fullmatch(text) else 0
    if not 0 < count <= PREVIEW_RECORDS_MAX:
        raise BadRequestError(f"Invalid max {text}: expected a number of records from 1 to {PREVIEW_RECORDS_MAX}")
    return _texts(_object(bytes(config), about="the config")), count


def parse_offsets(body: bytes) -> list[OffsetEntry]:
    """Partitions and offsets to change, at least one."""
    fields = _object(body, about="the request")
    _refuse_strangers(fields, known=("offsets",))
    listed = fields.get("offsets")
    items = [] if listed is None or bytes(listed) == b"null" else _list(bytes(listed), about="offsets")
    if not items:
        raise BadRequestError(_NO_OFFSETS)
    return [_offset_entry(bytes(item)) for item in items]


def parse_level(body: bytes) -> str:
    """The level that a logger shall have."""
    fields = _object(body, about="the request")
    level = _text("level", fields["level"]) if "level" in fields else None
    if level is None:
        raise BadRequestError("Desired 'level' parameter was not specified in request.")
    return level


def _initial_state(state: str | None) -> TargetState | None:
    if state is None:
        return None
    if state.upper() not in _INITIAL_STATES:
        raise BadRequestError(f"Invalid initial_state '{state}': expected one of {', '.join(_INITIAL_STATES)}")
    return _INITIAL_STATES[state.upper()]


def _check_name(included: str | None, *, name: str) -> None:
    if included != name:
        raise BadRequestError(_MISMATCH.format("null" if included is None else included, name))


def _offset_entry(item: bytes) -> OffsetEntry:
    fields = _object(item, about="an entry of offsets")
    _refuse_strangers(fields, known=("partition", "offset"))
    return _optional_map(fields, "partition"), _optional_map(fields, "offset")


def _optional_map(fields: Mapping[str, msgspec.Raw], name: str) -> dict[str, Any] | None:
    if name not in fields or bytes(fields[name]) == b"null":
        return None
    return _decode(_MAP, bytes(fields[name]), name)


def _texts(fields: Mapping[str, msgspec.Raw]) -> dict[str, str | None]:
    return {key: _text(key, value) for key, value in fields.items()}


def _text(key: str, value: msgspec.Raw) -> str | None:
    """A scalar as text, numbers with the digits they were written with."""
    raw = bytes(value)
    if raw.startswith(b'"'):
        return _decode(_STRING, raw, key)
    if raw.startswith((b"{", b"[")):
        kind = "an object" if raw.startswith(b"{") else "a list"
        raise BadRequestError(
            f"Cannot deserialize value of '{key}': expected a text, a number or a boolean, not {kind}"
        )
    return None if raw == b"null" else raw.decode("ascii")


def _object(body: bytes, *, about: str) -> dict[str, msgspec.Raw]:
    return _decode(_OBJECT, body, about)


def _list(body: bytes, *, about: str) -> list[msgspec.Raw]:
    return _decode(_LIST, body, about)


def _decode(decoder: msgspec.json.Decoder[T], body: bytes, about: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequestError(f"Cannot deserialize value of {about}: {error}") from error


def _refuse_strangers(fields: Mapping[str, msgspec.Raw], *, known: Collection[str]) -> None:
    strangers = [name for name in fields if name not in known]
    if strangers:
        raise BadRequestError(f'Unrecognized field "{strangers[0]}", not one of: {", ".join(known)}')
