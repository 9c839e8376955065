"""The topics of a connector, made before anything is produced; topics that exist are never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.config.definition import ConnectorDefinition
from service.config.worker import WorkerConfig
from service.kafka.admin import BROKER_DEFAULT, MissingTopic
from service.kafka.client import KafkaSettings
from service.kafka.rounds import SharedRounds
from service.kafka.topic_rounds import TopicRounds
from service.stores.dedupe_store import DedupeStore
from service.stores.offsets import OffsetStore

_RECORD_OVERHEAD_BYTES = 64 * 1024
_BROKER_LIMIT_BYTES = 1_048_588
"""Kafka's default ``message.max.bytes``: topics of ours need a setting of their own only above it."""


class ConnectorTopics:
    """Makes target and dead-letter topics, and before them the worker's own for offsets and de-duplication.

    Connectors that start at once share rounds: a thousand of them cost a few dozen.
    """

    def __init__(
        self, settings: KafkaSettings, offsets: OffsetStore, dedupe: DedupeStore, worker: WorkerConfig
    ) -> None:
        """Connects when asked."""
        self._offsets = offsets
        self._dedupe = dedupe
        self._worker = worker
        self._state = SharedRounds(self._ensure_state)
        self._topics = TopicRounds(settings)

    async def ensure(self, definition: ConnectorDefinition) -> None:
        """Make what is missing; raises ``DeliveryRetriable``, ``DeliveryFatal``."""
        await self._state.answer()
        if self._worker.topic_creation_enable:
            await self._topics.ensure(topics_of(definition))

    async def _ensure_state(self) -> None:
        replication = self._worker.offset_storage_replication_factor
        await self._offsets.ensure(partitions=self._worker.offset_storage_partitions, replication=replication)
        await self._dedupe.ensure(replication=replication)


def topics_of(definition: ConnectorDefinition) -> Sequence[MissingTopic]:
    """The topics a connector needs, as they are made where they are missing."""
    limit = _message_limit(2 * definition.common.record_bytes_max)
    targets = [_target(definition, topic, limit) for topic in definition.record_topics]
    if not definition.common.is_tolerant:
        return targets
    common = definition.common
    letters = MissingTopic(
        common.dead_letter_topic,
        partitions=1,
        replication=common.errors_deadletterqueue_topic_replication_factor,
        config=limit,
    )
    return [*targets, letters]


def _target(definition: ConnectorDefinition, topic: str, limit: Mapping[str, str]) -> MissingTopic:
    own = definition.topic_creation.of(topic)
    return MissingTopic(
        topic,
        partitions=BROKER_DEFAULT if own.partitions is None else own.partitions,
        replication=own.replication,
        config={**limit, **own.settings},
    )


def _message_limit(value_bytes_max: int) -> dict[str, str]:
    """``max.message.bytes`` for values of this size; dead letters are allowed twice ``record.bytes.max``."""
    limit = value_bytes_max + _RECORD_OVERHEAD_BYTES
    return {"max.message.bytes": str(limit)} if limit > _BROKER_LIMIT_BYTES else {}
