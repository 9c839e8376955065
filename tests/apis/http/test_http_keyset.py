"""``HttpSource`` by key set: each request says after which record to go on, by several fields."""

from __future__ import annotations

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchers.catalog import shared_http
from fetchers.http.fetcher import HttpSource
from fetchers.sdk import Page
from fetchers.sdk.testing import collect
from tests.apis.http.paged import ids, items, resume, source
from tests.contracts.loopback import serve


class KeySet:
    """A table that answers with two rows after (``t``, ``id``), in that order."""

    def __init__(self, *, is_itself_included: bool = False) -> None:
        self.items: list[dict[str, int]] = []
        self.asked: list[tuple[int, int]] = []
        self.is_itself_included = is_itself_included

    async def answer(self, request: web.Request) -> web.Response:
        """The next rows."""
        after = int(request.query["t"]), int(request.query["id"])
        self.asked.append(after)
        rows = sorted((item["t"], item["id"]) for item in self.items)
        chosen = [row for row in rows if row > after or (self.is_itself_included and row == after)][:2]
        return web.json_response([{"id": number, "t": stamp} for stamp, number in chosen])


def keyset_source(url: str) -> HttpSource:
    """A source that goes on after the last row."""
    return source(
        url,
        http_query_t="{offset.t}",
        http_query_id="{offset.id}",
        http_offset_field="t,id",
        http_offset_initial="0,-1",
    )


@pytest.mark.parametrize("is_itself_included", [True, False])
async def test_equal_stamps_across_requests_come_once(is_itself_included: bool) -> None:  # noqa: FBT001
    """More rows with one stamp than an answer holds: the second field goes on in the middle of them."""
    table = KeySet(is_itself_included=is_itself_included)
    table.items = items(1, 1, 1, 1, 1, 2)
    async with shared_http() as http, serve(table.answer) as url:
        made = keyset_source(url)
        pages = await collect(made, resume(made, http, []), rounds=8)
        assert ids(pages) == [0, 1, 2, 3, 4, 5]
        assert (pages[-1].offset["t"], pages[-1].offset["id"]) == (2, 5)
        assert table.asked[:2] == [(0, -1), (1, 1)]
        for cut in range(len(pages)):
            rest = await collect(made, resume(made, http, pages[:cut]), rounds=8)
            assert ids(pages[:cut]) + ids(rest) == [0, 1, 2, 3, 4, 5]


async def test_by_the_mark_all_rows_come_in_one_round() -> None:
    """More rows with one stamp than a page holds: the second field leads on, and every offset resumes."""
    table = KeySet()
    table.items = items(1, 1, 1, 1, 1, 2)
    async with shared_http() as http, serve(table.answer) as url:
        made = source(
            url,
            http_query_t="{offset.t}",
            http_query_id="{offset.id}",
            http_offset_field="t,id",
            http_offset_initial="0,-1",
            http_pagination_type="mark",
            http_pagination_limit="2",
        )
        pages = await collect(made, resume(made, http, []))
        assert ids(pages) == [0, 1, 2, 3, 4, 5]
        assert len(table.asked) == 4
        for cut in range(len(pages)):
            assert ids([*pages[:cut], *await collect(made, resume(made, http, pages[:cut]))]) == [0, 1, 2, 3, 4, 5]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 1), max_size=5), min_size=1, max_size=4), st.booleans(), st.data())
async def test_every_row_once(arrivals: list[list[int]], included: bool, data: st.DataObject) -> None:  # noqa: FBT001
    """A growing table with many equal stamps, read with a kill after any page: each row exactly once."""
    table = KeySet(is_itself_included=included)
    delivered: list[Page] = []
    async with shared_http() as http, serve(table.answer) as url:
        made = keyset_source(url)
        for steps in arrivals:
            for step in steps:
                stamp = (table.items[-1]["t"] if table.items else 0) + step
                table.items.append({"id": len(table.items), "t": stamp})
            pages = await collect(made, resume(made, http, delivered[-1:]), rounds=3)
            delivered += pages[: data.draw(st.integers(0, len(pages)))]
        delivered += await collect(made, resume(made, http, delivered[-1:]), rounds=len(table.items) + 1)
    assert ids(delivered) == [item["id"] for item in table.items]


async def test_the_first_field_tells_the_lag() -> None:
    """Where the first field is a time, the age of the newest record is told."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response([{"id": 1, "t": "2023-12-31T23:58:20Z"}])

    async with shared_http() as http, serve(answer) as url:
        made = source(url, http_offset_field="t,id")
        context = resume(made, http, [])
        await collect(made, context, rounds=2)
    assert context.lags[0] == 100.0
