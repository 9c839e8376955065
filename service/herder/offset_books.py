"""Offsets as clients see them: of sources in the offset topic, of sinks in their consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from service.domain.cluster import Properties
from service.domain.ids import TaskId
from service.herder.api import OffsetEntry
from service.herder.errors import BadRequestError, RequestError
from service.herder.offset_entries import OFFSET, PARTITION, TOPIC, sink_entries, source_entries
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.errors import GroupHasMembers
from service.kafka.groups import ConsumerGroups
from service.stores.connector_offsets import ConnectorOffsets
from service.stores.dedupe_store import DedupeStore
from service.stores.offset_changes import OffsetChanges

ClientsOf = Callable[[str, Properties], KafkaSettings]
"""Settings of a client by role (producer, consumer, admin) and connector config, provider variables unresolved."""
OffsetsOf = Callable[[Properties], Awaitable[ConnectorOffsets]]
"""Where a connector of this config has its offsets; the topics are there."""
CheckOffsets = Callable[[Properties, Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]], None]
"""The connector's own opinion; raises ValueError with a text for whoever asked."""
LEAVING_LOOKS_MAX = 25
"""A connector is STOPPED the moment it is written; its tasks flush and leave their group up to seconds later."""
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class SourceOffsetBook:
    """See ``OffsetBook``. No connector here keeps offsets elsewhere, so the answer is always that it took part."""

    group_id: str
    offsets_of: OffsetsOf
    dedupe: Callable[[], Awaitable[DedupeStore]]
    """What was delivered; its topic is there."""
    clients_of: ClientsOf
    check: CheckOffsets
    task_count: Callable[[str], int]
    """Tasks of the generation that was fenced last."""

    async def read(self, name: str, config: Properties) -> Sequence[OffsetEntry]:
        """All of them."""
        return await (await self.offsets_of(config)).entries(name)

    async def alter(self, name: str, config: Properties, offsets: Sequence[OffsetEntry]) -> bool:
        """Fence what may still write, then write."""
        entries = source_entries(offsets)
        try:
            await asyncio.to_thread(self.check, config, entries)
            await self._fence(name, config)
            await (await self._changes(config)).alter(name, entries, writing=await self._writing(config))
        except ValueError as error:
            raise BadRequestError(str(error)) from error
        return True

    async def reset(self, name: str, config: Properties) -> bool:
        """Fence what may still write, then forget all."""
        await self._fence(name, config)
        await (await self._changes(config)).reset(name, writing=await self._writing(config))
        return True

    async def _changes(self, config: Properties) -> OffsetChanges:
        return OffsetChanges(await self.offsets_of(config), self.group_id, await self.dedupe())

    async def _writing(self, config: Properties) -> KafkaSettings:
        return await _clients(self.clients_of, "producer", config)

    async def _fence(self, name: str, config: Properties) -> None:
        """All tasks but the first, which the writer of the change fences."""
        ids = [TaskId(name, number).transactional_id(self.group_id) for number in range(1, self.task_count(name))]
        if ids:
            async with KafkaAdmin.opened(await _clients(self.clients_of, "admin", config)) as admin:
                await admin.fence_producers(ids)


@dataclass(frozen=True, slots=True)
class SinkOffsetBook:
    """See ``OffsetBook``."""

    clients_of: ClientsOf
    group_of: Callable[[str, Properties], str]

    async def read(self, name: str, config: Properties) -> Sequence[OffsetEntry]:
        """What the group has committed."""
        async with ConsumerGroups.opened(await _clients(self.clients_of, "admin", config)) as groups:
            offsets = await groups.offsets(self.group_of(name, config))
        return [
            ({TOPIC: topic, PARTITION: partition}, {OFFSET: offset})
            for (topic, partition), offset in sorted(offsets.items())
        ]

    async def alter(self, name: str, config: Properties, offsets: Sequence[OffsetEntry]) -> bool:
        """Commit in the group's name, which has no members then."""
        entries = sink_entries(offsets)
        group_id = self.group_of(name, config)
        changed = {place: at for place, at in entries.items() if at is not None}
        forgotten = [place for place, at in entries.items() if at is None]
        async with self._changing(name, config, done="alter") as groups:
            await _once_left(lambda: groups.alter(group_id, changed))
            await _once_left(lambda: groups.forget(group_id, forgotten))
        return True

    async def reset(self, name: str, config: Properties) -> bool:
        """Remove the group."""
        async with self._changing(name, config, done="reset") as groups:
            await _once_left(lambda: groups.delete(self.group_of(name, config)))
        return True

    @asynccontextmanager
    async def _changing(self, name: str, config: Properties, *, done: str) -> AsyncIterator[ConsumerGroups]:
        try:
            async with ConsumerGroups.opened(await _clients(self.clients_of, "admin", config)) as groups:
                yield groups
        except GroupHasMembers as error:
            raise RequestError(
                f"Failed to {done} consumer group offsets for connector {name} either because its tasks haven't "
                f"stopped completely yet or the connector was resumed before the request to {done} its offsets could "
                "be successfully completed. If the connector is in a stopped state, this operation can be safely "
                "retried. If it doesn't eventually succeed, the Connect cluster may need to be restarted to get rid "
                "of the zombie sink tasks."
            ) from error


async def _once_left(change: Callable[[], Awaitable[None]]) -> None:
    """Make a change that the broker refuses as long as the group has members. Raises GroupHasMembers if they stay."""
    for _ in range(LEAVING_LOOKS_MAX):
        try:
            await change()
        except GroupHasMembers:
            await asyncio.sleep(_LOOK_SECONDS)
        else:
            return
    await change()


async def _clients(clients_of: ClientsOf, role: str, config: Properties) -> KafkaSettings:
    """In a thread: a config provider may have to wait for its file."""
    return await asyncio.to_thread(clients_of, role, config)
