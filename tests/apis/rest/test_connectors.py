"""``/connectors``: every row of Connect's table about connectors, configs, states and tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from service.domain.states import State, TargetState
from service.herder.errors import ConflictError
from tests.apis.rest.fake_herder import Kept, state
from tests.apis.rest.serving import Served, served

CONFIG = {"connector.class": "FileStreamSource", "topic": "t", "name": "c"}
TASK = {"connector.class": "FileStreamSource", "task.class": "x"}
INFO = {"name": "c", "config": CONFIG, "tasks": [{"connector": "c", "task": 0}], "type": "source"}
FAILED = {"id": 0, "state": "FAILED", "worker_id": "127.0.0.1:8083", "trace": "java.lang…", "version": "4.1.1"}
STATUS = {
    "name": "c",
    "connector": {"state": "RUNNING", "worker_id": "127.0.0.1:8083", "version": "4.1.1"},
    "tasks": [
        FAILED,
        {"id": 1, "state": "UNASSIGNED", "worker_id": "127.0.0.1:8083"},
    ],
    "type": "source",
}
NULLS = """\
Connector configuration is invalid and contains the following 2 error(s):
Null value can not be supplied as the configuration value.
Null value can not be supplied as the configuration value.
You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"""
REBALANCE = "Cannot complete request momentarily due to stale configuration"


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Served]:
    """A worker with one connector, ``c``, one of whose tasks has failed."""
    async with served() as serving:
        states = {1: state(State.UNASSIGNED, version="undefined"), 0: state(State.FAILED, trace="java.lang…")}
        serving.herder.connectors["c"] = Kept(CONFIG, tasks=[TASK], states=states)
        yield serving


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/connectors", ["c"]),
        ("/connectors?expand=status", {"c": {"status": STATUS}}),
        ("/connectors?expand=info&expand=status", {"c": {"info": INFO, "status": STATUS}}),
        ("/connectors?expand=nonsense", {"c": {}}),
        ("/connectors?expand=", {"c": {}}),
        ("/connectors/c", INFO),
        ("/connectors/c/config", CONFIG),
        ("/connectors/c/status", STATUS),
        ("/connectors/c/tasks", [{"id": {"connector": "c", "task": 0}, "config": TASK}]),
        ("/connectors/c/tasks/0/status", FAILED),
    ],
)
async def test_reads(worker: Served, path: str, body: object) -> None:
    """Bodies to the byte: traces only where there is one, versions only where they are known, tasks by number."""
    answer = await worker.ask("GET", path)

    assert (answer.status, answer.body) == (200, body)
    assert answer.headers["Content-Type"].startswith("application/json")


async def test_a_status_has_its_fields_in_connects_order(worker: Served) -> None:
    """Some people read JSON with tools that are no parsers."""
    answer = await worker.ask("GET", "/connectors/c/tasks/0/status")

    assert list(answer.body) == ["id", "state", "worker_id", "trace", "version"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/connectors/x", "Connector x not found"),
        ("/connectors/x/config", "Connector x not found"),
        ("/connectors/x/status", "No status found for connector x"),
        ("/connectors/x/tasks", "Connector x not found"),
        ("/connectors/c/tasks/7/status", "No status found for task c-7"),
    ],
)
async def test_reads_of_what_is_not_there(worker: Served, path: str, text: str) -> None:
    """404 with Connect's text."""
    assert (await worker.ask("GET", path)).error == (404, text)


async def test_a_connector_that_vanishes_is_left_out_of_the_list(worker: Served) -> None:
    """It was named a moment ago, and is deleted meanwhile."""
    worker.herder.vanished = ["gone"]

    assert list((await worker.ask("GET", "/connectors?expand=info")).body) == ["c"]


@pytest.mark.parametrize("path", ["/connectors/c", "/connectors/c/config", "/connectors/c/tasks"])
async def test_a_rebalance_refuses_single_reads_alone(worker: Served, path: str) -> None:
    """With 409, on which clients retry; lists and states are answered."""
    worker.herder.failure = ConflictError(REBALANCE)

    assert (await worker.ask("GET", path)).error == (409, REBALANCE)
    assert (await worker.ask("GET", "/connectors?expand=info")).status == 200
    assert (await worker.ask("GET", "/connectors/c/status")).status == 200


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({}, None),
        ({"initial_state": None}, None),
        ({"initial_state": "RUNNING"}, TargetState.STARTED),
        ({"initial_state": "paused"}, TargetState.PAUSED),
        ({"initial_state": "Stopped"}, TargetState.STOPPED),
    ],
)
async def test_create(worker: Served, given: dict[str, object], target: TargetState | None) -> None:
    """201, where it is, its info; numbers and booleans become texts, blanks around the name are cut."""
    config = {"connector.class": "x", "tasks.max": 1, "a": True, "b": 1.50, "c": "é"}
    answer = await worker.ask("POST", "/connectors", {"name": " new ", "config": config, **given})

    texts = {"connector.class": "x", "tasks.max": "1", "a": "true", "b": "1.5", "c": "é", "name": "new"}
    assert (answer.status, answer.headers["Location"]) == (201, "/connectors/new")
    assert answer.body == {"name": "new", "config": texts, "tasks": [], "type": "source"}
    assert worker.herder.asked == [("create", "new", texts, target)]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"name": "c", "config": {}}, "Connector config contains no connector type"),
        (
            {"name": "a", "config": {"name": "b"}},
            "Connector name configuration (b) doesn't match connector name in the URL (a)",
        ),
        (
            {"config": {"name": "b"}},
            "Connector name configuration (b) doesn't match connector name in the URL ()",
        ),
        (
            {"name": "a", "config": {"x": None, "y": None}},
            NULLS,
        ),
        ({"name": "a"}, "The request needs a config."),
        ({"name": "a", "config": None}, "The request needs a config."),
        (
            {"name": "a", "config": {}, "initial_state": "SLEEPING"},
            "Invalid initial_state 'SLEEPING': expected one of RUNNING, PAUSED, STOPPED",
        ),
        (
            {"name": "a", "config": {}, "more": 1},
            'Unrecognized field "more", not one of: name, config, initial_state',
        ),
        (
            {"name": "a", "config": {"x": [1]}},
            "Cannot deserialize value of 'x': expected a text, a number or a boolean, not a list",
        ),
        (
            {"name": "a", "config": {"x": {}}},
            "Cannot deserialize value of 'x': expected a text, a number or a boolean, not an object",
        ),
        ({"name": "a", "config": "x"}, "Cannot deserialize value of the config: Expected `object`, got `str`"),
        ([], "Cannot deserialize value of the request: Expected `object`, got `array`"),
        (b"null", "Cannot deserialize value of the request: Expected `object`, got `null`"),
        (b"", "The request needs a body in JSON."),
    ],
)
async def test_create_refuses_what_is_wrong(worker: Served, body: object, text: str) -> None:
    """400 with what is wrong, also where Java answers 500."""
    assert (await worker.ask("POST", "/connectors", body)).error == (400, text)


async def test_create_refuses_what_exists(worker: Served) -> None:
    """409 that clients can tell by its text."""
    answer = await worker.ask("POST", "/connectors", {"name": "c", "config": {"connector.class": "x"}})

    assert answer.error == (409, "Connector c already exists")


async def test_put_creates_and_changes(worker: Served) -> None:
    """201 and where it is, then 200; the same body both times, the name put in."""
    config = {"connector.class": "x", "tasks.max": 2}
    created = await worker.ask("PUT", "/connectors/new/config", config)
    changed = await worker.ask("PUT", "/connectors/new/config", config)

    assert (created.status, created.headers["Location"]) == (201, "/connectors/new")
    assert (changed.status, "Location" in changed.headers) == (200, False)
    assert created.body == changed.body
    assert created.body["config"] == {"connector.class": "x", "tasks.max": "2", "name": "new"}


async def test_put_refuses_another_name(worker: Served) -> None:
    """400."""
    answer = await worker.ask("PUT", "/connectors/c/config", {"name": "d", "connector.class": "x"})

    assert answer.error == (400, "Connector name configuration (d) doesn't match connector name in the URL (c)")


async def test_patch_merges_and_removes(worker: Served) -> None:
    """200 and the whole; null removes."""
    answer = await worker.ask("PATCH", "/connectors/c/config", {"topic": None, "tasks.max": 3})

    assert answer.status == 200
    assert answer.body["config"] == {"connector.class": "FileStreamSource", "name": "c", "tasks.max": "3"}
    assert worker.herder.asked == [("patch", "c", {"topic": None, "tasks.max": "3"})]


@pytest.mark.parametrize("name", ["d", None])
async def test_patch_never_changes_the_name(worker: Served, name: str | None) -> None:
    """400, where Connect stores a connector under a name it does not have."""
    assert (await worker.ask("PATCH", "/connectors/c/config", {"name": name})).status == 400
    assert (await worker.ask("PATCH", "/connectors/c/config", {"name": "c"})).status == 200


async def test_patch_of_what_is_not_there(worker: Served) -> None:
    """404."""
    assert (await worker.ask("PATCH", "/connectors/x/config", {})).error == (404, "Connector x not found")


async def test_delete(worker: Served) -> None:
    """204 without a body, then 404."""
    first = await worker.ask("DELETE", "/connectors/c", {"a body": "that nobody reads"})
    second = await worker.ask("DELETE", "/connectors/c")

    assert (first.status, first.text) == (204, "")
    assert second.error == (404, "Connector c not found")


NAMES = [
    ("a%2Fb", "a/b"),
    ("a%252Fb", "a%2Fb"),
    ("100%25", "100%"),
    ("a%20b+c", "a b+c"),
    ("%E2%82%AC-%C3%A9", "€-é"),
    ("%7Bx%7D", "{x}"),
    ("..a", "..a"),
    ("%3Fq%23f", "?q#f"),
    ("a%2fb%25c", "a/b%c"),
    ("%ff%zz", "%ff%zz"),
]


@pytest.mark.parametrize(("encoded", "name"), NAMES)
async def test_names_are_decoded_exactly_once(worker: Served, encoded: str, name: str) -> None:
    """In every place, and ``Location`` leads back to them."""
    created = await worker.ask("PUT", f"/connectors/{encoded}/config", {"connector.class": "x"})
    assert (created.status, created.body["name"]) == (201, name)

    assert (await worker.ask("GET", created.headers["Location"])).body["name"] == name
    assert (await worker.ask("GET", f"/connectors/{encoded}/status")).body["name"] == name
    assert (await worker.ask("GET", f"/connectors/{encoded}/topics")).body == {name: {"topics": []}}
    assert (await worker.ask("DELETE", f"/connectors/{encoded}/")).status == 204
    assert worker.herder.asked[-1] == ("delete", name)


async def test_a_thousand_connectors_are_written_as_one_body(worker: Served) -> None:
    """Every one with its state and config."""
    for number in range(1_000):
        worker.herder.connectors[f"n{number}"] = Kept(CONFIG, tasks=[TASK], states={0: state(State.RUNNING)})

    answer = await worker.ask("GET", "/connectors?expand=status&expand=info")

    assert len(answer.body) == 1_001
    assert all(set(body) == {"status", "info"} for body in answer.body.values())
