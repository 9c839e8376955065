"""What a ``read_committed`` consumer sees, from outside, in a thread of its own event loop."""

from __future__ import annotations

import asyncio
from collections import Counter

from service.kafka.client import KafkaSettings
from service.kafka.errors import KafkaFailure
from service.kafka.reader import TopicFeed, read_topic


def committed_values(bootstrap: str, topic: str) -> Counter[bytes | None]:
    """How often each value stands in the topic; empty when there is no such topic."""
    return asyncio.run(_committed_values(bootstrap, topic))


def committed_end(bootstrap: str, topic: str) -> int:
    """Last stable offset over all partitions; 0 while the topic or its broker is not there."""
    try:
        return asyncio.run(_committed_end(bootstrap, topic))
    except (KafkaFailure, TimeoutError):
        return 0


async def _committed_values(bootstrap: str, topic: str) -> Counter[bytes | None]:
    values: Counter[bytes | None] = Counter()
    async for records in read_topic(KafkaSettings(bootstrap=bootstrap), topic):
        values.update(record.value for record in records)
    return values


async def _committed_end(bootstrap: str, topic: str) -> int:
    async with asyncio.timeout(5), TopicFeed.opened(KafkaSettings(bootstrap=bootstrap), topic) as feed:
        return sum((await feed.ends()).values())
