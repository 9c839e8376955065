"""Kill -9 a worker that writes to PostgreSQL: the table holds every record once."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from tests.databases import Postgres
from tests.integration.sinks.sink_runs import Sinks, produce, wait_until
from tests.integration.sinks.test_file_sink_killed import process
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]
RECORDS = 20_000
SCHEMA = '{"type":"struct","fields":[{"field":"n","type":"int32"}]}'


@pytest.mark.timeout(300)
async def test_inserts_of_a_killed_worker_are_there_once(
    kafka: KafkaStack, topic_name: str, postgres: Postgres
) -> None:
    """Without any key in the table: what was written and not committed to Kafka is known by its offsets."""
    values: list[bytes | None] = [b'{"schema":%s,"payload":{"n":%d}}' % (SCHEMA.encode(), n) for n in range(RECORDS)]
    await produce(kafka.bootstrap, topic_name, values)
    postgres.run("create table numbers (n int)")
    properties = {
        "name": topic_name,
        "connector.class": "JdbcSink",
        "topics": topic_name,
        "connection.url": postgres.url,
        "table.name.format": "numbers",
        "offsets.table": "headrace_offsets",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "consumer.override.session.timeout.ms": "6000",
        "consumer.override.max.poll.records": "100",
    }

    def count() -> int:
        return int(postgres.rows("select count(*) from numbers")[0][0])

    with process(kafka.bootstrap, properties):
        await wait_until(lambda: count() > 0)
        await asyncio.sleep(random.Random(7).uniform(0, 0.2))
    assert count() < RECORDS, "killed too late to prove anything"
    sinks = Sinks(kafka.bootstrap, {**properties, "consumer.override.max.poll.records": "20000"})
    async with sinks.running():
        await wait_until(lambda: count() >= RECORDS)
    found = postgres.rows("select count(*), count(distinct n), max(n) from numbers")
    assert found == [(RECORDS, RECORDS, RECORDS - 1)], json.dumps(found)
