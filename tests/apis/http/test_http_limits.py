"""``HttpSource`` and the limits of its source: which answers mean too many, and how long nobody asks then."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, RateLimited, Retriable
from fetchers.sdk.testing import collect
from fetchers.toolkit.http import SharedHttp
from tests.apis.http.paged import ids, resume, source
from tests.contracts.loopback import Handler, serve

RECORD = [{"id": 1}]


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


def saying(body: Any, *, status: int = 200, **headers: str) -> Handler:
    """A source that says this to everything."""

    async def answer(_request: web.Request) -> web.Response:
        fields = {name.replace("_", "-"): text for name, text in headers.items()}
        return web.Response(text=json.dumps(body), status=status, headers=fields, content_type="application/json")

    return answer


@pytest.mark.parametrize(
    ("answer", "keys", "error"),
    [
        (
            saying({"ok": False, "error": "ratelimited"}),
            {"http_status_limited": "200 body.error=ratelimited", "http_status_fatal": "200 body.ok=false"},
            RateLimited,
        ),
        (
            saying({"ok": False, "error": "not_in_channel"}),
            {"http_status_limited": "200 body.error=ratelimited", "http_status_fatal": "200 body.ok=false"},
            Fatal,
        ),
        (saying({"error": {"code": 17}}), {"http_status_retry": "2xx body.error.code=17"}, Retriable),
        (
            saying({}, status=403, X_RateLimit_Remaining="0"),
            {"http_status_limited": "403 header.x-ratelimit-remaining=0"},
            RateLimited,
        ),
        (saying({}, status=403, Retry_After="7"), {"http_status_limited": "403 header.Retry-After"}, RateLimited),
        (
            saying({}, status=403, X_RateLimit_Remaining="10"),
            {"http_status_limited": "403 header.X-RateLimit-Remaining=0, 403 header.Retry-After"},
            Fatal,
        ),
        (saying({"type": "missing"}, status=404), {"http_status_retry": "404 body.type=later"}, Fatal),
        (saying({"type": "later"}, status=404), {"http_status_retry": "404 body.type=later"}, Retriable),
    ],
)
async def test_a_verdict_by_status_and_something_else(
    http: SharedHttp, answer: Handler, keys: dict[str, str], error: type[Exception]
) -> None:
    """A field of the header or the body decides, and the message quotes what the source said."""
    async with serve(answer) as url:
        made = source(url, **keys)
        with pytest.raises(error) as caught:
            await collect(made, resume(made, http, []))
    assert type(caught.value) is error


async def test_a_skip_by_the_body_and_an_answer_that_is_none_of_it(http: SharedHttp) -> None:
    """What is skipped has no records; what does not meet the rule is read as ever, its body still there."""
    async with serve(saying({"state": "building", "items": RECORD})) as url:
        made = source(url, http_records_path="items", http_status_skip="200 body.state=building")
        assert ids(await collect(made, resume(made, http, []))) == []
        made = source(url, http_records_path="items", http_status_skip="200 body.state=gone, 404 body.state=building")
        assert ids(await collect(made, resume(made, http, []))) == [1]


async def test_a_skipped_status_can_be_judged_by_its_body(http: SharedHttp) -> None:
    """404 means no records, but not where the body says something else."""
    async with serve(saying({"reason": "no such account"}, status=404)) as url:
        made = source(url, http_status_skip="404", http_status_fatal="404 body.reason=no such account")
        with pytest.raises(Fatal, match="no such account"):
            await collect(made, resume(made, http, []))


@pytest.mark.parametrize(
    ("keys", "fields", "seconds"),
    [
        (
            {"http_rate_remaining_header": "X-Left", "http_rate_reset_header": "X-Reset"},
            lambda asked: {"X-Left": str(2 - asked), "X-Reset": "600"},
            600.0,
        ),
        (
            {"http_rate_quota_header": "RateLimit"},
            lambda asked: {"RateLimit": f'"default";r={2 - asked};t=600'},
            600.0,
        ),
        (
            {"http_rate_bucket_header": "X-Calls", "http_rate_bucket_leak": "0.5"},
            lambda asked: {"X-Calls": f"{38 + asked}/40"},
            2.0,
        ),
    ],
)
async def test_nobody_asks_before_there_is_room_again(
    http: SharedHttp, keys: dict[str, str], fields: Callable[[int], dict[str, str]], seconds: float
) -> None:
    """The second answer says that nothing is left: the third request leaves when the source said it may."""
    asked = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response(RECORD, headers=fields(asked) if asked <= 2 else {})

    async with serve(answer) as url:
        made = source(url, **keys)
        context = resume(made, http, [])
        started = context.clock.monotonic()
        await collect(made, context, rounds=2)
        assert context.clock.monotonic() - started == pytest.approx(1.0)  # one poll.interval.ms between the two
        again = source(url, **keys)
        beside = resume(again, http, [])
        beside.clock = context.clock
        await collect(again, beside)
        assert beside.limit_waits == 1
        assert context.clock.monotonic() - started == pytest.approx(1.0 + seconds, abs=0.1)


async def test_a_refusal_waits_for_the_reset_that_its_header_tells(http: SharedHttp) -> None:
    """GitHub's 403 without Retry-After: the wait is the one until X-RateLimit-Reset."""
    answer = saying(
        {}, status=403, X_RateLimit_Remaining="0", X_RateLimit_Reset="1714564890", Date="Wed, 01 May 2024 12:00:00 GMT"
    )
    async with serve(answer) as url:
        made = source(
            url,
            http_rate_remaining_header="X-RateLimit-Remaining",
            http_rate_reset_header="X-RateLimit-Reset",
            http_status_limited="403 header.X-RateLimit-Remaining=0",
        )
        with pytest.raises(RateLimited) as caught:
            await collect(made, resume(made, http, []))
    assert caught.value.wait_seconds == pytest.approx(90.0)
