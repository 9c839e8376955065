"""JSON Schemas of Connect's bodies, for the OpenAPI document; the shapes are those that ``bodies`` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "integer"}
FLAG: Json = {"type": "boolean"}
OPTIONAL_TEXT: Json = {"type": ["string", "null"]}
STATES = ("UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING")


def reference(name: str) -> Json:
    """A reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def array_of(items: Json) -> Json:
    """A list."""
    return {"type": "array", "items": items}


def map_of(values: Json) -> Json:
    """An object with any keys."""
    return {"type": "object", "additionalProperties": values}


def record(*, optional: tuple[str, ...] = (), **fields: Json) -> Json:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


_STATE = {
    "state": {"type": "string", "enum": list(STATES)},
    "worker_id": TEXT,
    "trace": TEXT,
    "version": TEXT,
}
_UNSTATED = ("trace", "version")
_PARTITION = map_of({})

COMPONENTS: Mapping[str, Json] = {
    "Error": record(error_code=NUMBER, message=TEXT),
    "Config": map_of(TEXT),
    "ConfigInput": map_of({"type": ["string", "number", "boolean", "null"]}),
    "CreateConnector": record(
        optional=("initial_state",),
        name={"type": ["string", "number", "boolean"]},
        config=reference("ConfigInput"),
        initial_state={"type": ["string", "null"], "examples": ["RUNNING", "PAUSED", "STOPPED"]},
    ),
    "TaskId": record(connector=TEXT, task=NUMBER),
    "ConnectorInfo": record(
        name=TEXT,
        config=reference("Config"),
        tasks=array_of(reference("TaskId")),
        type={"type": "string", "enum": ["source", "sink", "unknown"]},
    ),
    "ConnectorState": record(optional=_UNSTATED, **_STATE),
    "TaskState": record(optional=_UNSTATED, id=NUMBER, **_STATE),
    "ConnectorStatus": record(
        name=TEXT,
        connector=reference("ConnectorState"),
        tasks=array_of(reference("TaskState")),
        type={"type": "string", "enum": ["source", "sink", "unknown"]},
    ),
    "Connectors": {
        "oneOf": [
            array_of(TEXT),
            map_of(
                record(
                    optional=("status", "info"), status=reference("ConnectorStatus"), info=reference("ConnectorInfo")
                )
            ),
        ]
    },
    "TaskInfo": record(id=reference("TaskId"), config=reference("Config")),
    "Topics": map_of(record(topics=array_of(TEXT))),
    "Offsets": record(offsets=array_of(record(partition=_PARTITION, offset=_PARTITION))),
    "OffsetsInput": record(
        offsets={
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "partition": {"type": ["object", "null"]},
                    "offset": {"type": ["object", "null"]},
                },
                "additionalProperties": False,
            },
        }
    ),
    "Message": record(message=TEXT),
    "Plugin": record(optional=("version",), **{"class": TEXT, "type": TEXT, "version": TEXT}),
    "ConfigKey": record(
        name=TEXT,
        type=TEXT,
        required=FLAG,
        default_value=OPTIONAL_TEXT,
        importance=TEXT,
        documentation=TEXT,
        group=OPTIONAL_TEXT,
        order=NUMBER,
        width=TEXT,
        display_name=OPTIONAL_TEXT,
        dependents=array_of(TEXT),
    ),
    "ConfigValue": record(
        name=TEXT, value=OPTIONAL_TEXT, recommended_values=array_of(OPTIONAL_TEXT), errors=array_of(TEXT), visible=FLAG
    ),
    "Validation": record(
        name=TEXT,
        error_count=NUMBER,
        groups=array_of(TEXT),
        configs=array_of(
            record(definition={"oneOf": [reference("ConfigKey"), {"type": "null"}]}, value=reference("ConfigValue"))
        ),
    ),
    "Logger": record(level=TEXT, last_modified={"type": ["integer", "null"]}),
    "LoggerInput": {"type": "object", "properties": {"level": TEXT}, "additionalProperties": {}, "required": ["level"]},
    "Worker": record(version=TEXT, commit=TEXT, kafka_cluster_id=OPTIONAL_TEXT),
    "HealthStatus": record(status={"type": "string", "enum": ["healthy", "starting", "unhealthy"]}, message=TEXT),
}
"""Every body by its name."""
