"""A broker that dies in mid-transaction: nothing hangs, nothing is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer

from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings, ProducerSettings
from service.kafka.closing import close_consumer
from service.kafka.errors import DeliveryRetriable
from service.kafka.producer import TransactionalWriter
from service.kafka.reader import TopicFeed, read_topic
from service.kafka.records import TopicRecords
from service.stores.offsets import OffsetStore
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]

PARTITION = {"file": "a"}
LOOK_SECONDS = 0.05
GIVEN_UP_SECONDS = 8.0
"""Limit of a commit to a broker that is gone; of one that is well no commit has it."""
OVER_SECONDS_MAX = 200
"""What has no limit goes on for ever."""


@pytest.fixture
def mortal_kafka(kafka: KafkaStack) -> Iterator[KafkaStack]:
    """The run's broker, brought back for the others whatever happens."""
    try:
        yield kafka
    finally:
        if not kafka.is_alive():
            kafka.restart()
        kafka.wait_serving()


def numbered(topic: str, numbers: range) -> TopicRecords:
    """Records that can be told apart."""
    return TopicRecords(topic, pa.array([b"%06d" % number + b"." * 500 for number in numbers], pa.binary()))


async def values_of(settings: KafkaSettings, topic: str) -> list[int]:
    """The numbers that a reader of committed data sees."""
    return [int((record.value or b"")[:6]) async for batch in read_topic(settings, topic) for record in batch]


async def deliver_all(settings: KafkaSettings, topic: str, *, until: int, step: int) -> None:
    """Deliver numbers as a task does: start a writer, read the offset, go on from there, anew after a failure."""
    store = OffsetStore(settings, f"{topic}-offsets")
    while True:
        writer = TransactionalWriter(settings, transactional_id=topic)
        try:
            await store.ensure(partitions=1)
            await writer.start()
            offset = (await store.read("c")).get('{"file":"a"}', {"next": 0})
            position = int(str(offset["next"]))
            while position < until:
                end = min(position + step, until)
                offsets = store.encode("c", [(PARTITION, {"next": end})])
                await writer.commit([numbered(topic, range(position, end)), *offsets])
                position = end
        except DeliveryRetriable:
            continue
        else:
            await store.close()
            return
        finally:
            await writer.stop()


async def wait_for_records(settings: KafkaSettings, topic: str, count: int) -> None:
    """Return when so many records, committed or not, have reached the topic."""
    async with TopicFeed.opened(settings, topic, is_committed=False) as feed:
        while max((await feed.ends()).values()) < count:
            await asyncio.sleep(LOOK_SECONDS)


async def test_a_killed_broker_costs_nothing(mortal_kafka: KafkaStack, topic_name: str) -> None:
    """Killed twice in mid-backfill and started again, the broker has every record exactly once, in order."""
    settings = KafkaSettings(
        bootstrap=mortal_kafka.bootstrap, producer=ProducerSettings(commit_seconds_max=20.0, batch_bytes_max=20_000)
    )
    loop = asyncio.get_running_loop()
    until = 80_000
    async with asyncio.timeout(500), asyncio.TaskGroup() as group:
        group.create_task(deliver_all(settings, topic_name, until=until, step=5000))
        await wait_for_created(settings, topic_name)
        for share in (0.1, 0.5):
            await wait_for_records(settings, topic_name, int(until * share))
            await loop.run_in_executor(None, mortal_kafka.kill)
            await loop.run_in_executor(None, mortal_kafka.restart)
    assert await values_of(settings, topic_name) == list(range(until))


async def wait_for_created(settings: KafkaSettings, topic: str) -> None:
    """Return when the topic exists."""
    async with KafkaAdmin.opened(settings) as admin:
        while not await admin.partition_count(topic):
            await asyncio.sleep(LOOK_SECONDS)


async def begun_writer(settings: KafkaSettings, topic: str) -> TransactionalWriter:
    """A writer with one commit behind it, which has less time for each that follows."""
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic, partitions=1)
    writer = TransactionalWriter(settings, transactional_id=topic)
    await writer.start()
    await writer.commit([numbered(topic, range(10))])
    writer._seconds_max = GIVEN_UP_SECONDS
    return writer


async def ended(tasks: set[asyncio.Task[object]]) -> bool:
    """Whether all of them end; some were cancelled a moment ago."""
    left = tasks and (await asyncio.wait(tasks, timeout=60))[1]
    return not left


async def test_a_broker_that_stays_away_is_given_up(mortal_kafka: KafkaStack, topic_name: str) -> None:
    """With the broker gone for good a commit ends within its limit, and so does stopping the writer."""
    settings = KafkaSettings(bootstrap=mortal_kafka.bootstrap, producer=ProducerSettings(batch_bytes_max=20_000))
    writer = await begun_writer(settings, topic_name)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, mortal_kafka.kill)
    before = asyncio.all_tasks()
    async with asyncio.timeout(OVER_SECONDS_MAX):
        with pytest.raises(DeliveryRetriable):
            await writer.commit([numbered(topic_name, range(10, 5000))])
        assert not writer.is_usable
        await writer.stop()
    assert await ended(asyncio.all_tasks() - before)
    await loop.run_in_executor(None, mortal_kafka.restart)
    # The next incarnation ends what was left open, so that readers are not held up.
    heir = TransactionalWriter(settings, transactional_id=topic_name)
    await heir.start()
    await heir.commit([numbered(topic_name, range(10, 20))])
    await heir.stop()
    assert await values_of(settings, topic_name) == list(range(20))


async def test_a_silent_broker_is_given_up(mortal_kafka: KafkaStack, topic_name: str) -> None:
    """A broker that takes connections and never answers does not hold a commit or a stop beyond their limits."""
    writer = await begun_writer(KafkaSettings(bootstrap=mortal_kafka.bootstrap), topic_name)
    os.kill(mortal_kafka.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(OVER_SECONDS_MAX):
            with pytest.raises(DeliveryRetriable):
                await writer.commit([numbered(topic_name, range(10, 20))])
            await writer.stop()
    finally:
        os.kill(mortal_kafka.pid, signal.SIGCONT)


async def test_a_member_of_a_group_leaves_nothing_behind(mortal_kafka: KafkaStack, topic_name: str) -> None:
    """A broker that never answers hears no farewell; what ran and was connected for the member ends all the same."""
    settings = KafkaSettings(bootstrap=mortal_kafka.bootstrap)
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=1)
    before = asyncio.all_tasks()
    consumer = AIOKafkaConsumer(topic_name, **settings.connection_arguments(), group_id=topic_name)
    await consumer.start()
    await consumer.getmany(timeout_ms=100)
    connections = list(consumer._client._conns.values())
    assert connections
    os.kill(mortal_kafka.pid, signal.SIGSTOP)
    try:
        await close_consumer(consumer, seconds_max=0.2)
    finally:
        os.kill(mortal_kafka.pid, signal.SIGCONT)
    assert await ended(asyncio.all_tasks() - before)
    assert not any(connection.connected() for connection in connections)
