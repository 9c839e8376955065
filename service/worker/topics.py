"""The topics of a connector, made before anything is produced; topics that exist are never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.config.definition import ConnectorDefinition
from service.config.worker import WorkerConfig
from service.kafka.admin import BROKER_DEFAULT, KafkaAdmin
from service.kafka.client import KafkaSettings
from service.stores.dedupe_store import DedupeStore
from service.stores.offsets import OffsetStore

_DEFAULT_GROUP = "topic.creation.default."
_OWN_KEYS = frozenset({"partitions", "replication.factor", "include", "exclude"})
_RECORD_OVERHEAD_BYTES = 64 * 1024
_BROKER_LIMIT_BYTES = 1_048_588
"""Kafka's default ``message.max.bytes``: topics of ours need a setting of their own only above it."""


@dataclass(frozen=True, slots=True)
class ConnectorTopics:
    """Makes target and dead-letter topics."""

    settings: KafkaSettings
    offsets: OffsetStore
    dedupe: DedupeStore
    worker: WorkerConfig

    async def ensure(self, definition: ConnectorDefinition) -> None:
        """Make what is missing; raises ``DeliveryRetriable``, ``DeliveryFatal``."""
        await self._ensure_state()
        if self.worker.topic_creation_enable:
            await self._ensure_own(definition)

    async def _ensure_state(self) -> None:
        """The topics of a worker: offsets and de-duplication."""
        replication = self.worker.offset_storage_replication_factor
        await self.offsets.ensure(partitions=self.worker.offset_storage_partitions, replication=replication)
        await self.dedupe.ensure(replication=replication)

    async def _ensure_own(self, definition: ConnectorDefinition) -> None:
        own = _creation_settings(definition.properties)
        record_bytes_max = definition.common.record_bytes_max
        async with KafkaAdmin.opened(self.settings) as admin:
            await admin.ensure_topic(
                definition.topic,
                partitions=int(own.get("partitions", BROKER_DEFAULT)),
                replication=int(own["replication.factor"]) if "replication.factor" in own else None,
                config={
                    **_message_limit(2 * record_bytes_max),
                    **{key: value for key, value in own.items() if key not in _OWN_KEYS},
                },
            )
            if definition.common.is_tolerant:
                await admin.ensure_topic(
                    definition.common.dead_letter_topic,
                    partitions=1,
                    replication=definition.common.errors_deadletterqueue_topic_replication_factor,
                    config=_message_limit(2 * record_bytes_max),
                )


def _creation_settings(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        key.removeprefix(_DEFAULT_GROUP): value for key, value in properties.items() if key.startswith(_DEFAULT_GROUP)
    }


def _message_limit(value_bytes_max: int) -> dict[str, str]:
    """``max.message.bytes`` for values of this size; dead letters are allowed twice ``record.bytes.max``."""
    limit = value_bytes_max + _RECORD_OVERHEAD_BYTES
    return {"max.message.bytes": str(limit)} if limit > _BROKER_LIMIT_BYTES else {}
