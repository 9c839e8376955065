"""Compacted topics as state: read from the beginning once, then only what came since.

`read_to_end` must see everything that was committed before it was called. A reader of committed
records stops at the first open transaction, so the target is the end that an *uncommitted* reader
sees, and the reader waits until the transactions before it have ended one way or the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.kafka.reader import STALL_SECONDS_MAX, StoredRecord, TopicFeed, open_for_ends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from service.kafka.client import KafkaSettings

__all__ = ["CompactedLog", "StoredRecord"]


class CompactedLog:
    """A topic whose last record of each key counts. Between calls a reader stays open, and one who asks for the end.

    Records of one key come in order; those of different partitions in any order. For one caller at a time.
    """

    def __init__(self, settings: KafkaSettings, topic: str, *, pending_seconds_max: float = STALL_SECONDS_MAX) -> None:
        """Prepare; connects with the first read. `pending_seconds_max` bounds the wait for open transactions."""
        self.topic = topic
        self._settings = settings
        self._pending_seconds_max = pending_seconds_max
        self._feed: TopicFeed | None = None
        self._asking: TopicFeed | None = None

    @property
    def is_at_beginning(self) -> bool:
        """Whether the next read begins at the beginning: what was kept from earlier ones must go then.

        A key whose forgetting was compacted away would otherwise stay for ever.
        """
        return self._feed is None

    async def read_to_end(self) -> AsyncIterator[list[StoredRecord]]:
        """All committed records since the last call (the first: since the beginning), as lists.

        Raises DeliveryFatal, DeliveryRetriable; after an error or a reading left half-way the next
        call begins at the beginning again (`is_at_beginning`).
        """
        feed, asking = self._feed, self._asking
        self._feed = self._asking = None
        is_done = False
        try:
            feed = feed or await TopicFeed.open(self._settings, self.topic)
            asking = asking or await open_for_ends(self._settings, self.topic)
            async for records in feed.read_until(await asking.ends(), stall_seconds_max=self._pending_seconds_max):
                yield records
            is_done = True
        finally:
            if is_done:
                self._feed, self._asking = feed, asking
            else:
                await _close(feed, asking)

    async def close(self) -> None:
        """Disconnect; a later read begins at the beginning."""
        feeds = self._feed, self._asking
        self._feed = self._asking = None
        await _close(*feeds)


async def _close(*feeds: TopicFeed | None) -> None:
    for feed in feeds:
        if feed is not None:
            await feed.close()
