"""The OpenAPI 3.1 document, from the same declarations that the server serves; JSON Schemas of Connect's bodies.

The shapes are those that ``bodies`` writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from service.rest.routes import Access, Answer, Query, Route

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
    """The schema of a list of such items."""
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

_INSTANT: Json = {"type": ["string", "null"], "format": "date-time"}
_SECONDS: Json = {"type": ["number", "null"]}
_FIGURES: dict[str, Any] = {
    "state": {"type": "string", "enum": list(STATES)},
    "fetched_records": NUMBER,
    "delivered_records": NUMBER,
    "rejected_records": NUMBER,
    "deduplicated_records": NUMBER,
    "records_per_second": {"type": "number"},
    "lag_seconds": _SECONDS,
    "lag_records": {"type": ["integer", "null"]},
    "last_commit": _INSTANT,
    "trouble": {"oneOf": [reference("Trouble"), {"type": "null"}]},
}

COMPONENTS: Mapping[str, Json] = {
    "Trouble": record(at=_INSTANT, message=TEXT, is_over=FLAG, attempt=NUMBER),
    "TaskProgress": record(
        optional=(),
        task=NUMBER,
        started=_INSTANT,
        commits=NUMBER,
        is_caught_up=FLAG,
        records_in_hand=NUMBER,
        **_FIGURES,
    ),
    "Progress": record(
        connectors=map_of(record(optional=(), **_FIGURES, tasks=array_of(reference("TaskProgress")))),
        unanswered=array_of(TEXT),
    ),
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
        optional=("warnings",),
        warnings=array_of(record(key=TEXT, message=TEXT)),
        name=TEXT,
        error_count=NUMBER,
        groups=array_of(TEXT),
        configs=array_of(
            record(definition={"oneOf": [reference("ConfigKey"), {"type": "null"}]}, value=reference("ConfigValue"))
        ),
    ),
    "PreviewInput": record(
        optional=("max",),
        config=reference("ConfigInput"),
        max={"type": ["integer", "string", "null"], "examples": [20]},
    ),
    "PreviewedRecord": record(
        verdict={"type": "string", "enum": ["valid", "rejected", "duplicate", "filtered"]},
        stage=OPTIONAL_TEXT,
        reason=OPTIONAL_TEXT,
        field=OPTIONAL_TEXT,
        message=OPTIONAL_TEXT,
        topic=TEXT,
        coerced=array_of(TEXT),
        timestamp={"type": ["integer", "null"]},
        key={},
        value={},
        payload={"oneOf": [OPTIONAL_TEXT, record(base64=TEXT)]},
        payload_bytes={"type": ["integer", "null"]},
        is_cut=FLAG,
    ),
    "Preview": record(
        connector=TEXT,
        topic=TEXT,
        judged_by={"type": "string", "enum": ["exact", "spark"]},
        records=array_of(reference("PreviewedRecord")),
        counts=record(
            records=NUMBER,
            valid=NUMBER,
            rejected=NUMBER,
            duplicate=NUMBER,
            filtered=NUMBER,
            reasons=map_of(NUMBER),
            coerced=map_of(NUMBER),
        ),
        source=record(
            end={"type": "string", "enum": ["source", "records", "bytes", "time", "error"]},
            has_more={"type": ["boolean", "null"]},
            records_left=NUMBER,
            offsets=array_of(record(partition=_PARTITION, offset=_PARTITION)),
            error=OPTIONAL_TEXT,
        ),
        notes=array_of(TEXT),
    ),
    "Logger": record(level=TEXT, last_modified={"type": ["integer", "null"]}),
    "LoggerInput": {"type": "object", "properties": {"level": TEXT}, "additionalProperties": {}, "required": ["level"]},
    "Worker": record(version=TEXT, commit=TEXT, kafka_cluster_id=OPTIONAL_TEXT),
    "HealthStatus": record(status={"type": "string", "enum": ["healthy", "starting", "unhealthy"]}, message=TEXT),
}
"""Every body by its name."""


_ERROR_CONTENT = {"application/json": {"schema": reference("Error")}}
_ALWAYS = {
    500: "The request took too long, or ended in a bug; the worker's log says more. Or the worker is stopping.",
    503: "The worker is still starting.",
}
_WITH_PROOF = {
    401: "Nobody is known by what was shown.",
    403: "This needs the role admin, or is disabled.",
    429: "Too many passwords are being checked.",
}
_WITH_BODY = {
    400: "The body is not what is expected here.",
    413: "The body is too long.",
    415: "The body is not JSON by its content type.",
}


def document(routes: Iterable[Route], *, version: str) -> Json:
    """Every route but those between workers."""
    paths: dict[str, Json] = {}
    for route in routes:
        if route.access is not Access.INTERNAL:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace",
            "version": version,
            "description": "Kafka Connect's REST interface, as headrace serves it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": dict(COMPONENTS),
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def _operation(route: Route) -> Json:
    operation: Json = {
        "operationId": _operation_id(route),
        "summary": route.about,
        "tags": [route.tag],
        "responses": _responses(route),
    }
    parameters = [*map(_path_parameter, route.parameters), *map(_query_parameter, route.query)]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    if route.access is Access.OPEN:
        operation["security"] = []
    return operation


def _operation_id(route: Route) -> str:
    words = re.findall(r"[a-z]+", route.path.replace("{", "").replace("}", ""))
    return "_".join((route.method.lower(), *words))


def _path_parameter(name: str) -> Json:
    schema: Json = {"type": "string", "minLength": 1}
    if name == "task":
        schema = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameter(query: Query) -> Json:
    return {"name": query.name, "in": "query", "description": query.about, "schema": query.schema}


def _responses(route: Route) -> Json:
    errors = {
        **_ALWAYS,
        406: "The client takes no JSON.",
        404: "There is no such route.",
        **({} if route.access is Access.OPEN else _WITH_PROOF),
    }
    errors |= {**(_WITH_BODY if route.body is not None else {}), **route.errors}
    if route.is_ready_early:
        del errors[503]
    if route.is_health:
        del errors[406]
    found: dict[int, Json] = {
        status: {"description": about, "content": _ERROR_CONTENT} for status, about in errors.items()
    }
    found |= {answer.status: _answer(answer) for answer in route.answers}
    return {str(status): found[status] for status in sorted(found)}


def _answer(answer: Answer) -> Json:
    described: Json = {"description": answer.about or HTTPStatus(answer.status).phrase}
    if answer.schema is not None:
        described["content"] = {answer.media_type: {"schema": answer.schema}}
    if answer.headers:
        described["headers"] = _headers(answer.headers)
    return described


def _headers(headers: Mapping[str, str]) -> Json:
    return {name: {"description": about, "schema": {"type": "string"}} for name, about in headers.items()}
