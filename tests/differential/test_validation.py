"""The recorded answers that unit tests compare validation with are what Kafka Connect 4.1.1 really answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.embedded.running import Running
from tests.java_connect import JavaConnect

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDED = json.loads((Path(__file__).parents[1] / "unit/validation/connect_answers.json").read_text(encoding="utf-8"))
RECORDED_GROUP = "connect-cluster"
"""Group of the worker that was recorded."""


def entries(answer: dict[str, Any]) -> dict[str, Any]:
    """Entries by name, without what depends on the installation: documentation and recommended values."""
    found = {}
    for info in answer["configs"]:
        definition, value = info["definition"], info["value"]
        kept = (
            None if definition is None else {k: v for k, v in definition.items() if k not in {"documentation", "name"}}
        )
        found[value["name"]] = {
            "definition": kept,
            "value": value["value"],
            "errors": value["errors"],
            "visible": value["visible"],
        }
    return found


@pytest.mark.parametrize("name", [name for name in RECORDED["cases"] if name != "sink_group_name"])
def test_connect_still_answers_what_was_recorded(java_connect: Running[JavaConnect], name: str) -> None:
    """Entry by entry; the one text that names the worker's own group is left out."""
    case = RECORDED["cases"][name]
    base = RECORDED["bases"][case["base"]]
    plugin = case["config"]["connector.class"]

    status, answer = java_connect.server.ask("PUT", f"/connector-plugins/{plugin}/config/validate", case["config"])

    assert status == 200
    assert answer["error_count"] == case["error_count"]
    assert answer["groups"] == case["groups"]
    expected = {**base, **{key: {**base.get(key, {}), **entry} for key, entry in case["changed"].items()}}
    assert entries(answer) == expected


def test_the_text_about_the_workers_group_is_as_recorded(java_connect: Running[JavaConnect]) -> None:
    """With this worker's group in the place of the recorded one's."""
    (text,) = RECORDED["cases"]["sink_group_name"]["changed"]["name"]["errors"]
    config = {"name": "s", "connector.class": "FileStreamSink", "topics": "t", "file": "f"}
    group = java_connect.server.group

    _, answer = java_connect.server.ask(
        "PUT",
        "/connector-plugins/FileStreamSink/config/validate",
        {**config, "consumer.override.group.id": group},
    )

    told = [error for info in answer["configs"] for error in info["value"]["errors"]]
    assert told == [f"Consumer group {group} conflicts with Connect worker group {group}"]
    assert text == (
        f"Consumer group for sink connector named cluster conflicts with Connect worker group {RECORDED_GROUP}"
    )
