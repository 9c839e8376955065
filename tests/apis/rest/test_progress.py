"""``/progress``: the figures of all workers, beside Connect's own routes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import jsonschema

from metrics.events import PageFetched, RetryScheduled, TaskEvents, TaskStarted, TaskStateChanged, TransactionCommitted
from tests.apis.rest.fake_herder import FakeHerder, Kept
from tests.apis.rest.serving import Served, served


def run_task(worker: Served, connector: str, task: int, records: int) -> TaskEvents:
    """A task of the worker that has fetched and committed so many."""
    events = TaskEvents(worker.surface.progress, connector, task)
    events(TaskStarted, is_success=True, seconds=1.0)
    events(TaskStateChanged, state="RUNNING")
    events(PageFetched, records=records, bytes=1)
    events(TransactionCommitted, records=records, source_records=records, seconds=0.1)
    return events


async def test_figures_of_all_workers_are_one_answer() -> None:
    """Counts are summed, tasks are side by side, and the shape is the one that is described."""
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(served(FakeHerder({"c": Kept({}), "d": Kept({})})))
        herder = FakeHerder({"c": Kept({}), "d": Kept({})}, others=[other.urls.main[0]])
        worker = await stack.enter_async_context(served(herder))
        run_task(worker, "c", 0, 5)
        run_task(other, "c", 1, 7)
        run_task(other, "d", 0, 1)
        found = (await worker.ask("GET", "/progress")).body
        own = (await worker.ask("GET", "/progress?forward=false")).body
        one = (await worker.ask("GET", "/progress?connector=d")).body
        described = (await worker.ask("GET", "/openapi.json")).body

    assert {name: body["fetched_records"] for name, body in found["connectors"].items()} == {"c": 12, "d": 1}
    assert [task["task"] for task in found["connectors"]["c"]["tasks"]] == [0, 1]
    assert found["unanswered"] == []
    assert own["connectors"]["c"]["fetched_records"] == 5
    assert list(one["connectors"]) == ["d"]
    schema = {"$ref": "#/components/schemas/Progress", **described}
    for body in (found, own, one):
        jsonschema.validate(body, schema)


async def test_a_worker_that_does_not_answer_is_named() -> None:
    """What the others have is given all the same."""
    async with served(FakeHerder({"c": Kept({})}, others=["http://127.0.0.1:1"])) as worker:
        run_task(worker, "c", 0, 5)
        found = (await worker.ask("GET", "/progress")).body
    assert found["unanswered"] == ["http://127.0.0.1:1"]
    assert found["connectors"]["c"]["fetched_records"] == 5


async def test_trouble_is_told_without_secrets() -> None:
    """As the reasons of /health/ready are."""
    async with served(FakeHerder({"c": Kept({})})) as worker:
        worker.surface.health.hide = lambda text: text.replace("hunter2", "[hidden]")
        task = run_task(worker, "c", 0, 1)
        message = "http://u:hunter2@host is away"
        task(RetryScheduled, stage="fetch", error_class="Away", attempt=2, wait_seconds=1.0, message=message)
        body: dict[str, Any] = (await worker.ask("GET", "/progress")).body["connectors"]["c"]
    trouble = body["trouble"]
    assert trouble["message"] == "fetch is tried again: http://u:[hidden]@host is away"
    assert (trouble["is_over"], trouble["attempt"]) == (False, 2)


async def test_a_connector_that_was_deleted_is_left_out() -> None:
    """Its figures go with its last task, which may be a moment later."""
    async with served(FakeHerder({})) as worker:
        run_task(worker, "gone", 0, 1)
        assert (await worker.ask("GET", "/progress")).body["connectors"] == {}
