"""Offsets changed by a person: written as the connector's first task would, so that none of its zombies writes after.

A stopped connector has no tasks, but a worker that was cut off may not know it yet. Starting the writer fences its
task 0; who calls fences the others (`KafkaAdmin.fence_producers`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.domain.ids import TaskId
from service.kafka.client import KafkaSettings
from service.kafka.producer import TransactionalWriter
from service.kafka.records import TopicRecords
from service.stores.connector_offsets import ConnectorOffsets
from service.stores.dedupe_store import DedupeStore
from service.stores.offsets import OffsetEntry, canonical_partition

ForgottenWith = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], Awaitable[Sequence[Mapping[str, Any]]]]
"""``SourceConnector.forgotten_with``: of a partition and all that are stored."""


async def nothing(_partition: Mapping[str, Any], _stored: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """No other partition is forgotten with it."""
    return ()


@dataclass(frozen=True, slots=True)
class OffsetChanges:
    """Changes of the offsets of connectors that have them there."""

    offsets: ConnectorOffsets
    group_id: str
    dedupe: DedupeStore

    async def alter(
        self,
        connector: str,
        entries: Sequence[OffsetEntry],
        *,
        writing: KafkaSettings,
        forgotten_with: ForgottenWith = nothing,
    ) -> None:
        """Set these, forget those that are None; all or nothing. ``writing``: as the connector's producers.

        What was delivered is still known: what is read again of it is dropped where the connector de-duplicates.

        Raises ValueError for what JSON cannot say, WriterFenced, DeliveryRetriable, DeliveryFatal.
        """
        await self._write(connector, entries, writing, forgotten_with)

    async def reset(self, connector: str, *, writing: KafkaSettings) -> None:
        """Forget all of them, and what was delivered: everything comes anew. Raises as ``alter``."""
        await self._write(connector, None, writing, nothing)

    async def _write(
        self,
        connector: str,
        entries: Sequence[OffsetEntry] | None,
        writing: KafkaSettings,
        forgotten_with: ForgottenWith,
    ) -> None:
        writer = TransactionalWriter(writing, transactional_id=TaskId(connector, 0).transactional_id(self.group_id))
        try:
            await writer.start()
            # Only now: what an older incarnation was just writing is there or never will be.
            known = await self.offsets.entries(connector)
            forgotten: list[TopicRecords] = []
            if entries is None:
                entries = [(partition, None) for partition, _ in known]
                forgotten = await self.dedupe.forgotten(connector)
            stored = [partition for partition, _ in known]
            named = [partition for partition, offset in entries if offset is None]
            others = [other for partition in named for other in await forgotten_with(partition, stored)]
            entries = [*((other, None) for other in others), *entries]
            changed = _last_of_each(entries)
            encoded = self.offsets.encode(connector, changed)
            await self.offsets.forget_first(connector, [partition for partition, offset in changed if offset is None])
            await writer.commit([*forgotten, *encoded])
            await self.offsets.committed(connector, [entry for entry in changed if entry[1] is not None])
            await self.offsets.read(connector)
        finally:
            await writer.stop()


def _last_of_each(entries: Sequence[OffsetEntry]) -> list[OffsetEntry]:
    """Where a request names a partition twice, the last counts."""
    return list({canonical_partition(partition): (partition, offset) for partition, offset in entries}.values())
