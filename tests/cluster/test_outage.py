"""The broker restarts in the midst of it all; internal topics hold what nobody can read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from tests.cluster.processes import Field
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]
RUNNING_STATUS = b'{"state":"RUNNING","trace":null,"worker_id":"h:1","generation":1,"version":"1"}'


async def test_a_broker_that_is_killed_and_comes_back_loses_nothing(kafka: KafkaStack, tmp_path: Path) -> None:
    """Workers find their group, their topics and their transactions again, wherever they were cut off."""
    try:
        async with Field.opened(kafka.bootstrap, tmp_path) as field:
            workers = await field.start(3)
            await field.load(6)
            await field.wait_owned(workers[0], workers)
            for _ in range(2):
                await field.wait_growth()
                await asyncio.to_thread(kafka.kill)
                await asyncio.to_thread(kafka.restart)
            await field.wait_growth()
            await field.wait_owned(workers[0], workers)
            await field.demand_all_once()
    finally:
        if not kafka.is_alive():
            kafka.restart()


async def test_records_that_cannot_be_read_are_skipped_by_all(kafka: KafkaStack, tmp_path: Path) -> None:
    """In every internal topic, live and after a restart: told, and no reason to stop."""
    async with Field.opened(kafka.bootstrap, tmp_path) as field:
        workers = await field.start(2)
        await field.load(2)
        await field.wait_growth()
        await spoil(field)
        await field.wait_growth()
        await field.load(1)
        for worker in workers:
            assert await worker.stop() == 0
            worker.start()
            await worker.wait_healthy()
        await field.wait_owned(workers[0], workers)
        await field.wait_growth()
        skipped = {event["topic"] for worker in workers for event in worker.events("state_record_skipped")}
        assert {f"{field.name}-{kind}" for kind in ("configs", "status")} <= skipped
        await field.demand_all_once()


async def spoil(field: Field) -> None:
    """Records of no known key, of a known key with no JSON, with the wrong JSON, of nothing; what breaks parsers."""
    keys = [b"", b"\xff\xfe", b"stranger", b"connector-c0", b"task-c0-0", b"status-connector-c0", b'["c0",{"filename"']
    values = [b"", b"\xff\xfe", b"not JSON", b"[]", b'{"properties": 7}', b'{"state": "DANCING"}']
    producer = AIOKafkaProducer(bootstrap_servers=field.bootstrap)
    await producer.start()
    try:
        for kind in ("status", "offsets"):
            for key in keys:
                for value in values:
                    await producer.send_and_wait(f"{field.name}-{kind}", value, key=key)
        for key in (b"", b"\xff\xfe", b"stranger", b"connector-", b"task-c0", b"target-state-nobody", b"session-key"):
            for value in values:
                await producer.send_and_wait(f"{field.name}-configs", value, key=key)
        for kind, key, value in (
            ("configs", b"session-key", '{"key":"é","algorithm":"x","creation-timestamp":1}'.encode()),
            ("configs", b"task-c0-" + b"9" * 5_000, b'{"properties":{}}'),
            ("configs", b"connector-c0", b"[" * 100_000),
            ("status", b"status-task-c0-" + b"9" * 5_000, RUNNING_STATUS),
        ):
            await producer.send_and_wait(f"{field.name}-{kind}", value, key=key)
    finally:
        await producer.stop()


async def test_a_config_topic_that_loses_records_is_refused(kafka: KafkaStack, tmp_path: Path) -> None:
    """The worker ends with an exit code of its own and says what to do."""
    async with Field.opened(kafka.bootstrap, tmp_path) as field:
        async with KafkaAdmin.opened(KafkaSettings(bootstrap=kafka.bootstrap)) as admin:
            await admin.ensure_topic(f"{field.name}-configs", partitions=1, config={"cleanup.policy": "delete"})
        (worker,) = field.prepare(1)
        worker.start()
        assert await worker.wait_ended() != 0
        text = worker.log.read_text(encoding="utf-8")
        assert f"{field.name}-configs" in text
        assert "cleanup.policy" in text
