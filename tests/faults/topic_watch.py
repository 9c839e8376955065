"""What a ``read_committed`` consumer sees, from outside, in a thread of its own event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, KafkaFailure
from service.kafka.reader import TopicFeed, read_topic

LOOK_SECONDS = 0.5
ANSWER_SECONDS_MAX = 60.0
"""A broker that is there answers within it on the busiest machine: 0 is for one that is not."""


def committed_values(bootstrap: str, topic: str) -> Counter[bytes | None]:
    """How often each value stands in the topic; empty when there is no such topic."""
    return asyncio.run(_committed_values(bootstrap, topic))


def committed_end(bootstrap: str, topic: str) -> int:
    """Last stable offset over all partitions; 0 while the topic or its broker is not there."""
    try:
        return asyncio.run(_committed_end(bootstrap, topic))
    except (KafkaFailure, TimeoutError):
        return 0


def wait_for_commits(bootstrap: str, topic: str, *, beyond: int, seconds_max: float) -> bool:
    """Look until ``committed_end`` is beyond this; False when it is not in time. One consumer looks all the time."""
    return asyncio.run(_wait_for_commits(bootstrap, topic, beyond, seconds_max))


async def _committed_values(bootstrap: str, topic: str) -> Counter[bytes | None]:
    values: Counter[bytes | None] = Counter()
    try:
        async for records in read_topic(KafkaSettings(bootstrap=bootstrap), topic):
            values.update(record.value for record in records)
    except DeliveryFatal as error:
        if "does not exist" not in str(error):
            raise
    return values


async def _committed_end(bootstrap: str, topic: str) -> int:
    async with asyncio.timeout(ANSWER_SECONDS_MAX), _asking(bootstrap, topic) as feed:
        return await _end(feed)


async def _wait_for_commits(bootstrap: str, topic: str, beyond: int, seconds_max: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds_max):
            while True:
                with suppress(KafkaFailure):
                    async with _asking(bootstrap, topic) as feed:
                        while await _end(feed) <= beyond:
                            await asyncio.sleep(LOOK_SECONDS)
                        return True
                await asyncio.sleep(LOOK_SECONDS)
    return False


@asynccontextmanager
async def _asking(bootstrap: str, topic: str) -> AsyncIterator[TopicFeed]:
    """A feed that asks where the topic ends, and fetches nothing."""
    feed = await TopicFeed.open(KafkaSettings(bootstrap=bootstrap), topic, is_reading=False)
    try:
        yield feed
    finally:
        await feed.close()


async def _end(feed: TopicFeed) -> int:
    return sum((await feed.ends()).values())
