"""Offsets that were forgotten elsewhere, whose tombstones the broker has removed since."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import AlterConfigsRequest

from service.kafka.client import KafkaSettings
from service.kafka.producer import IdempotentWriter
from service.kafka.reader import read_topic
from service.kafka.records import TopicRecords
from service.kafka.tail import TopicTail
from service.stores.offsets import OffsetStore
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ONE, TWO = {"file": "1"}, {"file": "2"}
COMPACTED_AT_ONCE = {"segment.ms": "50", "min.cleanable.dirty.ratio": "0.0", "delete.retention.ms": "100"}
COMPACTED_SECONDS_MAX = 300
LOOK_SECONDS = 0.1
_BROKER = 4
SETTINGS = [("log.cleaner.backoff.ms", "200"), ("min.insync.replicas", "1")]
"""This request sets all dynamic settings anew, and the second may not be missing."""


@pytest.fixture
def settings(kafka: KafkaStack) -> KafkaSettings:
    """Settings for the run's broker."""
    return KafkaSettings(bootstrap=kafka.bootstrap)


async def forget_without_a_trace(settings: KafkaSettings, topic: str, forgotten: TopicRecords) -> None:
    """Write tombstones, and return once neither they nor what they forget is left in the topic.

    The broker compacts closed segments only, and looks for them every few seconds, so records go on being written.
    """
    keys = forgotten.keys
    assert keys is not None
    writer = IdempotentWriter(settings, last_topic=topic)
    await writer.start()
    filler = TopicRecords(topic, pa.array([b'{"p":0}'], pa.binary()), pa.array([b'["filler",{}]'], pa.binary()))
    # A consumer that is not asked holds one piece that it has read ahead: let that be another than the tombstones.
    await writer.commit([filler])
    await writer.commit([forgotten])
    async with asyncio.timeout(COMPACTED_SECONDS_MAX):
        while True:
            await writer.commit([filler])
            left = {record.key async for records in read_topic(settings, topic) for record in records}
            if left.isdisjoint(keys.to_pylist()):
                break
            await asyncio.sleep(LOOK_SECONDS)
    await writer.stop()


async def look_for_segments_to_compact_often(settings: KafkaSettings) -> None:
    """Of the whole cluster; a dynamic setting of brokers, which does no other test any harm."""
    client = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap)
    await client.start()
    answer = await client._send_request(AlterConfigsRequest([(_BROKER, "", SETTINGS)]))
    assert [resource[:2] for resource in answer.resources] == [(0, None)]
    await client.close()


async def test_an_offset_that_was_forgotten_elsewhere_does_not_come_back(
    settings: KafkaSettings, topic_name: str
) -> None:
    """A worker that read it long ago, and did not look while it was forgotten, starts the connector anew like all."""
    await look_for_segments_to_compact_often(settings)
    store = OffsetStore(settings, topic_name)
    await store.ensure(partitions=1, config=COMPACTED_AT_ONCE)
    writer = IdempotentWriter(settings, last_topic=topic_name)
    await writer.start()
    await writer.commit(store.encode("c", [(ONE, {"p": 1}), (TWO, {"p": 2})]))
    await writer.stop()
    assert len(await store.read("c")) == 2
    # A worker that is cut off, or suspended, for longer than tombstones are kept.
    tail = store._tail
    assert tail is not None
    await stop_following(tail)
    [forgotten] = OffsetStore(settings, topic_name).encode("c", [(ONE, None)])
    await forget_without_a_trace(settings, topic_name, forgotten)
    tail._background.start(tail._follow(), name="goes on")
    assert await store.entries("c") == [(TWO, {"p": 2})]
    await store.close()


async def stop_following(tail: TopicTail) -> None:
    """What it has read it keeps."""
    for task in tuple(tail._background._tasks):
        task.cancel()
    await tail._background.wait(seconds_max=180)
