"""Source offsets, in Kafka Connect's own records, so that the two can take over from each other.

Key `["<connector>",{<source partition>}]`, value `{<source offset>}`, null = forgotten; both JSON without
blanks, as Connect's JsonConverter (Jackson) writes it. The key must be the same bytes for the same
partition, so its names are sorted; when reading, any order is understood.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from service.kafka.admin import KafkaAdmin
from service.kafka.log import CompactedLog, StoredRecord
from service.kafka.records import TopicRecords
from service.stores.jackson import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from service.kafka.client import KafkaSettings

Scalar: TypeAlias = str | int | float | bool | None
Offset: TypeAlias = "Mapping[str, object]"

PARTITIONS = 25
WORKER_KEY = "offset.storage.topic"


def canonical_partition(partition: Mapping[str, object]) -> str:
    """Text that is equal for equal source partitions, whatever the order of their names."""
    return to_json(dict(sorted(partition.items())))


class OffsetStore:
    """Reads and encodes source offsets of one offset topic; writing is the writer's, in its transaction.

    One store serves all tasks of a worker: it reads the topic once and then only what came since.
    """

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        """Prepare; connects when asked."""
        self.topic = topic
        self._settings = settings
        self._log = CompactedLog(settings, topic)
        self._offsets: dict[str, dict[str, dict[str, object]]] = {}
        self._reading = asyncio.Lock()
        self.unreadable_records = 0

    async def ensure(
        self, *, partitions: int = PARTITIONS, replication: int | None = None, config: Mapping[str, str] | None = None
    ) -> None:
        """Create the topic if it is missing, and check that it is compacted.

        Raises DeliveryFatal (wrong clean-up, no permission), DeliveryRetriable.
        """
        async with KafkaAdmin.opened(self._settings) as admin:
            await admin.ensure_topic(
                self.topic,
                partitions=partitions,
                replication=replication,
                config={**(config or {}), "cleanup.policy": "compact"},
            )
            await admin.demand_compacted(self.topic, worker_key=WORKER_KEY, purpose="source connector offsets")

    async def read(self, connector: str) -> dict[str, dict[str, object]]:
        """Last committed offset of each source partition of a connector, by `canonical_partition`.

        Call it after the task's writer has started: only then is every older transaction of the task over.
        Raises DeliveryFatal, DeliveryRetriable.
        """
        # Held across the reading on purpose: whoever waits wants the very same records.
        async with self._reading:
            if self._log.is_at_beginning:
                self._offsets.clear()
            async for records in self._log.read_to_end():
                for record in records:
                    self._apply(record)
            return dict(self._offsets.get(connector, {}))

    def encode(
        self, connector: str, offsets: Iterable[tuple[Mapping[str, object], Mapping[str, object] | None]]
    ) -> TopicRecords:
        """Records that set these offsets (None = forget), for the transaction of the data they stand for.

        Raises ValueError for what JSON cannot say: NaN, infinities, lone surrogates, keys that are not text.
        """
        keys, values = [], []
        for partition, offset in offsets:
            keys.append(f"[{to_json(connector)},{canonical_partition(partition)}]".encode())
            values.append(None if offset is None else to_json(offset).encode())
        return TopicRecords(self.topic, pa.array(values, pa.binary()), pa.array(keys, pa.binary()))

    async def close(self) -> None:
        """Disconnect."""
        await self._log.close()

    def _apply(self, record: StoredRecord) -> None:
        try:
            connector, partition = _decode_key(record.key)
            offset = None if record.value is None else json.loads(record.value)
        except ValueError:
            # Someone else's record in our topic. Stopping every connector for it would be worse than passing it.
            self.unreadable_records += 1
            return
        known = self._offsets.setdefault(connector, {})
        if isinstance(offset, dict):
            known[partition] = offset
        else:
            known.pop(partition, None)


def _decode_key(key: bytes | None) -> tuple[str, str]:
    match json.loads(key or b"null"):
        case [str(connector), dict() | None as partition]:
            return connector, canonical_partition(partition or {})
    raise ValueError("not an offset key")
