"""A topic read from its beginning and then for ever: state that stays fresh by itself.

One reader over all partitions waits at the broker for what comes next, so a record is here a moment after its
commit. Where the topic ends is asked over a connection of its own: on the reader's, the question would wait
behind the fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from aiokafka.structs import TopicPartition

from service.background import Background, located, persist
from service.kafka.errors import DeliveryRetriable, KafkaFailure
from service.kafka.reader import STALL_SECONDS_MAX, StoredRecord, TopicFeed
from service.kafka.rounds import SharedRounds

if TYPE_CHECKING:
    from service.kafka.client import KafkaSettings
    from service.kafka.reader import Ends

Receive: TypeAlias = Callable[[list[StoredRecord]], None]
Tell: TypeAlias = Callable[[str | None], None]

RECONNECT_SECONDS = 1.0


class TopicTail:
    """Hands every committed record of a topic to `receive`, once, those of one partition in order.

    `tell` hears why reading is interrupted, and None when it goes on: from where it stood, nothing is given twice.
    """

    def __init__(self, settings: KafkaSettings, topic: str, *, receive: Receive, tell: Tell) -> None:
        """Prepare; connects in `start`."""
        self._settings = settings
        self._topic = topic
        self._receive = receive
        self._tell = tell
        self._positions: Ends = {}
        self._moved = asyncio.Event()
        self._feed: TopicFeed | None = None
        """Opened, and not read from yet."""
        self._ends = _EndsAsker(settings, topic)
        self._asking = SharedRounds(self._ends.ask)
        self._background = Background()
        self._is_running = False

    async def start(self) -> None:
        """Connect, read to the end, and go on reading until `stop`.

        Raises DeliveryFatal for a missing topic or permission, else DeliveryRetriable.
        """
        self._feed = await TopicFeed.open(self._settings, self._topic)
        await self._background.__aenter__()
        self._is_running = True
        following = persist(self._follow, tell=lambda error: self._tell(located(error)))
        self._background.start(following, name=f"tail {self._topic}")
        try:
            await self.read_to_end()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Disconnect; harmless when repeated or never started."""
        if self._is_running:
            self._is_running = False
            await self._background.__aexit__(None, None, None)
        feed, self._feed = self._feed, None
        if feed is not None:
            await feed.close()
        await self._ends.close()

    async def read_to_end(self) -> None:
        """Until everything that was written before the call has been received.

        Raises DeliveryRetriable when nothing moves for longer than a transaction may stay open.
        """
        ends = await self._asking.answer()
        while any(self._positions.get(partition, 0) < end for partition, end in ends.items()):
            try:
                async with asyncio.timeout(STALL_SECONDS_MAX):
                    await self._moved.wait()
            except TimeoutError as error:
                message = f"topic '{self._topic}' does not move: a transaction is open, or no leader"
                raise DeliveryRetriable(message) from error

    async def _follow(self) -> None:
        while True:
            feed, self._feed = self._feed, None
            if feed is None:
                feed = await self._reopened()
                self._tell(None)
            try:
                await self._read_on(feed)
            except KafkaFailure as error:
                self._tell(str(error))
            finally:
                await feed.close()

    async def _read_on(self, feed: TopicFeed) -> None:
        while True:
            for records in await feed.poll():
                self._receive(records)
                # At once: what follows may fail, and then reading goes on from here.
                last = records[-1]
                self._move({TopicPartition(last.topic, last.partition): last.offset + 1})
            self._move(await feed.positions())

    def _move(self, positions: Ends) -> None:
        moved = self._positions | positions
        if moved != self._positions:
            self._positions = moved
            self._moved.set()
            self._moved = asyncio.Event()

    async def _reopened(self) -> TopicFeed:
        while True:
            await asyncio.sleep(RECONNECT_SECONDS)
            try:
                feed = await TopicFeed.open(self._settings, self._topic)
            except KafkaFailure as error:
                self._tell(str(error))
                continue
            try:
                feed.seek(self._positions)
            except BaseException:
                await feed.close()
                raise
            return feed


class _EndsAsker:
    """Asks where a topic ends for a reader of everything, committed or not; its connection stays open."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._feed: TopicFeed | None = None

    async def ask(self) -> Ends:
        feed, self._feed = self._feed, None
        if feed is None:
            feed = await TopicFeed.open(self._settings, self._topic, is_committed=False, is_reading=False)
        try:
            ends = await feed.ends()
        except BaseException:
            await feed.close()
            raise
        self._feed = feed
        return ends

    async def close(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            await feed.close()
