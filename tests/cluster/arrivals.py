"""How much of a topic has arrived: asked again and again, and read once."""

from __future__ import annotations

from service.kafka.client import KafkaSettings
from service.kafka.errors import KafkaFailure
from service.kafka.reader import TopicFeed


class Arrivals:
    """Committed records of a topic, counted by a reader that stays open between looks."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        """Nothing is open yet, and the topic need not be there."""
        self._settings = KafkaSettings(bootstrap=bootstrap)
        self._topic = topic
        self._feed: TopicFeed | None = None
        self._count = 0

    async def count(self) -> int:
        """How many there are, as far as is known after a short wait for more; 0 while the topic is not there."""
        try:
            if self._feed is None:
                self._feed = await TopicFeed.open(self._settings, self._topic)
            self._count += sum([len(records) for records in await self._feed.poll()])
        except KafkaFailure:
            await self.close()
        return self._count

    async def close(self) -> None:
        """Count from the beginning when asked again."""
        feed, self._feed, self._count = self._feed, None, 0
        if feed is not None:
            await feed.close()
