"""``HttpSource`` by pages that each begin at the mark: a list that shifts loses nothing, and what would is an error.

The model is an API of changes: records in order of their stamps, from ``since`` on (included or not), so many at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchers.catalog import shared_http
from fetchers.http.fetcher import HttpSource
from fetchers.sdk import Fatal, Page, Retriable
from fetchers.sdk.testing import collect
from fetchers.toolkit.http import SharedHttp
from tests.apis.http.paged import WAYS, Moving, ids, items, resume, source
from tests.apis.http.test_http_moving import versions
from tests.contracts.loopback import serve

KEYS = {
    "http_query_since": "{offset}",
    "http_offset_field": "t",
    "http_offset_key": "id",
    "http_offset_initial": "0",
    "http_pagination_type": "mark",
}


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


class Changes(Moving):
    """A list that is asked for from a stamp on."""

    def __init__(self, items: list[dict[str, Any]], *, is_included: bool = True, cap: int = 1000) -> None:
        super().__init__(items)
        self.is_included = is_included
        self.cap = cap
        self.is_deaf = False
        """Whether ``since`` is not read."""
        self.ties_max = 0
        """Records of one stamp at any moment."""

    async def changes(self, request: web.Request) -> web.Response:
        """The next records from the stamp on; then what was planned for this moment happens."""
        self.asked.append(dict(request.query))
        stamps = [item["t"] for item in self.items]
        self.ties_max = max([self.ties_max, *map(stamps.count, set(stamps))])
        since = 0 if self.is_deaf else int(request.query["since"])
        found = [item for item in self.items if item["t"] > since or (self.is_included and item["t"] == since)]
        response = web.json_response(found[: min(self.cap, int(request.query["limit"]))])
        self.after.pop(len(self.asked), lambda: None)()
        return response


def of_changes(url: str, limit: int, **more: str) -> HttpSource:
    """A source that reads them."""
    return source(url, **{**KEYS, "http_pagination_limit": str(limit), **more})


@pytest.mark.parametrize("is_included", [True, False])
async def test_every_page_begins_at_the_mark_and_every_offset_resumes(http: SharedHttp, is_included: bool) -> None:  # noqa: FBT001
    """Each record comes once, ties over page borders too, whether the source includes the stamp it is asked for."""
    table = Changes(items(1, 2, 2, 2, 3, 5, 5, 8), is_included=is_included)
    async with serve(table.changes) as url:
        made = of_changes(url, 4)
        pages = await collect(made, resume(made, http, []))
        assert sorted(ids(pages)) == [*range(8)]
        for cut in range(len(pages) + 1):
            rest = await collect(made, resume(made, http, pages[:cut]))
            assert sorted(ids([*pages[:cut], *rest])) == [*range(8)]
        assert ids(await collect(made, resume(made, http, pages), rounds=2)) == []
        table.items += [{"id": 8, "t": 8}, {"id": 9, "t": 9}]
        assert ids(await collect(made, resume(made, http, pages))) == [8, 9]


async def test_the_tried_run_of_ties_is_an_error_that_says_what_to_do(http: SharedHttp) -> None:
    """250 records of one stamp over pages of 100: not 301 lost in silence, but an error, and with 251 all of them."""
    table = Changes([{"id": number, "t": max(1, number - 250)} for number in range(600)])
    async with serve(table.changes) as url:
        made = of_changes(url, 100)
        pages: list[Page] = []
        with pytest.raises(Fatal, match=r"100 records have the value 1 in t.*raise http\.pagination\.limit"):
            await collect(made, resume(made, http, []), on_page=pages.append)
        assert sum(map(len, pages)) == 100
        wider = of_changes(url, 300)
        rest = await collect(wider, resume(wider, http, pages))
    assert sorted(ids([*pages, *rest])) == [*range(600)]


@pytest.mark.parametrize(
    ("stamps", "error", "words"),
    [
        ([5, 4, 3, 2], Fatal, "newest records first"),
        ([5, 9, 3, 7], Retriable, "in no order"),
        ([*range(1, 40)], Fatal, r"no more than 7 records at once.*http\.pagination\.limit=7"),
    ],
)
async def test_a_list_that_cannot_be_read_so_is_told(
    http: SharedHttp, stamps: list[int], error: type[Exception], words: str
) -> None:
    """In another order a mark would pass over records; with a limit of the source's own no page looks full."""
    table = Changes(items(*stamps), cap=7)
    async with serve(table.changes) as url:
        made = of_changes(url, 10)
        with pytest.raises(error, match=words):
            await collect(made, resume(made, http, []))


async def test_a_source_that_does_not_read_the_mark_is_told(http: SharedHttp) -> None:
    """It gives its first page for ever."""
    table = Changes(items(*range(1, 30)))
    table.is_deaf = True
    async with serve(table.changes) as url:
        made = of_changes(url, 10)
        with pytest.raises(Fatal, match=r"does the source go by \{offset\}"):
            await collect(made, resume(made, http, []))


async def test_a_cap_that_is_told_reads_on(http: SharedHttp) -> None:
    """The way out of the error leads on from the offset at which it stood."""
    table = Changes(items(*range(1, 40)), cap=7)
    async with serve(table.changes) as url:
        pages: list[Page] = []
        made = of_changes(url, 10)
        with pytest.raises(Fatal):
            await collect(made, resume(made, http, []), on_page=pages.append)
        made = of_changes(url, 7)
        rest = await collect(made, resume(made, http, pages))
    assert ids([*pages, *rest]) == [*range(39)]


async def test_the_mark_in_a_body_and_as_milliseconds(http: SharedHttp) -> None:
    """As HubSpot wants it: a filter in a JSON body, the limit a number beside it."""
    bodies = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.json_response([{"id": 1, "t": "2024-05-01T12:00:00.123456Z"}])

    async with serve(answer) as url:
        body = '{"filters": [{"value": "{offset:ms}"}], "big": 12345678901234567890}'
        keys = {**KEYS, "http_offset_initial": "2024-01-01T00:00:00Z", "http_method": "POST", "http_body": body}
        del keys["http_query_since"]
        made = source(url, **keys, http_pagination_in="body")
        assert ids(await collect(made, resume(made, http, []))) == [1]
    assert [each["filters"][0]["value"] for each in bodies] == ["1704067200000", "1714564800123"]
    assert bodies[0]["limit"] == 100
    assert bodies[0]["big"] == 12345678901234567890


@pytest.mark.parametrize("way", ["mark", "page_number", "offset", "link"])
@pytest.mark.parametrize(("count", "killed_after"), [(700, 3), (2900, 13)])
async def test_the_tried_runs_over_a_list_that_moves_are_complete(
    http: SharedHttp, way: str, count: int, killed_after: int
) -> None:
    """Records are updated while it is paged, ten more while the task is down: 192 of 2,900 were lost, and 24 of 700."""
    table = Changes(items(*range(1, count + 1)))
    table.size = 100

    def touch(asked: int) -> None:
        for number in (asked * 7 % count, asked * 31 % count):
            table.touch(number)

    table.after = {asked: partial(touch, asked) for asked in range(1, count // 15)}
    async with serve(table.changes if way == "mark" else table.moving_answer) as url:
        more = {"http_offset_field": "t", "http_offset_key": "id", "http_records_path": "items"}
        ways = {**more, **WAYS.get(way, {}), "http_pagination_limit": "100"}
        made = of_changes(url, 100) if way == "mark" else source(f"{url}/list", **ways)
        pages = await collect(made, resume(made, http, []), pages=killed_after)
        for number in range(10):
            table.touch(number * 29)
        rest = await collect(made, resume(made, http, pages))
        table.after = {}
        last = await collect(made, resume(made, http, rest), rounds=2)
    assert table.versions <= set(versions([*pages, *rest, *last]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stamps=st.lists(st.integers(1, 5), min_size=3, max_size=20).map(sorted),
    limit=st.integers(3, 6),
    is_included=st.booleans(),
    events=st.lists(
        st.tuples(st.integers(1, 30), st.sampled_from(["touch", "drop", "add", "tie"]), st.integers(0, 40)), max_size=20
    ),
    kills=st.lists(st.integers(0, 9), max_size=3),
)
async def test_whatever_happens_to_the_list_what_stays_has_come_or_it_is_an_error(
    *,
    stamps: list[int],
    limit: int,
    is_included: bool,
    events: list[tuple[int, str, int]],
    kills: list[int],
) -> None:
    """Records are updated, added (with new and with equal stamps) and dropped between any two requests; kills anywhere.

    Each version that is there at the end has come, once. The only errors are ties that no page holds.
    """
    table = Changes(items(*stamps), is_included=is_included)

    def happen(kind: str, number: int) -> None:
        known = [item["id"] for item in table.items]
        another = 100 + len(table.asked) * 50 + number
        if kind == "add":
            table.add(another)
        elif kind == "tie":
            table.items.append({"id": another, "t": table.stamp})
        elif known:
            (table.touch if kind == "touch" else table.drop)(known[number % len(known)])

    table.after = {at: partial(happen, kind, number) for at, kind, number in events}
    delivered: list[Page] = []
    async with shared_http() as http, serve(table.changes) as url:
        made = of_changes(url, limit)
        try:
            for kept in kills:
                delivered += (await collect(made, resume(made, http, delivered[-1:])))[:kept]
            table.after = {}
            delivered += await collect(made, resume(made, http, delivered[-1:]), rounds=2)
            is_read = True
        except Fatal:
            is_read = False
    if not is_read:
        assert table.ties_max >= limit  # said, with a way out
        return
    assert table.versions <= set(versions(delivered))
    assert len(versions(delivered)) == len(set(versions(delivered)))
