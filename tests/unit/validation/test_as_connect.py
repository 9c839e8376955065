"""Validation answers as Kafka Connect 4.1.1 does: its own answers, recorded, compared entry by entry.

``connect_answers.json`` holds what a distributed worker of Connect with ``group.id=connect-cluster`` and JsonConverter
answered to configs of its file connectors, without its documentation texts. Differences that are meant have tests of
their own (``test_differences.py``).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from service.validation.infos import ConfigInfo, ConfigInfos
from service.validation.validator import Validation

JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = {
    "key.converter": JSON,
    "value.converter": JSON,
    "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
    "group.id": "connect-cluster",
}
RECORDED = json.loads(Path(__file__).with_name("connect_answers.json").read_text(encoding="utf-8"))
CONNECT_GROUPS = {
    "Common",
    "Transforms",
    "Predicates",
    "Error Handling",
    "Topic Creation",
    "Exactly Once Support",
    "offsets.topic",
}


def infos(config: dict[str, Any], plugin: str | None = None) -> ConfigInfos:
    """The answer of this worker."""
    return Validation(WORKER).validate(config, plugin).infos


def entry(info: ConfigInfo) -> dict[str, Any]:
    """An entry in the form of the recording."""
    definition = None
    if info.definition is not None:
        definition = json.loads(json.dumps(asdict(info.definition)))
        del definition["documentation"], definition["name"]
    value = info.value
    return {"definition": definition, "value": value.value, "errors": list(value.errors), "visible": value.visible}


def is_own(info: ConfigInfo) -> bool:
    """Whether Connect has no such key: then it must be optional, in a group of ours, and without errors here."""
    definition = info.definition
    return (
        definition is not None
        and not definition.required
        and definition.group is not None
        and definition.group not in CONNECT_GROUPS
        and not info.value.errors
    )


MEANT = {"t_ins", "kc_str_enc"}
"""Connect would find the mistake only when the task starts."""


@pytest.mark.parametrize("name", [name for name in RECORDED["cases"] if name not in MEANT])
def test_every_entry_is_as_connect_answers(name: str) -> None:
    """Definitions, values, errors, counts and groups; what is there besides is optional and in groups of our own."""
    case = RECORDED["cases"][name]
    base = RECORDED["bases"][case["base"]]
    expected = {**base, **{key: {**base.get(key, {}), **entry} for key, entry in case["changed"].items()}}

    answer = infos(case["config"], case["config"]["connector.class"])

    ours = {info.value.name: info for info in answer.configs}
    assert {key: entry(ours[key]) for key in expected if key in ours} == expected
    assert [key for key, info in ours.items() if key not in expected and not is_own(info)] == []
    assert answer.error_count == case["error_count"]
    assert [group for group in case["groups"] if group not in answer.groups] == []
    assert answer.name == case["config"]["connector.class"]


def test_names_come_once() -> None:
    """A client that makes a map of the entries loses none."""
    answer = infos({"name": "c", "connector.class": "FileStreamSource", "topic": "t"})
    names = [info.value.name for info in answer.configs]

    assert len(names) == len(set(names))


def test_every_definition_is_documented() -> None:
    """In words of our own, for forms that clients make."""
    for plugin in ("FileStreamSource", "FileStreamSink", "HttpSource", "MixpanelSource"):
        definitions = [info.definition for info in infos({}, plugin).configs]

        assert [key.name for key in definitions if key is not None and not key.documentation.strip()] == []


@pytest.mark.parametrize("plugin", ["FileStreamSource", "FileStreamSink", "HttpSource", "MixpanelSource"])
def test_an_empty_config_gets_every_definition(plugin: str) -> None:
    """The class is taken from the path (seed book)."""
    answer = infos({}, plugin)
    values = {info.value.name: info.value.value for info in answer.configs}

    assert answer.name == plugin
    assert values["connector.class"] == plugin
    assert "tasks.max" in values
    assert any("name" in text for text in answer.errors)
