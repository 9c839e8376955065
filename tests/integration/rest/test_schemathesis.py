"""Requests made up from the OpenAPI document: whatever is sent, the answer is one that the document knows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup

from service.domain.states import State
from service.embedded.running import running
from tests.apis.rest.fake_herder import FakeHerder, Kept, state
from tests.apis.rest.serving import served
from tests.integration.rest.requests_made_up import OPERATIONS, WRONG, ask_all

# The server's thread draws its own random numbers meanwhile; those are none of Hypothesis's business.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")
EXAMPLES = 10
"""Requests for each operation and mode."""
CONNECTORS = ("c", "a/b%", "{é}")


def herder() -> FakeHerder:
    """With a few connectors."""
    return FakeHerder(
        {name: Kept({"connector.class": "x"}, tasks=[{}], states={0: state(State.RUNNING)}) for name in CONNECTORS}
    )


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a worker serves."""
    with running(served(herder()), name="rest") as worker:
        yield worker.server.urls.main[0]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_finds_a_bug(path: str, method: str, url: str) -> None:
    """No 500, no status and no body that the document does not name; also of connectors that are there."""
    ask_all((path, method), url, mode=GenerationMode.POSITIVE, connectors=CONNECTORS, examples=EXAMPLES)


@pytest.mark.parametrize(("path", "method"), WRONG)
def test_no_wrong_request_finds_a_bug(path: str, method: str, url: str) -> None:
    """Nor one that breaks the document on purpose."""
    ask_all((path, method), url, mode=GenerationMode.NEGATIVE, connectors=CONNECTORS, examples=EXAMPLES)


def test_a_bug_would_be_found() -> None:
    """The measure itself works: a handler that breaks is told of."""
    broken = FakeHerder(failure=ValueError("a bug"))
    operation = ("/connectors/{connector}/pause", "put")
    with running(served(broken), name="rest") as worker, pytest.raises(FailureGroup):
        ask_all(operation, worker.server.urls.main[0], mode=GenerationMode.POSITIVE, connectors=("c",), examples=3)
