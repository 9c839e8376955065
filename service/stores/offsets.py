"""Source offsets, in Kafka Connect's own records, so that the two can take over from each other.

Key `["<connector>",{<source partition>}]`, value `{<source offset>}`, null = forgotten; both JSON without
blanks, as Connect's JsonConverter (Jackson) writes it. The key must be the same bytes for the same
partition, so its names are sorted unless it is there already; when reading, any order is understood.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import pyarrow as pa

from metrics.events import Emit, StateRecordSkipped, discard
from service.kafka.client import KafkaSettings
from service.kafka.log import CompactedLog, StoredRecord
from service.kafka.records import TopicRecords
from service.kafka.rounds import SharedRounds
from service.stores.offset_table import OffsetTable, canonical_partition
from service.stores.state_topic import StateKind, StateTopic

__all__ = ["PARTITIONS", "OffsetEntry", "OffsetStore", "canonical_partition"]

OffsetEntry: TypeAlias = tuple[Mapping[str, object], Mapping[str, object] | None]
"""Source partition and offset; None = forget it."""

PARTITIONS = 25


class OffsetStore:
    """Reads and encodes source offsets of one offset topic; writing is the writer's, in its transaction.

    One store serves all tasks of a worker: it reads the topic once and then only what came since.
    """

    def __init__(self, settings: KafkaSettings, topic: str, *, emit: Emit = discard) -> None:
        """Prepare; connects when asked."""
        self.topic = topic
        self._settings = settings
        self._emit = emit
        self._log = CompactedLog(settings, topic)
        self._table = OffsetTable()
        # A thousand tasks that start together read the topic twice, not a thousand times.
        self._reading = SharedRounds(self._read_to_end)

    async def ensure(
        self, *, partitions: int = PARTITIONS, replication: int | None = None, config: Mapping[str, str] | None = None
    ) -> None:
        """Create the topic if it is missing, and check that it is compacted.

        Raises DeliveryFatal (wrong clean-up, no permission), DeliveryRetriable.
        """
        topic = StateTopic(
            kind=StateKind.OFFSET,
            name=self.topic,
            partitions=partitions,
            replication=replication,
            settings=config or {},
        )
        await topic.ensure(self._settings)

    async def read(self, connector: str) -> dict[str, dict[str, object]]:
        """Last committed offset of each source partition of a connector, by `canonical_partition`.

        Call it after the task's writer has started: only then is every older transaction of the task over.
        Raises DeliveryFatal, DeliveryRetriable.
        """
        await self._reading.answer()
        return self._table.offsets(connector)

    async def entries(self, connector: str) -> list[tuple[dict[str, object], dict[str, object]]]:
        """The same as pairs of source partition and offset, in a steady order. Raises as `read`."""
        return [(json.loads(partition), offset) for partition, offset in sorted((await self.read(connector)).items())]

    def encode(self, connector: str, offsets: Iterable[OffsetEntry]) -> TopicRecords:
        """Records that set these offsets (None = forget), for the transaction of the data they stand for.

        Raises ValueError for what JSON cannot say: NaN, infinities, lone surrogates, keys that are not text.
        """
        records = self._table.write(connector, offsets)
        keys, values = [key for key, _ in records], [value for _, value in records]
        return TopicRecords(self.topic, pa.array(values, pa.binary()), pa.array(keys, pa.binary()))

    async def close(self) -> None:
        """Disconnect."""
        await self._log.close()

    async def _read_to_end(self) -> None:
        # A reading from the beginning counts once it is whole: meanwhile commits go by what was known before.
        table = OffsetTable() if self._log.is_at_beginning else self._table
        async for records in self._log.read_to_end():
            for record in records:
                self._apply(table, record)
        self._table = table

    def _apply(self, table: OffsetTable, record: StoredRecord) -> None:
        try:
            table.read(record.key, record.value, at_ms=record.timestamp)
        except (ValueError, RecursionError):
            # Someone else's record in our topic. Stopping every connector for it would be worse than passing it.
            self._emit(StateRecordSkipped(topic=self.topic, offset=record.offset, reason="it is no source offset"))
