"""``HttpSource`` by cursors: the last record of a page, the newest first; told ends; fields of the first page."""

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
from tests.apis.http.paged import WAYS, Moving, Table, ids, items, resume, source
from tests.apis.http.test_http_moving import collect_in_spite, moves, versions
from tests.contracts.loopback import serve


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


class AfterRecord(Moving):
    """A list whose pages begin after the record that is named, as with Stripe's ``starting_after``."""

    async def answer(self, request: web.Request) -> web.Response:
        """The records after it; 404 where there is no such record."""
        self.asked.append(dict(request.query))
        begin = 0
        if "starting_after" in request.query:
            places = [item["id"] for item in self.items]
            if int(request.query["starting_after"]) not in places:
                return web.json_response({"error": "no such record"}, status=404)
            begin = places.index(int(request.query["starting_after"])) + 1
        page = self.items[begin : begin + self.size]
        self.served.append(page)
        return web.json_response({"items": page, "has_more": begin + self.size < len(self.items)})


def after_record(url: str, **more: str) -> HttpSource:
    """A source that reads them."""
    keys = {
        "http_records_path": "items",
        "http_offset_field": "t",
        "http_offset_key": "id",
        "http_pagination_type": "cursor",
        "http_pagination_cursor_field": "id",
        "http_pagination_cursor_parameter": "starting_after",
        "http_pagination_more_path": "has_more",
    }
    return source(url, **{**keys, **more})


NEWEST_FIRST = {"http_pagination_stops_at_known": "true", "http_pagination_checks_moves": "false"}


async def test_newest_first_resumes_in_the_middle_without_loss_or_repeat(http: SharedHttp) -> None:
    """Killed after any page, with newer records before it is there again; then it stops at what it has read."""
    table = AfterRecord(items(1, 1, 2, 3, 3, 3, 4, 5), is_newest_first=True)
    async with serve(table.moving_answer) as url:
        made = after_record(url, **NEWEST_FIRST)
        for cut in range(1, 5):
            pages = await collect(made, resume(made, http, []), pages=cut)
            table.add(100 + cut)
            table.items.insert(0, {"id": 200 + cut, "t": table.stamp})
            rest = await collect(made, resume(made, http, pages), rounds=2)
            found = ids([*pages, *rest])
            assert sorted(found) == sorted(item["id"] for item in table.items)
            table.asked.clear()
            assert ids(await collect(made, resume(made, http, rest))) == []
            assert len(table.asked) <= 2


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(0, 12),
    size=st.integers(1, 4),
    arrivals=st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=15),
    kills=st.lists(st.integers(0, 8), max_size=4),
)
async def test_a_growing_list_newest_first_comes_once_whatever_is_killed(
    *, count: int, size: int, arrivals: list[tuple[int, bool]], kills: list[int]
) -> None:
    """Records come in between any two requests, with new stamps and with equal ones; each comes once."""
    table = AfterRecord(items(*range(1, count + 1)), size=size, is_newest_first=True)

    def arrive(*, is_equal: bool) -> None:
        table.stamp += not is_equal
        table.items.insert(0, {"id": 1000 + len(table.items), "t": max(1, table.stamp)})

    table.after = {at: partial(arrive, is_equal=is_equal) for at, is_equal in arrivals}
    delivered: list[Page] = []
    async with shared_http() as http, serve(table.moving_answer) as url:
        made = after_record(url, **NEWEST_FIRST)
        for kept in kills:
            delivered += (await collect(made, resume(made, http, delivered[-1:])))[:kept]
        table.after = {}
        delivered += await collect(made, resume(made, http, delivered[-1:]), rounds=2)
    assert sorted(ids(delivered)) == sorted(item["id"] for item in table.items)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 12),
    size=st.integers(2, 4),
    is_newest_first=st.booleans(),
    touches=st.lists(st.lists(st.integers(0, 13), max_size=2), min_size=1, max_size=25),
    kills=st.lists(st.integers(0, 6), max_size=3),
)
async def test_a_record_that_is_the_cursor_may_move(
    *, count: int, size: int, is_newest_first: bool, touches: list[list[int]], kills: list[int]
) -> None:
    """It takes the next page along; the border is looked at again, and what stands in the list has come."""
    table = AfterRecord(items(*range(1, count + 1)), size=size, is_newest_first=is_newest_first)

    def touch(numbers: list[int]) -> None:
        for number in numbers:
            table.touch(number % count)

    table.after = {at: partial(touch, numbers) for at, numbers in enumerate(touches, start=1)}
    delivered: list[Page] = []
    is_repeating = False
    async with shared_http() as http, serve(table.moving_answer) as url:
        made = after_record(url)
        for kept in kills:
            context = resume(made, http, delivered[-1:])
            delivered += (await collect_in_spite(made, context))[:kept]
            is_repeating |= any(moves(context))
        table.after = {}
        delivered += await collect(made, resume(made, http, delivered[-1:]), rounds=2)
    assert table.versions <= set(versions(delivered))


async def test_newest_first_said_of_a_list_that_is_oldest_first_loses_nothing(http: SharedHttp) -> None:
    """Its first page is never new: all pages are read, since their order is another one."""
    table = Table(items(1, 1, 2, 3))
    async with serve(table.answer) as url:
        made = source(
            url,
            http_records_path="items",
            http_offset_field="t",
            http_pagination_stops_at_known="true",
            **WAYS["cursor"],
        )
        pages = await collect(made, resume(made, http, []))
        table.items += [{"id": 4, "t": 4}]
        assert ids(await collect(made, resume(made, http, pages))) == [4]


class Export:
    """An export that goes on for ever by cursors and says when there is no more for now, as Zendesk's does."""

    def __init__(self) -> None:
        self.log = [{"id": number} for number in range(5)]
        self.asked: list[dict[str, str]] = []
        self.says: Any = None
        """What it says of its end; by default the truth."""

    async def answer(self, request: web.Request) -> web.Response:
        """Two changes from the cursor on; nothing else may be asked for beside it."""
        query = dict(request.query)
        self.asked.append(query)
        if "cursor" in query and "start" in query:
            return web.Response(status=400)
        begin = int(query.get("cursor", "c0")[1:])
        page = self.log[begin : begin + 2]
        end = begin + len(page)
        says = end == len(self.log) if self.says is None else self.says
        return web.json_response({"items": page, "after": f"c{end}", "end": says})


def of_export(url: str, **more: str) -> HttpSource:
    """A source that reads it."""
    keys = {
        "http_records_path": "items",
        "http_pagination_type": "cursor",
        "http_pagination_cursor_path": "after",
        "http_pagination_end_path": "end",
        "http_pagination_continues": "true",
        "http_pagination_first_query_start": "0",
    }
    return source(url, **{**keys, **more})


async def test_the_next_round_begins_with_the_cursor_of_the_last_page(http: SharedHttp) -> None:
    """One request for each page and round; what is updated moves behind the cursor, and hides nothing."""
    export = Export()
    async with serve(export.answer) as url:
        made = of_export(url)
        pages = await collect(made, resume(made, http, []))
        assert ids(pages) == [0, 1, 2, 3, 4]
        assert export.asked == [{"start": "0"}, {"cursor": "c2"}, {"cursor": "c4"}]
        export.asked.clear()
        export.log += [{"id": 4}, {"id": 5}]
        for cut in range(len(pages) + 1):
            rest = await collect(made, resume(made, http, pages[:cut]), rounds=2)
            assert ids([*pages[:cut], *rest]) == [0, 1, 2, 3, 4, 4, 5]
            export.asked.clear()
            assert await collect(made, resume(made, http, rest), rounds=3) == []
            assert export.asked == [{"cursor": "c7"}] * 3


async def test_an_end_that_is_not_told_or_contradicts_is_no_silence(http: SharedHttp) -> None:
    """Neither true nor false is a wrong path; another page without a place is tried again."""
    export = Export()
    export.says = "perhaps"
    async with serve(export.answer) as url:
        made = of_export(url)
        with pytest.raises(Fatal, match="true or false at 'end'"):
            await collect(made, resume(made, http, []))
        export.says = False
        made = of_export(url, http_pagination_cursor_path="nothing")
        with pytest.raises(Retriable, match="another page follows, and does not tell which"):
            await collect(made, resume(made, http, []))


async def test_pages_are_told_in_the_body(http: SharedHttp) -> None:
    """Counts are numbers there, a cursor is what the source gave; the rest of the body is as it was written."""
    bodies = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        number = len(bodies)
        return web.json_response(
            {"items": [{"id": number}] * (number < 3), "next": f"{number}" if number < 3 else None}
        )

    post = {"http_method": "POST", "http_pagination_in": "body", "http_records_path": "items"}
    async with serve(answer) as url:
        made = source(url, **post, http_pagination_type="offset", http_body='{"q": 1.50}')
        assert ids(await collect(made, resume(made, http, []))) == [1, 2]
        assert bodies == [{"q": 1.5, "offset": offset, "limit": 100} for offset in range(3)]
        bodies.clear()
        made = source(
            url,
            **post,
            http_pagination_type="cursor",
            http_pagination_cursor_path="next",
            http_pagination_cursor_parameter="after",
        )
        assert ids(await collect(made, resume(made, http, []))) == [1, 2]
    assert bodies == [{}, {"after": "1"}, {"after": "2"}]
