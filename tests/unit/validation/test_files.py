"""Validating a connector's file without a worker."""

from __future__ import annotations

import json
from pathlib import Path

from service.validation.files import FileVerdict, validate_file

GOOD = "name=c\nconnector.class=FileStreamSource\nfile=f\ntopic=t\n"


def verdict(tmp_path: Path, text: str, *, worker: str | None = None, suffix: str = ".properties") -> FileVerdict:
    """What is found in a file of that text."""
    path = tmp_path / f"connector{suffix}"
    path.write_text(text, encoding="utf-8")
    if worker is None:
        return validate_file(path)
    worker_file = tmp_path / "worker.properties"
    worker_file.write_text(worker, encoding="utf-8")
    return validate_file(path, worker_file, environ={"TOPIC": "from-environment"})


def test_a_good_file_is_valid(tmp_path: Path) -> None:
    """Properties, or a create request."""
    assert verdict(tmp_path, GOOD) == FileVerdict("c", ())
    config = {"connector.class": "FileStreamSink", "topics": "t", "tasks.max": 1}
    assert verdict(tmp_path, json.dumps({"name": "s", "config": config}), suffix=".json").is_valid


def test_every_finding_is_told(tmp_path: Path) -> None:
    """Errors with their keys, and warnings."""
    found = verdict(tmp_path, "name=c\nconnector.class=FileStreamSource\ntasks.max=0\nzzz=1\n")
    assert not found.is_valid
    assert {finding.key: finding.is_error for finding in found.findings} == {
        "tasks.max": True,
        "topic": True,
        "zzz": False,
    }


def test_an_unknown_class_and_an_unreadable_file_are_findings(tmp_path: Path) -> None:
    """Not tracebacks."""
    assert [finding.key for finding in verdict(tmp_path, "connector.class=Nope").findings] == ["connector.class"]
    assert [finding.key for finding in verdict(tmp_path, "name=c").findings] == ["connector.class"]
    assert not validate_file(tmp_path / "nope.properties").is_valid
    assert not verdict(tmp_path, "{", suffix=".json").is_valid


def test_the_workers_file_has_its_say(tmp_path: Path) -> None:
    """Its converters, its policy, its providers, and its own mistakes."""
    converter = "org.apache.kafka.connect.json.JsonConverter"
    worker = f"value.converter={converter}\nvalue.converter.schemas.enable=maybe\n"
    assert "value.converter.schemas.enable" in {each.key for each in verdict(tmp_path, GOOD, worker=worker).findings}
    tuned = f"{GOOD}producer.override.batch.size=5000\n"
    policy = "connector.client.config.override.policy=None\n"
    assert verdict(tmp_path, tuned, worker="group.id=g\n").is_valid
    assert not verdict(tmp_path, tuned, worker=policy).is_valid
    assert not verdict(tmp_path, GOOD, worker="offset.storage.partitions=many\n").is_valid


def test_variables_are_resolved_by_the_workers_providers(tmp_path: Path) -> None:
    """Without showing what they stand for."""
    worker = "config.providers=env,file\nconfig.providers.env.class=EnvVarConfigProvider\n"
    worker += "config.providers.file.class=FileConfigProvider\n"
    assert verdict(tmp_path, GOOD.replace("topic=t", "topic=${env:TOPIC}"), worker=worker).findings == ()
    wrong = verdict(tmp_path, f"{GOOD}tasks.max=${{env:TOPIC}}\n", worker=worker)
    assert [finding.key for finding in wrong.findings] == ["tasks.max"]
    assert "from-environment" not in str(wrong)
    missing = verdict(tmp_path, f"{GOOD}tasks.max=${{file:{tmp_path}/nope:x}}\n", worker=worker)
    assert [finding.key for finding in missing.findings] == [""]
