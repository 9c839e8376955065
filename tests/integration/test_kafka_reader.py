"""Reading to the end while others write: what is committed beyond it comes once, now or with the next reading."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer

from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.producer import TransactionalWriter
from service.kafka.reader import STALL_SECONDS_MAX, StoredRecord, TopicFeed, last_ends, read_topic
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
