"""The http client against a real server that does what servers do on bad days."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from datetime import timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, HttpLimits, RateLimited, Retriable, StatusTable, StatusVerdict
from fetchers.sdk.testing import FakeContext
from fetchers.toolkit.auth import BasicAuth, BearerAuth
from fetchers.toolkit.http import SharedHttp
from fetchers.toolkit.http.access import REQUESTS_OPEN_MAX
from metrics.events import FetchCompleted
from tests.contracts.loopback import serve
from tests.passing_time import let_pass_until_done

SILENT = HttpLimits(connect_seconds=120, read_seconds=0.2, total_seconds=120)
"""For a source that says nothing at all: only the limit of reading ends that."""
SECRET = "s3cr3t-0815-4711"


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http(version="1.2.3") as http:
        yield http


@pytest.fixture(name="context")
def context_fixture(http: SharedHttp) -> FakeContext:
    """A context with that client."""
    return FakeContext(http=http)


async def _get(context: FakeContext, response: web.StreamResponse) -> bytes:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return response

    async with serve(handler) as url:
        return (await context.http.request("GET", url)).body


def _outcomes(context: FakeContext) -> list[str]:
    return [event.outcome for event in context.events if isinstance(event, FetchCompleted)]


async def test_tells_who_asks_and_that_gzip_is_welcome(context: FakeContext) -> None:
    """Requests carry the user agent with the version, and ask for gzip only."""
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.extend((request.headers["User-Agent"], request.headers["Accept-Encoding"]))
        return web.Response()

    async with serve(handler) as url:
        await context.http.request("GET", url)
    assert seen == ["headrace/1.2.3", "gzip"]


@pytest.mark.parametrize("members", [1, 3])
async def test_reads_gzip(context: FakeContext, members: int) -> None:
    """A gzip body is unpacked, however many members it has."""
    packed = gzip.compress(b"payload") * members
    body = await _get(context, web.Response(body=packed, headers={"Content-Encoding": "gzip"}))
    assert body == b"payload" * members
    assert _outcomes(context) == ["ok"]


async def test_reads_deflate(context: FakeContext) -> None:
    """So is a deflate body, which some servers send unasked."""
    body = await _get(context, web.Response(body=zlib.compress(b"payload"), headers={"Content-Encoding": "deflate"}))
    assert body == b"payload"


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(b"payload" * 999)[:-4],
        gzip.compress(b"payload")[:5],
        b"payload in plain",
        gzip.compress(b"x") + b"?",
    ],
    ids=["no trailer", "no body", "plain", "rubbish after the end"],
)
async def test_a_broken_gzip_body_is_tried_again(context: FakeContext, body: bytes) -> None:
    """A body that is not the whole gzip its header promises is never taken for an answer."""
    with pytest.raises(Retriable, match="gzip"):
        await _get(context, web.Response(body=body, headers={"Content-Encoding": "gzip"}))
    assert _outcomes(context) == ["retriable"]


async def test_an_empty_body_under_a_gzip_header_is_empty(context: FakeContext) -> None:
    """``Content-Length: 0`` says that the body is empty, whatever its encoding."""
    assert await _get(context, web.Response(body=b"", headers={"Content-Encoding": "gzip"})) == b""


async def test_an_unknown_encoding_is_fatal(context: FakeContext) -> None:
    """An encoding that nobody asked for cannot be waited away."""
    with pytest.raises(Fatal, match="'br'"):
        await _get(context, web.Response(body=b"?", headers={"Content-Encoding": "br"}))


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_cut_body_is_tried_again(context: FakeContext, *, is_chunked: bool) -> None:
    """A connection that closes before the promised end raises, and what came before is counted."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={} if is_chunked else {"Content-Length": "100"})
        if is_chunked:
            response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"half of it")
        assert request.transport is not None
        request.transport.close()
        return response

    async with serve(handler) as url:
        with pytest.raises(Retriable, match="cut before its end"):
            await context.http.request("GET", url)
    assert _outcomes(context) == ["retriable"]


async def test_a_silent_source_is_given_up(context: FakeContext) -> None:
    """A source that accepts the connection and says nothing costs the read time-out, not for ever."""

    async def handler(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async with serve(handler) as url:
        with pytest.raises(Retriable, match="no answer in time"):
            await context.http.request("GET", url, limits=SILENT)


async def test_a_trickling_source_is_given_up(context: FakeContext) -> None:
    """A source that sends a byte now and then meets the limit for the whole answer."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b".")
            await asyncio.sleep(0.05)

    limits = HttpLimits(connect_seconds=120, read_seconds=120, total_seconds=0.3)
    async with serve(handler) as url:
        with pytest.raises(Retriable, match="no answer in time"):
            await context.http.request("GET", url, limits=limits)


async def test_nobody_listens(context: FakeContext) -> None:
    """A refused connection is tried again, and the message says so."""

    async def handler(_request: web.Request) -> web.Response:
        return web.Response()

    async with serve(handler) as url:
        pass  # the port is free again, and nobody is there
    with pytest.raises(Retriable, match="cannot connect"):
        await context.http.request("GET", url)
    assert _outcomes(context) == ["retriable"]


async def test_a_huge_answer_is_refused_before_it_is_held(context: FakeContext) -> None:
    """A few packed bytes that unpack to more than the limit are fatal, and the limit is named."""
    bomb = gzip.compress(b"\0" * 50_000_000)

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with serve(handler) as url:
        with pytest.raises(Fatal, match="1000000 bytes"):
            await context.http.request("GET", url, limits=HttpLimits(response_bytes_max=1_000_000))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Fatal), (401, Fatal), (404, Fatal), (408, Retriable), (425, Retriable), (500, Retriable), (503, Retriable)],
)
async def test_judges_by_status(context: FakeContext, status: int, kind: type[Exception]) -> None:
    """What may pass is tried again, what a person must mend is fatal."""
    with pytest.raises(kind, match=f"status {status}.*: the reason"):
        await _get(context, web.Response(status=status, text="the reason"))


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_rate_limit_says_how_long(context: FakeContext, form: str) -> None:
    """429 raises RateLimited with the wait that Retry-After asks for, in either of its forms."""
    date = format_datetime(context.clock.now() + timedelta(seconds=90), usegmt=True)
    header = "90" if form == "seconds" else date
    with pytest.raises(RateLimited) as caught:
        await _get(context, web.Response(status=429, headers={"Retry-After": header}))
    assert caught.value.wait_seconds == 90
    assert _outcomes(context) == ["rate_limited"]


@pytest.mark.parametrize("encoding", ["br", "zstd"])
@pytest.mark.parametrize(("status", "kind"), [(429, RateLimited), (503, Retriable)])
async def test_a_refusal_that_cannot_be_quoted_is_still_a_refusal(
    context: FakeContext, encoding: str, status: int, kind: type[Retriable]
) -> None:
    """The error page of a server before the source comes in an encoding that nobody asked for; its wait counts."""
    headers = {"Content-Encoding": encoding, "Retry-After": "17"}
    with pytest.raises(kind, match=rf"status {status} \([^)]+\)$") as caught:
        await _get(context, web.Response(status=status, body=b"?!", headers=headers))
    assert caught.value.wait_seconds == 17


async def test_the_status_table_can_be_changed(context: FakeContext) -> None:
    """404 may be an answer like any other, or mean that there is nothing."""

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=404, text="[1]")

    accept, skip = (
        StatusTable().with_verdict(verdict, [404]) for verdict in (StatusVerdict.ACCEPT, StatusVerdict.SKIP)
    )
    async with serve(handler) as url:
        accepted = await context.http.request("GET", url, statuses=accept)
        skipped = await context.http.request("GET", url, statuses=skip)
    assert (accepted.status, list(accepted.records()), accepted.is_skipped) == (404, [b"1"], False)
    assert (skipped.status, list(skipped.records()), skipped.is_skipped) == (404, [], True)


async def test_messages_hide_secrets(context: FakeContext) -> None:
    """A server that repeats credentials in its error gets them hidden; the query is never shown."""

    async def handler(request: web.Request) -> web.Response:
        told = f"{request.headers['Authorization']}\n{SECRET} {request.url}\u2028end"
        return web.Response(status=403, text=told)

    auth = BasicAuth("ann", SECRET)
    async with serve(handler) as url:
        with pytest.raises(Fatal) as caught:
            await context.http.request("GET", f"{url}/path", auth=auth, query={"key": SECRET}, secrets=[SECRET])
    message = str(caught.value)
    assert all(secret not in message for secret in auth.secrets)
    assert message == f"{url}/path: status 403 (Forbidden): Basic [hidden] [hidden] {url}/path?key=[hidden] end"


async def test_a_long_error_body_is_quoted_shortly(context: FakeContext) -> None:
    """Only the beginning of an error's body is quoted."""
    with pytest.raises(Fatal) as caught:
        await _get(context, web.Response(status=400, text="why? " * 100_000))
    assert len(str(caught.value)) < 400


async def test_credentials_do_not_follow_to_another_host(context: FakeContext) -> None:
    """A redirect to another host is not followed with credentials, and the other host is never asked."""
    asked: list[str] = []

    async def other(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="caught")

    async with serve(other) as target:

        async def handler(_request: web.Request) -> web.Response:
            return web.Response(status=302, headers={"Location": f"{target}/trap"})

        async with serve(handler) as url:
            for options in ({"auth": BearerAuth(SECRET)}, {"headers": {"X-Custom": SECRET}}, {"secrets": [SECRET]}):
                with pytest.raises(Fatal, match="another host"):
                    await context.http.request("GET", url, **options)
            assert asked == []
            assert (await context.http.request("GET", url)).body == b"caught"


@pytest.mark.parametrize("status", [307, 308])
async def test_a_body_does_not_follow_to_another_host(context: FakeContext, status: int) -> None:
    """What is posted may hold anything, so it goes to no stranger; after a 303 there is no body left to go."""
    asked: list[tuple[str, bytes]] = []

    async def other(request: web.Request) -> web.Response:
        asked.append((request.method, await request.read()))
        return web.Response()

    async with serve(other) as target:

        async def handler(request: web.Request) -> web.Response:
            return web.Response(status=int(request.path[1:]), headers={"Location": f"{target}/trap"})

        async with serve(handler) as url:
            with pytest.raises(Fatal, match="another host"):
                await context.http.request("POST", f"{url}/{status}", body=b"client_secret=x")
            assert asked == []
            await context.http.request("POST", f"{url}/303", body=b"client_secret=x")
    assert asked == [("GET", b"")]


async def test_redirects_end(context: FakeContext) -> None:
    """A redirect on the same host is followed with its credentials, one to itself is given up."""

    async def handler(request: web.Request) -> web.Response:
        if request.path == "/from":
            return web.Response(status=302, headers={"Location": "/to?x=1"})
        if request.path == "/to":
            return web.Response(text=request.headers["Authorization"] + request.query["x"])
        return web.Response(status=307, headers={"Location": request.path})

    async with serve(handler) as url:
        answer = await context.http.request("GET", f"{url}/from", auth=BearerAuth("t"))
        assert (answer.body, answer.url) == (b"Bearer t1", f"{url}/to?x=1")
        with pytest.raises(Fatal, match="more than 5 times"):
            await context.http.request("GET", f"{url}/round")


@pytest.mark.parametrize("url", ["nonsense", "ftp://host/x", "http://", "http://[::1", "http://host:99999/"])
async def test_what_is_no_url_is_fatal(context: FakeContext, url: str) -> None:
    """A URL that cannot be asked is a mistake of the config."""
    with pytest.raises(Fatal):
        await context.http.request("GET", url)


async def test_nothing_of_one_connector_reaches_another(http: SharedHttp) -> None:
    """A cookie set for one task is not sent by the next request, of whatever task."""
    seen: list[str | None] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Cookie"))
        return web.Response(headers={"Set-Cookie": "session=1"})

    async with serve(handler) as url:
        for _ in range(2):
            await FakeContext(http=http).http.request("GET", url)
    assert seen == [None, None]


async def test_polls_in_rounds(context: FakeContext) -> None:
    """Each turn of a poll is a round, and the turns start so many seconds apart."""
    times: list[float] = []

    async def handler(_request: web.Request) -> web.Response:
        times.append(context.clock.monotonic())
        return web.Response(text="[]")

    rounds: list[int] = []
    async with serve(handler) as url:
        async for _answer in context.http.poll(url, every=30.0):
            rounds.append(context.rounds)
            if len(rounds) == 3:
                break
    assert times == [0.0, 30.0, 60.0]
    assert rounds == [0, 1, 2]


async def test_a_task_cannot_open_requests_without_end(http: SharedHttp) -> None:
    """The seventeenth open request of a task is refused instead of waiting for itself for ever."""
    context = FakeContext(http=http)

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(text="x")

    limits = HttpLimits(connect_seconds=120, read_seconds=1e9, total_seconds=1e9)

    async def nest(url: str, depth: int) -> None:
        async with context.http.stream("GET", url, limits=limits):
            if depth < REQUESTS_OPEN_MAX:
                await nest(url, depth + 1)
                return
            async with asyncio.TaskGroup() as group:
                one_more = group.create_task(nest(url, depth + 1))
                await let_pass_until_done(one_more, limits.connect_seconds)

    async with serve(handler) as url:
        with pytest.raises(ExceptionGroup) as caught:
            await nest(url, 1)
    (error,) = caught.value.exceptions
    assert isinstance(error, Retriable)
    assert "16 requests" in str(error)
