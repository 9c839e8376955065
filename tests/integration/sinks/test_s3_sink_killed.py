"""Kill -9 an S3 sink in the middle of its writing, on a real broker and a real server of S3's interface."""

from __future__ import annotations

import json

import pytest

from tests.integration.sinks.sink_runs import Sinks, make_topic, produce, wait_until_found
from tests.integration.sinks.test_file_sink_killed import process
from tests.object_storage import Bucket
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]
RECORDS, OBJECTS_SEEN = 300, 3


@pytest.mark.timeout(600)
async def test_each_record_is_in_one_object_over_a_kill(kafka: KafkaStack, bucket: Bucket, topic_name: str) -> None:
    """Whoever comes next makes whole what was committed, and goes on behind it."""
    properties = {
        **bucket.properties,
        "name": topic_name,
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": topic_name,
        "flush.size": "10",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "partitioner.class": "io.confluent.connect.storage.partitioner.FieldPartitioner",
        "partition.field.name": "kind",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    values: list[bytes | None] = [b'{"n": %d, "kind": "%d"}' % (number, number % 3) for number in range(RECORDS)]
    await make_topic(kafka.bootstrap, topic_name)
    await produce(kafka.bootstrap, topic_name, values)
    folder = f"topics/{topic_name}/"
    with process(kafka.bootstrap, properties):
        await wait_until_found(lambda: len(bucket.names(folder)) >= OBJECTS_SEEN)
    async with Sinks(kafka.bootstrap, properties, flush_seconds=0.5).running():
        await wait_until_found(lambda: len(bucket.names(folder)) == RECORDS // 10 * 3)
    lines = [line for text in bucket.objects(folder).values() for line in text.split(b"\n")[:-1]]
    assert sorted(json.loads(line)["n"] for line in lines) == list(range(RECORDS))
