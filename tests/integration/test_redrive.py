"""Dead letters after the contract was mended, and what people see of topics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.faults.topic_watch import committed_values
from tests.faults.worker_life import ROOT, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

STRICT = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "by", "type": "string"}],
}
MENDED = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "by", "type": ["null", "string"], "default": None}],
}
LINES = b'{"id": 1, "by": "Ada"}\n{"id": 2}\n{"id": 3, "by": null}\n{"id": "four"}\n'


def headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "service.cli", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def job(kafka: KafkaStack, topic: str, folder: Path, contract: Mapping[str, Any]) -> tuple[str, str]:
    """A worker and one connector, under this contract."""
    worker = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": f"redrive-{topic}",
        "listeners": "http://127.0.0.1:0",
        "offset.storage.topic": f"{topic}-offsets",
        "data.dir": str(folder / "data"),
    }
    connector = {
        "name": topic,
        "topic": topic,
        "connector.class": "FileStreamSource",
        "file": str(folder / "orders.jsonl"),
        "contract.schema": json.dumps(contract),
        "errors.tolerance": "all",
        "value.converter": "json",
    }
    files = folder / "worker.properties", folder / "connector.properties"
    return str(write_properties(files[0], worker)), str(write_properties(files[1], connector))


@pytest.mark.timeout(600)
def test_what_passes_the_mended_contract_is_delivered_once_and_the_rest_stays(
    kafka: KafkaStack, topic_name: str, tmp_path: Path
) -> None:
    """A second redrive delivers nothing twice, tries again what failed, and keeps where it came from."""
    (tmp_path / "orders.jsonl").write_bytes(LINES)
    letters = f"{topic_name}-dead-letters"
    done = headrace("standalone", *job(kafka, topic_name, tmp_path, STRICT), "--until-idle", "1")
    assert done.returncode == 0, done.stderr
    assert committed_values(kafka.bootstrap, topic_name) == {b'{"id":1,"by":"Ada"}': 1}
    assert committed_values(kafka.bootstrap, letters).total() == 3

    mended = job(kafka, topic_name, tmp_path, MENDED)
    for expected in ("2 passed and were delivered, 1 failed again and stay", "0 passed and were delivered, 1 failed"):
        done = headrace("redrive", letters, *mended)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    values = {b'{"id":1,"by":"Ada"}': 1, b'{"id":2,"by":null}': 1, b'{"id":3,"by":null}': 1}
    assert committed_values(kafka.bootstrap, topic_name) == values

    shown = headrace("topic", "read", letters, "--bootstrap", kafka.bootstrap, "--json")
    assert shown.returncode == 0, shown.stderr
    last = json.loads(shown.stdout.split("\n")[-2])
    assert last["value"] == {"id": "four"}
    assert last["headers"]["__headrace.errors.reason"] == "wrong_type"
    assert json.loads(last["headers"]["__headrace.errors.source.partition"]) == {
        "filename": str(tmp_path / "orders.jsonl")
    }


def test_letters_of_no_connector_of_the_job_are_refused(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """The topics that could be meant are named; exit code 2."""
    done = headrace("redrive", "others-dead-letters", *job(kafka, topic_name, tmp_path, STRICT))
    assert done.returncode == 2, done.stdout
    assert f"{topic_name}-dead-letters" in done.stderr


def test_a_topic_that_is_not_there_is_said_in_one_line(kafka: KafkaStack) -> None:
    """No trace; exit code 1."""
    done = headrace("topic", "read", "no-such-topic", "--bootstrap", kafka.bootstrap)
    assert done.returncode == 1
    assert "no-such-topic" in done.stderr
    assert "Traceback" not in done.stderr
