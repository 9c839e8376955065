"""A topic that holds state: how it is made when it is missing, and what it must be when it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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

    async def ensure(self, settings: KafkaSettings) -> int:
        """Create the topic if it is missing, else check it; one that is there is never changed.

        Returns how many bytes a batch of records may take in it.
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
            batch_bytes_max = (await admin.topic_config(self.name))["max.message.bytes"]
        if self.kind is StateKind.CONFIG and found > 1:
            raise DeliveryFatal(
                f"Topic '{self.name}' supplied via the '{worker_key}' property is required to have a single partition "
                f"in order to guarantee consistency of connector configurations, but found {found} partitions. "
                f"Create a topic with one partition and 'cleanup.policy=compact', and name it in '{worker_key}'; "
                "or name one that does not exist, and it is created."
            )
        return int(batch_bytes_max or 0)
