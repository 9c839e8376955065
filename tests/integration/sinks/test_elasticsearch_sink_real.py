"""``ElasticsearchSink`` against a real OpenSearch: the suite that the stand-in passes too, and a restart."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from fetchers.sdk import Retriable
from service.embedded.running import Running
from service.embedded.server import EmbeddedServer
from service.sinks.contract import SinkBatch
from tests.search_suite import Search, SearchSuite, Sink, started

pytestmark = pytest.mark.integration
BATCH = 50
LOOK_SECONDS = 0.05
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
