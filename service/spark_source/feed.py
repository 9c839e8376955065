"""What Spark reads: a connector's records, in parts that its tasks are, or between two offsets of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from service.config.definition import ConnectorDefinition, read_definition
from service.config.worker import with_defaults
from service.spark_source.fetching import batches_of
from service.spark_source.options import SourceOptions
from service.spark_source.pages_folder import KeptPages
from service.spark_source.rows import RowMaker, SeenRecords, rows_schema
from service.spark_source.stream import Stream
from spark_batch.data_source import StreamFeed


@dataclass(frozen=True)
class TaskPart:
    """One task of the connector, read from its beginning to the end of its first round."""

    number: int
    own: Mapping[str, str]
    """Keys that the task has besides, or instead of, the connector's."""


@dataclass(frozen=True)
class SourceFeed:
    """The ``Feed`` of a connector."""

    options: SourceOptions

    @property
    def schema(self) -> pa.Schema:
        """By the contract and the options."""
        return rows_schema(self.options)

    def tasks(self) -> Sequence[TaskPart]:
        """As the connector splits its work into ``tasks.max``."""
        definition = self.definition
        split = definition.for_task({}).task_configs(definition.common.tasks_max)
        return [TaskPart(number, dict(own)) for number, own in enumerate(split)]

    def read(self, task: TaskPart | KeptPages) -> Iterator[pa.RecordBatch]:
        """Fetch and judge, or judge what was fetched and kept."""
        if isinstance(task, KeptPages):
            yield self.row_maker({}).batch(task.read(), None)
            return
        maker, seen = self.row_maker(task.own), SeenRecords()
        with batches_of(self.definition, task.own, number=task.number) as batches:
            for pages in batches:
                yield maker.batch(pages, seen)

    def open_stream(self) -> StreamFeed:
        """Raises OptionsRefusedError where the options are not those of a stream."""
        return Stream.opened(self.options, self.definition)

    def row_maker(self, own: Mapping[str, str]) -> RowMaker:
        """Of a task."""
        definition = self.definition
        return RowMaker(self.options, definition.for_task(own).partition(), definition.topic)

    @cached_property
    def definition(self) -> ConnectorDefinition:
        """Read anew in every process: a connector's class need not be one that can be pickled."""
        reading = read_definition(self.options.properties, worker=with_defaults({}))
        if reading.definition is None:
            raise ValueError("; ".join(finding.message for finding in reading.findings))
        return reading.definition

    def __getstate__(self) -> dict[str, Any]:
        """Without what is read anew."""
        return {"options": self.options}
