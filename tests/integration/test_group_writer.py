"""What a member of a consumer group makes of records, and the group's offsets, in one transaction of a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from service.kafka.admin import KafkaAdmin
from service.kafka.client import ConsumerSettings, KafkaSettings
from service.kafka.errors import CommitOutdated
from service.kafka.group_consumer import GroupConsumer, Subscription
from service.kafka.library import GroupMember
from service.kafka.producer import GroupWriter
from service.kafka.reader import read_topic
from service.kafka.records import TopicRecords
from service.sinks.batch import Offsets
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


class _Nobody:
    """Hears nothing."""

    async def on_revoked(self, _partitions: object) -> None:
        """Nothing."""

    async def on_assigned(self, _committed: object) -> dict[tuple[str, int], int]:
        """Nothing."""
        return {}


class HeldWriter(GroupWriter):
    """Holds its transaction open once the offsets are part of it."""

    has_offsets: asyncio.Event
    may_end: asyncio.Event

    async def _commit_offsets(self, member: GroupMember, offsets: Offsets) -> None:
        await super()._commit_offsets(member, offsets)
        self.has_offsets.set()
        await self.may_end.wait()


@asynccontextmanager
async def member_of_a_group(settings: KafkaSettings, topic: str) -> AsyncIterator[GroupConsumer]:
    """The only member, which has the topic's partition."""
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic)
    calm = replace(settings, consumer=ConsumerSettings(session_seconds_max=60.0))
    consumer = GroupConsumer(calm, Subscription((topic,)), group_id=f"connect-{topic}", listener=_Nobody())
    await consumer.start()
    try:
        while not consumer.lags():
            await consumer.poll(seconds_max=0.1)
        yield consumer
    finally:
        await consumer.stop()


def letter(topic: str) -> list[TopicRecords]:
    """One."""
    return [TopicRecords(f"{topic}-letters", pa.array([b"bad"], pa.binary()))]


async def letters_in(settings: KafkaSettings, topic: str) -> list[bytes | None]:
    """As others read them."""
    return [record.value async for batch in read_topic(settings, f"{topic}-letters") for record in batch]


async def committed(consumer: GroupConsumer, topic: str) -> Mapping[tuple[str, int], int | None]:
    """Of the only partition."""
    return await consumer.committed([(topic, 0)])


async def test_letters_and_offsets_are_there_together(kafka: KafkaStack, topic_name: str) -> None:
    """And who asks for the group's offset meanwhile waits: a successor would do the same records again."""
    settings = KafkaSettings(bootstrap=kafka.bootstrap)
    writer = HeldWriter(settings, transactional_id=topic_name)
    writer.has_offsets, writer.may_end = asyncio.Event(), asyncio.Event()
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(f"{topic_name}-letters")
    async with member_of_a_group(settings, topic_name) as consumer:
        await writer.start()
        try:
            async with asyncio.TaskGroup() as group:
                commit = group.create_task(
                    writer.commit_with(letter(topic_name), consumer.member, {(topic_name, 0): 7})
                )
                await writer.has_offsets.wait()
                asked = group.create_task(committed(consumer, topic_name))
                done, _ = await asyncio.wait([asked], timeout=1)
                assert not done
                writer.may_end.set()
            assert commit.result()
            assert asked.result() == {(topic_name, 0): 7}
            assert await letters_in(settings, topic_name) == [b"bad"]
        finally:
            await writer.stop()


@pytest.mark.parametrize("generation", [-1, 0, 99])
async def test_who_is_no_member_any_more_leaves_neither(kafka: KafkaStack, topic_name: str, generation: int) -> None:
    """The broker itself would take offsets of one that claims no generation."""
    settings = KafkaSettings(bootstrap=kafka.bootstrap)
    writer = GroupWriter(settings, transactional_id=topic_name)
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(f"{topic_name}-letters")
    async with member_of_a_group(settings, topic_name) as consumer:
        await writer.start()
        try:
            stale = GroupMember(consumer.member.group_id, generation, consumer.member.member_id)
            with pytest.raises(CommitOutdated):
                await writer.commit_with(letter(topic_name), stale, {(topic_name, 0): 7})
        finally:
            await writer.stop()
        assert await committed(consumer, topic_name) == {(topic_name, 0): None}
        assert await letters_in(settings, topic_name) == []
