"""The two ways to deliver: exactly once (one transaction a commit) and at least once.

Both have the interface `Writer`. A writer lives for one run of a task: it is started once, *then* the
task reads its offsets, and after any error it is dropped and a new one started. Initialising it again
in place would let a zombie fence its successor.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Protocol

from aiokafka import AIOKafkaProducer

from service.kafka import library
from service.kafka.closing import close_producer
from service.kafka.delivery import TOPIC_SECONDS_MAX, Lane, Lanes, compress, send
from service.kafka.errors import (
    CLIENT_ERRORS,
    FENCED_CODES,
    GIVEN_UP,
    BatchRefused,
    CommitOutdated,
    DeliveryFatal,
    DeliveryRetriable,
    KafkaFailure,
    RecordsRefused,
    RefusedRecord,
    TransactionExpired,
    WriterFenced,
    classify,
)
from service.kafka.records import Header, TopicRecords

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from service.kafka.client import KafkaSettings
    from service.kafka.library import GroupMember

    Offsets = Mapping[tuple[str, int], int]

__all__ = [
    "GroupWriter",
    "Header",
    "IdempotentWriter",
    "TopicRecords",
    "TransactionalWriter",
    "Writer",
    "transactional_id",
]

START_SECONDS_MAX = 60.0
SUCCESSOR_SECONDS_MAX = 15.0
SUCCESSOR_START_SECONDS = 2.0
EXPIRED = "the coordinator has ended the transaction because it was open for longer than transaction.timeout.ms"
ABORT_SECONDS_MAX = 3.0
STOP_SECONDS_MAX = 3.0
# A commit gives up before the coordinator does, so that it hears what happened.
_SHARE_OF_TRANSACTION = 0.75


def transactional_id(*, group_id: str, connector: str, task: int) -> str:
    """Name the producer of a task as Kafka Connect does, so that incarnations fence each other."""
    return f"{group_id}-{connector}-{task}"


class Writer(Protocol):
    """Delivers groups of records, each group as a whole."""

    @property
    def is_usable(self) -> bool:
        """Whether `commit` may be called: started, not stopped, and no error so far."""

    async def start(self) -> None:
        """Connect, and end what an earlier incarnation left open.

        Raises DeliveryRetriable or DeliveryFatal; the writer is then used up.
        """

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """Deliver all writes; returning means that they are durable. Without any record: does nothing.

        Raises WriterFenced, DeliveryRetriable, DeliveryFatal; the writer is then used up, but for
        RecordsRefused. Cancelling aborts what is open within `ABORT_SECONDS_MAX`.
        """

    async def refused(self, write: TopicRecords) -> Sequence[RefusedRecord]:
        """Records that their topic would not take, by its settings as they are now; nothing is sent.

        Raises DeliveryRetriable, DeliveryFatal; the writer is then used up.
        """

    async def stop(self) -> None:
        """Disconnect within `STOP_SECONDS_MAX` and a little; harmless when repeated or never started."""


class _Connection:
    """A started producer and whether it may still be used; what both writers have in common."""

    def __init__(self, settings: KafkaSettings, *, transactional_id: str | None) -> None:
        self.settings = settings
        self.transactional_id = transactional_id
        self.is_usable = False
        self._producer: AIOKafkaProducer | None = None
        self._lanes: Lanes | None = None

    @property
    def producer(self) -> AIOKafkaProducer:
        if self._producer is None:
            raise DeliveryRetriable("the writer is not started")
        return self._producer

    @property
    def lanes(self) -> Lanes:
        if self._lanes is None:
            raise DeliveryRetriable("the writer is not started")
        return self._lanes

    async def start(self) -> None:
        if self._producer is not None:
            raise RuntimeError("a writer is started once; make a new one")
        try:
            self._producer = self._new_producer()
            async with asyncio.timeout(START_SECONDS_MAX):
                await self._producer.start()
        except CLIENT_ERRORS as error:
            await self.stop()
            raise classify(error, doing=self.settings.connecting) from error
        except BaseException:
            # Cancelled, or a bug: either way a half-started producer would keep its sockets and its task.
            await self.stop()
            raise
        self._lanes = Lanes(self._producer, self.settings.producer, is_transactional=self.transactional_id is not None)
        self.is_usable = True

    def _new_producer(self) -> AIOKafkaProducer:
        transaction: dict[str, object] = {}
        if self.transactional_id is not None:
            transaction = {
                "transactional_id": self.transactional_id,
                "transaction_timeout_ms": round(self.settings.producer.transaction_seconds_max * 1000),
            }
        producer = AIOKafkaProducer(enable_idempotence=True, **transaction, **self.settings.connection_arguments())
        library.mend_sequence_numbers(producer)
        library.mend_bootstrap(producer.client)
        return producer

    async def deliver(self, deliver: Callable[[], Awaitable[None]]) -> None:
        """Run one commit, which has its own time limits: errors by recovery; only a clean end leaves it usable."""
        if not self.is_usable:
            raise DeliveryRetriable("the writer is used up, not started, or busy with another commit")
        self.is_usable = False
        if library.has_sender_ended(self.producer):
            raise DeliveryRetriable("the producer ended by itself while it was idle")
        started = time.monotonic()
        try:
            await deliver()
        except RecordsRefused:
            self.is_usable = True
            raise
        except BaseException as error:
            # Cancellation too: a transaction that is left open would hold up every reader until it times out.
            failure = self._failure(error)
            if isinstance(failure, WriterFenced):
                failure = await self._expired_or(failure, open_seconds=time.monotonic() - started)
            await self._abort()
            if failure is None:
                raise
            raise failure from error
        self.is_usable = True

    def _failure(self, error: BaseException) -> KafkaFailure | None:
        """Give the failure that `error` stands for; None for what is already one, a cancellation or a bug."""
        if isinstance(error, ExceptionGroup):
            # Lanes fail side by side; one bug among them must not pass for a broker's fault.
            is_kafka = error.split((*CLIENT_ERRORS, KafkaFailure))[1] is None
        else:
            is_kafka = isinstance(error, CLIENT_ERRORS)
        if not is_kafka:
            return None
        return classify(library.sender_error(self.producer) or error, doing="delivering")

    async def _expired_or(self, fenced: WriterFenced, *, open_seconds: float) -> KafkaFailure:
        """Tell the coordinator's own time-out from a successor; to the requests the library sends both look the same.

        Which it is the coordinator knows, whatever this machine's clocks say (KIP-360, KIP-588). It is asked twice: a
        successor's start first has the transaction ended, and only then gets an epoch of its own.
        """
        try:
            async with asyncio.timeout(SUCCESSOR_SECONDS_MAX):
                has_successor = await self._has_successor()
                if not has_successor:
                    await asyncio.sleep(SUCCESSOR_START_SECONDS)
                    has_successor = await self._has_successor()
        except NotImplementedError:
            has_successor = open_seconds < self.settings.producer.transaction_seconds_max
        except CLIENT_ERRORS:
            # Who does not know whether there is a successor must not fence it.
            return fenced
        return fenced if has_successor else TransactionExpired(EXPIRED)

    async def _has_successor(self) -> bool:
        """Ask until there is an answer, so under a time limit. Raises the client's error where none will come."""
        while True:
            try:
                code = await library.try_to_continue(self.producer)
            except CLIENT_ERRORS as error:
                # A broker that is gone, or knows no coordinator yet, has said nothing about a successor.
                if not isinstance(classify(error, doing="asking for a successor"), DeliveryRetriable):
                    raise
            else:
                if code not in library.PASSING_CODES:
                    return code in FENCED_CODES
            await asyncio.sleep(library.ASK_AGAIN_SECONDS)

    async def would_plan_otherwise(self, writes: Sequence[TopicRecords]) -> bool:
        """Whether a new writer would not send the same again. If it would, the refusal is for ever."""
        try:
            async with asyncio.timeout(TOPIC_SECONDS_MAX):
                return any([await self.lanes.is_outdated(write) for write in writes])
        except CLIENT_ERRORS as error:
            raise classify(error, doing="asking for the limits of topics") from error

    async def _abort(self) -> None:
        """End the open transaction if that is still possible; leave the rest to its next incarnation."""
        if self.transactional_id is None or not library.is_in_transaction(self.producer):
            return
        try:
            async with asyncio.timeout(ABORT_SECONDS_MAX):
                await self.producer.abort_transaction()
        except CLIENT_ERRORS:
            # Not deliverable: the coordinator aborts it when a newer writer starts, or by its time limit.
            return

    async def stop(self) -> None:
        self.is_usable = False
        if self._producer is not None:
            await close_producer(self._producer, seconds_max=STOP_SECONDS_MAX)


class _ConnectedWriter(ABC):
    """The part of a `Writer` that does not depend on how its records are delivered."""

    def __init__(self, connection: _Connection, *, seconds_max: float) -> None:
        self._connection = connection
        self._seconds_max = seconds_max

    @property
    def is_usable(self) -> bool:
        """Whether `commit` may be called, see `Writer`."""
        return self._connection.is_usable

    async def start(self) -> None:
        """Connect, and fence older incarnations where there are transactions, see `Writer`."""
        await self._connection.start()

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """Deliver all writes as one, see `Writer`."""
        filled = [write for write in writes if len(write)]
        if not filled:
            return
        try:
            await self._connection.deliver(lambda: self._commit(filled))
        except BatchRefused as error:
            if await self._connection.would_plan_otherwise(filled):
                raise DeliveryRetriable(f"{error}; planned by settings of the topic that have changed") from error
            raise

    async def refused(self, write: TopicRecords) -> Sequence[RefusedRecord]:
        """Records that their topic would not take, see `Writer`."""
        found: list[RefusedRecord] = []

        async def ask() -> None:
            async with asyncio.timeout(self._seconds_max):
                found.extend(await self._connection.lanes.refused(write))

        await self._connection.deliver(ask)
        return found

    async def stop(self) -> None:
        """Disconnect within `STOP_SECONDS_MAX`, see `Writer`."""
        await self._connection.stop()

    @abstractmethod
    async def _commit(self, writes: Sequence[TopicRecords]) -> None:
        """Deliver, within the limits; the connection sees to errors."""

    async def _planned(self, writes: Sequence[TopicRecords]) -> list[Lane]:
        """Cut into lanes, and compressed where they are to be; what is refused is known before anything is sent."""
        async with asyncio.timeout(self._seconds_max):
            lanes = await self._connection.lanes.plan(writes)
        await compress(lanes)
        return lanes


class TransactionalWriter(_ConnectedWriter):
    """Exactly once: each commit is one transaction, seen as a whole or not at all by `read_committed` readers.

    Its start fences every older writer with this id, and waits until its transaction has ended.
    """

    def __init__(
        self, settings: KafkaSettings, *, transactional_id: str, confirm: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Prepare; nothing is sent before `start`.

        `confirm` is awaited in each transaction, once all its records are acknowledged: what it raises aborts it.
        """
        limits = settings.producer
        self._confirm = confirm
        seconds_max = min(limits.commit_seconds_max, limits.transaction_seconds_max * _SHARE_OF_TRANSACTION)
        super().__init__(_Connection(settings, transactional_id=transactional_id), seconds_max=seconds_max)

    async def _commit(self, writes: Sequence[TopicRecords]) -> None:
        producer = self._connection.producer
        lanes = await self._planned(writes)
        async with asyncio.timeout(self._seconds_max):
            await producer.begin_transaction()
            # All acknowledgements first: the library would commit even when a batch had failed.
            await send(producer, lanes)
            if self._confirm is not None:
                await self._confirm()
            await producer.commit_transaction()


class GroupWriter(TransactionalWriter):
    """Exactly once for a member of a consumer group: what it makes of records, and how far it is, are one (KIP-447)."""

    async def commit_with(self, writes: Sequence[TopicRecords], member: GroupMember, offsets: Offsets) -> bool:
        """Deliver all writes, of which one has records, and the group's offsets in one transaction; returns True.

        Raises what `commit` does, and CommitOutdated where the group goes on without the member.
        """
        if member.generation < 0:
            raise CommitOutdated(f"not a member of group '{member.group_id}' any more")
        self._confirm = partial(self._commit_offsets, member, offsets)
        try:
            await self.commit(writes)
        finally:
            self._confirm = None
        return True

    async def _commit_offsets(self, member: GroupMember, offsets: Offsets) -> None:
        try:
            await library.commit_within(self._connection.producer, member, offsets)
        except GIVEN_UP as error:
            message = f"group '{member.group_id}' has rebalanced before its offsets were committed"
            raise CommitOutdated(message) from error
        except NotImplementedError as error:
            message = "brokers before 2.5 cannot commit a member's offsets in a transaction: set "
            raise DeliveryFatal(f"{message}delivery.guarantee=at_least_once") from error


class IdempotentWriter(_ConnectedWriter):
    """At least once: no transaction; each write is acknowledged before the next is sent, `last_topic`'s last.

    `last_topic` is the offset topic, so that a stored offset never runs ahead of its records: an error or a kill may
    leave records without their offset, to be sent again. The order of the others is the caller's: de-duplication state
    comes after the records it calls delivered.
    """

    def __init__(self, settings: KafkaSettings, *, last_topic: str) -> None:
        """Prepare; nothing is sent before `start`."""
        super().__init__(_Connection(settings, transactional_id=None), seconds_max=settings.producer.commit_seconds_max)
        self._last_topic = last_topic

    async def _commit(self, writes: Sequence[TopicRecords]) -> None:
        ordered = sorted(writes, key=lambda write: write.topic == self._last_topic)
        planned = [await self._planned([write]) for write in ordered]
        async with asyncio.timeout(self._seconds_max):
            for lanes in planned:
                await send(self._connection.producer, lanes)

    async def commit_with(self, writes: Sequence[TopicRecords], member: GroupMember, offsets: Offsets) -> bool:
        """Deliver all writes; returns False: now that these are safe, the caller is to commit the offsets."""
        del member, offsets
        await self.commit(writes)
        return False
