"""The contract suite's target for ``FileSystemSink``: files of one JSON text each, in a folder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from service.sinks.converters import ColumnReader, JsonReader
from service.sinks.filesystem.sink import FileSystemSink
from service.sinks.testing import SinkCase, Target


class Files(Target):
    """A folder; every record is a file, so that what is flushed is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def properties(self) -> Mapping[str, str]:
        """JSON lines."""
        return {
            "store.url": f"file://{self._folder}",
            "flush.size": "1",
            "format.class": "JsonFormat",
            "partitioner.class": "FieldPartitioner",
            "partition.field.name": "kind",
        }

    async def written(self) -> Sequence[str]:
        """The texts, by partition and offset."""
        files = sorted((self._folder / "topics" / "lines").rglob("*.json"), key=lambda file: file.name)
        return [
            json.loads(line)["text"] for file in files for line in file.read_text(encoding="utf-8").split("\n")[:-1]
        ]


class FileSystemSinkCase(SinkCase):
    """``FileSystemSink`` as the suite sees it."""

    connector = FileSystemSink
    is_exactly_once = True
    records_max = 50
    bad_payload = json.dumps({"text": "bad", "kind": "long" * 100}).encode()
    values: ClassVar[ColumnReader] = JsonReader()
    bad_configs = (
        ({"store.url": "ftp://here"}, frozenset({"store.url"})),
        ({"store.url": "hdfs:///folder"}, frozenset({"store.url"})),
        ({"store.url": ""}, frozenset({"hdfs.url"})),
        ({"flush.size": "0", "format.class": "CsvFormat"}, frozenset({"flush.size", "format.class"})),
        (
            {"partitioner.class": "TimeBasedPartitioner"},
            frozenset({"timezone", "partition.duration.ms", "path.format"}),
        ),
        ({"partitioner.class": "Daily", "topics.dir": "../x"}, frozenset({"partitioner.class"})),
        ({"topics.dir": "../x", "partition.field.name": ""}, frozenset({"topics.dir", "partition.field.name"})),
        ({"hive.metastore.uris": "thrift://h:9083"}, frozenset({"hive.metastore.uris"})),
        ({"hive.conf.dir": "/etc/hive", "timezone": "Mars"}, frozenset({"hive.conf.dir", "timezone"})),
        (
            {"hive.integration": "true", "partition.field.name": "a.b", "hive.ddl.dir": "../x"},
            frozenset({"schema.compatibility", "format.class", "partition.field.name", "hive.ddl.dir"}),
        ),
        (
            {
                "hive.integration": "true",
                "schema.compatibility": "FULL",
                "format.class": "OrcFormat",
                "partitioner.class": "TimeBasedPartitioner",
                "path.format": "YYYY/MM",
                "timezone": "UTC",
                "partition.duration.ms": "60000",
            },
            frozenset({"path.format"}),
        ),
    )

    def payload(self, value: str) -> bytes:
        """A document with the text."""
        return json.dumps({"text": value, "kind": len(value) % 2}).encode()

    @asynccontextmanager
    async def target(self, folder: Path) -> AsyncIterator[Target]:
        """An empty folder."""
        yield Files(folder)


CASE = FileSystemSinkCase()
