"""``ElasticsearchSink`` against a real OpenSearch: the suite that the stand-in passes too, and a restart."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from fetchers.sdk import Retriable
from service.embedded.running import Running
from service.embedded.server import EmbeddedServer
from service.sinks.contract import SinkBatch, TargetFull
from service.sinks.converters import EnvelopeReader
from tests.search_suite import LOGIN, Search, SearchSuite, Sink, enveloped, started

pytestmark = pytest.mark.integration
BATCH = 50
LOOK_SECONDS = 0.05
BLOCK = "index.blocks.read_only_allow_delete"
SUMS = {"n": {"stats": {"field": "n"}}}


@pytest.fixture
def search(opensearch: str) -> Search:
    """The real server, as the suite asks it."""
    return Search(opensearch)


class TestOpenSearch(SearchSuite):
    """The server itself."""

    async def test_a_date_that_is_none_is_refused_alone(self, search: Search) -> None:
        """One of any year is kept as it is; the others of its bulk are there."""
        times = [1, 2**63 - 1, "no time", -(2**62), 2]
        keys = {"behavior__on__malformed__documents": "WARN", "key__ignore": "true"}
        mapping = {"mappings": {"properties": {"at": {"type": "date"}}}}
        await search.ask("PUT", f"/{search.topic}", mapping)
        async with started(search, **keys) as sink:
            await sink.put([(None, {"at": time}) for time in times])
            assert list(sink.refused) == [2]
            assert "failed to parse field [at] of type [date]" in sink.refused[2]
        found = sorted(each["at"] for each in (await search.documents()).values())
        assert found == [-(2**62), 1, 2, 2**63 - 1]

    async def test_maps_as_lists_are_mapped_as_lists(self, search: Search) -> None:
        """So that the values of all keys are one field, of its own type."""
        values = {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}
        field = {"field": "m", "type": "map", "keys": {"type": "string"}, "values": values}
        document = {"schema": {"type": "struct", "fields": [field]}, "payload": {"m": {"sent": 1_476_423_962_000}}}
        async with started(search, schema__ignore="false", compact__map__entries="false") as sink:
            await sink.put([("a", document)], values=EnvelopeReader())
            assert not sink.refused
        properties = (await search.mapping())["m"]["properties"]
        assert {name: each["type"] for name, each in properties.items()} == {"key": "text", "value": "date"}
        assert await search.documents() == {"a": {"m": [{"key": "sent", "value": 1_476_423_962_000}]}}

    async def test_a_disk_that_is_too_full(self, search: Search) -> None:
        """The block that the server sets at its flood stage: documents and mappings wait, and go on without it."""
        async with started(search, schema__ignore="false") as sink:
            await sink.put([("a", enveloped({"tries": 1}))], values=EnvelopeReader())
            await search.ask("PUT", f"/{search.topic}/_settings", {BLOCK: True})
            with pytest.raises(TargetFull, match=r"a disk of the server is too full: .*Make room on it") as full:
                await sink.put([("b", enveloped({"tries": 2})), ("a", enveloped({}))], begin=1, values=EnvelopeReader())
            assert full.value.rows == {0, 1}
        async with started(search, schema__ignore="false") as sink:
            extended = enveloped({"tries": 2, "more": 3})
            more = {"type": "int32", "optional": True, "field": "more"}
            extended["schema"] = {**LOGIN, "fields": [*LOGIN["fields"], more]}  # type: ignore[misc]
            with pytest.raises(TargetFull, match=r"the mapping of .* cannot be made .*Make room on it"):
                await sink.put([("b", extended)], begin=1, values=EnvelopeReader())
            await search.ask("PUT", f"/{search.topic}/_settings", {BLOCK: None})
            await sink.put([("b", extended)], begin=1, values=EnvelopeReader())
            assert not sink.refused
        assert {name: source["tries"] for name, source in (await search.documents()).items()} == {"a": 1, "b": 2}


async def put_as_the_worker_does(sink: Sink, batch: SinkBatch) -> int:
    """Again what the sink wants again, until it is taken; how often it was."""
    times = 0
    while True:
        try:
            await sink.sink.put(batch)
        except Retriable as error:
            rows = range(len(batch)) if error.rows is None else sorted(error.rows)
            batch = batch.take(np.array(rows, np.int64))
            times += 1
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return times


@pytest.mark.faults
@pytest.mark.slow
async def test_a_restart_of_the_server_loses_and_doubles_nothing(
    search: Search, search_server: Running[EmbeddedServer]
) -> None:
    """Batches are put all the while, in small bulks; each record is a document once, and none is refused."""
    begin = retried = 0
    async with started(search, key__ignore="true", bulk__size__bytes="2000") as sink:
        async with asyncio.TaskGroup() as group:
            restart = group.create_task(asyncio.to_thread(search_server.call, EmbeddedServer.restart))
            while not restart.done() or not begin:
                batch = await sink.batch([(None, {"n": begin + row}) for row in range(BATCH)], begin=begin)
                retried += await put_as_the_worker_does(sink, batch)
                begin += BATCH
        assert not sink.refused
    assert retried
    await search.ask("POST", f"/{search.topic}/_refresh")
    counted = await search.ask("POST", f"/{search.topic}/_search", {"size": 0, "track_total_hits": True, "aggs": SUMS})
    assert counted["hits"]["total"]["value"] == begin
    assert counted["aggregations"]["n"]["sum"] == sum(range(begin))
