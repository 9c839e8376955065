"""``POST /preview``: what a config would write, within the bounds of the worker."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import pytest_asyncio

from metrics.events import ChangeAudited
from service.preview import requested
from service.preview.preview import as_json, preview
from tests.apis.rest.serving import Served, previews, served

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Served]:
    """A worker on the loopback."""
    async with served() as serving:
        yield serving


def config(folder: Path, *lines: str, **keys: str) -> dict[str, str]:
    """Of a file source with these lines and a contract; dots in keys are written as underscores."""
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    own = {"connector.class": "FileStreamSource", "file": str(folder / "in.txt"), "topic": "t"}
    more = {key.replace("_", "."): value for key, value in keys.items()}
    return {"name": "c", **own, "contract.schema": json.dumps(SCHEMA), **more}


async def test_records_are_told_with_their_verdicts_and_the_document_describes_them(
    worker: Served, tmp_path: Path
) -> None:
    """The very object of the command, and one line of audit without the body."""
    body = {"config": config(tmp_path, '{"id":1}', '{"id":"x"}', "{}"), "max": 2}
    answer = await worker.ask("POST", "/preview", body)
    assert answer.status == 200
    found = answer.body
    assert [(record["verdict"], record["field"]) for record in found["records"]] == [
        ("valid", None),
        ("rejected", "id"),
    ]
    assert (found["source"]["has_more"], found["source"]["records_left"]) == (True, 1)
    described = (await worker.ask("GET", "/openapi.json")).body
    schema = {"$ref": "#/components/schemas/Preview", "components": described["components"]}
    jsonschema.Draft202012Validator(schema).validate(found)
    (audited,) = [event for event in worker.events if isinstance(event, ChangeAudited)]
    assert (audited.method, audited.path, audited.status, audited.outcome) == ("POST", "/preview", 200, "done")


@pytest.mark.parametrize("count", [0, -1, 501, "many", 1.5])
async def test_the_number_of_records_is_bounded(worker: Served, tmp_path: Path, count: object) -> None:
    """400, with what was expected."""
    answer = await worker.ask("POST", "/preview", {"config": config(tmp_path), "max": count})
    assert answer.error[0] == 400
    assert "1 to 500" in answer.error[1]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "needs a config"),
        ({"config": None}, "needs a config"),
        ({"config": {}, "more": 1}, "Unrecognized field"),
        ({"config": {"connector.class": "NoSuch"}}, "NoSuch"),
        ({"config": {"connector.class": "FileStreamSink", "topics": "t"}}, "is a sink"),
        ({"config": {"connector.class": "FileStreamSource", "topic": "t"}}, "lines of standard input"),
        ({"config": {"connector.class": "HttpSource", "topic": "t"}}, "http.url"),
        (
            {"config": {"connector.class": "HttpSource", "topic": "t", "http.url": "http://127.0.0.1/${env:NO}"}},
            "${env:NO} is not resolved",
        ),
        (
            {"config": {"connector.class": "FileStreamSource", "topic": "t", "file": "f", "contract.schema": "{"}},
            "contract.schema",
        ),
    ],
)
async def test_what_cannot_be_previewed_is_a_wrong_request(worker: Served, body: Any, told: str) -> None:
    """400: malformed, refused as configuration, or nothing that could be read twice."""
    answer = await worker.ask("POST", "/preview", body)
    assert answer.error[0] == 400
    assert told in answer.error[1]


async def test_a_worker_that_others_reach_previews_only_what_it_lets_connectors_reach(tmp_path: Path) -> None:
    """Its paths, its modules and its addresses bind a preview as they bind a connector."""
    strict = {"listeners": "http://0.0.0.0:8083"}
    url = {"connector.class": "HttpSource", "http.url": "http://127.0.0.1:9/", "topic": "t"}
    class_of_ones_own = {"connector.class": "os.path:join", "topic": "t"}
    async with served() as worker:
        worker.surface.previews = previews(strict)
        for refused, told in ((config(tmp_path, "{}"), "connector.allowed.paths"), (class_of_ones_own, "os.path")):
            answer = await worker.ask("POST", "/preview", {"config": refused})
            assert (answer.status, told in answer.text) == (400, True)
        answer = await worker.ask("POST", "/preview", {"config": url})
        assert answer.status == 200
        assert "connector.allowed.addresses" in answer.body["source"]["error"]


async def test_an_answer_is_made_outside_of_the_event_loop(
    worker: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's connectors and its place in the group must not wait for some megabytes of a source."""
    threads: list[threading.Thread] = []

    def made(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread())
        return as_json(*arguments, **options)

    monkeypatch.setattr(requested, "as_json", made)
    answer = await worker.ask("POST", "/preview", {"config": config(tmp_path, '{"id":1}')})
    assert answer.body["counts"]["valid"] == 1
    assert len(threads) == 1
    assert threading.current_thread() not in threads


async def test_previews_at_once_are_bounded(worker: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """409 while others are under way: each may hold a large answer of its source."""
    reached, is_let_go = asyncio.Semaphore(0), asyncio.Event()
    fetch = preview

    async def slow(*arguments: Any, **options: Any) -> Any:
        reached.release()
        await is_let_go.wait()
        return await fetch(*arguments, **options)

    monkeypatch.setattr(requested, "preview", slow)
    body = {"config": config(tmp_path, '{"id":1}')}
    async with asyncio.TaskGroup() as group:
        under_way = [group.create_task(worker.ask("POST", "/preview", body)) for _ in range(requested.AT_ONCE_MAX)]
        for _ in under_way:
            await reached.acquire()
        assert (await worker.ask("POST", "/preview", body)).error[0] == 409
        is_let_go.set()
    assert [task.result().status for task in under_way] == [200] * requested.AT_ONCE_MAX


async def test_rules_without_spark_are_told_to_be_tried_again(worker: Served, tmp_path: Path) -> None:
    """What only Spark can say is not guessed."""
    answer = await worker.ask("POST", "/preview", {"config": config(tmp_path, "{}", contract_rules_positive="id > 0")})
    assert answer.error[0] == 500
    assert "there is no Spark here" in answer.error[1]
