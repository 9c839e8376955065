"""``ElasticsearchSink`` against the stand-in: the suite, and troubles that a real server cannot be made to have."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import pyarrow as pa
import pytest

from fetchers.sdk import Fatal, RateLimited, Retriable
from service.sinks.contract import TargetFull
from service.sinks.converters import EnvelopeReader
from service.sinks.elasticsearch.config import ElasticsearchSinkConfig
from tests.fake_search import FakeSearch, Index
from tests.search_suite import Search, SearchSuite, enveloped, started


@pytest.fixture
def fake() -> FakeSearch:
    """An empty server."""
    return FakeSearch()


@pytest.fixture
async def search(fake: FakeSearch) -> AsyncIterator[Search]:
    """The stand-in, as the suite asks it."""
    async with fake.serving() as url:
        yield Search(url)


class TestFakeSearch(SearchSuite):
    """The stand-in has the server's verdicts."""


def records(count: int) -> list[tuple[str, dict[str, int]]]:
    """Documents by number."""
    return [(str(number), {"n": number}) for number in range(count)]


async def test_busy_items_alone_come_again(search: Search, fake: FakeSearch) -> None:
    """429 of a single item is no fault of the record: not a bad one, and its neighbours are not sent twice."""
    fake.busy_ids = {"1": 1, "3": 2}
    async with started(search) as sink:
        with pytest.raises(Retriable) as busy:
            await sink.put(records(5))
        assert busy.value.rows == {1, 3}
        assert not sink.refused
    assert fake.indices[search.topic].documents.keys() == {"0", "2", "4"}


async def test_updates_of_one_document_keep_their_order(search: Search, fake: FakeSearch) -> None:
    """Where an earlier one was refused for now, later ones of the same document come again behind it."""
    fake.busy_ids = {"a": 1}
    async with started(search, write__method="UPSERT") as sink:
        with pytest.raises(Retriable) as busy:
            await sink.put([("a", {"n": 1}), ("b", {"n": 2}), ("a", {"n": 3})])
        assert busy.value.rows == {0, 2}


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_a_server_in_trouble_has_refused_no_record(search: Search, fake: FakeSearch, status: int) -> None:
    """All of the bulk comes again."""
    async with started(search) as sink:
        await sink.put(records(1))
        fake.statuses = [status]
        with pytest.raises(RateLimited if status == 429 else Retriable) as away:
            await sink.put(records(3))
        assert away.value.rows == {0, 1, 2}
        assert not sink.refused


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_request_that_is_refused_fails_the_task(search: Search, fake: FakeSearch, status: int) -> None:
    """Neither records nor time are at fault."""
    async with started(search) as sink:
        await sink.put(records(1))
        fake.statuses = [status]
        with pytest.raises(Fatal, match=str(status)):
            await sink.put(records(3))
        assert not sink.refused


async def test_an_answer_that_was_lost(search: Search, fake: FakeSearch) -> None:
    """The work was done: sent again it changes nothing and refuses nothing."""
    fake.lost_answers = 1
    async with started(search) as sink:
        with pytest.raises(Retriable) as lost:
            await sink.put(records(3))
        assert lost.value.rows == {0, 1, 2}
        await sink.put(records(3))
        assert not sink.refused
    assert [len(bulk) for bulk in fake.bulks] == [3, 3]
    assert set(fake.indices[search.topic].versions.values()) == {0, 1, 2}


async def test_a_bulk_that_is_too_large_is_halved(search: Search, fake: FakeSearch) -> None:
    """Until it fits; a single document that does not is refused."""
    fake.body_bytes_max = 250
    async with started(search, behavior__on__malformed__documents="WARN") as sink:
        await sink.put([(str(number), {"x": "y" * (300 if number == 5 else 10)}) for number in range(8)])
        assert list(sink.refused) == [5]
        assert "413" in sink.refused[5]
    assert len(fake.indices[search.topic].documents) == 7


async def test_the_next_address_is_asked_when_one_does_not_answer(search: Search, fake: FakeSearch) -> None:
    """No record is at fault meanwhile."""
    async with started(search, connection__url=f"http://127.0.0.1:1,{search.url}") as sink:
        with pytest.raises(Retriable, match="cannot connect"):
            await sink.put(records(2))
        await sink.put(records(2))
        assert not sink.refused
    assert len(fake.indices[search.topic].documents) == 2


async def test_login_and_no_secret_in_messages(search: Search, fake: FakeSearch) -> None:
    """Basic, as the server wants it."""
    fake.login = "writer:hush-hush"
    async with started(search, connection__username="writer", connection__password="hush-hush") as sink:
        await sink.put(records(1))
    for keys in ({}, {"connection__username": "writer", "connection__password": "hush-hushed"}):
        async with started(search, **keys) as sink:
            with pytest.raises(Fatal, match="401") as refused:
                await sink.put(records(1))
            assert "hush" not in str(refused.value)


BLOCKED, UNMADE = "cluster_block_exception", "index_create_block_exception"
READ_ONLY = "index [orders] blocked by: [FORBIDDEN/5/index read-only (api)];"
FULL = "index [orders] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has \
read-only-allow-delete block];"
FULL_BEFORE_7_7 = "index [orders] blocked by: [FORBIDDEN/12/index read-only / allow delete (api)];"
NO_NEW = "blocked by: [FORBIDDEN/10/cluster create-index blocked (api)];"


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (403, BLOCKED, READ_ONLY),
        (403, BLOCKED, "index [orders] blocked by: [FORBIDDEN/8/index write (api)];"),
        (403, BLOCKED, FULL_BEFORE_7_7 + "[FORBIDDEN/8/index write (api)];"),
        (403, "security_exception", "no permissions for [indices:data/write/bulk[s]]"),
        (401, "whatever", "who are you?"),
        (400, "index_closed_exception", "closed"),
    ],
)
async def test_an_index_that_takes_nothing_refuses_no_record(
    search: Search, fake: FakeSearch, *, status: int, kind: str, reason: str
) -> None:
    """The task fails and says what to do; only what is bad by itself is refused, or all would be dead letters."""
    async with started(search, behavior__on__malformed__documents="FAIL") as sink:
        await sink.put(records(1))
        fake.closed[search.topic] = (status, kind, reason)
        told = rf"'{search.topic}' takes no documents: {kind}: {re.escape(reason)}: .*restart the task"
        with pytest.raises(Fatal, match=told):
            await sink.put(records(3))
        assert not sink.refused
        fake.closed.clear()
        await sink.put(records(3))
        assert not sink.refused


@pytest.mark.parametrize(("status", "reason"), [(429, FULL), (403, FULL_BEFORE_7_7)])
async def test_an_index_on_a_full_disk_comes_again(search: Search, fake: FakeSearch, status: int, reason: str) -> None:
    """The server lifts its block by itself when there is room: what to do is told, and the put is not given up."""
    async with started(search) as sink:
        await sink.put(records(1))
        fake.closed[search.topic] = (status, BLOCKED, reason)
        with pytest.raises(TargetFull, match=rf"disk .* too full: {BLOCKED}: {re.escape(reason)} Make room") as full:
            await sink.put(records(3))
        assert full.value.rows == {0, 1, 2}
        assert full.value.wait_seconds == 30
        assert not sink.refused
        fake.closed.clear()
        await sink.put(records(3))
        assert not sink.refused
    assert len(fake.indices[search.topic].documents) == 3


@pytest.mark.parametrize("status", [403, 429])
async def test_a_mapping_on_a_full_disk_comes_again(search: Search, fake: FakeSearch, status: int) -> None:
    """As documents do; where a person has blocked the index the task fails."""
    fake.indices[search.topic] = Index()
    fake.closed[search.topic] = (status, BLOCKED, FULL)
    async with started(search, schema__ignore="false") as sink:
        with pytest.raises(TargetFull, match=r"the mapping of .* cannot be made .* Make room"):
            await sink.put([("a", enveloped({"username": "gwen"}))], values=EnvelopeReader())
        fake.closed[search.topic] = (status, BLOCKED, READ_ONLY)
        with pytest.raises(Fatal, match=r"the mapping of .* cannot be made .* lift its block"):
            await sink.put([("a", enveloped({"username": "gwen"}))], values=EnvelopeReader())
        fake.closed.clear()
        await sink.put([("a", enveloped({"username": "gwen"}))], values=EnvelopeReader())
        assert not sink.refused
    assert len(fake.indices[search.topic].documents) == 1


async def test_an_index_that_a_full_disk_keeps_from_being_made(search: Search, fake: FakeSearch) -> None:
    """OpenSearch makes no index while the disks of all nodes are too full."""
    fake.unmade = (403, UNMADE, NO_NEW)
    async with started(search) as sink:
        with pytest.raises(TargetFull, match=rf"index '{search.topic}' cannot be made: .*{UNMADE}.* Make room"):
            await sink.put(records(2))
        fake.unmade = None
        await sink.put(records(2))
        assert not sink.refused
    assert len(fake.indices[search.topic].documents) == 2


async def test_an_index_that_is_gone_and_cannot_be_made_anew(search: Search, fake: FakeSearch) -> None:
    """Somebody has removed it to make room: the bulk that was to make it by the way is refused as well."""
    async with started(search) as sink:
        await sink.put(records(1))
        del fake.indices[search.topic]
        fake.unmade = (403, UNMADE, NO_NEW)
        for _ in range(2):
            with pytest.raises(TargetFull, match=f"{UNMADE}.* Make room") as full:
                await sink.put(records(2))
            assert full.value.rows == {0, 1}
        fake.unmade = None
        await sink.put(records(2))
        assert not sink.refused
    assert len(fake.indices[search.topic].documents) == 2


async def test_busy_items_beside_a_full_disk(search: Search, fake: FakeSearch) -> None:
    """Both come again, as what the disk asks for."""
    fake.busy_ids = {"1": 1}
    async with started(search, external__resource__usage="INDEX", **TWO_INDICES) as sink:
        fake.indices |= {"one": Index(), "two": Index()}
        fake.closed["two"] = (429, BLOCKED, FULL)
        batch = await sink.batch(records(4))
        topics = pa.array(["a", "a", "a", "b"])
        batch = replace(batch, records=batch.records.set_column(0, "topic", topics))
        with pytest.raises(TargetFull) as full:
            await sink.sink.put(batch)
        assert full.value.rows == {1, 3}
    assert fake.indices["one"].documents.keys() == {"0", "2"}


async def test_who_asks_for_a_longer_wait_beside_a_full_disk_has_it(search: Search, fake: FakeSearch) -> None:
    """A server, or what stands before it, that limits requests is not asked again earlier for the other's sake."""
    async with started(search, bulk__size__bytes="1") as sink:
        fake.closed[search.topic] = (429, BLOCKED, FULL)
        fake.statuses, fake.retry_after = [0, 429], "90"
        with pytest.raises(TargetFull) as full:
            await sink.put(records(2))
        assert (full.value.rows, full.value.wait_seconds) == ({0, 1}, 90)


async def test_the_longest_wait_that_a_bulk_of_the_put_is_asked_for(search: Search, fake: FakeSearch) -> None:
    """Another bulk of it that fails asks for none, and takes none back."""
    async with started(search, bulk__size__bytes="1") as sink:
        fake.statuses, fake.retry_after = [429, 0], "90"
        fake.lost_answers = 1
        with pytest.raises(RateLimited) as limited:
            await sink.put(records(2))
        assert (limited.value.rows, limited.value.wait_seconds) == ({0, 1}, 90)


async def test_a_schema_that_says_nothing_of_its_items_refuses_its_records(search: Search, fake: FakeSearch) -> None:
    """Each for itself, as Connect's converter does; the task goes on."""
    fake.indices[search.topic] = Index()
    for kind in ({"type": "array"}, {"type": "map", "values": {"type": "int64"}}):
        schema = {"type": "struct", "fields": [{"field": "f", "optional": True, **kind}]}
        value = {"schema": schema, "payload": {"f": None}}
        async with started(search, schema__ignore="false", behavior__on__malformed__documents="IGNORE") as sink:
            await sink.put([("a", value)], values=EnvelopeReader())
            assert list(sink.refused) == [0]


TWO_INDICES = {"topic__to__external__resource__mapping": "a:one,b:two"}


@pytest.mark.parametrize("page", ["<html>Sign in</html>", "[]", '{"orders": 5}', '{"orders": {"mappings": []}}'])
async def test_a_mapping_that_is_none_is_asked_for_again(search: Search, fake: FakeSearch, page: str) -> None:
    """Somebody between has answered, with 200: no record is at fault."""
    fake.mapping_page = page
    async with started(search, schema__ignore="false") as sink:
        with pytest.raises(Retriable, match="mapping"):
            await sink.put([("a", enveloped({"username": "gwen"}))], values=EnvelopeReader())
        assert not sink.refused
        fake.mapping_page = None
        await sink.put([("a", enveloped({"username": "gwen"}))], values=EnvelopeReader())
    assert len(fake.indices[search.topic].documents) == 1


@pytest.mark.parametrize(
    ("key", "text"), [("write.method", "UPSERT"), ("behavior.on.null.values", "DELETE")], ids=["upsert", "delete"]
)
def test_ids_of_the_servers_making_name_no_document(key: str, text: str) -> None:
    """Neither to change nor to delete: the server would refuse every bulk."""
    parsed = ElasticsearchSinkConfig.parse(
        {"connection.url": "http://localhost:9200", "use.autogenerated.ids": "true", key: text}
    )
    assert parsed.config is not None
    assert [finding.key for finding in parsed.config.own_findings() if finding.is_error] == [key]


@pytest.mark.parametrize(
    ("keys", "is_told"),
    [({}, True), ({"external.version": "timestamp"}, False), ({"key.ignore": "true"}, False)],
)
def test_topics_of_one_resource_are_warned_of(keys: dict[str, str], *, is_told: bool) -> None:
    """Their offsets say nothing of which record is newer."""
    config = ElasticsearchSinkConfig.parse(
        {
            "connection.url": "http://localhost:9200",
            "external.resource.usage": "INDEX",
            "topic.to.external.resource.mapping": "a:one,b:one,c:other",
            **keys,
        }
    ).config
    assert config is not None
    told = [finding.message for finding in config.own_findings()]
    assert [message.startswith("a, b go to one resource") for message in told] == ([True] if is_told else [])
