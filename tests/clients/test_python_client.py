"""The PyPI package ``kafka-connect-py``, unmodified, takes headrace for Kafka Connect: its command and its class."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from kafka_connect import KafkaConnect

from tests.faults.worker_life import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECONDS_MAX = 240
COMMAND = Path(sys.executable).with_name("kc")
Kc = Callable[..., Any]


@pytest.fixture
def kc(headrace_worker: str) -> Kc:
    """Runs ``kc`` and decodes what it prints; it prints its errors too, and ends with 0 whatever happens."""

    def run(*arguments: str) -> Any:
        command = [str(COMMAND), "--url", headrace_worker, *arguments]
        ran = subprocess.run(command, check=True, timeout=SECONDS_MAX, capture_output=True, text=True)
        try:
            return json.loads(ran.stdout) if ran.stdout else None
        except ValueError:
            return ran.stdout

    return run


@pytest.fixture
def connector(tmp_path: Path) -> dict[str, Any]:
    """A file source that no other test has."""
    file, name = tmp_path / "in.txt", f"kc-{uuid.uuid4().hex[:8]}"
    file.write_text("one\ntwo\n", encoding="utf-8")
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": name, "tasks.max": "1"}
    return {"name": name, "config": config}


def wait_states(client: KafkaConnect, name: str, *expected: str) -> None:
    """Until the connector and its tasks are in these states."""

    def is_so() -> bool:
        try:
            status = client.get_connector_status(name)
        except requests.HTTPError:
            return False
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])] == list(expected)

    assert wait_until(is_so, seconds_max=SECONDS_MAX)


@pytest.mark.timeout(600)
def test_the_kc_command(kc: Kc, connector: dict[str, Any], headrace_worker: str) -> None:
    """A connector's whole life, by the commands a person types."""
    client, name = KafkaConnect(headrace_worker), connector["name"]
    assert kc("info")["version"] == "4.1.1"
    assert "source" in {plugin["type"] for plugin in kc("list-plugins")}
    assert kc("create", "--config-data", json.dumps(connector))["name"] == name
    wait_states(client, name, "RUNNING", "RUNNING")
    assert kc("list", "--pattern", name) == [name]
    assert kc("list", "--expand", "status", "--pattern", name)[name]["status"]["connector"]["state"] == "RUNNING"
    assert kc("get", name)["type"] == "source"
    assert kc("config", name) == {**connector["config"], "name": name}
    changed = {**connector["config"], "batch.size": "9"}
    assert kc("update", name, "--config-data", json.dumps(changed))["config"]["batch.size"] == "9"
    wait_states(client, name, "RUNNING", "RUNNING")
    assert [task["id"]["task"] for task in kc("list-tasks", name)] == [0]
    # The state that was waited for may have been from before the change.
    assert wait_until(lambda: "RUNNING" in str(kc("task-status", name, "0")), seconds_max=SECONDS_MAX)
    assert kc("pause", name) is None
    wait_states(client, name, "PAUSED", "PAUSED")
    assert kc("resume", name) is None
    wait_states(client, name, "RUNNING", "RUNNING")
    assert kc("restart", name, "--include-tasks")["name"] == name
    wait_states(client, name, "RUNNING", "RUNNING")
    kc("restart-task", name, "0")
    wait_states(client, name, "RUNNING", "RUNNING")
    assert wait_until(lambda: kc("list-topics", name) == {name: {"topics": [name]}}, seconds_max=SECONDS_MAX)
    kc("reset-topics", name)
    kc("delete", name)
    assert wait_until(lambda: kc("list", "--pattern", name) == [], seconds_max=SECONDS_MAX)


@pytest.mark.timeout(600)
def test_the_class_that_programs_use(connector: dict[str, Any], headrace_worker: str) -> None:
    """What the command has no words for, and the errors that come as exceptions."""
    client, name = KafkaConnect(headrace_worker), connector["name"]
    found = client.validate_connector_config("FileStreamSource", {"connector.class": "FileStreamSource"})
    assert found["error_count"] == 2
    client.create_connector(connector)
    wait_states(client, name, "RUNNING", "RUNNING")
    client.pause_all_connectors(pattern=name)
    wait_states(client, name, "PAUSED", "PAUSED")
    client.resume_all_connectors(pattern=name)
    wait_states(client, name, "RUNNING", "RUNNING")
    client.restart_all_connectors(include_tasks=True, pattern=name)
    wait_states(client, name, "RUNNING", "RUNNING")
    client.stop_connector(name)
    wait_states(client, name, "STOPPED")
    client.delete_all_connectors(pattern=name)
    with pytest.raises(requests.HTTPError, match="404"):
        client.get_connector(name)
