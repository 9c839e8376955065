"""A topic read from its beginning and then for ever: state that stays fresh by itself.

One reader over all partitions waits at the broker for what comes next, so a record is here a moment after its commit.
Where the topic ends is asked over connections of their own: on the reader's, the question would wait behind the fetch.

A reader of a compacted topic has to be quick: a tombstone (a null value: "forget this key") is itself removed once
`delete.retention.ms` has passed (KIP-58, KIP-534), and who has not read it by then never hears of it. A tail therefore
knows since when it may have missed some, see `TopicTail.has_missed`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from aiokafka.structs import TopicPartition

from service.background import Background, located, persist
from service.kafka.errors import DeliveryRetriable, KafkaFailure
from service.kafka.reader import STALL_SECONDS_MAX, StoredRecord, TopicFeed
from service.kafka.sharing import SharedRounds

if TYPE_CHECKING:
    from service.kafka.client import KafkaSettings
    from service.kafka.reader import Ends

Receive: TypeAlias = Callable[[list[StoredRecord]], None]
Tell: TypeAlias = Callable[[str | None], None]

RECONNECT_SECONDS = 1.0
# The clock that counts while the machine is suspended, where there is one.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ElapsedTime:
    """Time since it was made, by whichever clock says most: one may stand still, and the other may be set."""

    def __init__(self) -> None:
        """Begin now."""
        self._began = _clocks()

    @property
    def seconds(self) -> float:
        """At least the true ones."""
        return max(now - then for now, then in zip(_clocks(), self._began, strict=True))


class TailStopped(DeliveryRetriable):
    """Somebody stopped the tail while it was read to the end: nothing comes any more, so nothing is waited for."""


class TopicTail:
    """Hands every committed record of a topic to `receive`, once, those of one partition in order.

    `tell` hears why reading is interrupted, and None when it goes on: from where it stood, nothing is given twice.
    `tombstone_seconds` is for how long tombstones can be read in this topic; it may be set while the tail runs.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        *,
        receive: Receive,
        tell: Tell,
        tombstone_seconds: float = math.inf,
        stall_seconds_max: float = STALL_SECONDS_MAX,
    ) -> None:
        """Prepare; connects in `start`. `stall_seconds_max` bounds the wait for transactions that are open."""
        self.tombstone_seconds = tombstone_seconds
        self._settings = settings
        self._topic = topic
        self._receive = receive
        self._tell = tell
        self._stall_seconds_max = stall_seconds_max
        self._positions: Ends = {}
        self._partitions: frozenset[TopicPartition] = frozenset()
        """Those that the topic had at the last question where it ends; none before."""
        self._moved = asyncio.Event()
        self._feed: TopicFeed | None = None
        """Opened, and not read from yet."""
        self._written = _EndQuestions(settings, topic, is_committed=False)
        self._committed = _EndQuestions(settings, topic, is_committed=True)
        self._complete = ElapsedTime()
        """Since when nothing can have been missed, as long as it is not too long ago."""
        self._has_missed = False
        self._background = Background()
        self._is_running = False
        self._is_stopped = False

    @property
    def has_missed(self) -> bool:
        """Whether tombstones may be gone unread, or the topic is another by now: only a new tail knows all then.

        Between two readings to the end there were more than half of `tombstone_seconds`; only half, because the broker
        goes by a clock of its own. A tail that was interrupted, or whose process or machine was suspended, is found
        out by this as well.
        """
        return self._has_missed

    async def start(self) -> None:
        """Connect, and go on reading until `stop`; on return nothing need have been received yet.

        Raises DeliveryFatal for a missing topic or permission, else DeliveryRetriable.
        """
        self._complete = ElapsedTime()
        self._feed = await TopicFeed.open(self._settings, self._topic)
        await self._background.__aenter__()
        self._is_running = True
        following = persist(self._follow, tell=lambda error: self._tell(located(error)))
        self._background.start(following, name=f"tail {self._topic}")

    async def stop(self) -> None:
        """Disconnect; harmless when repeated or never started. Whoever reads to the end is told by `TailStopped`."""
        self._is_stopped = True
        self._moved.set()
        if self._is_running:
            self._is_running = False
            await self._background.__aexit__(None, None, None)
        feed, self._feed = self._feed, None
        if feed is not None:
            await feed.close()
        await self._written.close()
        await self._committed.close()

    async def read_to_end(self, *, is_pending_awaited: bool = True) -> None:
        """Until everything that was committed before the call has been received; `has_missed` is judged anew.

        What is in transactions that are still open is waited for too, unless `is_pending_awaited` is False: that their
        producer has been fenced, or that they have been committed, does not mean that they can be read already.
        Raises DeliveryRetriable when nothing moves for longer than a transaction may stay open; TailStopped.
        """
        began, before = ElapsedTime(), dict(self._positions)
        ends = await (self._written if is_pending_awaited else self._committed).ask()
        self._partitions = frozenset(ends)
        await self._reach(ends)
        is_shorter = any(ends.get(partition, 0) < position for partition, position in before.items())
        if is_shorter or self._complete.seconds > self.tombstone_seconds / 2:
            self._has_missed = True
        elif is_pending_awaited:
            # What was committed before may have been written before too, so the other kind of reading proves nothing.
            self._complete = began

    async def _reach(self, ends: Ends) -> None:
        while behind := {partition: at for partition, at in self._stand(ends).items() if at < ends[partition]}:
            try:
                async with asyncio.timeout(self._stall_seconds_max):
                    # Others may move on and on while one is held up.
                    while all(self._stand(ends)[partition] == at for partition, at in behind.items()):
                        if self._is_stopped:
                            raise TailStopped(f"topic '{self._topic}' is no longer read")
                        await self._moved.wait()
            except TimeoutError as error:
                message = f"topic '{self._topic}' does not move: a transaction is open, or no leader"
                raise DeliveryRetriable(message) from error

    def _stand(self, partitions: Ends) -> Ends:
        return {partition: self._positions.get(partition, 0) for partition in partitions}

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
        """Until the topic has partitions that this reader does not know."""
        while self._partitions.issubset(feed.partitions):
            for records in await feed.poll():
                self._receive(records)
                # At once: what follows may fail, and then reading goes on from here.
                last = records[-1]
                self._move({TopicPartition(last.topic, last.partition): last.offset + 1})
                # A receiver looks at each record, so between their lists others have their turn.
                await asyncio.sleep(0)
            self._move(await feed.positions())
        self._tell(f"topic '{self._topic}' has been given partitions")

    def _move(self, positions: Ends) -> None:
        if any(at < self._positions.get(partition, 0) for partition, at in positions.items()):
            # The library went to the beginning by itself: the topic was made anew, or lost its end.
            self._has_missed = True
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
                feed.seek({partition: at for partition, at in self._positions.items() if partition in feed.partitions})
            except BaseException:
                await feed.close()
                raise
            return feed


class _EndQuestions:
    """Asks where a topic ends, for a reader of what is committed or of everything; its connection stays open.

    One question serves all who wait for the next answer.
    """

    def __init__(self, settings: KafkaSettings, topic: str, *, is_committed: bool) -> None:
        self._settings = settings
        self._topic = topic
        self._is_committed = is_committed
        self._feed: TopicFeed | None = None
        self._is_closed = False
        self._rounds = SharedRounds(self._ask)

    async def ask(self) -> Ends:
        return await self._rounds.answer()

    async def _ask(self) -> Ends:
        feed, self._feed = self._feed, None
        if feed is None:
            feed = await TopicFeed.open(self._settings, self._topic, is_committed=self._is_committed, is_reading=False)
        try:
            await feed.renew_partitions()
            ends = await feed.ends()
        except BaseException:
            await feed.close()
            raise
        if self._is_closed:
            await feed.close()
        else:
            self._feed = feed
        return ends

    async def close(self) -> None:
        """Disconnect; a question that is under way does so by itself once it is answered."""
        self._is_closed = True
        feed, self._feed = self._feed, None
        if feed is not None:
            await feed.close()


def _clocks() -> tuple[float, float]:
    return time.clock_gettime(_CLOCK), time.time()
