"""A log of state in a compacted topic: one tail that reads, one writer for everybody, one for the leader alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pyarrow as pa

from metrics.events import Emit
from service.kafka.batches import BATCH_HEADER_BYTES
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, DeliveryRetriable
from service.kafka.producer import IdempotentWriter, TransactionalWriter
from service.kafka.records import TopicRecords
from service.kafka.sharing import CommitTogether, StandbyWriter
from service.kafka.tail import TopicTail
from service.stores.state_log import ClaimMissing, KeyedValue, Receive
from service.stores.state_topic import StateTopic, interruptions

WRITE_SECONDS_MAX = 30.0
_RECORD_OVERHEAD_BYTES = 32


@dataclass(frozen=True, slots=True)
class LogClients:
    """How a log speaks to Kafka."""

    reading: KafkaSettings
    """For administration too."""
    writing: KafkaSettings


class KafkaStateLog:
    """A `StateLog` in a compacted topic, for the workers of a cluster."""

    def __init__(self, topic: StateTopic, clients: LogClients, *, emit: Emit, leader_id: str = "") -> None:
        """Prepare; ``leader_id``: the transactional id that leaders fence each other by, if there are any."""
        self.topic = topic.name
        self._state_topic = topic
        self._clients = clients
        self._emit = emit
        self._leader_id = leader_id
        self._record_bytes_max = 0
        self._standby = StandbyWriter(lambda: IdempotentWriter(clients.writing, last_topic=topic.name))
        self._leader: TransactionalWriter | None = None
        self._leading = asyncio.Lock()
        self._by_anyone = CommitTogether(self._commit)
        self._by_leader = CommitTogether(self._commit_as_leader)
        self._tail: TopicTail | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this worker holds a claim that, as far as it knows, is the newest."""
        return self._leader is not None

    async def start(self, receive: Receive) -> None:
        """Make or check the topic, give all of it to ``receive``, and follow it. Raises as `StateLog.start`."""
        self._record_bytes_max = (await self._state_topic.ensure(self._clients.reading)).batch_bytes_max
        tail = TopicTail(self._clients.reading, self.topic, receive=receive, tell=interruptions(self.topic, self._emit))
        try:
            await tail.start()
            await tail.read_to_end()
        except BaseException:  # cancelled too: nobody else would stop this tail
            await tail.stop()
            raise
        self._tail = tail

    async def stop(self) -> None:
        """Disconnect reader and writers, and give up a claim; harmless when repeated."""
        tail, self._tail = self._tail, None
        async with AsyncExitStack() as last_first:
            last_first.push_async_callback(self.drop_leadership)
            last_first.push_async_callback(self._standby.stop)
            if tail is not None:
                last_first.push_async_callback(tail.stop)

    async def read_to_end(self) -> None:
        """Until everything written before the call has been received. Raises DeliveryRetriable."""
        if self._tail is None:
            raise DeliveryRetriable(f"topic '{self.topic}' is not read: its log is not started, or stopped")
        await self._tail.read_to_end()

    async def write(self, records: Sequence[KeyedValue], *, as_leader: bool = False) -> None:
        """Write and read back, within `WRITE_SECONDS_MAX`. Raises as `StateLog.write`."""
        self._demand_fitting(records)
        together = self._by_leader if as_leader else self._by_anyone
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                await together.write(records)
                await self.read_to_end()
        except (TimeoutError, DeliveryRetriable) as error:
            raise DeliveryRetriable(
                f"Failed to write to {self._state_topic.kind} topic; this may be due to a transient error and the "
                "request can be safely retried"
            ) from error

    async def claim_leadership(self) -> None:
        """Start a transactional writer, which fences that of the leader before. Raises as `StateLog`'s."""
        async with self._leading:
            await self._drop()
            writer = TransactionalWriter(self._clients.writing, transactional_id=self._leader_id)
            await writer.start()
            self._leader = writer

    async def drop_leadership(self) -> None:
        """Stop the leader's writer; harmless without a claim."""
        async with self._leading:
            await self._drop()

    async def _drop(self) -> None:
        # The claim ends last: who was fenced must have heard of it before anybody here claims again.
        try:
            if self._leader is not None:
                await self._leader.stop()
        finally:
            self._leader = None

    def _demand_fitting(self, records: Sequence[KeyedValue]) -> None:
        """Refuse what the broker would, before it costs the writer, and everyone's records in the same commit."""
        for key, value in records:
            size = len(key) + len(value or b"") + BATCH_HEADER_BYTES + _RECORD_OVERHEAD_BYTES
            if size > self._record_bytes_max:
                raise DeliveryFatal(
                    f"a record for topic '{self.topic}' takes {size} bytes, the limit is {self._record_bytes_max}: "
                    "make the configuration smaller, or raise the topic's max.message.bytes"
                )

    async def _commit(self, records: Sequence[KeyedValue]) -> None:
        await self._standby.commit([self._columns(records)])

    async def _commit_as_leader(self, records: Sequence[KeyedValue]) -> None:
        async with self._leading:
            if self._leader is None:
                raise ClaimMissing("this worker may not write as leader: it has not claimed leadership, or has lost it")
            try:
                await self._leader.commit([self._columns(records)])
            except BaseException:
                # Never opened again from here: only who knows that it is the leader still may fence the others.
                await self._drop()
                raise

    def _columns(self, records: Sequence[KeyedValue]) -> TopicRecords:
        keys, values = zip(*records, strict=True)
        return TopicRecords(self.topic, pa.array(values, pa.binary()), pa.array(keys, pa.binary()))
