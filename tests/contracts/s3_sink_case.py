"""The contract suite's target for ``S3Sink``: objects of one JSON text each, in a bucket of a real server process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from service.sinks.converters import ColumnReader, JsonReader
from service.sinks.s3.sink import S3Sink
from service.sinks.testing import SinkCase, Target
from tests.object_storage import Bucket


class Objects(Target):
    """A bucket; every record is an object, so that what is flushed is there."""

    def __init__(self) -> None:
        self._bucket = Bucket()

    @property
    def properties(self) -> Mapping[str, str]:
        """JSON lines."""
        return {
            **self._bucket.properties,
            "flush.size": "1",
            "format.class": "JsonFormat",
            "partitioner.class": "FieldPartitioner",
            "partition.field.name": "kind",
        }

    async def written(self) -> Sequence[str]:
        """The texts, by partition and offset."""
        found = self._bucket.objects("topics/lines/").items()
        texts = [content for _, content in sorted(found, key=lambda each: each[0].rpartition("/")[2])]
        return [json.loads(line)["text"] for text in texts for line in text.decode().split("\n")[:-1]]


class S3SinkCase(SinkCase):
    """``S3Sink`` as the suite sees it."""

    connector = S3Sink
    servers: ClassVar[tuple[str, ...]] = ("object_storage",)
    is_exactly_once = True
    records_max = 10
    bad_payload = json.dumps({"text": "bad", "kind": "long" * 100}).encode()
    values: ClassVar[ColumnReader] = JsonReader()
    bad_configs = (
        ({"s3.bucket.name": ""}, frozenset({"s3.bucket.name"})),
        ({"s3.bucket.name": "https://b", "store.url": "b"}, frozenset({"s3.bucket.name", "store.url"})),
        ({"s3.part.size": "1", "format.class": "CsvFormat"}, frozenset({"s3.part.size", "format.class"})),
        ({"aws.access.key.id": "k", "s3.acl.canned": "private"}, frozenset({"s3.acl.canned"})),
        ({"format.class": "AvroFormat", "s3.compression.type": "gzip"}, frozenset({"s3.compression.type"})),
        ({"store.kafka.keys": "true", "topics.dir": "../x"}, frozenset({"store.kafka.keys", "topics.dir"})),
    )

    def payload(self, value: str) -> bytes:
        """A document with the text."""
        return json.dumps({"text": value, "kind": len(value) % 2}).encode()

    @asynccontextmanager
    async def target(self, folder: Path) -> AsyncIterator[Target]:
        """An empty bucket."""
        del folder
        yield Objects()


CASE = S3SinkCase()
