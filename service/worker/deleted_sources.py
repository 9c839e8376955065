"""Sources that are deleted: their own code is asked once more, to take away what they have left outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fetchers.catalog import PluginLoadError, find_plugin
from fetchers.sdk import Fatal, Offset, SourceConnector
from fetchers.sdk.context import partition_key
from metrics.events import discard
from service.config.definition import read_definition
from service.config.providers import Resolved
from service.config.reach import class_refusal
from service.domain.cluster import Properties
from service.domain.ids import TaskId
from service.herder.api import OffsetEntry
from service.pipeline.activity import Activity
from service.pipeline.context import TaskContext
from service.pipeline.task import FlowParts


@dataclass(frozen=True, slots=True)
class DeletedSourceCalls:
    """The ``DeletedSources`` of `service.herder.ports`."""

    flow: FlowParts
    worker: Mapping[str, str]
    """The worker's properties."""
    resolution: Callable[[Properties], Resolved]
    """Values for the variables of a config; may block."""

    def leaves_anything(self, config: Properties) -> bool:
        """Whether its class has ``on_deleted``. May import it."""
        name = config.get("connector.class", "").strip()
        plugin = find_plugin(name, refusal=class_refusal(name, self.worker)) if name else None
        try:
            made: type[Any] | None = None if plugin is None else plugin.load()
        except PluginLoadError:
            return False
        return getattr(made, "on_deleted", SourceConnector.on_deleted) is not SourceConnector.on_deleted

    async def take_away(self, config: Properties, offsets: Sequence[OffsetEntry], others: Sequence[Properties]) -> bool:
        """See ``DeletedSources``; raises what the connector raises, ``ProviderError``, or ``Fatal``."""
        name = config.get("name", "")
        connector = await asyncio.to_thread(self._connector, config)
        stored: dict[tuple[tuple[str, Any], ...], Offset] = {
            partition_key(partition or {}): offset for partition, offset in offsets if offset is not None
        }
        context = TaskContext(
            TaskId(name, 0),
            partition=connector.partition(),
            offsets=stored,
            http=self.flow.http,
            clock=self.flow.clock,
            emit=discard,
            activity=Activity(self.flow.clock),
            blocking=self.flow.blocking,
        )
        return await connector.on_deleted(context, others)

    def _connector(self, config: Properties) -> SourceConnector[Any]:
        definition = read_definition(self.resolution(config).properties, worker=self.worker).definition
        if definition is None:
            raise Fatal("its config cannot be read any more: what it has left at its source must be seen to by hand")
        return definition.for_task({})
