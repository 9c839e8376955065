"""The OpenAPI 3.1 document, from the same declarations that the server serves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from service.rest.routes import Access, Answer, Query, Route
from service.rest.schemas import COMPONENTS, reference

Json = dict[str, Any]
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
