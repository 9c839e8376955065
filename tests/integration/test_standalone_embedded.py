"""Everything embedded in one worker: Kafka, registry and Spark start with it, keep their data, and end with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.embedded.ports import free_ports
from tests import journal
from tests.faults.topic_watch import committed_end
from tests.faults.worker_life import LOG_LOOK_SECONDS, WorkerLife, wait_until, write_properties

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SCHEMA = {"type": "record", "name": "Numbered", "fields": [{"name": "number", "type": "long"}]}
LINES = 50


def test_an_embedded_worker_needs_nothing_else(tmp_path: Path) -> None:
    """Two lives on one data directory deliver every line once, and a killed worker leaves no process behind."""
    kafka_port, registry_port = free_ports(2)
    bootstrap, source = f"127.0.0.1:{kafka_port}", tmp_path / "lines.jsonl"
    life = WorkerLife(
        *_files(tmp_path, source, kafka_port=kafka_port, registry_port=registry_port), log=tmp_path / "log"
    )
    try:
        for number in (1, 2):
            with source.open("ab") as file:
                file.write(b"".join(b'{"number":%d}\n' % n for n in range((number - 1) * LINES, number * LINES)))
            life.start()
            is_there = wait_until(
                lambda number=number: _numbers(bootstrap) >= number * LINES,  # type: ignore[misc] # bound
                seconds_max=240,
                look_seconds=LOG_LOOK_SECONDS,
            )
            assert is_there, life.log_text()[-4000:]
            if number == 1:
                assert life.stop(seconds_max=300) == 0, life.log_text()[-4000:]
        values = [record.value for record in journal.committed_records(bootstrap, "numbers")]
        url = f"http://127.0.0.1:{registry_port}/apis/ccompat/v7"
        assert [item["number"] for item in journal.decoded(values, registry_url=url)] == list(range(2 * LINES))
        left = life.kill()
        assert len(left) >= 3
        assert wait_until(lambda: not any(process.is_running() for process in left), seconds_max=300)
    finally:
        life.end()


def _numbers(bootstrap: str) -> int:
    """How many records there are; asks first whether there can be any."""
    return len(journal.committed_records(bootstrap, "numbers")) if committed_end(bootstrap, "numbers") else 0


def _files(folder: Path, source: Path, *, kafka_port: int, registry_port: int) -> tuple[Path, Path]:
    worker = {
        "bootstrap.servers": "embedded",
        "schema.registry.url": "embedded",
        "embedded.kafka.port": str(kafka_port),
        "embedded.registry.port": str(registry_port),
        "data.dir": str(folder / "data"),
        "listeners": "http://127.0.0.1:0",
        "log.format": "json",
    }
    connector = {
        "name": "numbers",
        "topic": "numbers",
        "connector.class": "FileStreamSource",
        "file": str(source),
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "contract.schema": json.dumps(SCHEMA),
    }
    return (
        write_properties(folder / "worker.properties", worker),
        write_properties(folder / "connector.properties", connector),
    )
