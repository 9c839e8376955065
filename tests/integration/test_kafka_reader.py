"""Reading to the end while others write: what is committed beyond it comes once, now or with the next reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from service.kafka.producer import TransactionalWriter
from service.kafka.reader import STALL_SECONDS_MAX, StoredRecord, TopicFeed, last_ends, read_topic
from service.kafka.span import END, Place, Span, read_span
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


class Writers:
    """Two tasks that write to one topic; one leaves its transaction open, and the other writes behind it."""

    def __init__(self, topic: str, held: AIOKafkaProducer, other: AIOKafkaProducer) -> None:
        """Both started."""
        self._topic = topic
        self._held = held
        self._other = other

    async def begin(self) -> None:
        """Who reads on from here is given `seen` at once, has asked for the ends by then, and waits for `held`."""
        await self._held.begin_transaction()
        await self._held.send_and_wait(self._topic, b"held", partition=1)
        async with self._other.transaction():
            await self._other.send_and_wait(self._topic, b"seen", partition=0)

    async def end(self) -> None:
        """Only with the last of these steps both records can be read: a fetch gives both or neither."""
        async with self._other.transaction():
            await self._other.send_and_wait(self._topic, b"beyond", partition=1)
        await self._held.commit_transaction()

    async def interrupt(self, reading: AsyncIterator[list[StoredRecord]]) -> list[bytes]:
        """All that a reading gives whose end lies before `beyond`, and which sees `beyond` nevertheless."""
        await self.begin()
        found: list[bytes] = []
        async for records in reading:
            if not found:
                await self.end()
            found += [record.value or b"" for record in records]
        return found


@pytest.fixture
def settings(kafka: KafkaStack) -> KafkaSettings:
    """Settings for the run's broker."""
    return KafkaSettings(bootstrap=kafka.bootstrap)


@pytest.fixture
async def writers(settings: KafkaSettings, topic_name: str) -> AsyncIterator[Writers]:
    """Writers to a topic of two partitions."""
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=2)
    started = [TransactionalWriter(settings, transactional_id=f"{topic_name}-{number}") for number in range(2)]
    for writer in started:
        await writer.start()
    yield Writers(topic_name, *(writer._connection.producer for writer in started))
    for writer in started:
        await writer.stop()


async def test_a_feed_gives_what_was_committed_while_it_was_read(
    settings: KafkaSettings, topic_name: str, writers: Writers
) -> None:
    """Else a task that starts later would not see its newest offset, and deliver its records a second time."""
    async with TopicFeed.opened(settings, topic_name) as feed:
        found = await writers.interrupt(to_the_end(settings, feed))
        found += [record.value or b"" async for records in to_the_end(settings, feed) for record in records]
    assert found == [b"seen", b"held", b"beyond"]


async def to_the_end(settings: KafkaSettings, feed: TopicFeed) -> AsyncIterator[list[StoredRecord]]:
    """From where the feed stands to where its topic ends now."""
    ends = await last_ends(settings, feed._topic)
    async for records in feed.read_until(ends, stall_seconds_max=STALL_SECONDS_MAX):
        yield records


async def test_a_topic_is_read_up_to_where_it_ended_at_the_call(
    settings: KafkaSettings, topic_name: str, writers: Writers
) -> None:
    """However much is written while it is read, a reading ends."""
    assert await writers.interrupt(read_topic(settings, topic_name)) == [b"seen", b"held"]


async def test_a_span_of_a_topic(settings: KafkaSettings, topic_name: str) -> None:
    """From and to an offset or a time, one partition, the last few, and what comes later."""
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=2)
    producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap)
    async with producer:
        for number in range(6):
            await producer.send_and_wait(topic_name, b"%d" % number, partition=0, timestamp_ms=1_000 * (number + 1))
        await producer.send_and_wait(topic_name, b"other", partition=1, timestamp_ms=1_000)

        async def found(**span: Any) -> list[str]:
            batches = read_span(settings, topic_name, Span(**span))
            return sorted([(record.value or b"").decode() async for records in batches for record in records])

        only: dict[str, Any] = {"partitions": frozenset({0})}
        assert await found() == ["0", "1", "2", "3", "4", "5", "other"]
        assert await found(begin=Place(offset=2), end=Place(offset=4), **only) == ["2", "3"]
        assert await found(begin=Place(offset=-2), **only) == ["4", "5"]
        assert await found(begin=Place(offset=-100), end=Place(offset=-5)) == ["0"]
        assert await found(begin=Place(timestamp_ms=2_500), end=Place(timestamp_ms=4_000)) == ["2"]
        assert await found(begin=Place(offset=100)) == await found(begin=Place(offset=END)) == []
        with pytest.raises(DeliveryFatal, match="no partition 7: there are 2"):
            await found(partitions=frozenset({7}))
        with pytest.raises(DeliveryFatal, match="does not exist"):
            async for _ in read_span(settings, f"{topic_name}-none", Span()):
                pass

        following = read_span(settings, topic_name, Span(begin=Place(offset=END), is_following=True, **only))
        async with asyncio.TaskGroup() as group:
            coming = group.create_task(anext(following), name="what comes")
            while not coming.done():
                # Sent until it is seen: nobody tells from where on the reading looks.
                await producer.send_and_wait(topic_name, b"new", partition=0)
                await asyncio.wait([coming], timeout=0.2)
        assert {record.value for record in coming.result()} == {b"new"}
        await following.aclose()
