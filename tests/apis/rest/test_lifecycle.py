"""Pause, resume, stop and restart: the whole matrix."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from service.domain.cluster import RestartRequest
from service.domain.ids import TaskId
from service.domain.states import TargetState
from service.herder.errors import ConflictError
from tests.apis.rest.fake_herder import Kept
from tests.apis.rest.serving import Served, served


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Served]:
    """A worker with one connector and one task."""
    async with served() as serving:
        serving.herder.connectors["c"] = Kept({"connector.class": "x"}, tasks=[{}])
        yield serving


@pytest.mark.parametrize(
    ("word", "status", "target"),
    [("pause", 202, TargetState.PAUSED), ("resume", 202, TargetState.STARTED), ("stop", 204, TargetState.STOPPED)],
)
async def test_target_states(worker: Served, word: str, status: int, target: TargetState) -> None:
    """Empty answers with exactly these codes, the same the second time; 404 in Connect's words."""
    answers = [await worker.ask("PUT", f"/connectors/c/{word}") for _ in range(2)]
    missing = await worker.ask("PUT", f"/connectors/x/{word}")

    assert [(answer.status, answer.text) for answer in answers] == [(status, "")] * 2
    assert worker.herder.asked[:2] == [("target", "c", target)] * 2
    assert missing.error == (404, "Unknown connector x")


@pytest.mark.parametrize("path", ["pause", "resume", "stop", "restart", "tasks/0/restart"])
@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "application/json"])
async def test_bodies_are_not_read(worker: Served, path: str, kind: str) -> None:
    """Clients send anything with these, of any type: it is nobody's business."""
    method = "POST" if "restart" in path else "PUT"
    answer = await worker.ask(method, f"/connectors/c/{path}", b"{nonsense", headers={"Content-Type": kind})

    assert answer.status in {202, 204}


@pytest.mark.parametrize(
    "query", ["", "?includeTasks=false", "?onlyFailed=false&includeTasks=false", "?includeTasks=nonsense", "?other=1"]
)
async def test_a_plain_restart(worker: Served, query: str) -> None:
    """204, the connector alone; what is not ``true`` is false."""
    answer = await worker.ask("POST", f"/connectors/c/restart{query}")

    assert (answer.status, answer.text) == (204, "")
    assert worker.herder.asked == [("restart", "c")]


@pytest.mark.parametrize(
    ("query", "is_failed_only", "has_tasks"),
    [
        ("includeTasks=false&onlyFailed=true", True, False),
        ("includeTasks=true&onlyFailed=false", False, True),
        ("includeTasks=TRUE&onlyFailed=True", True, True),
        ("includeTasks=true", False, True),
        ("onlyFailed=true", True, False),
    ],
)
async def test_a_restart_with_parameters(worker: Served, query: str, *, is_failed_only: bool, has_tasks: bool) -> None:
    """202 and the plan."""
    answer = await worker.ask("POST", f"/connectors/c/restart?{query}")

    assert (answer.status, answer.body["connector"]["state"]) == (202, "RESTARTING")
    assert worker.herder.asked == [("restart", RestartRequest("c", is_failed_only, has_tasks))]


async def test_a_task_restart(worker: Served) -> None:
    """204, or 404 in the words of distributed workers."""
    answer = await worker.ask("POST", "/connectors/c/tasks/0/restart")
    unknown = await worker.ask("POST", "/connectors/c/tasks/9/restart")
    nowhere = await worker.ask("POST", "/connectors/x/tasks/0/restart")

    assert (answer.status, answer.text) == (204, "")
    assert worker.herder.asked[0] == ("restart", TaskId("c", 0))
    assert (unknown.error, nowhere.error) == ((404, "Unknown task: c-9"), (404, "Unknown connector: x"))


@pytest.mark.parametrize("query", ["", "?includeTasks=true"])
async def test_a_rebalance_refuses_restarts(worker: Served, query: str) -> None:
    """409, on which clients retry."""
    worker.herder.failure = ConflictError("not now")

    assert (await worker.ask("POST", f"/connectors/c/restart{query}")).error == (409, "not now")
