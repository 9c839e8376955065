"""The toolkit's part of the examples of ``docs/reference/sdk.md``, as ``sdk_examples`` has those of the SDK.

The name before ``__`` is the section of the page. An example is the body of its function, so it brings its own imports.
"""

# ruff: noqa: PLC0415 - a reader copies an example with its imports

from __future__ import annotations


async def ordered_list__pages() -> None:
    """The guide has it as a whole fetcher; here is what it asks for, and what its offset looks like."""
    from aiohttp import web

    from fetchers.catalog import shared_http
    from fetchers.sdk.testing import FakeContext
    from fetchers.toolkit.ordered_list import OrderedList
    from tests.contracts.loopback import serve

    async def answer(request: web.Request) -> web.Response:
        since = int(request.query.get("since", "0"))
        return web.json_response([{"id": n, "at": n // 2} for n in range(5) if n // 2 >= since][:3])

    async with shared_http() as http, serve(answer) as url:
        items = OrderedList(url=url, sorted_by="at", begin_at="since", page_records=3, key="id")
        stream = items.pages(FakeContext(http=http))
        first, second = await anext(stream), await anext(stream)
        assert (list(first.values())[-1], first.offset["read"]) == (b'{"id": 2, "at": 1}', 1)
        assert list(second.values()) == [b'{"id": 3, "at": 1}', b'{"id": 4, "at": 2}']  # 2 was handed over before


async def ordered_list__ties() -> None:
    """More records with one value than an answer holds: the next page that the answer names is followed."""
    from aiohttp import web

    from fetchers.catalog import shared_http
    from fetchers.sdk.testing import FakeContext
    from fetchers.toolkit.ordered_list import OrderedList
    from fetchers.toolkit.pagination import CursorInBody
    from tests.contracts.loopback import serve

    async def answer(request: web.Request) -> web.Response:
        begin = int(request.query.get("cursor", "0"))
        items = [{"id": n, "at": "2026-01-01T00:00:00Z"} for n in range(begin, 5)]
        return web.json_response({"items": items[:2], "next": str(begin + 2) if len(items) > 2 else None})

    async with shared_http() as http, serve(answer) as url:
        items = OrderedList(
            url=url, records="items", sorted_by="at", begin_at="since", next_pages=CursorInBody("next", "cursor")
        )
        stream = items.pages(FakeContext(http=http))
        assert [len(await anext(stream)) for _ in range(3)] == [2, 2, 1]


async def auth__headers() -> None:
    """Pass one as ``auth=`` of a request; its secrets show up in no message."""
    from fetchers.sdk import Authorizer, Credentials
    from fetchers.sdk.testing import FakeClock
    from fetchers.toolkit.auth import ApiKeyAuth, BasicAuth, BearerAuth, ClientCredentials, OAuth2Auth

    bearer: Authorizer = BearerAuth("tok-1")
    nobody = None  # these ask no token server
    assert await bearer.credentials(nobody) == Credentials(headers={"Authorization": "Bearer tok-1"})  # type: ignore[arg-type]
    assert "pass" in BasicAuth("user", "pass").secrets
    key = await ApiKeyAuth("key-1", header=None, query="api_key").credentials(nobody)  # type: ignore[arg-type]
    assert key.query == {"api_key": "key-1"}
    client = ClientCredentials("https://login.example/token", "id", "s3cret", scope="read")
    assert "s3cret" in OAuth2Auth(client, clock=FakeClock()).secrets  # asks for a token with the first request


async def rate_limits__windows() -> None:
    """Three requests in any second and no more, for all who use the credential."""
    from fetchers.sdk import RequestBudget
    from fetchers.sdk.testing import FakeContext
    from fetchers.toolkit.rate_limits import RateBudget, RateWindow, shared_budget

    context = FakeContext()
    budget: RequestBudget = shared_budget("token", [RateWindow(count=3, seconds=1)], clock=context.clock)
    moments = []
    for _ in range(4):
        async with budget.admitted(context):
            moments.append(context.clock.monotonic())
    assert moments[:3] == [0, 0, 0]
    assert moments[3] >= 1
    assert isinstance(budget, RateBudget)
    assert budget.refuse(context.clock, asked_seconds=30) == 30  # a 429 with Retry-After: 30


def rate_limits__headers() -> None:
    """What a source says is left of its limit; pass it as ``headers=`` of a budget."""
    from datetime import UTC, datetime

    from fetchers.toolkit.limit_headers import LimitHeaders

    told = LimitHeaders(remaining="X-RateLimit-Remaining", reset="X-RateLimit-Reset")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert told.wait_seconds({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"}, now=now) == 30
    assert told.wait_seconds({"X-RateLimit-Remaining": "7"}, now=now) == 0


def pagination__ways() -> None:
    """A way says what to ask for at a place, and which place follows; None is the end."""
    from fetchers.toolkit.next_urls import LinkHeader, NextUrl, next_link
    from fetchers.toolkit.pagination import (
        CursorInBody,
        CursorOfRecord,
        FromMark,
        OffsetLimit,
        PageAnswer,
        PageNumber,
        PageRequest,
        Pagination,
        SinglePage,
    )

    base = PageRequest("https://api.example/items", {"limit": "2"})
    answer = PageAnswer(
        base.url, b'{"cursor": "c2", "next": "/items?page=2"}', ['</items?page=2>; rel="next"'], 2, b'{"id": 7}'
    )
    ways: list[tuple[Pagination, object]] = [
        (SinglePage(), None),
        (FromMark(limit=2), None),  # the next request begins at the mark
        (PageNumber(), 2),
        (OffsetLimit(limit=2), 2),
        (CursorInBody("cursor"), "c2"),
        (CursorOfRecord("id"), 7),
        (LinkHeader(), "https://api.example/items?page=2"),
        (NextUrl(), "https://api.example/items?page=2"),
    ]
    for way, following in ways:
        assert way.following(way.first(), answer) == following
    assert CursorInBody("cursor").request("c2", base).query == {"limit": "2", "cursor": "c2"}
    assert next_link(answer.links) == "/items?page=2"


def pagination__guard() -> None:
    """A guard a round: pages that go in a circle are an error, not a loop without end; and signs of the last page."""
    import pytest

    from fetchers.sdk import Fatal
    from fetchers.toolkit.pagination import EndSign, PageGuard, in_body

    guard = PageGuard(is_counted=False)
    guard.pass_by("c1")
    with pytest.raises(Fatal, match="go in a circle"):
        guard.pass_by("c1")
    assert EndSign("has_more", is_last_if="false").says_last(b'{"has_more": false}')
    assert in_body(b'{"meta": {"next": 12}}', "meta.next") == 12


def marks__ties() -> None:
    """Everything below the mark was read, and of what equals it the records with these keys."""
    from fetchers.toolkit.marks import (
        Column,
        Mark,
        RecordOrder,
        TooManyAlikeError,
        check_kinds,
        key_hash,
        mark_of,
        offset_of,
    )

    ids = [b"a", b"b", b"c"]
    column = Column.of([1, 2, 2])
    mark = Mark().raised_by(column, [0, 1], lambda position: key_hash(ids[position]))
    assert (mark.value, mark.order) == (2, RecordOrder.UP)
    assert mark.new_among(column, lambda position: key_hash(ids[position])) == [2]  # "b" was handed over, "c" is new
    offset = offset_of(mark)  # of a page, with whatever else the source needs: Page(…, offset={**offset, "account": 7})
    assert offset == {"read": 2, "read.keys": key_hash(b"b")}
    assert mark_of({**offset, "account": 7}) == mark
    assert TooManyAlikeError.__doc__
    check_kinds("number", "number")  # Fatal for a number and a word


def watermark__order() -> None:
    """Numbers as numbers, instants as instants, whatever their form."""
    from fetchers.toolkit.watermark import compare, instant_of, is_after, order_of

    assert compare("10", "9") == 1
    assert compare("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00") == 0
    assert is_after("2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00Z")
    assert order_of("abc") == ("text", "abc")
    instant = instant_of("2026-01-01T00:00:00Z")
    assert instant is not None
    assert instant.year == 2026


def records__raw() -> None:
    """Records are slices of the bytes that came: digits, escapes and duplicate keys stay as they are."""
    from fetchers.toolkit.records import RecordSlices, field_values

    body = b'{"data": [{"id": 1, "price": 1.10}, {"id": 2, "price": 2.00}]}'
    records = RecordSlices.of_json(body, "data", newer_than=("id", 1))
    assert (list(records), records.highest) == ([b'{"id": 2, "price": 2.00}'], 2)
    assert field_values(records, "price") == [2.0]


def records__fields() -> None:
    """Single fields are read without building the records."""
    from fetchers.toolkit.fields import FieldReader, field_reader, raw_field, text_at

    reader: FieldReader = field_reader("user.id", "at")
    assert reader.of_each([b'{"user": {"id": 7}, "at": "now"}', b'{"at": {}}']) == [(7, "now"), None]
    assert raw_field(b'{"price": 1.10}', "price") == b"1.10"
    assert text_at(b'{"ok": true}', "ok") == "true"


def records__cutting() -> None:
    """What the strict parser refuses is still cut into records, so that each gets its own verdict."""
    import pytest

    from fetchers.toolkit.slicing import UncuttableError, at, elements, members

    assert elements(b'[{"a": 01}, 2]') == [b'{"a": 01}', b"2"]
    assert members(b'{"a": 01, "b": [1]}') == {"a": b"01", "b": b"[1]"}
    assert at(b'{"a": {"b": 01}}', "a.b") == b"01"
    with pytest.raises(UncuttableError):
        elements(b"[1, 2")


def records__csv() -> None:
    """Rows become JSON objects of texts; a row of another width comes with a rejection."""
    from fetchers.toolkit.csv_rows import CsvRows, csv_rows

    rows: CsvRows = csv_rows(b"id,name\n1,Ann\n2\n")
    assert rows.records[0] == b'{"id":"1","name":"Ann"}'
    assert [rejection.index for rejection in rows.rejections] == [1]


def framing__messages() -> None:
    """An endless body is cut into messages, chunk by chunk; a line over the limit comes with a rejection."""
    from fetchers.toolkit.framing import Frames, Framing, LengthFraming, LineFraming

    lines: Framing = LineFraming(bytes_max=100)
    assert lines.feed(b'{"id": 1') is None
    found: Frames | None = lines.feed(b'}\r\n\r\n{"id": 2}\n{"i')
    assert found is not None
    assert found.payloads.to_pylist() == [b'{"id": 1}', b'{"id": 2}']
    assert lines.finish() == b'{"i'  # the body ended in the middle of this one
    counted = LengthFraming(bytes_max=100).feed(b"9\n" + b'{"id": 1}')
    assert counted is not None
    assert counted.payloads.to_pylist() == [b'{"id": 1}']
