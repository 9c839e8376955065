"""``HttpSource`` through many pages: every record once, whatever the way, the stamps and the moment of a kill."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchers.catalog import shared_http
from fetchers.sdk import Page
from fetchers.sdk.testing import collect
from fetchers.toolkit.http import SharedHttp
from tests.apis.http.paged import WAYS, Table, ids, items, resume, source
from tests.contracts.loopback import serve


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("field", ["t", "t,id"])
async def test_reads_all_pages_and_resumes_between_any_two(http: SharedHttp, way: str, field: str) -> None:
    """By every way of pagination each item comes once, and after a stop at any page the rest comes."""
    table = Table(items(5, 1, 5, 3, 2, 9, 9))
    async with serve(table.answer) as url:
        made = source(f"{url}/list", http_records_path="items", http_offset_field=field, **WAYS[way])
        pages = await collect(made, resume(made, http, []))
        assert ids(pages) == [0, 1, 2, 3, 4, 5, 6]
        for cut in range(len(pages) + 1):
            rest = await collect(made, resume(made, http, pages[:cut]))
            assert ids(pages[:cut]) + ids(rest) == [0, 1, 2, 3, 4, 5, 6]
        table.items += [{"id": 7, "t": 9}, {"id": 8, "t": 10}]
        assert ids(await collect(made, resume(made, http, pages))) == [7, 8]


@pytest.mark.parametrize("way", WAYS)
async def test_a_record_without_the_offset_field_stops_nobody(http: SharedHttp, way: str) -> None:
    """It is rejected once, whenever the task is stopped, and the cursor moves on by its neighbours."""
    table = Table([{"id": 0, "t": 5}, {"id": 1}, {"id": 2, "t": 7}, {"id": 3, "t": []}])
    async with serve(table.answer) as url:
        made = source(f"{url}/list", http_records_path="items", http_offset_field="t", **WAYS[way])
        pages = await collect(made, resume(made, http, []), rounds=2)
        assert ids(pages) == [0, 1, 2, 3]
        reasons = [(rejection.index, rejection.reason) for page in pages for rejection in page.rejections]
        assert reasons == [(1, "missing_field"), (1, "wrong_type")]
        assert pages[-1].offset["t"] == 7
        for cut in range(len(pages) + 1):
            rest = await collect(made, resume(made, http, pages[:cut]), rounds=2)
            assert ids([*pages[:cut], *rest]) == [0, 1, 2, 3]
        table.items += [{"id": 4, "t": 6}, {"id": 5, "t": 8}]
        assert ids(await collect(made, resume(made, http, pages))) == [5]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.integers(0, 2), max_size=7), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from([*WAYS]),
    st.data(),
)
async def test_equal_stamps_are_neither_lost_nor_repeated(
    arrivals: list[list[int]], size: int, way: str, data: st.DataObject
) -> None:
    """A growing list with many equal stamps, read with a kill after any page: each item exactly once."""
    table = Table([], size=size)
    delivered: list[Page] = []
    async with shared_http() as http, serve(table.answer) as url:
        made = source(f"{url}/list", http_records_path="items", http_offset_field="t", **WAYS[way])
        for steps in arrivals:
            for step in steps:
                stamp = (table.items[-1]["t"] if table.items else 0) + step
                table.items.append({"id": len(table.items), "t": stamp})
            pages = await collect(made, resume(made, http, delivered[-1:]))
            delivered += pages[: data.draw(st.integers(0, len(pages)))]
        # What joined a page that an interrupted round had read already comes with the round after it.
        delivered += await collect(made, resume(made, http, delivered[-1:]), rounds=2)
    assert sorted(ids(delivered)) == [item["id"] for item in table.items]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 2, 3])
async def test_what_joins_a_page_that_was_read_is_not_lost(http: SharedHttp, way: str, size: int) -> None:
    """A kill between two pages, and meanwhile an item more with the same stamp on the first of them."""
    table = Table(items(0), size=size)
    async with serve(table.answer) as url:
        made = source(f"{url}/list", http_records_path="items", http_offset_field="t", **WAYS[way])
        pages = await collect(made, resume(made, http, []), pages=1)
        table.items = items(0, 0)
        rest = await collect(made, resume(made, http, pages), rounds=2)
    assert sorted(ids([*pages, *rest])) == [0, 1]


@pytest.mark.parametrize("way", WAYS)
async def test_a_page_that_is_read_again_is_not_taken_for_the_end_of_the_news(http: SharedHttp, way: str) -> None:
    """Newest first, and interrupted: after the restart the page in hand holds nothing new, the next ones do."""
    table = Table(items(9, 8, 7, 6, 5))
    async with serve(table.answer) as url:
        keys = {"http_records_path": "items", "http_offset_field": "t", "http_pagination_stops_at_known": "true"}
        made = source(f"{url}/list", **keys, **WAYS[way])
        pages = await collect(made, resume(made, http, []), pages=1)
        rest = await collect(made, resume(made, http, pages))
    assert ids([*pages, *rest]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("continues", ["true", "false"])
async def test_a_round_without_news_hands_over_nothing(http: SharedHttp, way: str, continues: str) -> None:
    """When nothing is new there is no page, not even an empty one: the source counts as idle."""
    table = Table(items(1, 2, 3, 3, 5))
    async with serve(table.answer) as url:
        keys = {"http_records_path": "items", "http_offset_field": "t", "http_pagination_continues": continues}
        made = source(f"{url}/list", **keys, **WAYS[way])
        first = await collect(made, resume(made, http, []), rounds=3)
        assert ids(first) == [0, 1, 2, 3, 4]
        assert len(first) <= 4
        assert await collect(made, resume(made, http, first), rounds=3) == []


async def test_newest_first_feeds_stop_at_what_is_known(http: SharedHttp) -> None:
    """With ``stops.at.known`` the next round reads no further than the first page that has nothing new."""
    table = Table(items(9, 8, 7, 6, 5, 4))
    async with serve(table.answer) as url:
        keys = {"http_records_path": "items", "http_offset_field": "t", "http_pagination_stops_at_known": "true"}
        made = source(f"{url}/list", **keys, **WAYS["cursor"])
        pages = await collect(made, resume(made, http, []))
        table.items.insert(0, {"id": 10, "t": 10})
        table.asked.clear()
        assert ids(await collect(made, resume(made, http, pages))) == [10]
    assert len(table.asked) == 2


async def test_a_list_that_grows_at_its_front_repeats_nothing(http: SharedHttp) -> None:
    """An item pushed to the next page by a new one, while the pages are read, is not delivered twice."""
    table = Table(items(9, 8, 7, 6))

    async def answer(request: web.Request) -> web.Response:
        response = await table.answer(request)
        if len(table.asked) == 1:
            table.items.insert(0, {"id": 99, "t": 10})
        return response

    async with serve(answer) as url:
        made = source(f"{url}/list", http_records_path="items", http_offset_field="t", **WAYS["page_number"])
        pages = await collect(made, resume(made, http, []))
        assert ids(pages) == [0, 1, 2, 3]
        assert ids(await collect(made, resume(made, http, pages))) == [99]


@pytest.mark.parametrize("way", WAYS)
async def test_append_only_lists_go_on_where_they_ended(http: SharedHttp, way: str) -> None:
    """With ``continues`` and without any offset field, a round reads only what was appended since."""
    table = Table(items(0, 0, 0))
    async with serve(table.answer) as url:
        keys = {"http_records_path": "items", "http_pagination_continues": "true"}
        made = source(f"{url}/list", **keys, **WAYS[way])
        pages = await collect(made, resume(made, http, []))
        assert ids(pages) == [0, 1, 2]
        for more in range(3, 9):
            table.items.append({"id": more, "t": 0})
            table.asked.clear()
            pages += await collect(made, resume(made, http, pages[-1:]))
            assert ids(pages) == list(range(more + 1))
            assert len(table.asked) <= 3
