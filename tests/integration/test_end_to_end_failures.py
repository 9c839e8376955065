"""Tasks that fail for good: nothing wrong is produced, the reason is told, and after mending they go on."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from service.kafka.errors import DeliveryFatal
from tests import journal
from tests.faults.worker_life import LOG_LOOK_SECONDS, WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack, RegistryStack

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

LINES, BAD_LINE, PAGE_LINES_MAX = 400, 250, 80
MIB = 1 << 20
TOO_LARGE, FAR_TOO_LARGE = int(1.5 * MIB), int(2.5 * MIB)
MENDED = {"max.message.bytes": str(4 * MIB)}


def schema(kind: str) -> dict[str, Any]:
    """A record of one number, or what is taken for one."""
    return {"type": "record", "name": "Numbered", "fields": [{"name": "number", "type": kind}]}


def numbered(number: int) -> bytes:
    """A line; always the same length."""
    return b'{"number": %8d}' % number


BAD = numbered(BAD_LINE).replace(b"     250", b'   "250"')


@dataclass
class FailedRun:
    """A worker whose tasks have all failed."""

    life: WorkerLife
    bootstrap: str
    prefix: str
    folder: Path
    exit_code: int
    health: str
    large_records: list[bytes]
    intolerant_values: list[bytes | None]
    """What stood in that topic when its task had failed."""

    def failure(self, short: str) -> dict[str, Any]:
        """What was told of a connector's failure."""
        (event,) = [
            event for event in self.life.events("task_failed") if event["connector"] == f"{self.prefix}-{short}"
        ]
        return event

    def values(self, short: str) -> list[bytes | None]:
        """What stands in a topic."""
        return [record.value for record in journal.committed_records(self.bootstrap, f"{self.prefix}-{short}")]


@pytest.fixture(scope="module")
def run(
    kafka: KafkaStack, registry: RegistryStack, spark_remote: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FailedRun]:
    """Three connectors that fail, run until all have."""
    folder, prefix = tmp_path_factory.mktemp("failures"), f"fail-{uuid.uuid4().hex[:8]}"
    journal.register_schema(registry.url, f"{prefix}-incompatible-value", schema("string"))
    lines = [numbered(number) for number in range(LINES)]
    lines[BAD_LINE] = BAD
    _write(folder / "lines.jsonl", lines)
    large = [numbered(1), _padded(2, TOO_LARGE), numbered(3), _padded(4, FAR_TOO_LARGE), numbered(5)]
    _write(folder / "large.jsonl", large)
    connectors: Mapping[str, Mapping[str, str]] = {
        "incompatible": {"file": str(folder / "lines.jsonl"), "value.converter": "avro"},
        "intolerant": {"file": str(folder / "lines.jsonl"), "batch.size": "1", "file.page.bytes": "300"},
        "large": {"file": str(folder / "large.jsonl"), "batch.size": "1", "errors.tolerance": "all"},
    }
    files = [_worker_file(folder, kafka, registry, prefix, spark_remote=spark_remote)]
    for short, properties in connectors.items():
        named = {
            "name": f"{prefix}-{short}",
            "topic": f"{prefix}-{short}",
            "connector.class": "FileStreamSource",
            "value.converter": "json",
            "contract.schema": json.dumps(schema("long")),
            **properties,
        }
        files.append(write_properties(folder / f"{short}.properties", named))
    life = WorkerLife(*files, log=folder / "worker.log")
    try:
        life.start()
        have_failed = wait_until(
            lambda: len(life.events("task_failed")) == 3, seconds_max=240, look_seconds=LOG_LOOK_SECONDS
        )
        assert have_failed, life.log_text()[-6000:]
        status, health = life.get("/health/ready")
        assert status == 503
        exit_code = life.stop(seconds_max=300)
        delivered = journal.committed_records(kafka.bootstrap, f"{prefix}-intolerant")
        values = [record.value for record in delivered]
        yield FailedRun(life, kafka.bootstrap, prefix, folder, exit_code, health, large, values)
    finally:
        life.end()


def _write(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def _padded(number: int, size_bytes: int) -> bytes:
    """A good line but for its size."""
    return numbered(number)[:-1] + b" " * (size_bytes - 20) + b"}"


def _worker_file(folder: Path, kafka: KafkaStack, registry: RegistryStack, prefix: str, *, spark_remote: str) -> Path:
    worker = {
        "bootstrap.servers": kafka.bootstrap,
        "schema.registry.url": registry.url,
        "spark.remote": spark_remote,
        "group.id": prefix,
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(folder / "data"),
        "offset.storage.topic": f"{prefix}-offsets",
        "log.format": "json",
    }
    return write_properties(folder / "worker.properties", worker)


def test_a_worker_with_failed_tasks_ends_with_one(run: FailedRun) -> None:
    """Exit code 1; each failure is in health and log with its text."""
    assert run.exit_code == 1
    tasks = json.loads(run.health)["tasks"]
    assert {task["state"] for task in tasks.values()} == {"FAILED"}
    assert all(task["reason"] for task in tasks.values())


def test_an_incompatible_schema_produces_nothing(run: FailedRun) -> None:
    """The registry's refusal fails the task before its topic is even made."""
    failure = run.failure("incompatible")
    assert failure["error_class"] == "IncompatibleSchema"
    assert f"subject '{run.prefix}-incompatible-value' does not take the schema" in failure["message"]
    with pytest.raises(DeliveryFatal, match="does not exist"):
        run.values("incompatible")


def test_intolerance_delivers_what_came_before(run: FailedRun) -> None:
    """Everything before the bad record's page is there, in order; the text says which record and what to do."""
    values = run.intolerant_values
    assert values == [b'{"number":%d}' % number for number in range(len(values))]
    assert BAD_LINE - PAGE_LINES_MAX < len(values) <= BAD_LINE
    message = run.failure("intolerant")["message"]
    position = BAD_LINE * (len(numbered(0)) + 1)
    assert "wrong_type" in message
    assert f'"position":{position}' in message
    assert "errors.tolerance=all" in message
    assert '"250"' not in message


def test_a_record_too_large_even_for_the_dead_letters_fails_and_says_where(run: FailedRun) -> None:
    """The source partition and position of the record are told."""
    message = run.failure("large")["message"]
    position = sum(len(line) + 1 for line in run.large_records[:3])
    assert "max.message.bytes" in message
    assert f'"position":{position}' in message
    assert str(run.folder / "large.jsonl") in message


def test_mended_connectors_go_on_without_loss_or_repeat(run: FailedRun) -> None:
    """After the line was mended and the topic's limit raised, the rest arrives, each record once."""
    with (run.folder / "lines.jsonl").open("r+b") as file:
        file.seek(BAD_LINE * (len(BAD) + 1))
        file.write(numbered(BAD_LINE))
    asyncio.run(_alter_topic(run.bootstrap, f"{run.prefix}-large-dead-letters"))
    files = (run.folder / name for name in ("worker.properties", "intolerant.properties", "large.properties"))
    mended = WorkerLife(*files, log=run.folder / "mended.log")
    try:
        mended.start("--until-idle", "2")
        assert mended.wait(seconds_max=240) == 0, mended.log_text()[-6000:]
    finally:
        mended.end()
    assert run.values("intolerant") == [b'{"number":%d}' % number for number in range(LINES)]
    assert run.values("large") == [b'{"number":1}', b'{"number":3}', b'{"number":5}']
    assert run.values("large-dead-letters") == [run.large_records[1], run.large_records[3]]


async def _alter_topic(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=MENDED)])
    finally:
        await admin.close()


def test_an_offset_topic_that_forgets_is_refused(
    kafka: KafkaStack, spark_remote: str, topic_name: str, tmp_path: Path
) -> None:
    """``cleanup.policy=delete`` fails every task with Kafka Connect's text, and exit code 1."""
    offsets = f"{topic_name}-offsets"
    journal.make_topic(kafka.bootstrap, offsets, config={"cleanup.policy": "delete"})
    (tmp_path / "lines.txt").write_text("one\n", encoding="utf-8")
    worker = {
        "bootstrap.servers": kafka.bootstrap,
        "spark.remote": spark_remote,
        "listeners": "http://127.0.0.1:0",
        "offset.storage.topic": offsets,
        "data.dir": str(tmp_path / "data"),
        "log.format": "json",
    }
    connector = {
        "name": topic_name,
        "topic": topic_name,
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "lines.txt"),
    }
    life = WorkerLife(
        write_properties(tmp_path / "worker.properties", worker),
        write_properties(tmp_path / "connector.properties", connector),
        log=tmp_path / "worker.log",
    )
    try:
        life.start("--until-idle", "0")
        assert life.wait(seconds_max=300) == 1, life.log_text()[-4000:]
    finally:
        life.end()
    (failure,) = life.events("task_failed")
    assert failure["message"].startswith(
        f"Topic '{offsets}' supplied via the 'offset.storage.topic' property is required to have "
        "'cleanup.policy=compact' to guarantee consistency and durability of source connector offsets, but found the "
        "topic currently has 'cleanup.policy=delete'."
    )
