"""The topics of a connector, made before anything is produced; topics that exist are never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from service.config.definition import ConnectorDefinition
from service.config.worker import WorkerConfig
from service.kafka.admin import BROKER_DEFAULT, MissingTopic
from service.kafka.client import KafkaSettings
from service.kafka.sharing import SharedRounds, StandbyAdmin, TopicRounds
from service.stores.connector_offsets import OffsetTopics
from service.stores.dedupe_store import DedupeStore
from service.stores.state_topic import CHECKED_SECONDS

_RECORD_OVERHEAD_BYTES = 64 * 1024
_BROKER_LIMIT_BYTES = 1_048_588
"""Kafka's default ``message.max.bytes``: topics of ours need a setting of their own only above it."""


class ConnectorTopics:
    """Makes target and dead-letter topics, and before them the worker's own for offsets and de-duplication.

    Connectors that start at once share rounds: a thousand of them cost a few dozen.
    """

    def __init__(
        self, settings: KafkaSettings, offsets: OffsetTopics, dedupe: DedupeStore, worker: WorkerConfig
    ) -> None:
        """Connects when ``ensure`` is first called."""
        self._offsets = offsets
        self._dedupe = dedupe
        self._worker = worker
        self._dedupe_topic = SharedRounds(self._ensure_dedupe_topic, lasting_seconds=CHECKED_SECONDS)
        self._topics = TopicRounds(StandbyAdmin(settings))

    async def ensure(self, definition: ConnectorDefinition) -> None:
        """Make what is missing; raises ``DeliveryRetriable``, ``DeliveryFatal``."""
        await self._offsets.ensure(definition.common.offsets_storage_topic)
        await self._dedupe_topic.answer()
        if self._worker.topic_creation_enable:
            await self._topics.ensure(topics_of(definition))

    async def ensure_named(self, definition: ConnectorDefinition, topics: Iterable[str]) -> None:
        """Make what is missing of topics that pages name; raises ``DeliveryRetriable``, ``DeliveryFatal``."""
        if self._worker.topic_creation_enable:
            limit = _message_limit(2 * definition.common.record_bytes_max)
            await self._topics.ensure([_target(definition, topic, limit) for topic in topics])

    async def close(self) -> None:
        """Disconnect from Kafka; the next use connects again."""
        await self._topics.close()

    async def _ensure_dedupe_topic(self) -> None:
        await self._dedupe.ensure(replication=self._worker.offset_storage_replication_factor)


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
