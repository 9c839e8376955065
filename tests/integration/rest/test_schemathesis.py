"""Requests made up from the OpenAPI document: whatever is sent, the answer is one that the document knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from metrics.log_levels import LogLevels
from metrics.prometheus import PrometheusObserver
from service.domain.states import State
from service.embedded.running import running
from service.rest import openapi
from service.rest.health import Health
from service.rest.interface import interface
from service.rest.ports import Surface
from service.rest.settings import RestSettings
from tests.unit.rest.fake_herder import FakeHerder, Kept, state
from tests.unit.rest.serving import served

EXAMPLES = 40
"""Requests for each operation; half of them are wrong on purpose."""
ROUTES = interface(
    Surface(health=Health(), metrics=PrometheusObserver(), loggers=LogLevels(), version="1"), RestSettings(listeners=())
)
DOCUMENT = openapi.document(ROUTES, version="1")
OPERATIONS = [(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods]
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a worker serves, with connectors of names that requests are likely to hit."""
    kept = {name: Kept({"connector.class": "x"}, tasks=[{}], states={0: state(State.RUNNING)}) for name in "0ac"}
    with running(served(FakeHerder(kept)), name="rest") as worker:
        yield worker.server.urls.main[0]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_finds_a_bug(path: str, method: str, url: str) -> None:
    """No 500, no status and no body that the document does not name."""
    schema = schemathesis.openapi.from_dict(DOCUMENT)

    @given(case=schema[path][method].as_strategy())
    @settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(base_url=url, checks=CHECKS)

    ask()
