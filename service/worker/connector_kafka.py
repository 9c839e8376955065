"""What the control plane asks of Kafka on behalf of one connector, with the connector's client settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.config.providers import Resolved
from service.domain.cluster import Properties
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.stores.connector_offsets import ConnectorOffsets, OffsetTopics
from service.stores.dedupe_store import DedupeStore
from service.worker.lending import ClientSettings


@dataclass(frozen=True, slots=True)
class ConnectorKafka:
    """Every method takes a connector's config as it is written, and resolves its variables; each asks Kafka anew.

    Raises ``ProviderError`` where a variable cannot be resolved, and what ``service.kafka`` raises.
    """

    clients: ClientSettings
    offset_topics: OffsetTopics
    dedupe: DedupeStore
    replication: int | None
    """Replication factor of the worker's own topics where they are made; None: min(3, brokers)."""
    resolution: Callable[[Properties], Resolved]
    """Values for the variables of a config; may block."""

    def settings(self, role: str, connector: Properties) -> KafkaSettings:
        """Settings of the client that does a connector's work as ``role``: producer, consumer or admin. May block."""
        return self.clients.of(role, self.resolution(connector).properties)

    async def offsets(self, connector: Properties) -> ConnectorOffsets:
        """The source offsets of the connector, in its own topic or the worker's; the topic is made if it is missing."""
        resolved = await asyncio.to_thread(self.resolution, connector)
        own_topic = resolved.properties.get("offsets.storage.topic")
        await self.offset_topics.ensure(own_topic)
        return self.offset_topics.of(own_topic)

    async def dedupe_store(self) -> DedupeStore:
        """What all connectors remember of their records; its topic is made if it is missing."""
        await self.dedupe.ensure(replication=self.replication)
        return self.dedupe

    async def fence_producers(self, connector: Properties, ids: Sequence[str]) -> None:
        """End older incarnations of tasks, by their transactional ids."""
        async with KafkaAdmin.opened(await asyncio.to_thread(self.settings, "admin", connector)) as admin:
            await admin.fence_producers(ids)

    async def cluster_id(self) -> str | None:
        """Id of the worker's Kafka cluster; None where its brokers tell none."""
        async with KafkaAdmin.opened(self.clients.of("admin")) as admin:
            return await admin.cluster_id()
