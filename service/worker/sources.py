"""Source connectors as a kind of connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fetchers.catalog import find_plugin
from fetchers.sdk import SourceConnector
from service.config.definition import ConnectorDefinition, read_definition
from service.config.reach import class_refusal
from service.domain.cluster import Properties
from service.domain.ids import TaskId
from service.pipeline.task import SourceTask
from service.worker.connectors import ConnectorParts, make_source_task, plan_of
from service.worker.kinds import Confirm, ConnectorTraits, MakeTask, UseTopic, refusal


@dataclass(frozen=True, slots=True)
class DefinedSource:
    """A source as configured."""

    definition: ConnectorDefinition
    parts: ConnectorParts

    @property
    def traits(self) -> ConnectorTraits:
        """See ``DefinedConnector``."""
        own = self.definition
        return ConnectorTraits.of("source", own.plugin, own.common, (own.key_converter, own.value_converter))

    def split(self) -> Sequence[Mapping[str, str]]:
        """Ask the connector."""
        return self._connector().task_configs(self.definition.common.tasks_max)

    def prepare_task(self, task_id: TaskId, use_topic: UseTopic, confirm: Confirm) -> MakeTask:
        """Make the connector's instance; the rest waits for the registry and for Kafka."""
        connector = self._connector()

        async def make_task() -> SourceTask:
            plan = await plan_of(self.definition, self.parts)
            return await make_source_task(
                task_id,
                self.definition,
                self.parts,
                connector=connector,
                plan=plan,
                use_topic=use_topic,
                confirm=confirm,
            )

        return make_task

    def _connector(self) -> SourceConnector[Any]:
        return self.definition.for_task({})


@dataclass(frozen=True, slots=True)
class SourceKind:
    """Makes sources from configs."""

    parts: ConnectorParts
    worker: Mapping[str, str]
    """The worker's properties: converters that a connector does not name are its."""

    def claims(self, class_name: str) -> bool:
        """By the catalogue; ``package.module:Class`` is taken for a source unless another kind knows better."""
        return find_plugin(class_name, refusal=class_refusal(class_name, self.worker)) is not None

    def define(self, properties: Properties) -> DefinedSource:
        """See ``ConnectorKind``."""
        reading = read_definition(properties, worker=self.worker)
        if reading.definition is None:
            raise refusal(reading.findings)
        return DefinedSource(reading.definition, self.parts)
