"""Wrong configuration: everything that is wrong is told at once, with exit code 2, before anything is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fetchers.catalog import PLUGINS
from tests.faults.worker_life import ROOT, write_properties

pytestmark = [pytest.mark.slow]

GOOD_CONNECTOR = {"name": "lines", "connector.class": "FileStreamSource", "topic": "lines", "file": "lines.txt"}


def refusal_of(
    folder: Path, worker: Mapping[str, str], *connectors: Mapping[str, str], command: str = "standalone"
) -> str:
    """What the command prints, on one line and without the table's lines; it must end with 2."""
    files = [write_properties(folder / "worker.properties", worker)]
    for number, connector in enumerate(connectors):
        files.append(write_properties(folder / f"connector-{number}.properties", connector))
    return run_command(command, *files)


def run_command(name: str, *files: Path) -> str:
    """Run it, demand exit code 2 and give what it told."""
    command = [sys.executable, "-m", "service.cli", name, *map(str, files)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "400"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.replace("│", " ").replace("┃", " ").split())


def test_all_findings_of_all_files_come_at_once(tmp_path: Path) -> None:
    """Each has its file, key, the value seen and what was expected; unknown keys name the nearest known one."""
    told = refusal_of(
        tmp_path,
        {"bootstrap.servers": "127.0.0.1:1", "listenres": "http://127.0.0.1:0", "log.format": "xml"},
        {**GOOD_CONNECTOR, "tasks.max": "none", "errors.tolerence": "all", "batch.size": "0"},
        {"name": "events", "connector.class": "MixpanelSource", "topic": "events", "from_date": "yesterday"},
        {"name": "strange", "connector.class": "NoSuchSource", "topic": "strange"},
        {**GOOD_CONNECTOR, "contract.schema": '{"type": "record"'},
    )
    for expected in (
        "log.format xml",
        "listeners",
        "tasks.max none",
        "errors.tolerance",
        "batch.size 0",
        "from_date yesterday",
        "NoSuchSource",
        f"available connectors are: {', '.join(plugin.name for plugin in PLUGINS)}",
        "contract.schema",
        "Connector lines already exists",
        "connector-3.properties",
    ):
        assert expected in told, f"{expected!r} is not told in: {told}"


def test_secrets_are_masked_in_findings(tmp_path: Path) -> None:
    """A wrong value is shown unless it is secret; secrets of the whole job show nowhere."""
    told = refusal_of(
        tmp_path,
        {"bootstrap.servers": "127.0.0.1:1", "sasl.jaas.config": "hunter2-of-the-worker"},
        {
            "name": "events",
            "connector.class": "MixpanelSource",
            "topic": "events",
            "api_secret": "hunter2-old",
            "mixpanel.service.account.secret": "hunter2-new",
            "from_date": "2016-13-01",
        },
        {
            "name": "api",
            "connector.class": "HttpSource",
            "topic": "api",
            "http.url": "ftp://user:hunter2-url@example.invalid/items",
            "http.auth.type": "bearer",
            "http.auth.token": "hunter2-token",
        },
    )
    assert "2016-13-01" in told
    assert "http.url" in told
    assert "hunter2" not in told


def test_a_missing_and_an_unreadable_file_are_told(tmp_path: Path) -> None:
    """Both at once, by name; no other finding hides them."""
    (tmp_path / "broken.json").write_text('{"name": ', encoding="utf-8")
    told = run_command("standalone", tmp_path / "no-worker.properties", tmp_path / "broken.json")
    assert "no-worker.properties: cannot be read" in told
    assert "broken.json: not JSON" in told


def test_a_worker_without_connectors_is_told_of_its_clients_too(tmp_path: Path) -> None:
    """All roles, REST and Spark in one round; otherwise they would connect without the security that was meant."""
    wrong = {
        "security.protocol": "SASL_SLL",
        "producer.compression.type": "foo",
        "consumer.auto.offset.reset": "newest",
        "admin.request.timeout.ms": "soon",
        "listeners": "ftp://x",
        "spark.master": "locl[2]",
    }
    told = refusal_of(tmp_path, {"bootstrap.servers": "127.0.0.1:1", **wrong}, command="worker")
    for key, value in wrong.items():
        assert told.count(f"{key} {value} ") == 1, f"{key!r} is not told once in: {told}"
