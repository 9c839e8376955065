"""``ElasticsearchSink`` against a real OpenSearch: the suite that the stand-in passes too, and a restart."""

from __future__ import annotations

import asyncio
import os
import signal

import numpy as np
import pytest

from fetchers.sdk import Retriable
from service.embedded.running import Running
from service.embedded.server import EmbeddedServer
from service.sinks.contract import SinkBatch, TargetFull
from service.sinks.converters import EnvelopeReader
from tests.fault_proxy import FaultProxy
from tests.search_suite import LOGIN, Search, SearchSuite, Sink, enveloped, started

pytestmark = pytest.mark.integration
BATCH = 50
DOCUMENTS = 20
LOOK_SECONDS = 0.05
WAIT_SECONDS_MAX = 240.0
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


async def put_as_the_worker_does(sink: Sink, batch: SinkBatch, failed: asyncio.Event) -> None:
    """Again what the sink wants again, until it is taken; ``failed`` is set where that was ever so."""
    while True:
        try:
            await sink.sink.put(batch)
        except Retriable as error:
            failed.set()
            rows = range(len(batch)) if error.rows is None else sorted(error.rows)
            batch = batch.take(np.array(rows, np.int64))
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return


async def away(server: Running[EmbeddedServer], failed: asyncio.Event) -> None:
    """Stop it, and start it again once a put has failed for it: however slow who puts may be, one meets no server."""
    try:
        await asyncio.to_thread(server.call, EmbeddedServer.stop)
        await failed.wait()
    finally:
        await asyncio.to_thread(server.call, EmbeddedServer.start)


@pytest.mark.faults
@pytest.mark.slow
async def test_a_restart_of_the_server_loses_and_doubles_nothing(
    search: Search, search_server: Running[EmbeddedServer]
) -> None:
    """Batches are put all the while, in small bulks; each record is a document once, and none is refused."""
    begin, failed = 0, asyncio.Event()
    async with started(search, key__ignore="true", bulk__size__bytes="2000") as sink:
        async with asyncio.TaskGroup() as group:
            restart = group.create_task(away(search_server, failed))
            while not restart.done():
                batch = await sink.batch([(None, {"n": begin + row}) for row in range(BATCH)], begin=begin)
                await put_as_the_worker_does(sink, batch, failed)
                begin += BATCH
        assert not sink.refused
    await search.ask("POST", f"/{search.topic}/_refresh")
    counted = await search.ask("POST", f"/{search.topic}/_search", {"size": 0, "track_total_hits": True, "aggs": SUMS})
    assert counted["hits"]["total"]["value"] == begin
    assert counted["aggregations"]["n"]["sum"] == sum(range(begin))


def partials(begin: int, count: int = BATCH) -> list[tuple[str | None, dict[str, int]]]:
    """Updates of few documents: each sets the number, and one of three other fields."""
    return [(f"key-{n % DOCUMENTS}", {"n": n, f"f{n % 3}": n}) for n in range(begin, begin + count)]


def merged(count: int) -> dict[str, dict[str, int]]:
    """What the first ``count`` updates make of the documents, one after another."""
    documents: dict[str, dict[str, int]] = {}
    for name, fields in partials(0, count):
        documents.setdefault(str(name), {}).update(fields)
    return documents


@pytest.mark.faults
@pytest.mark.slow
async def test_upserts_over_a_restart_of_the_server(search: Search, search_server: Running[EmbeddedServer]) -> None:
    """Each field is that of its last record, as if all had been written one after another."""
    begin, failed = 0, asyncio.Event()
    async with started(search, write__method="UPSERT", bulk__size__bytes="2000") as sink:
        async with asyncio.TaskGroup() as group:
            restart = group.create_task(away(search_server, failed))
            while not restart.done():
                await put_as_the_worker_does(sink, await sink.batch(partials(begin), begin=begin), failed)
                begin += BATCH
        assert not sink.refused
    assert await search.documents() == merged(begin)


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("method", ["INSERT", "UPSERT"])
async def test_a_server_that_is_frozen(search: Search, search_server: Running[EmbeddedServer], method: str) -> None:
    """Beyond ``read.timeout.ms``: the records come again, and it carries out both sendings when it is woken."""
    values = partials(0, 2 * BATCH)
    async with started(search, write__method=method) as sink:
        await sink.put(values[:BATCH])
    async with started(search, write__method=method, read__timeout__ms="5000") as sink:
        known = await sink.batch([("known", {"n": 0})])  # of an index that is known, only the bulk is asked for
        await put_as_the_worker_does(sink, known, asyncio.Event())
        batch = await sink.batch(values[BATCH:], begin=BATCH)
        os.kill(search_server.server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(Retriable):
                await sink.sink.put(batch)
        finally:
            os.kill(search_server.server.pid, signal.SIGCONT)
        await put_as_the_worker_does(sink, batch, asyncio.Event())
        # Two sendings at once may be in each other's way, and then one of them has written it.
        assert all("changed by others meanwhile" in told for told in sink.refused.values())
    last = {str(name): fields for name, fields in values}
    expected = {**(last if method == "INSERT" else merged(len(values))), "known": {"n": 0}}
    async with asyncio.timeout(WAIT_SECONDS_MAX):  # the sending that nobody waits for may be at it still
        while await search.documents() != expected:
            await asyncio.sleep(LOOK_SECONDS)


@pytest.mark.faults
async def test_with_upsert_a_request_that_comes_late_sets_fields_back(search: Search) -> None:
    """As the guide says: one that was given up on its way, and arrives behind its repetition and a newer record."""
    async with FaultProxy(int(search.url.rpartition(":")[2])).serving() as proxy:
        through = Search(f"http://127.0.0.1:{proxy.port}", search.topic)
        async with started(through, write__method="UPSERT") as sink:
            await sink.put([("a", {"n": 1, "m": 1})])
            proxy.keep = b'"n": 2'
            async with asyncio.TaskGroup() as group:
                late = group.create_task(sink.put([("a", {"n": 2})], begin=1))
                await proxy.kept.wait()
                late.cancel()
            await sink.put([("a", {"n": 2}), ("a", {"n": 3})], begin=1)
            assert await search.documents() == {"a": {"n": 3, "m": 1}}
            proxy.may_go.set()
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while await search.documents() != {"a": {"n": 2, "m": 1}}:
                    await asyncio.sleep(LOOK_SECONDS)
            await sink.put([("a", {"n": 4})], begin=3)
            assert not sink.refused
    assert await search.documents() == {"a": {"n": 4, "m": 1}}
