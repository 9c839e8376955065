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
from service.config.provider_sources import ProviderError
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
        made = self._class(config)
        return getattr(made, "on_deleted", SourceConnector.on_deleted) is not SourceConnector.on_deleted

    def _class(self, config: Properties) -> type[Any] | None:
        name = config.get("connector.class", "").strip()
        plugin = find_plugin(name, refusal=class_refusal(name, self.worker)) if name else None
        try:
            return None if plugin is None else plugin.load()
        except PluginLoadError:
            return None

    async def take_away(self, config: Properties, offsets: Sequence[OffsetEntry], others: Sequence[Properties]) -> bool:
        """See ``DeletedSources``; raises what the connector raises, ``ProviderError``, or ``Fatal``."""
        name = config.get("name", "")
        connector = await asyncio.to_thread(self._connector, config)
        resolved = await asyncio.to_thread(lambda: [self._other(connector, other) for other in others])
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
        return await connector.on_deleted(context, resolved)

    def _other(self, connector: SourceConnector[Any], config: Properties) -> Properties:
        """Of the same class with values for its variables, and without passwords: what is known of them names no slot.

        As it is written where a provider cannot be asked.
        """
        if self._class(config) is not type(connector):
            return config
        passwords = {key.name for key in connector.config_class.config_keys() if key.kind == "PASSWORD"}
        shown = {key: value for key, value in config.items() if key not in passwords}
        try:
            return self.resolution(shown).properties
        except ProviderError:
            return shown

    def _connector(self, config: Properties) -> SourceConnector[Any]:
        definition = read_definition(self.resolution(config).properties, worker=self.worker).definition
        if definition is None:
            raise Fatal("its config cannot be read any more: what it has left at its source must be seen to by hand")
        return definition.for_task({})
