"""``ElasticsearchSink`` against the stand-in: the suite, and troubles that a real server cannot be made to have."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fetchers.sdk import Fatal, RateLimited, Retriable
from tests.fake_search import FakeSearch
from tests.search_suite import Search, SearchSuite, started


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
    fake.user = "writer"
    async with started(search, connection__username="writer", connection__password="hush-hush") as sink:
        await sink.put(records(1))
    async with started(search) as sink:
        with pytest.raises(Fatal, match="401"):
            await sink.put(records(1))
