"""The offset topics of a worker: its own, and those that connectors name by ``offsets.storage.topic`` (KIP-618).

A connector with a topic of its own has its offsets there: its transactions write that topic and never the worker's,
because a transaction that is left open holds up every reader of every topic that it wrote to. What is committed is
copied to the worker's topic afterwards, without a transaction and as well as it goes, so that the connector can lose
its topic again without starting anew.

When reading, the connector's topic counts, and the worker's fills in what was written there before the connector had
this topic. Copies name the topic they are from (`COPY_HEADER`) and never fill in for it: a worker that is cut off may
write one long after the offset was forgotten. Kafka Connect treats both topics so too, but does not mark copies.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from metrics.events import Emit, StateLogInterrupted, discard
from service.background import Background, located, persist
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryRetriable, KafkaFailure
from service.kafka.producer import IdempotentWriter
from service.kafka.records import TopicRecords
from service.kafka.sharing import SharedRounds, StandbyWriter
from service.stores.offsets import PARTITIONS, OffsetEntry, OffsetStore, canonical_partition
from service.stores.state_topic import CHECKED_SECONDS

WRITE_SECONDS_MAX = 30.0
FLUSH_SECONDS_MAX = 5.0


class WorkerCopies:
    """Writes offsets of connectors that have topics of their own to the worker's topic: the newest of each partition.

    Copies wait here until they are written; they are as many as there are source partitions, at most.
    """

    def __init__(self, store: OffsetStore, writing: KafkaSettings, *, emit: Emit) -> None:
        """Connects with the first copy."""
        self._store = store
        self._emit = emit
        self._writer = StandbyWriter(lambda: IdempotentWriter(writing, last_topic=store.topic))
        self._waiting: dict[tuple[str, str, str], OffsetEntry] = {}
        """By connector, topic that it is copied from, and partition."""
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()
        self._background: Background | None = None

    async def put(self, connector: str, entries: Iterable[OffsetEntry], *, copied_from: str) -> None:
        """Have these written soon; what is there already is left out by who calls."""
        for partition, offset in entries:
            self._waiting[connector, copied_from, canonical_partition(partition)] = (partition, offset)
        if self._waiting and self._background is None:
            self._background = Background()
            await self._background.__aenter__()
            self._background.start(persist(self._write_on, tell=self._tell_trouble), name="copies of offsets")
        self._news.set()

    async def forget(self, connector: str, partitions: Sequence[Mapping[str, object]]) -> None:
        """Forget these in the worker's topic; on return it is done. Raises DeliveryRetriable, DeliveryFatal.

        Before they are forgotten in the connector's own topic: else the worker's would fill them in again.
        """
        if partitions:
            async with self._writing:
                gone = {(connector, canonical_partition(each)) for each in partitions}
                for name, topic, partition in tuple(self._waiting):
                    if (name, partition) in gone:
                        del self._waiting[name, topic, partition]
                await self._commit(self._store.encode(connector, [(each, None) for each in partitions]))

    async def flush(self) -> None:
        """Write what waits. Raises DeliveryRetriable, DeliveryFatal; it waits on then."""
        # Held across the writing: a later copy must not overtake an earlier one.
        async with self._writing:
            waiting = dict(self._waiting)
            if not waiting:
                return
            by_origin: dict[tuple[str, str], list[OffsetEntry]] = {}
            for (connector, topic, _), entry in waiting.items():
                by_origin.setdefault((connector, topic), []).append(entry)
            await self._commit(
                [
                    write
                    for (connector, topic), entries in by_origin.items()
                    for write in self._store.encode(connector, entries, copied_from=topic)
                ]
            )
            for key, entry in waiting.items():
                if self._waiting.get(key) is entry:
                    del self._waiting[key]

    async def close(self) -> None:
        """Write what waits, for `FLUSH_SECONDS_MAX` at most, and disconnect."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                await self.flush()
        except (TimeoutError, KafkaFailure) as error:
            self._tell_trouble(error)
        background, self._background = self._background, None
        if background is not None:
            await background.__aexit__(None, None, None)
        await self._writer.stop()

    async def _write_on(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.flush()
            except KafkaFailure:
                self._news.set()
                raise

    async def _commit(self, writes: Sequence[TopicRecords]) -> None:
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                await self._writer.commit(writes)
        except TimeoutError as error:
            raise DeliveryRetriable(f"topic '{self._store.topic}' takes no offsets for now") from error

    def _tell_trouble(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, KafkaFailure) else located(error)
        self._emit(
            StateLogInterrupted(
                topic=self._store.topic, reason=f"{len(self._waiting)} copies of offsets are not written: {reason}"
            )
        )


@dataclass(frozen=True, slots=True)
class ConnectorOffsets:
    """Where one connector has its offsets."""

    worker: OffsetStore
    """The worker's topic."""
    own: OffsetStore | None = None
    """The connector's own topic, if it has one."""
    copies: WorkerCopies | None = None
    """Copies, in the worker's topic, of what is in the connector's own topic."""

    @property
    def topics(self) -> frozenset[str]:
        """Names of the topics that hold offsets of the connector: the worker's, and its own."""
        return frozenset(store.topic for store in (self.worker, self.own) if store is not None)

    async def read(self, connector: str) -> dict[str, dict[str, object]]:
        """As ``OffsetStore.read``.

        Once there is anything in the connector's own topic, a reading has waited for what the connector wrote to the
        worker's before, and nobody's open transaction in the worker's topic is waited for again.
        """
        if self.own is None:
            return await self.worker.read(connector)
        own = await self.own.read(connector)
        worker = await self.worker.read(connector, is_pending_awaited=not own)
        if self.copies is not None:
            lacking = [(json.loads(key), offset) for key, offset in own.items() if worker.get(key) != offset]
            # Whoever committed them may have died before it had copied them.
            await self.copies.put(connector, lacking, copied_from=self.own.topic)
        return self.worker.known(connector, but_copies_from=self.own.topic) | own

    async def entries(self, connector: str) -> list[tuple[dict[str, object], dict[str, object]]]:
        """What ``read`` gives as pairs of source partition and offset, in a steady order."""
        return [(json.loads(partition), offset) for partition, offset in sorted((await self.read(connector)).items())]

    def encode(self, connector: str, offsets: Iterable[OffsetEntry]) -> list[TopicRecords]:
        """Records for the transaction. Raises as ``OffsetStore.encode``."""
        return (self.own or self.worker).encode(connector, offsets)

    async def committed(self, connector: str, offsets: Iterable[OffsetEntry]) -> None:
        """Hear that the transaction is committed: what must follow it follows in the background."""
        if self.copies is not None and self.own is not None:
            await self.copies.put(connector, offsets, copied_from=self.own.topic)

    async def forget_first(self, connector: str, partitions: Sequence[Mapping[str, object]]) -> None:
        """Before a transaction that forgets these offsets. Raises DeliveryRetriable, DeliveryFatal."""
        if self.copies is not None:
            await self.copies.forget(connector, partitions)


class OffsetTopics:
    """One store for each topic, shared by all tasks of the worker."""

    def __init__(
        self,
        settings: KafkaSettings,
        worker_topic: str,
        *,
        writing: KafkaSettings | None = None,
        partitions: int = PARTITIONS,
        replication: int | None = None,
        emit: Emit = discard,
    ) -> None:
        """Connects when asked. ``partitions`` and ``replication`` are for topics that are missing.

        ``settings`` are for reading and administration, ``writing`` (the same, unless given) for copies.
        """
        self.worker_topic = worker_topic
        self._settings = settings
        self._partitions = partitions
        self._replication = replication
        self._emit = emit
        self._stores: dict[str, OffsetStore] = {}
        self._ensuring: dict[str, SharedRounds[None]] = {}
        self._copies = WorkerCopies(self._store(worker_topic), writing or settings, emit=emit)

    def of(self, own_topic: str | None = None) -> ConnectorOffsets:
        """The offsets of a connector that names this topic, or none."""
        worker = self._store(self.worker_topic)
        if own_topic in {None, self.worker_topic}:
            return ConnectorOffsets(worker)
        return ConnectorOffsets(worker, self._store(str(own_topic)), self._copies)

    async def ensure(self, own_topic: str | None = None) -> None:
        """Create what is missing. Raises as ``OffsetStore.ensure``."""
        for store in (self.of(own_topic).worker, self.of(own_topic).own):
            if store is not None:
                await self._ensuring[store.topic].answer()

    async def close(self) -> None:
        """Write the copies that wait, for some seconds at most, and disconnect."""
        await self._copies.close()
        for store in self._stores.values():
            await store.close()

    def _store(self, topic: str) -> OffsetStore:
        if topic not in self._stores:
            store = OffsetStore(self._settings, topic, emit=self._emit)
            self._stores[topic] = store
            self._ensuring[topic] = SharedRounds(lambda: self._ensure(store), lasting_seconds=CHECKED_SECONDS)
        return self._stores[topic]

    async def _ensure(self, store: OffsetStore) -> None:
        await store.ensure(partitions=self._partitions, replication=self._replication)
