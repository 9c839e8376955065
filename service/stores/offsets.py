"""Source offsets, in Kafka Connect's own records, so that the two can take over from each other.

Key `["<connector>",{<source partition>}]`, value `{<source offset>}`, null = forgotten; both JSON without
blanks, as Connect's JsonConverter (Jackson) writes it. The key must be the same bytes for the same
partition, so its names are sorted unless it is there already; when reading, any order is understood.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from metrics.events import Emit, StateRecordSkipped, discard
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.reader import StoredRecord
from service.kafka.records import TopicRecords
from service.kafka.sharing import SharedRounds
from service.kafka.tail import TailStopped, TopicTail
from service.stores.offset_table import OffsetTable, canonical_partition
from service.stores.state_topic import StateKind, StateTopic, StateTopicSettings, interruptions

__all__ = ["COPY_HEADER", "PARTITIONS", "OffsetEntry", "OffsetStore", "canonical_partition"]

OffsetEntry: TypeAlias = tuple[Mapping[str, object], Mapping[str, object] | None]
"""Source partition and offset; None = forget it."""

PARTITIONS = 25
COPY_HEADER = "headrace.copied.from"
"""Names the topic in which a record was committed that is repeated here, see `service.stores.connector_offsets`."""


class OffsetStore:
    """Reads and encodes source offsets of one offset topic; writing is the writer's, in its transaction.

    One store serves all tasks of a worker. It follows the topic from its first use on, and begins anew at the topic's
    beginning whenever it may have missed that an offset was forgotten (see `TopicTail.has_missed`).
    """

    def __init__(self, settings: KafkaSettings, topic: str, *, emit: Emit = discard) -> None:
        """Prepare; connects with the first reading."""
        self.topic = topic
        self._settings = settings
        self._emit = emit
        self._table = OffsetTable()
        self._tail: TopicTail | None = None
        self._beginning = asyncio.Lock()
        # A thousand tasks that start together ask twice where the topic ends, not a thousand times.
        self._all_read = SharedRounds(partial(self._read_to_end, is_pending_awaited=True))
        self._committed_read = SharedRounds(partial(self._read_to_end, is_pending_awaited=False))

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
        found = await topic.ensure(self._settings)
        if self._tail is not None:
            # Somebody may have shortened it; if it was made longer, what is gone is gone.
            self._tail.tombstone_seconds = min(self._tail.tombstone_seconds, found.tombstone_seconds)

    async def read(self, connector: str, *, is_pending_awaited: bool = True) -> dict[str, dict[str, object]]:
        """Last committed offset of each source partition of a connector, by `canonical_partition`.

        Call it after the task's writer has started: only then is every older transaction of the task over. That they
        are over does not mean that they can be read: readers of what is committed stop at the first transaction of
        anybody that is open, and it is waited for unless `is_pending_awaited` is False.
        Raises DeliveryFatal, DeliveryRetriable.
        """
        await (self._all_read if is_pending_awaited else self._committed_read).answer()
        return self.known(connector)

    def known(self, connector: str, *, but_copies_from: str | None = None) -> dict[str, dict[str, object]]:
        """What has been read so far; without what is marked by `COPY_HEADER` as coming from that topic."""
        return self._table.offsets(connector, but_copies_from=but_copies_from)

    async def entries(self, connector: str) -> list[tuple[dict[str, object], dict[str, object]]]:
        """The same as pairs of source partition and offset, in a steady order. Raises as `read`."""
        return [(json.loads(partition), offset) for partition, offset in sorted((await self.read(connector)).items())]

    def encode(self, connector: str, offsets: Iterable[OffsetEntry], *, copied_from: str = "") -> list[TopicRecords]:
        """Records that set these offsets (None = forget), for the transaction of the data they stand for.

        They go to the partition of the topic where the source partition's offset lies by now, see `OffsetTable`.

        `copied_from` marks them as copies of what is in that topic.

        Raises ValueError for what JSON cannot say: NaN, infinities, lone surrogates, keys that are not text.
        """
        by_place: dict[int | None, list[tuple[bytes, bytes | None]]] = {}
        for (key, topic_partition), value in self._table.write(connector, offsets):
            by_place.setdefault(topic_partition, []).append((key, value))
        return [
            TopicRecords(
                self.topic,
                pa.array([value for _, value in records], pa.binary()),
                pa.array([key for key, _ in records], pa.binary()),
                headers=[[(COPY_HEADER, copied_from.encode())]] * len(records) if copied_from else None,
                partition=topic_partition,
            )
            for topic_partition, records in by_place.items()
        ]

    async def close(self) -> None:
        """Disconnect; a later reading begins at the beginning."""
        tail, self._tail = self._tail, None
        if tail is not None:
            await tail.stop()

    async def _read_to_end(self, *, is_pending_awaited: bool) -> None:
        tail = self._tail
        if tail is not None and not tail.has_missed:
            try:
                await tail.read_to_end(is_pending_awaited=is_pending_awaited)
            except TailStopped:
                # Another reading has begun anew meanwhile; without a tail the store is closed.
                if self._tail is None:
                    raise
            else:
                if not tail.has_missed:
                    return
        await self._begin_anew(instead_of=tail)
        if self._tail is not None:
            # Who began anew may have asked where the topic ends before this reading was called for.
            await self._tail.read_to_end(is_pending_awaited=is_pending_awaited)

    async def _begin_anew(self, *, instead_of: TopicTail | None) -> None:
        """Follow from the beginning, by a table that counts once it is whole: until then commits go by the old one.

        How long that takes is Kafka's own bound: what is compacted away meanwhile no reader knows of.
        """
        # Held across the reading, which no open transaction prolongs: whoever waits needs the same.
        async with self._beginning:
            if self._tail is not instead_of:
                return
            table = OffsetTable()
            tail = await self._tail_into(table)
            try:
                await tail.start()
                await tail.read_to_end(is_pending_awaited=False)
            except BaseException:  # cancelled too: nobody else would stop this tail
                await tail.stop()
                raise
            self._table, self._tail = table, tail
            if instead_of is not None:
                await instead_of.stop()

    async def _tail_into(self, table: OffsetTable) -> TopicTail:
        async with KafkaAdmin.opened(self._settings) as admin:
            found = StateTopicSettings.of(await admin.topic_config(self.topic))
        return TopicTail(
            self._settings,
            self.topic,
            receive=partial(self._receive, table),
            tell=interruptions(self.topic, self._emit),
            tombstone_seconds=found.tombstone_seconds,
        )

    def _receive(self, table: OffsetTable, records: Iterable[StoredRecord]) -> None:
        for record in records:
            try:
                table.read(
                    record.key,
                    record.value,
                    at_ms=record.timestamp,
                    topic_partition=record.partition,
                    copied_from=_copied_from(record),
                )
            except (ValueError, RecursionError):
                # Someone else's record in our topic. Stopping every connector for it would be worse than passing it.
                self._emit(StateRecordSkipped(topic=self.topic, offset=record.offset, reason="it is no source offset"))


def _copied_from(record: StoredRecord) -> str | None:
    marks = [value for name, value in record.headers if name == COPY_HEADER]
    return (marks[0] or b"").decode(errors="replace") if marks else None
