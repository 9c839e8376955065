"""Asks a worker what its OpenAPI document allows, and what it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from metrics.log_levels import LogLevels
from metrics.prometheus import PrometheusObserver
from service.rest import openapi
from service.rest.health import Health
from service.rest.ports import Surface
from service.rest.server import interface
from service.rest.settings import RestSettings

ROUTES = interface(
    Surface(health=Health(), metrics=PrometheusObserver(), loggers=LogLevels(), version="1"), RestSettings(listeners=())
)
DOCUMENT = openapi.document(ROUTES, version="1")
OPERATIONS = [(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods]
WRONG = [(path, method) for path, method in OPERATIONS if "requestBody" in DOCUMENT["paths"][path][method]]
"""Operations of which a request can be wrong: any path and any query is a right one."""
ANSWER_SECONDS_MAX = 95
"""More than a request may take by the worker's own limit; the library would wait ten seconds."""
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


def ask_all(
    operation: tuple[str, str], url: str, *, mode: GenerationMode, connectors: Sequence[str], examples: int
) -> None:
    """Ask ``examples`` times, mostly for connectors that are there; raises where an answer is none of the document."""
    path, method = operation
    requests = schemathesis.openapi.from_dict(DOCUMENT)[path][method].as_strategy(generation_mode=mode)

    @given(case=requests, name=st.none() | st.sampled_from(connectors))
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case[Any], name: str | None) -> None:
        if name is not None and "connector" in case.path_parameters:
            case.path_parameters["connector"] = name
        case.call_and_validate(base_url=url, checks=CHECKS, timeout=ANSWER_SECONDS_MAX)

    ask()
