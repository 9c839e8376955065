"""A worker in a folder of its own, and a shell in which ``localhost:8083`` is that worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.embedded.ports import free_ports
from tests.bound import bound
from tests.faults.worker_life import ROOT, wait_until, write_properties
from tests.java_connect import asked
from tests.stack import KafkaStack

GROUP = "seeds"
SEEDS = ROOT / "docs" / "examples" / "seeds"
START_SECONDS_MAX = 240
"""Spark included, on a busy machine."""
STOP_SECONDS_MAX = 180
COMMAND_SECONDS_MAX = 240
CURL_SETTINGS = """\
silent
connect-to = "localhost:8083:127.0.0.1:{port}"
write-out = "%{{stderr}}%{{http_code}}"
"""


def printed(name: str) -> list[str]:
    """The commands of a seed text, one a line."""
    lines = (SEEDS / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


@dataclass(frozen=True, slots=True)
class Shell:
    """Commands as they are printed. The worker and the shell are in ``folder``, where relative names lead."""

    folder: Path
    url: str
    bootstrap: str

    def run(self, command: str) -> tuple[int, Any]:
        """Status of the one request, and its body, decoded where it is JSON."""
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "CURL_HOME": str(self.folder)},
            check=True,
            timeout=COMMAND_SECONDS_MAX,
            capture_output=True,
            text=True,
        )
        is_json = ran.stdout.startswith(("{", "["))
        return int(ran.stderr), json.loads(ran.stdout) if is_json else ran.stdout or None

    def wait_states(self, name: str, *expected: str) -> None:
        """Until the connector and its tasks are in these states."""

        def is_so() -> bool:
            status, body = asked(self.url, "GET", f"/connectors/{name}/status")
            if status != 200:
                return False
            return [body["connector"]["state"], *(task["state"] for task in body["tasks"])] == list(expected)

        assert wait_until(is_so, seconds_max=COMMAND_SECONDS_MAX)


@pytest.fixture(scope="package")
def shell(kafka: KafkaStack, spark_remote: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """One ``headrace worker`` for all printed commands, configured by what the texts name, and where Spark is."""
    folder = tmp_path_factory.mktemp("seeds")
    (port,) = free_ports(1)
    properties = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": GROUP,
        "config.storage.topic": f"{GROUP}-configs",
        "offset.storage.topic": f"{GROUP}-offsets",
        "status.storage.topic": f"{GROUP}-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "listeners": f"http://127.0.0.1:{port}",
        "spark.remote": spark_remote,
        # Who types tries only once, and is told 409 while a worker that was starved joins its group again.
        "session.timeout.ms": "60000",
    }
    file = write_properties(folder / "connect-distributed.properties", properties)
    (folder / ".curlrc").write_text(CURL_SETTINGS.format(port=port), encoding="utf-8")
    found = Shell(folder, f"http://127.0.0.1:{port}", kafka.bootstrap)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "worker.log").open("wb") as log:
        command = [sys.executable, "-m", "service.cli", "worker", str(file)]
        worker = subprocess.Popen(bound(command), cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        assert wait_until(lambda: _is_ready(found.url), seconds_max=START_SECONDS_MAX), log.name
        yield found
    finally:
        worker.terminate()
        try:
            worker.wait(STOP_SECONDS_MAX)
        finally:
            worker.kill()


def _is_ready(url: str) -> bool:
    """Whether Spark is there and the leader known; before, what needs one gets 409, and who types tries only once."""
    try:
        return asked(url, "GET", "/health/ready")[0] == 200 and asked(url, "DELETE", "/connectors/none")[0] == 404
    except OSError:
        return False
