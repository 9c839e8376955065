"""Requests made up from the OpenAPI document: whatever is sent, the answer is one that the document knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
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

EXAMPLES = 25
"""Requests for each operation and mode."""
ROUTES = interface(
    Surface(health=Health(), metrics=PrometheusObserver(), loggers=LogLevels(), version="1"), RestSettings(listeners=())
)
DOCUMENT = openapi.document(ROUTES, version="1")
OPERATIONS = [(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods]
WRONG = [(path, method) for path, method in OPERATIONS if "requestBody" in DOCUMENT["paths"][path][method]]
"""Operations of which a request can be wrong: any path and any query is a right one."""
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
CONNECTORS = ("c", "a/b%", "{é}")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a worker serves a few connectors."""
    kept = {name: Kept({"connector.class": "x"}, tasks=[{}], states={0: state(State.RUNNING)}) for name in CONNECTORS}
    with running(served(FakeHerder(kept)), name="rest") as worker:
        yield worker.server.urls.main[0]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_finds_a_bug(path: str, method: str, url: str) -> None:
    """No 500, no status and no body that the document does not name; also of connectors that are there."""
    ask_all(path, method, url, mode=GenerationMode.POSITIVE)


@pytest.mark.parametrize(("path", "method"), WRONG)
def test_no_wrong_request_finds_a_bug(path: str, method: str, url: str) -> None:
    """Nor one that breaks the document on purpose."""
    ask_all(path, method, url, mode=GenerationMode.NEGATIVE)


def ask_all(path: str, method: str, url: str, *, mode: GenerationMode) -> None:
    """Ask as many times as said, half of the time for a connector that is there."""
    operation = schemathesis.openapi.from_dict(DOCUMENT)[path][method]

    @given(case=operation.as_strategy(generation_mode=mode), name=st.none() | st.sampled_from(CONNECTORS))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case[Any], name: str | None) -> None:
        if name is not None and "connector" in case.path_parameters:
            case.path_parameters["connector"] = name
        case.call_and_validate(base_url=url, checks=CHECKS)

    ask()
