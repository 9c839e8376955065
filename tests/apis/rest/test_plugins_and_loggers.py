"""``/connector-plugins`` and ``/admin/loggers``."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.apis.rest.serving import Served, served

FILE_KEY = {
    "name": "file",
    "type": "STRING",
    "required": True,
    "default_value": None,
    "importance": "HIGH",
    "documentation": "Path.",
    "group": None,
    "order": -1,
    "width": "NONE",
    "display_name": "file",
    "dependents": [],
}


def value(name: str, text: str | None, recommended: list[str], errors: list[str]) -> dict[str, object]:
    """ConfigValueInfo."""
    return {"name": name, "value": text, "recommended_values": recommended, "errors": errors, "visible": True}


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Served]:
    """A worker."""
    async with served() as serving:
        yield serving


@pytest.mark.parametrize(
    ("query", "count"),
    [("", 1), ("?connectorsOnly=true", 1), ("?connectorsOnly=false", 2), ("?connectorsOnly=nonsense", 2)],
)
async def test_plugins_are_listed(worker: Served, query: str, count: int) -> None:
    """Connectors alone, unless told otherwise."""
    answer = await worker.ask("GET", f"/connector-plugins{query}")

    assert answer.status == 200
    assert answer.body[0] == {"class": "org.example.Source", "type": "source", "version": "1"}
    assert len(answer.body) == count


async def test_keys_of_a_plugin(worker: Served) -> None:
    """404 and 400 in Connect's words."""
    keys = await worker.ask("GET", "/connector-plugins/Source/config?version=latest")
    unknown = await worker.ask("GET", "/connector-plugins/X/config")
    wrong = await worker.ask("GET", "/connector-plugins/Source/config?version=no%20version")

    assert (keys.status, keys.body) == (200, [FILE_KEY])
    assert unknown.error == (404, "Unknown plugin X.")
    assert wrong.error == (400, "Invalid version specification: no version")


async def test_warnings_are_told_to_who_asks_for_them(worker: Served) -> None:
    """Behind Connect's own fields, which stay as they are."""
    path = "/connector-plugins/Source/config/validate"
    plain = await worker.ask("PUT", path, {"x": "1"})
    asked = await worker.ask("PUT", f"{path}?warnings=true", {"x": "1"})
    assert asked.body == {**plain.body, "warnings": [{"key": "x", "message": "Nothing reads it."}]}


async def test_others_are_asked_of_a_config_where_a_client_wants_it(worker: Served) -> None:
    """By a parameter of our own."""
    path = "/connector-plugins/Source/config/validate"
    for query, told in (("", None), ("?deep=true", "asked")):
        answer = await worker.ask("PUT", path + query, {"x": "1"})
        assert answer.body["configs"][0]["value"]["value"] == told


async def test_a_config_is_validated(worker: Served) -> None:
    """As it was sent, nulls too: what is wrong with it is for the validation to say."""
    body = {"connector.class": "Source", "tasks.max": 1, "topic": None}
    answer = await worker.ask("PUT", "/connector-plugins/Source/config/validate", body)
    empty = await worker.ask("PUT", "/connector-plugins/Source/config/validate", b"{}")

    assert (answer.status, empty.status) == (200, 200)
    assert answer.body == {
        "name": "Source",
        "error_count": 1,
        "groups": ["Common"],
        "configs": [
            {"definition": FILE_KEY, "value": value("file", None, ["a", "b"], ["It is missing."])},
            {"definition": None, "value": value("x", "1", [], [])},
        ],
    }
    assert worker.plugins.validated == [
        ("Source", {"connector.class": "Source", "tasks.max": "1", "topic": None}),
        ("Source", {}),
    ]


@pytest.fixture
def logger() -> str:
    """A logger nobody else uses."""
    name = f"test.{uuid.uuid4().hex}"
    logging.getLogger(f"{name}.below").setLevel(logging.NOTSET)
    return name


async def test_a_level_is_set_and_read(worker: Served, logger: str) -> None:
    """Here: 200 and the names of what has changed."""
    answer = await worker.ask("PUT", f"/admin/loggers/{logger}", {"level": "debug"})
    read = await worker.ask("GET", f"/admin/loggers/{logger}")
    listed = await worker.ask("GET", "/admin/loggers")

    assert (answer.status, answer.body) == (200, [logger, f"{logger}.below"])
    assert read.body["level"] == "DEBUG"
    assert isinstance(read.body["last_modified"], int)
    assert listed.body[logger] == read.body
    assert set(listed.body["root"]) == {"level", "last_modified"}
    assert list(listed.body) == sorted(listed.body)


@pytest.mark.parametrize("scope", ["cluster", "CLUSTER"])
async def test_a_level_is_set_in_the_cluster(worker: Served, logger: str, scope: str) -> None:
    """204; nothing is set here before the log says so, and levels are spelt as Java's workers know them."""
    answer = await worker.ask("PUT", f"/admin/loggers/{logger}?scope={scope}", {"level": "warning"})

    assert (answer.status, answer.text) == (204, "")
    assert worker.herder.asked == [("logger", logger, "WARN")]


async def test_an_unknown_scope_is_this_worker(worker: Served, logger: str) -> None:
    """As in Connect."""
    answer = await worker.ask("PUT", f"/admin/loggers/{logger}?scope=galaxy", {"level": "INFO"})

    assert (answer.status, worker.herder.asked) == (200, [])


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, (400, "Desired 'level' parameter was not specified in request.")),
        ({"level": None}, (400, "Desired 'level' parameter was not specified in request.")),
        ({"level": "LOUD"}, (404, "invalid log level 'LOUD'.")),
        (
            {"level": {}},
            (400, "Cannot deserialize value of 'level': expected a text, a number or a boolean, not an object"),
        ),
    ],
)
async def test_wrong_levels(worker: Served, logger: str, body: object, error: tuple[int, str]) -> None:
    """In Connect's words, whatever the scope."""
    for scope in ("worker", "cluster"):
        assert (await worker.ask("PUT", f"/admin/loggers/{logger}?scope={scope}", body)).error == error


async def test_an_unknown_logger(worker: Served) -> None:
    """404."""
    assert (await worker.ask("GET", "/admin/loggers/no.such")).error == (404, "Logger no.such not found.")
