"""What is asked of both workers: scripts, which are lists of steps, which are data.

``{c}``, ``{t}`` and ``{f}`` stand in paths and bodies for names of a worker's own - a connector, a topic and a file -
because both workers share one broker, and are put back into the answers before these are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SOURCE = {"connector.class": "FileStreamSource", "file": "{f}", "topic": "{t}", "tasks.max": "1"}
"""Class, file and topic; ``{f}`` and ``{t}`` are of the script's own."""
TEXTS = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
"""For what flows from a source to a sink: only with texts the stand-in for Spark converts as it should."""
SINK = {"connector.class": "FileStreamSink", "file": "{f}.out", "topics": "{t}", "tasks.max": "1"}


def whole(body: Any) -> Any:
    """All of a body."""
    return body


@dataclass(frozen=True, slots=True)
class Ask:
    """A request whose answers are compared. ``name`` is unique among all scripts."""

    name: str
    method: str
    path: str
    body: object = None
    text: str | None = None
    """A body that is not JSON, or not made of one value."""
    content_type: str | None = "application/json"
    accept: str | None = None
    """What the client takes, where it says so."""
    pick: Callable[[Any], Any] = whole
    """What of a body both must agree on."""
    is_settled: Callable[[Any], bool] = lambda _: True
    """Whether a body tells of no state that passes by. Else it is asked again: for requests that change nothing."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A path is read until its answer is so; what both then say is not compared."""

    path: str
    is_so: Callable[[int, Any], bool]


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines are appended to the worker's file."""

    lines: tuple[str, ...]


Step = Ask | Wait | Lines


@dataclass(frozen=True, slots=True)
class Script:
    """Steps that are done in turn; connectors called ``{c}…`` are removed when they are done."""

    name: str
    steps: tuple[Step, ...]
    connectors: tuple[str, ...] = ("{c}",)


def create(name: str, config: Mapping[str, str], **more: object) -> Ask:
    """A connector ``{c}``, as the first or any step."""
    return Ask(name, "POST", "/connectors", {"name": "{c}", "config": dict(config), **more})


def in_states(connector: str, *tasks: str, of: str = "{c}") -> Wait:
    """Until the connector and its tasks are in these states."""

    def is_so(status: int, body: Any) -> bool:
        if status != 200:
            return False
        return [body["connector"]["state"], *(task["state"] for task in body["tasks"])] == [connector, *tasks]

    return Wait(f"/connectors/{of}/status", is_so)


def is_running(body: Any) -> bool:
    """Whether all that is told of runs.

    Connect reads what it has written of states only later: what a ``Wait`` saw may have been from before a restart.
    """
    return {body["connector"]["state"], *(task["state"] for task in body["tasks"])} == {"RUNNING"}


def gone(of: str = "{c}") -> Wait:
    """Until the states of a deleted connector are forgotten."""
    return Wait(f"/connectors/{of}/status", lambda status, _: status == 404)


def offsets(*expected: int, key: str = "position", of: str = "{c}") -> Wait:
    """Until a connector's offsets are these numbers."""

    def is_so(status: int, body: Any) -> bool:
        return status == 200 and [entry["offset"][key] for entry in body["offsets"]] == list(expected)

    return Wait(f"/connectors/{of}/offsets", is_so)


def entries_of(names: Iterable[str]) -> Callable[[Any], Any]:
    """Of a list of plugins or keys those of these names, without their order."""
    wanted = frozenset(names)

    def pick(body: Any) -> Any:
        found = [entry for entry in body if (entry.get("class") or entry.get("name")) in wanted]
        return sorted(found, key=lambda entry: str(entry.get("class") or entry.get("name")))

    return pick
