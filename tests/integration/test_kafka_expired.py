"""A transaction that the coordinator has ended because of its age, told from one that a newer writer has ended."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest

from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings, ProducerSettings
from service.kafka.errors import TransactionExpired, WriterFenced
from service.kafka.producer import TransactionalWriter
from service.kafka.reader import TopicFeed, read_topic
from service.kafka.records import TopicRecords
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LOOK_SECONDS = 0.1
OPEN_SECONDS_MAX = 5.0
"""Long enough to write a record in it on a busy machine, or the coordinator ends it before."""
EXPIRED_SECONDS_MAX = 180
"""The coordinator looks every ten seconds (`transaction.abort.timed.out.transaction.cleanup.interval.ms`)."""


@pytest.fixture
async def settings(kafka: KafkaStack, topic_name: str) -> KafkaSettings:
    """Settings for the run's broker, on which the topic is."""
    settings = KafkaSettings(bootstrap=kafka.bootstrap)
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=1)
    return settings


async def suspended_writer(settings: KafkaSettings, topic: str) -> TransactionalWriter:
    """In the middle of a transaction of seconds, of which it believes that it has just begun and may take a minute.

    So it is for a writer whose machine has been suspended, or whose broker's clock has been set.
    """
    hasty = replace(settings, producer=ProducerSettings(transaction_seconds_max=OPEN_SECONDS_MAX))
    writer = TransactionalWriter(hasty, transactional_id=topic)
    await writer.start()
    writer._connection.settings = settings
    producer = writer._connection.producer
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"open")
    return writer


async def wait_until_ended(settings: KafkaSettings, topic: str) -> None:
    """Return when no transaction in the topic is open."""
    async with (
        TopicFeed.opened(settings, topic) as committed,
        TopicFeed.opened(settings, topic, is_committed=False) as written,
        asyncio.timeout(EXPIRED_SECONDS_MAX),
    ):
        while await committed.ends() != await written.ends():
            await asyncio.sleep(LOOK_SECONDS)


async def commit_open(writer: TransactionalWriter) -> None:
    """As the last step of a commit."""
    async with asyncio.timeout(EXPIRED_SECONDS_MAX):
        await writer._connection.deliver(writer._connection.producer.commit_transaction)


def one(topic: str, value: bytes) -> list[TopicRecords]:
    """One record."""
    return [TopicRecords(topic, pa.array([value], pa.binary()))]


async def test_a_time_out_is_no_successor(settings: KafkaSettings, topic_name: str) -> None:
    """Who was too late by the coordinator's clock may start again; nothing of the transaction is there."""
    writer = await suspended_writer(settings, topic_name)
    await wait_until_ended(settings, topic_name)
    with pytest.raises(TransactionExpired):
        await commit_open(writer)
    assert not writer.is_usable
    await writer.stop()
    heir = TransactionalWriter(settings, transactional_id=topic_name)
    await heir.start()
    await heir.commit(one(topic_name, b"again"))
    await heir.stop()
    assert [record.value async for found in read_topic(settings, topic_name) for record in found] == [b"again"]


@pytest.mark.parametrize("is_expired", [False, True])
async def test_a_successor_is_not_fenced_by_who_asks(
    settings: KafkaSettings, topic_name: str, *, is_expired: bool
) -> None:
    """Whether it came before the time-out or after it: the older is fenced, and the newer writes on."""
    writer = await suspended_writer(settings, topic_name)
    if is_expired:
        await wait_until_ended(settings, topic_name)
    successor = TransactionalWriter(settings, transactional_id=topic_name)
    await successor.start()
    await successor.commit(one(topic_name, b"first"))
    with pytest.raises(WriterFenced):
        await commit_open(writer)
    await successor.commit(one(topic_name, b"second"))
    for each in (writer, successor):
        await each.stop()
    assert [record.value async for found in read_topic(settings, topic_name) for record in found] == [
        b"first",
        b"second",
    ]


async def test_the_coordinator_is_asked_only_about_a_writer_that_is_over(
    settings: KafkaSettings, topic_name: str
) -> None:
    """A writer that nobody has fenced may go on with the id and the epoch it has.

    A commit is answered before its markers are written; until they are, the coordinator says "ask again" (51).
    """
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    try:
        await writer.start()
        await writer.commit(one(topic_name, b"before"))
        async with asyncio.timeout(EXPIRED_SECONDS_MAX):
            assert not await writer._connection._has_successor()
    finally:
        await writer.stop()
