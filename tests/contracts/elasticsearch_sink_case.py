"""The contract suite's target for ``ElasticsearchSink``: the stand-in of a search server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from service.sinks.converters import ColumnReader, JsonReader
from service.sinks.elasticsearch.sink import ElasticsearchSink
from service.sinks.testing import SinkCase, Target
from tests.fake_search import FakeSearch


class Documents(Target):
    """An index of one text each, in the order of partitions and offsets."""

    def __init__(self, server: FakeSearch, url: str) -> None:
        self._server = server
        self._url = url

    @property
    def properties(self) -> Mapping[str, str]:
        """Ids are places in Kafka; there is no schema."""
        # The keys' defaults of one and three seconds are less than a busy machine may keep this very process waiting.
        limits = {"connection.timeout.ms": "60000", "read.timeout.ms": "60000"}
        return {"connection.url": self._url, "key.ignore": "true", "schema.ignore": "true", **limits}

    async def written(self) -> Sequence[str]:
        """The texts."""
        documents = self._server.indices["lines"].documents
        places = sorted(documents, key=lambda name: [int(part) for part in name.split("+")[1:]])
        return [documents[place]["text"] for place in places]


class ElasticsearchSinkCase(SinkCase):
    """``ElasticsearchSink`` as the suite sees it."""

    connector = ElasticsearchSink
    is_exactly_once = True
    bad_payload = b"5"
    has_partial_outcomes = True
    values: ClassVar[ColumnReader] = JsonReader()
    bad_configs = (
        ({"connection.url": "ftp://here"}, frozenset({"connection.url"})),
        ({"connection.username": "me", "proxy.host": "p"}, frozenset({"connection.password", "proxy.host"})),
        ({"external.resource.usage": "INDEX"}, frozenset({"topic.to.external.resource.mapping"})),
        ({"data.stream.type": "LOGS", "write.method": "UPSERT"}, frozenset({"data.stream.dataset", "write.method"})),
        ({"batch.size": "0", "linger.ms": "-1"}, frozenset({"batch.size", "linger.ms"})),
    )

    def payload(self, value: str) -> bytes:
        """A document with the text."""
        return json.dumps({"text": value}).encode()

    @asynccontextmanager
    async def target(self, folder: Path) -> AsyncIterator[Target]:
        """A server without any index."""
        async with self.busy_target(folder, ()) as target:
            yield target

    @asynccontextmanager
    async def busy_target(self, folder: Path, texts: Collection[str]) -> AsyncIterator[Target]:
        """One that is too busy for some documents; texts are the offsets."""
        del folder
        server = FakeSearch(busy_ids={f"lines+0+{text}": 1 for text in texts})
        async with server.serving() as url:
            yield Documents(server, url)


CASE = ElasticsearchSinkCase()
