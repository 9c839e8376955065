"""A contract from the records of a real topic."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaProducer

from service.cli.access import TopicAccess
from service.cli.contract_sources import topic_sample
from service.kafka.client import KafkaSettings
from service.preview.inference import inferred
from service.preview.samples import SampleError
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


async def test_a_topic_is_a_sample(kafka: KafkaStack, topic_name: str) -> None:
    """Its values up to the limit, without tombstones; Avro without a registry is told."""
    access = TopicAccess(KafkaSettings(bootstrap=kafka.bootstrap), None)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        for value in (b'{"id":1}', None, b'{"id":2,"by":"ann"}', b'{"id":"beyond"}'):
            await producer.send_and_wait(topic_name, value, key=b"k")
        found = await topic_sample(topic_name, access, 2)
        assert found.payloads == [b'{"id":1}', b'{"id":2,"by":"ann"}']
        fields = inferred(found.payloads, name=topic_name).document["fields"]
        assert [field["type"] for field in fields] == ["long", ["null", "string"]]
        await producer.send_and_wait(topic_name, b"\0\0\0\0\1avro", key=b"k")
    with pytest.raises(SampleError, match="looks like Avro: name its registry"):
        await topic_sample(topic_name, access, 10)
