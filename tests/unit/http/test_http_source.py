"""``HttpSource`` against real servers: every record once, whatever the pages, the stamps and the moment of a kill."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchers.catalog import shared_http
from fetchers.http.fetcher import HttpSource
from fetchers.sdk import Fatal, Page, RateLimited, Retriable
from fetchers.sdk.testing import FakeContext, collect
from fetchers.toolkit.http import SharedHttp
from tests.contracts.loopback import serve


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


def source(url: str, **more: str) -> HttpSource:
    """A source with these keys (``_`` for ``.``)."""
    keys = {name.replace("__", "\0").replace("_", ".").replace("\0", "_"): text for name, text in more.items()}
    parsed = HttpSource.config_class.parse({"topic": "t", "http.url": url, "poll.interval.ms": "1000", **keys})
    assert parsed.config is not None, parsed.findings
    made = HttpSource(parsed.config)  # type: ignore[arg-type]
    assert not made.findings()
    return made


def ids(pages: Sequence[Page]) -> list[Any]:
    """The ``id`` of every record."""
    return [json.loads(payload or b"")["id"] for page in pages for payload in page.values()]


def resume(made: HttpSource, http: SharedHttp, pages: Sequence[Page]) -> FakeContext:
    """A context with the offsets of these pages stored."""
    context = FakeContext(partition=made.partition(), http=http)
    for page in pages:
        # As through the offset topic: nothing but JSON survives.
        offset = json.loads(json.dumps(dict(page.offset)))
        context.offsets[next(iter(context.offsets), tuple(sorted(made.partition().items())))] = offset
    return context


class Table:
    """A list of items with stamps, served in pages in any of the usual ways."""

    def __init__(self, items: list[dict[str, Any]], *, size: int = 2) -> None:
        self.items = items
        self.size = size
        self.asked: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        """A page, with everything that tells the next one."""
        query = dict(request.query)
        self.asked.append(query)
        if "page" in query:
            start = (int(query["page"]) - 1) * self.size
        else:
            start = int(query.get("offset", query.get("cursor", "0")))
        end = start + self.size
        following = end if end < len(self.items) else None
        url = f"{request.path}?cursor={following}" if following else None
        links = {"Link": f'<{url}>; rel="next"'} if url else {}
        body = {"items": self.items[start:end], "cursor": following, "next": url}
        return web.json_response(body, headers=links)


def items(*stamps: int) -> list[dict[str, Any]]:
    """Items numbered from 0 with these stamps."""
    return [{"id": number, "t": stamp} for number, stamp in enumerate(stamps)]


WAYS: Mapping[str, Mapping[str, str]] = {
    "page_number": {"http_pagination_type": "page_number"},
    "offset": {"http_pagination_type": "offset", "http_pagination_limit": "2"},
    "cursor": {"http_pagination_type": "cursor", "http_pagination_cursor_path": "cursor"},
    "link": {"http_pagination_type": "link"},
    "next_url": {"http_pagination_type": "next_url"},
}


@pytest.mark.parametrize("way", WAYS)
async def test_reads_all_pages_and_resumes_between_any_two(http: SharedHttp, way: str) -> None:
    """By every way of pagination each item comes once, and after a stop at any page the rest comes."""
    table = Table(items(5, 1, 5, 3, 2, 9, 9))
    async with serve(table.answer) as url:
        made = source(f"{url}/list", http_records_path="items", http_offset_field="t", **WAYS[way])
        pages = await collect(made, resume(made, http, []))
        assert ids(pages) == [0, 1, 2, 3, 4, 5, 6]
        for cut in range(len(pages) + 1):
            rest = await collect(made, resume(made, http, pages[:cut]))
            assert ids(pages[:cut]) + ids(rest) == [0, 1, 2, 3, 4, 5, 6]
        table.items += [{"id": 7, "t": 9}, {"id": 8, "t": 10}]
        assert ids(await collect(made, resume(made, http, pages))) == [7, 8]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        delivered += await collect(made, resume(made, http, delivered[-1:]))
    assert sorted(ids(delivered)) == [item["id"] for item in table.items]


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


async def test_without_an_offset_field_every_round_is_the_whole(http: SharedHttp) -> None:
    """A source whose records cannot be told apart is a snapshot, read again each time."""
    table = Table(items(0, 0, 0))
    async with serve(table.answer) as url:
        made = source(f"{url}/list", http_records_path="items", **WAYS["cursor"])
        assert ids(await collect(made, resume(made, http, []), rounds=2)) == [0, 1, 2, 0, 1, 2]


async def test_the_request_carries_the_offset(http: SharedHttp) -> None:
    """Placeholders in URL, query and body are filled with the initial value, then with what was read last."""
    seen: list[tuple[str, str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.raw_path, request.query["q"], await request.text()))
        return web.json_response([{"id": 1, "t": 'é "5" &'}])

    async with serve(answer) as url:
        made = source(
            f"{url}/since/{{offset}}",
            http_method="POST",
            http_query_q=">{offset.t}",
            http_body='{"since": "{offset}"}',
            http_offset_field="t",
            http_offset_initial="a",
        )
        await collect(made, resume(made, http, []), rounds=2)
    assert seen[0] == ("/since/a?q=%3Ea", ">a", '{"since": "a"}')
    assert seen[1] == ("/since/%C3%A9%20%225%22%20&?q=%3E%C3%A9+%225%22+%26", '>é "5" &', '{"since": "é \\"5\\" &"}')


async def test_a_failure_in_the_middle_goes_on_from_the_last_page(http: SharedHttp) -> None:
    """After a 500 on page 2 the worker fetches anew, and page 1 is not asked for again."""
    table = Table(items(1, 2, 3, 4))
    failures = iter([False, True])

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=500) if next(failures, False) else await table.answer(request)

    pages: list[Page] = []
    async with serve(answer) as url:
        made = source(f"{url}/list", http_records_path="items", http_offset_field="t", **WAYS["cursor"])
        with pytest.raises(Retriable, match="500"):
            await collect(made, resume(made, http, []), on_page=pages.append)
        assert ids(pages) == [0, 1]
        assert ids(await collect(made, resume(made, http, pages))) == [2, 3]
    assert [query.get("cursor") for query in table.asked] == [None, "2"]


async def test_circles_end(http: SharedHttp) -> None:
    """A cursor that does not move, or comes back, is found and said."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"items": [{"id": 1}], "cursor": "same"})

    async with serve(answer) as url:
        made = source(url, http_records_path="items", **WAYS["cursor"])
        with pytest.raises(Fatal, match="circle"):
            await collect(made, resume(made, http, []))


async def test_the_cursor_of_an_end_without_records_is_no_circle(http: SharedHttp) -> None:
    """A source that gives its last cursor again, and nothing with it, is at its end."""

    async def answer(request: web.Request) -> web.Response:
        found = [] if request.query.get("cursor") else [{"id": 1}]
        return web.json_response({"items": found, "cursor": "end"})

    async with serve(answer) as url:
        made = source(url, http_records_path="items", **WAYS["cursor"])
        assert ids(await collect(made, resume(made, http, []))) == [1]


async def test_one_bad_record_does_not_stop_the_others(http: SharedHttp) -> None:
    """A record that is no JSON reaches the conversion with its bytes, and so do its neighbours."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b'[{"id": 1, "t": 1}, {"id": NaN, "t": 2}, {"t": 3, "x": "\\ud800"}]')

    async with serve(answer) as url:
        made = source(url, http_offset_field="t")
        (page,) = await collect(made, resume(made, http, []))
    assert list(page.values()) == [b'{"id": 1, "t": 1}', b'{"id": NaN, "t": 2}', b'{"t": 3, "x": "\\ud800"}']
    assert page.offset["t"] == 3


async def test_formats(http: SharedHttp) -> None:
    """NDJSON and CSV are read as well as JSON."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text='{"id": 1}\n{"id": 2}' if request.path == "/ndjson" else 'id,n\n"1","a ""b"""\n')

    async with serve(answer) as url:
        lines, rows = source(f"{url}/ndjson", http_format="ndjson"), source(f"{url}/csv", http_format="csv")
        assert ids(await collect(lines, resume(lines, http, []))) == [1, 2]
        (page,) = await collect(rows, resume(rows, http, []))
        assert [json.loads(payload or b"") for payload in page.values()] == [{"id": "1", "n": 'a "b"'}]


async def test_a_large_answer_is_cut_as_well(http: SharedHttp) -> None:
    """An answer of several megabytes, cut in a thread, is complete."""
    many = [{"id": number, "t": number, "x": "y" * 50} for number in range(50_000)]

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(many)

    async with serve(answer) as url:
        made = source(url, http_offset_field="t", http_offset_key="id")
        assert ids(await collect(made, resume(made, http, []))) == list(range(50_000))


async def test_statuses(http: SharedHttp) -> None:
    """The status table of the config is obeyed: nothing there, try again, fail, too many."""
    status = 404

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status)

    async with serve(answer) as url:
        made = source(url, http_status_skip="404", http_status_retry="409,410", http_status_fatal="5xx")
        assert await collect(made, resume(made, http, [])) == []
        for status, kind in ((409, Retriable), (503, Fatal), (429, RateLimited), (403, Fatal)):  # noqa: B007
            with pytest.raises(kind):
                await collect(made, resume(made, http, []))


async def test_rate_limits_are_kept(http: SharedHttp) -> None:
    """With ``http.rate.limits`` pages come no faster than allowed, also to several tasks of one credential."""
    table = Table(items(*range(8)))
    async with serve(table.answer) as url:
        made = source(f"{url}/list", http_records_path="items", http_rate_limits="2/m", **WAYS["cursor"])
        context = resume(made, http, [])
        assert ids(await collect(made, context)) == list(range(8))
        assert context.clock.monotonic() == pytest.approx(60.0, abs=0.1)
        assert context.limit_waits


async def test_the_rhythm_is_faster_while_there_is_news(http: SharedHttp) -> None:
    """After a round with news the next one comes by ``http.catchup.interval.ms``, after one without by the poll's."""
    table = Table(items(1))
    async with serve(table.answer) as url:
        keys = {"http_records_path": "items", "http_offset_field": "t", "http_catchup_interval_ms": "10"}
        made = source(f"{url}/list", **keys)
        context = resume(made, http, [])
        await collect(made, context, rounds=3)
    assert context.clock.slept[:2] == [0.01, pytest.approx(1.0)]


async def test_tells_its_lag(http: SharedHttp) -> None:
    """Where the offset field is a time, the age of the newest record is told."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response([{"id": 1, "t": "2023-12-31T23:58:20Z"}])

    async with serve(answer) as url:
        made = source(url, http_offset_field="t")
        context = resume(made, http, [])
        await collect(made, context, rounds=2)
    assert context.lags[0] == 100.0


@pytest.mark.parametrize("missing", ["fail", "empty"])
async def test_an_answer_without_its_path(http: SharedHttp, missing: str) -> None:
    """A missing path is a mistake, unless the config says that it means: nothing."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"count": 0})

    async with serve(answer) as url:
        made = source(url, http_records_path="items", http_records_missing=missing)
        if missing == "empty":
            assert await collect(made, resume(made, http, [])) == []
        else:
            with pytest.raises(Fatal, match="items"):
                await collect(made, resume(made, http, []))


async def test_a_next_url_with_the_key_in_it_stores_no_key(http: SharedHttp) -> None:
    """The stored offset of a source that repeats our API key in its next URL does not hold the key."""
    key = "k3y-4711-0815"

    async def answer(request: web.Request) -> web.Response:
        assert request.query["api_key"] == key
        page = int(request.query.get("p", "1"))
        following = str(request.url.update_query(p=str(page + 1))) if page < 3 else None
        return web.json_response({"items": [{"id": page}], "next": following})

    async with serve(answer) as url:
        keys = {"http_auth_type": "api__key", "http_auth_key": key, "http_auth_key_query": "api__key"}
        keys = {name: text.replace("__", "_") for name, text in keys.items()}
        made = source(f"{url}/l", http_records_path="items", **keys, **WAYS["next_url"])
        pages = await collect(made, resume(made, http, []))
        assert ids(pages) == [1, 2, 3]
        assert key not in str([page.offset for page in pages])
        assert ids(await collect(made, resume(made, http, pages[:1]))) == [2, 3]
