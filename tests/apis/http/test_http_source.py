"""``HttpSource`` against real servers: requests, answers, rhythm, and what it says of both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, Page, RateLimited, Retriable, Severity
from fetchers.sdk.testing import FakeClock, FakeContext, collect, running
from fetchers.toolkit.http import SharedHttp
from tests.apis.http.paged import WAYS, Table, ids, items, resume, source
from tests.contracts.loopback import serve


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


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


@pytest.mark.parametrize("way", ["page_number", "offset"])
@pytest.mark.parametrize("field", ["", "t"])
async def test_a_source_that_does_not_read_the_count_is_said(http: SharedHttp, way: str, field: str) -> None:
    """Where each page is the first one, it is handed over once, and the task fails at the second."""
    asked = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({"items": items(1, 2, 3), "asked": asked})

    pages: list[Page] = []
    async with serve(answer) as url:
        keys = {"http_records_path": "items", "http_pagination_pages_max": "20", **WAYS[way]}
        made = source(url, http_offset_field=field, **keys)
        with pytest.raises(Fatal, match="do not go on"):
            await collect(made, resume(made, http, []), on_page=pages.append)
    assert ids(pages) == [0, 1, 2]
    assert asked <= 3  # one of them is asked for ahead


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
    """With ``http.rate.limits`` pages come no faster than allowed."""
    table = Table(items(*range(8)))
    async with serve(table.answer) as url:
        made = source(f"{url}/list", http_records_path="items", http_rate_limits="2/m", **WAYS["cursor"])
        context = resume(made, http, [])
        assert ids(await collect(made, context)) == list(range(8))
        assert context.clock.monotonic() == pytest.approx(60.0, abs=0.1)
        assert context.limit_waits


async def test_a_429_holds_all_who_use_the_credential(http: SharedHttp) -> None:
    """Without ``Retry-After`` and without limits of our own too: the next task does not run into the same wall."""
    table = Table(items(1))
    clock = FakeClock()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=429) if request.path == "/busy" else await table.answer(request)

    async with serve(answer) as url:
        busy, well = source(f"{url}/busy"), source(f"{url}/well", http_records_path="items")
        with pytest.raises(RateLimited) as caught:
            await collect(busy, FakeContext(partition=busy.partition(), http=http, clock=clock))
        wait = caught.value.wait_seconds
        assert wait is not None
        assert wait >= 1.0
        context = FakeContext(partition=well.partition(), http=http, clock=clock)
        assert ids(await collect(well, context)) == [0]
    assert clock.monotonic() >= wait
    assert context.limit_waits


@pytest.mark.parametrize("is_shared", [True, False])
async def test_sources_with_one_credential_keep_the_strictest_limit(http: SharedHttp, *, is_shared: bool) -> None:
    """While a neighbour with 2/m runs, one with 100/m asks no faster, unless its credential is another one."""
    table, clock = Table(items(*range(8))), FakeClock()
    moments: list[tuple[str, float]] = []

    async def answer(request: web.Request) -> web.Response:
        moments.append((request.path, clock.monotonic()))
        return await table.answer(request)

    async with serve(answer) as url:
        keys = {"http_records_path": "items", "http_auth_type": "bearer", **WAYS["cursor"]}
        strict = source(f"{url}/strict", http_rate_limits="2/m", http_auth_token="one", **keys)
        token = "one" if is_shared else "another"
        loose = source(f"{url}/loose", http_rate_limits="100/m", http_auth_token=token, **keys)
        neighbour = FakeContext(partition=strict.partition(), http=http, clock=clock)
        async with running(strict, neighbour) as pages:
            await anext(pages)  # it lives on until the block is left, its second page fetched ahead
            context = FakeContext(partition=loose.partition(), http=http, clock=clock)
            assert ids(await collect(loose, context)) == list(range(8))
    asked = [moment for path, moment in moments if path == "/loose"]
    assert len(asked) == 4
    if is_shared:
        times = [moment for _, moment in moments]
        assert all(later - first >= 60.0 - 1e-6 for first, later in zip(times, times[2:], strict=False))
        assert context.limit_waits
    else:
        assert asked == [0.0] * 4


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
    """Where the offset field is a time, the age of the newest record; none once a round brings nothing new."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response([{"id": 1, "t": "2023-12-31T23:58:20Z"}])

    async with serve(answer) as url:
        made = source(url, http_offset_field="t")
        context = resume(made, http, [])
        await collect(made, context, rounds=3)
    assert context.lags[:2] == [100.0, 0.0]


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


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (200, '{"items": [{"id": 1}]}', []),
        (200, '{"items": []}', [(Severity.WARNING, "holds no records")]),
        (200, "{}", [(Severity.ERROR, "Expected a first page of records")]),
        (401, "{}", [(Severity.ERROR, "401")]),
        (503, "{}", [(Severity.ERROR, "503")]),
    ],
)
async def test_a_check_asks_for_the_first_page(
    http: SharedHttp, status: int, body: str, found: list[tuple[Severity, str]]
) -> None:
    """Once, with the credentials; what is wrong stands at the URL, without what may be secret in it."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers["Authorization"])
        return web.Response(status=status, text=body, content_type="application/json")

    async with serve(answer) as url:
        keys = {"http_auth_type": "bearer", "http_auth_token": "hunter22", "http_records_path": "items"}
        made = source(f"{url}/list?key=hunter33", **keys, **WAYS["cursor"])
        seen = await made.check(FakeContext(http=http))
    assert asked == ["Bearer hunter22"]
    for finding, (severity, told) in zip(seen, found, strict=True):
        assert (finding.key, finding.value, finding.severity) == ("http.url", f"{url}/list", severity)
        assert told in finding.message
        assert "hunter" not in finding.message
