"""The offset topics of a worker: its own, and those that connectors name by ``offsets.storage.topic`` (KIP-618).

A connector with a topic of its own has its offsets in both: what its own says counts, the worker's fills in what is
not there yet, and every change is written to both in one transaction. So a connector may be given a topic, or lose
it, without starting anew, and Kafka Connect finds in either what it would have written itself. (As there, a topic
that is taken away and given again counts with what it had then.)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from metrics.events import Emit, discard
from service.kafka.client import KafkaSettings
from service.kafka.records import TopicRecords
from service.kafka.rounds import SharedRounds
from service.stores.offsets import PARTITIONS, OffsetEntry, OffsetStore
from service.stores.state_topic import CHECKED_SECONDS


@dataclass(frozen=True, slots=True)
class ConnectorOffsets:
    """Where one connector has its offsets: the store that counts most comes last."""

    stores: tuple[OffsetStore, ...]

    @property
    def topics(self) -> frozenset[str]:
        """Names of the topics."""
        return frozenset(store.topic for store in self.stores)

    async def read(self, connector: str) -> dict[str, dict[str, object]]:
        """As ``OffsetStore.read``."""
        offsets: dict[str, dict[str, object]] = {}
        for store in self.stores:
            offsets |= await store.read(connector)
        return offsets

    async def entries(self, connector: str) -> list[tuple[dict[str, object], dict[str, object]]]:
        """As ``OffsetStore.entries``."""
        return [(json.loads(partition), offset) for partition, offset in sorted((await self.read(connector)).items())]

    def encode(self, connector: str, offsets: Iterable[OffsetEntry]) -> list[TopicRecords]:
        """Records for each of the topics. Raises as ``OffsetStore.encode``."""
        entries = list(offsets)
        return [store.encode(connector, entries) for store in self.stores]


class OffsetTopics:
    """One store for each topic, shared by all tasks of the worker."""

    def __init__(
        self,
        settings: KafkaSettings,
        worker_topic: str,
        *,
        partitions: int = PARTITIONS,
        replication: int | None = None,
        emit: Emit = discard,
    ) -> None:
        """Connects when asked. ``partitions`` and ``replication`` are for topics that are missing."""
        self.worker_topic = worker_topic
        self._settings = settings
        self._partitions = partitions
        self._replication = replication
        self._emit = emit
        self._stores: dict[str, OffsetStore] = {}
        self._ensuring: dict[str, SharedRounds[None]] = {}

    def of(self, own_topic: str | None = None) -> ConnectorOffsets:
        """The offsets of a connector that names this topic, or none."""
        return ConnectorOffsets(tuple(self._store(topic) for topic in self._topics(own_topic)))

    async def ensure(self, own_topic: str | None = None) -> None:
        """Create what is missing. Raises as ``OffsetStore.ensure``."""
        for topic in self._topics(own_topic):
            self._store(topic)
            await self._ensuring[topic].answer()

    async def close(self) -> None:
        """Disconnect."""
        for store in self._stores.values():
            await store.close()

    def _topics(self, own_topic: str | None) -> tuple[str, ...]:
        return (self.worker_topic,) if own_topic in {None, self.worker_topic} else (self.worker_topic, str(own_topic))

    def _store(self, topic: str) -> OffsetStore:
        if topic not in self._stores:
            store = OffsetStore(self._settings, topic, emit=self._emit)
            self._stores[topic] = store
            self._ensuring[topic] = SharedRounds(lambda: self._ensure(store), lasting_seconds=CHECKED_SECONDS)
        return self._stores[topic]

    async def _ensure(self, store: OffsetStore) -> None:
        await store.ensure(partitions=self._partitions, replication=self._replication)
