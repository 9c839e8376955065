"""Offsets of consumer groups are changed from outside while nobody reads, and left alone while somebody does."""

from __future__ import annotations

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, GroupHasMembers, WriterFenced
from service.kafka.groups import ConsumerGroups
from service.kafka.producer import TransactionalWriter
from service.kafka.reader import read_topic
from service.kafka.records import TopicRecords
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


@pytest.fixture
def settings(kafka: KafkaStack) -> KafkaSettings:
    """Settings for the run's broker."""
    return KafkaSettings(bootstrap=kafka.bootstrap)


async def test_offsets_of_a_group_nobody_reads_as(settings: KafkaSettings, topic_name: str) -> None:
    """Offsets are set, changed, forgotten one by one and all together; a group that is not there is no error."""
    group = f"connect-{topic_name}"
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=3)
    async with ConsumerGroups.opened(settings) as groups:
        assert await groups.offsets(group) == {}
        await groups.forget(group, [(topic_name, 0)])
        await groups.delete(group)
        await groups.alter(group, {(topic_name, 0): 5, (topic_name, 2): 7})
        await groups.alter(group, {(topic_name, 2): 2**40})
        assert await groups.offsets(group) == {(topic_name, 0): 5, (topic_name, 2): 2**40}
        await groups.forget(group, [(topic_name, 0), (topic_name, 1)])
        assert await groups.offsets(group) == {(topic_name, 2): 2**40}
        await groups.delete(group)
        assert await groups.offsets(group) == {}


async def test_a_topic_that_does_not_exist_is_refused(settings: KafkaSettings, topic_name: str) -> None:
    """Offsets of no topic are no offsets."""
    with pytest.raises(DeliveryFatal):
        async with ConsumerGroups.opened(settings) as groups:
            await groups.alter(topic_name, {("nowhere-at-all", 0): 5})


async def test_offsets_stay_while_somebody_reads(settings: KafkaSettings, topic_name: str) -> None:
    """While the group has a member, every change is refused as such, and nothing is changed."""
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=1)
    consumer = AIOKafkaConsumer(
        topic_name,
        bootstrap_servers=settings.bootstrap,
        group_id=topic_name,
        enable_auto_commit=False,
        session_timeout_ms=120_000,
    )
    await consumer.start()
    try:
        await consumer.commit({TopicPartition(topic_name, 0): 3})
        async with ConsumerGroups.opened(settings) as groups:
            with pytest.raises(GroupHasMembers):
                await groups.alter(topic_name, {(topic_name, 0): 1})
            with pytest.raises(GroupHasMembers):
                await groups.forget(topic_name, [(topic_name, 0)])
            with pytest.raises(GroupHasMembers):
                await groups.delete(topic_name)
            assert await groups.offsets(topic_name) == {(topic_name, 0): 3}
    finally:
        await consumer.stop()


async def test_fenced_producers_write_no_more(settings: KafkaSettings, topic_name: str) -> None:
    """What a fenced writer had open is undone at once, it writes no more, and those not named go on."""
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=1)
        assert await admin.cluster_id()
        writers = [TransactionalWriter(settings, transactional_id=f"{topic_name}-{number}") for number in range(3)]
        records = TopicRecords(topic_name, pa.array([b"x"], pa.binary()))
        for writer in writers:
            await writer.start()
            await writer.commit([records])
        left_open = writers[2]._connection.producer
        await left_open.begin_transaction()
        await (await left_open.send(topic_name, b"open"))
        await admin.fence_producers([f"{topic_name}-{number}" for number in (1, 2, 3)])
        with pytest.raises(WriterFenced):
            await writers[1].commit([records])
        await writers[0].commit([records])
        for writer in writers:
            await writer.stop()
    values = [record.value async for found in read_topic(settings, topic_name) for record in found]
    assert values == [b"x"] * 4
