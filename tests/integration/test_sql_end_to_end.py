"""`Sql` and `HeaderFrom` of a source through a real worker, broker and registry."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests import journal
from tests.faults.worker_life import WorkerLife, write_properties
from tests.integration.end_to_end_job import ORDER_SCHEMA, ORDERS, RUN_SECONDS_MAX, order
from tests.stack import KafkaStack, RegistryStack

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TOO_LARGE = order(1 << 40)
"""Its number is no int: the expression fails on it, and on nothing else."""


def test_records_are_selected(kafka: KafkaStack, registry: RegistryStack, tmp_path: Path) -> None:
    """Avro by the derived and registered schema, in order, with headers in JSON; what fails is a dead letter."""
    name = f"sql-{uuid.uuid4().hex[:8]}"
    (tmp_path / "orders.jsonl").write_bytes(b"".join(line + b"\n" for line in [*ORDERS, TOO_LARGE]))
    worker = {
        "bootstrap.servers": kafka.bootstrap,
        "schema.registry.url": registry.url,
        "group.id": name,
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(tmp_path / "data"),
        "offset.storage.topic": f"{name}-offsets",
        "header.converter": "org.apache.kafka.connect.json.JsonConverter",
        "header.converter.schemas.enable": "false",
        "log.format": "json",
    }
    source = {
        "name": name,
        "topic": name,
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "orders.jsonl"),
        "contract.schema": json.dumps(ORDER_SCHEMA),
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "errors.tolerance": "all",
        "transforms": "picked,told",
        "transforms.picked.type": "Sql",
        "transforms.picked.sql": "SELECT CAST(number AS INT) AS number, upper(customer) AS loud, at FROM record"
        " WHERE number % 2 = 0",
        "transforms.told.type": "org.apache.kafka.connect.transforms.HeaderFrom$Value",
        "transforms.told.fields": "number",
        "transforms.told.headers": "number",
        "transforms.told.operation": "move",
    }
    files = [
        write_properties(tmp_path / "worker.properties", worker),
        write_properties(tmp_path / "source.properties", source),
    ]
    life = WorkerLife(*files, log=tmp_path / "worker.log")
    try:
        life.start("--until-idle", "3")
        assert life.wait(seconds_max=RUN_SECONDS_MAX) == 0, life.log_text()[-4000:]
    finally:
        life.end()
    kept = [json.loads(line) for line in ORDERS[::2]]
    records = journal.committed_records(kafka.bootstrap, name)
    found = journal.decoded([record.value for record in records], registry_url=registry.url)
    assert [set(record) for record in found] == [{"loud", "at"}] * len(kept)
    assert [record["loud"] for record in found] == [each["customer"].upper() for each in kept]
    told = [{"number": str(each["number"])} for each in kept]
    assert [journal.headers_of(record) for record in records] == told
    (letter,) = journal.committed_records(kafka.bootstrap, f"{name}-dead-letters")
    headers = journal.headers_of(letter)
    assert letter.value == TOO_LARGE
    assert headers["__connect.errors.stage"] == "TRANSFORMATION"
    assert headers["__headrace.errors.reason"] == "expression_failed"
