"""A worker's config and its connectors', read together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fetchers.sdk import Finding, Severity
from service.job import ConfigRefusedError, Job, make_job, read_job

FILE = {"name": "lines", "connector.class": "FileStreamSource", "topic": "t", "file": "/tmp/x"}


def refused(worker: dict[str, str], *connectors: dict[str, str]) -> dict[str, list[Finding]]:
    """Findings of a refused job by source."""
    with pytest.raises(ConfigRefusedError) as refusal:
        make_job(worker, connectors)
    found: dict[str, list[Finding]] = {}
    for source in refusal.value.sources:
        found.setdefault(source.source, []).extend(source.findings)
    return found


def warnings(job: Job) -> set[str]:
    """Keys that were warned of."""
    return {finding.key for source in job.warnings for finding in source.findings}


def test_findings_of_all_files_come_at_once() -> None:
    """The worker's and every connector's, errors and warnings."""
    found = refused(
        {"offset.storage.partitions": "many", "ofset.storage.topic": "x"},
        {**FILE, "tasks.max": "0"},
        {"name": "other", "connector.class": "Nothing"},
    )
    assert {finding.key for finding in found["worker"]} == {"offset.storage.partitions", "ofset.storage.topic"}
    assert [finding.key for finding in found["lines"]] == ["tasks.max"]
    assert "connector.class" in {finding.key for finding in found["other"]}


def test_two_connectors_of_one_name_are_refused() -> None:
    """They would fence each other for ever."""
    found = refused({}, FILE, FILE)
    assert any("already exists" in finding.message for finding in found["lines"])


def test_a_good_job_keeps_its_warnings() -> None:
    """Unknown keys, the offset file, and what a connector warns of."""
    job = make_job({"offset.storage.file.filename": "/tmp/offsets", "zzz": "1"}, [{**FILE, "filee": "x"}])
    assert warnings(job) == {"offset.storage.file.filename", "zzz", "filee"}
    assert all(finding.severity is Severity.WARNING for source in job.warnings for finding in source.findings)
    (definition,) = job.definitions()
    assert definition.name == "lines"


def test_connects_own_standalone_file_gives_no_error() -> None:
    """Its keys are all known."""
    job = make_job(
        {
            "bootstrap.servers": "localhost:9092",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "true",
            "value.converter.schemas.enable": "true",
            "offset.storage.file.filename": "/tmp/connect.offsets",
            "offset.flush.interval.ms": "10000",
            "plugin.path": "/usr/share/java",
            "rest.port": "8083",
        },
        [FILE],
    )
    assert warnings(job) == {"offset.storage.file.filename"}


def test_the_embedded_registry_gets_its_url_once_it_is_known() -> None:
    """Validation does not need it; what is embedded is said by any key that ends so."""
    job = make_job(
        {"schema.registry.url": "embedded", "value.converter": "io.confluent.connect.avro.AvroConverter"}, [FILE]
    )
    assert job.needs_embedded_registry
    (definition,) = job.definitions(registry_url="http://127.0.0.1:8081/apis/ccompat/v7")
    assert "http://127.0.0.1:8081/apis/ccompat/v7" in str(definition.value_converter.registry)
    assert not make_job({}, [FILE]).needs_embedded_registry


def test_files_are_read_and_named(tmp_path: Path) -> None:
    """Properties and JSON; a finding says in which file it is."""
    worker, connector = tmp_path / "w.properties", tmp_path / "c.json"
    worker.write_text("group.id=g\n", encoding="utf-8")
    connector.write_text(json.dumps({"name": "lines", "config": FILE}), encoding="utf-8")
    assert read_job(worker, [connector]).worker.group_id == "g"
    connector.write_text(json.dumps({**FILE, "tasks.max": "x"}), encoding="utf-8")
    with pytest.raises(ConfigRefusedError) as refusal:
        read_job(worker, [connector])
    assert [source.source for source in refusal.value.sources] == [str(connector)]


def test_all_unreadable_files_are_named_at_once(tmp_path: Path) -> None:
    """Not the first one only."""
    with pytest.raises(ConfigRefusedError) as refusal:
        read_job(tmp_path / "w.properties", [tmp_path / "c.properties"])
    assert len(refusal.value.sources) == 2
