"""A topic that holds state: how it is made when it is missing, and what it must be when it is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from metrics.events import Emit, StateLogInterrupted, StateLogResumed
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal


class StateKind(StrEnum):
    """Which of Kafka Connect's topics of state; the word its worker keys begin with."""

    CONFIG = "config"
    STATUS = "status"
    OFFSET = "offset"


CHECKED_SECONDS = 10.0
"""So long a topic that was looked at need not be looked at again for the next task that starts."""
_PURPOSES = {
    StateKind.CONFIG: "connector configurations",
    StateKind.STATUS: "connector and task statuses",
    StateKind.OFFSET: "source connector offsets",
}
_PARTITIONS = {StateKind.CONFIG: 1, StateKind.STATUS: 5, StateKind.OFFSET: 25}
# Said by keys of the worker's own; or not to be chosen.
_NO_TOPIC_SETTING = frozenset({"topic", "partitions", "replication.factor", "file.filename", "cleanup.policy"})


@dataclass(frozen=True, slots=True)
class StateTopicSettings:
    """The settings of a topic that its readers and writers go by."""

    batch_bytes_max: int
    """``max.message.bytes``: what a batch of records may take."""
    tombstone_seconds: float
    """``delete.retention.ms``: how long it can be read, at least, that a key is forgotten."""

    @classmethod
    def of(cls, settings: Mapping[str, str | None]) -> StateTopicSettings:
        """From all settings of a topic, as a broker tells them."""
        return cls(int(settings.get("max.message.bytes") or 0), int(settings.get("delete.retention.ms") or 0) / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTopic:
    """Name and making of one topic."""

    kind: StateKind
    name: str
    partitions: int
    replication: int | None = None
    """None = one copy a broker, three at most; -1 = the broker's default."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Topic settings such as ``min.insync.replicas``; the clean-up is always ``compact``."""

    @classmethod
    def of(
        cls,
        kind: StateKind,
        name: str,
        *,
        partitions: int | None = None,
        replication: int | None = None,
        worker_properties: Mapping[str, str] | None = None,
    ) -> StateTopic:
        """With Connect's number of partitions where none is given, and the worker's other ``<kind>.storage.*`` keys."""
        prefix = f"{kind}.storage."
        settings = {
            key.removeprefix(prefix): value
            for key, value in (worker_properties or {}).items()
            if key.startswith(prefix) and key.removeprefix(prefix) not in _NO_TOPIC_SETTING
        }
        return cls(
            kind=kind, name=name, partitions=partitions or _PARTITIONS[kind], replication=replication, settings=settings
        )

    async def ensure(self, settings: KafkaSettings) -> StateTopicSettings:
        """Create the topic if it is missing, else check it; one that is there is never changed.

        Raises DeliveryFatal (wrong clean-up or partitions: the text says how to mend it), DeliveryRetriable.
        """
        worker_key = f"{self.kind}.storage.topic"
        async with KafkaAdmin.opened(settings) as admin:
            await admin.ensure_topic(
                self.name,
                partitions=self.partitions,
                replication=self.replication,
                config={**self.settings, "cleanup.policy": "compact"},
            )
            await admin.demand_compacted(self.name, worker_key=worker_key, purpose=_PURPOSES[self.kind])
            found = await admin.partition_count(self.name)
            effective = StateTopicSettings.of(await admin.topic_config(self.name))
        if self.kind is StateKind.CONFIG and found > 1:
            raise DeliveryFatal(
                f"Topic '{self.name}' supplied via the '{worker_key}' property is required to have a single partition "
                f"in order to guarantee consistency of connector configurations, but found {found} partitions. "
                f"Create a topic with one partition and 'cleanup.policy=compact', and name it in '{worker_key}'; "
                "or name one that does not exist, and it is created."
            )
        return effective


def interruptions(topic: str, emit: Emit) -> Callable[[str | None], None]:
    """What a tail of this topic tells its interruptions to: a reason, or None once it reads on."""

    def tell(trouble: str | None) -> None:
        emit(StateLogResumed(topic=topic) if trouble is None else StateLogInterrupted(topic=topic, reason=trouble))

    return tell
