"""A real Kafka Connect 4.1.1 distributed worker as a guarded child process, for tests that compare and take over.

``java_connect`` is one worker for the whole run; ``opened_connect`` starts others under a group of one's own.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.embedded.child import GuardedJvm, JvmCommand
from service.embedded.jars import class_path, java_program
from service.embedded.ports import free_ports
from service.embedded.running import Running, running
from tests.stack import KafkaStack

HEAP_MIB = 320
START_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 20.0
ANSWER_SECONDS_MAX = 95.0
PATIENT = {
    "offset.flush.timeout.ms": "60000",
    "task.shutdown.graceful.timeout.ms": "60000",
    "session.timeout.ms": "60000",
}
"""By default five to ten seconds each: on a busy machine a task that stops would leave an offset behind what it has
written, and a worker that is kept waiting would be put out of its group."""
AGAIN_SECONDS_MAX = 240.0
LOOK_SECONDS = 0.2
_LATER = (
    "no known leader",
    "conflicting operation",
    "stale configuration",
    "a rebalance is expected",
    # The consumers of a sink that is STOPPED may be on their way out of their group.
    "haven't stopped completely yet",
)
_MAIN_CLASS = "org.apache.kafka.connect.cli.ConnectDistributed"
_LOGGING = """\
status=error
appender.file.type=File
appender.file.name=file
appender.file.fileName={log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.file.ref=file
"""


def worker_properties(bootstrap: str, *, group: str, port: int) -> dict[str, str]:
    """What such a worker is configured with; headrace's own can take the same, with another port."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "config.storage.topic": f"{group}-configs",
        "offset.storage.topic": f"{group}-offsets",
        "status.storage.topic": f"{group}-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "offset.storage.partitions": "5",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.flush.interval.ms": "1000",
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "plugin.discovery": "only_scan",
        "scheduled.rebalance.max.delay.ms": "1000",
    }


@dataclass(frozen=True, slots=True)
class JavaConnect:
    """A running worker."""

    url: str
    group: str
    properties: Mapping[str, str]
    jvm: GuardedJvm

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and decoded body of one request, made again while a rebalance is in its way, as its clients do it.

        Each connector that comes or goes brings one. Blocks, so from a loop by ``asyncio.to_thread``.
        """
        until = time.monotonic() + AGAIN_SECONDS_MAX
        while True:
            status, answer = asked(self.url, method, path, body)
            if time.monotonic() > until or not is_to_be_asked_again(status, answer):
                return status, answer
            threading.Event().wait(LOOK_SECONDS)


def is_to_be_asked_again(status: int, body: Any) -> bool:
    """Whether a worker says, in Connect's words, that it can do something only later."""
    message = str(body.get("message")) if isinstance(body, dict) else ""
    return status in {409, 500} and any(words in message for words in _LATER)


def asked(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """One request to any worker; blocks."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if data is not None else {}
    request = urllib.request.Request(f"{url}{path}", data=data, method=method, headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as response:  # noqa: S310 - a test's own URL
            return response.status, _decoded(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _decoded(error.read())


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text.decode(errors="replace")


@asynccontextmanager
async def opened_connect(
    folder: Path,
    *,
    bootstrap: str,
    group: str,
    overrides: Mapping[str, str] | None = None,
    stop_seconds_max: float = STOP_SECONDS_MAX,
) -> AsyncIterator[JavaConnect]:
    """Ready on entry, gone on exit, by force after ``stop_seconds_max``; a killed test run takes it along."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    properties = worker_properties(bootstrap, group=group, port=port) | PATIENT | dict(overrides or {})
    file, logging = folder / "worker.properties", folder / "log4j2.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    logging.write_text(_LOGGING.format(log=folder / "connect.log"), encoding="utf-8")
    options = (
        f"-Xmx{HEAP_MIB}m", "-XX:+UseSerialGC", "-Duser.timezone=UTC", f"-Dlog4j2.configurationFile={logging}",
    )  # fmt: skip
    command = JvmCommand(
        arguments=(str(java_program()), *options, "-cp", class_path("connect"), _MAIN_CLASS, str(file)),
        working_folder=folder,
        console=folder / "console.log",
        grace_seconds=stop_seconds_max,
    )
    url = f"http://127.0.0.1:{port}"
    jvm = await GuardedJvm.start("kafka-connect", command)
    try:
        await jvm.wait_ready(lambda: _is_healthy(url), seconds_max=START_SECONDS_MAX)
        yield JavaConnect(url, group, properties, jvm)
    finally:
        await jvm.stop()


async def _is_healthy(url: str) -> bool:
    try:
        status, _ = await asyncio.to_thread(asked, url, "GET", "/health")
    except OSError:
        return False
    return status == 200


@pytest.fixture(scope="session")
def java_connect(kafka: KafkaStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running[JavaConnect]]:
    """One real Kafka Connect worker for the whole run; tests keep apart by connector names."""
    folder = tmp_path_factory.mktemp("java-connect")
    with running(opened_connect(folder, bootstrap=kafka.bootstrap, group="java-connect"), name="connect") as worker:
        yield worker
