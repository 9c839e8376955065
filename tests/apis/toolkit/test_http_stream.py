"""Streams of the http client: nothing held whole, nothing taken for an end that is none."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, HttpLimits, Retriable, StatusTable, StatusVerdict
from fetchers.sdk.testing import FakeContext
from fetchers.toolkit.http.decoding import PIECE_BYTES_MAX, BrokenBodyError, decoder_for
from tests.contracts.loopback import answering, serve
from tests.passing_time import let_pass

MEBIBYTE = 1024 * 1024


@pytest.fixture(name="context")
async def context_fixture() -> AsyncIterator[FakeContext]:
    """A context with a client."""
    async with shared_http() as http:
        yield FakeContext(http=http)


async def test_not_reading_holds_the_source_back(context: FakeContext) -> None:
    """A source with an endless body can send no more than the buffers hold while nobody reads."""
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(MEBIBYTE))
            sent += MEBIBYTE

    async with serve(handler) as url, context.http.stream("GET", url) as stream:
        chunks = aiter(stream.chunks())
        await anext(chunks)
        seen = -1
        while seen != sent:  # until the kernel's buffers are full, too
            seen = sent
            await asyncio.sleep(0.2)
        assert sent < 32 * MEBIBYTE
        for _ in range(200):
            await anext(chunks)
        assert sent > seen


async def test_a_pause_of_the_reader_is_no_time_out_of_the_source(context: FakeContext) -> None:
    """The read limit does not run while the fetcher itself does not read, as when the queue is full."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(16):
            await response.write(bytes(MEBIBYTE))
        return response

    size = 0
    limits = HttpLimits(read_seconds=100, total_seconds=1e9)
    async with serve(handler) as url, context.http.stream("GET", url, limits=limits) as stream:
        async for chunk in stream.chunks():
            if not size:
                let_pass(2 * limits.read_seconds)
                for _ in range(10):  # turns of the loop, in which a timer could strike
                    await asyncio.sleep(0)
            size += len(chunk)
    assert size == 16 * MEBIBYTE
    assert stream.is_complete


async def test_what_came_before_a_cut_is_handed_over_first(context: FakeContext) -> None:
    """The good bytes come, then the error: the reader decides what to keep, and the stream is not complete."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"first ")
        assert request.transport is not None
        request.transport.close()
        return response

    seen = b""
    async with serve(handler) as url:
        with pytest.raises(Retriable):  # noqa: PT012 - the error must leave the stream's own block
            async with context.http.stream("GET", url) as stream:
                async for chunk in stream.chunks():
                    seen += chunk
    assert seen == b"first "
    assert not stream.is_complete


async def test_errors_of_the_reader_are_its_own(context: FakeContext) -> None:
    """What the reader raises while it handles a chunk is not mistaken for the network's failure."""

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(text="x")

    async with serve(handler) as url:
        with pytest.raises(OSError, match="disk"):  # noqa: PT012 - likewise
            async with context.http.stream("GET", url) as stream:
                async for _chunk in stream.chunks():
                    raise OSError("disk full")


async def test_an_accepted_error_can_be_quoted(context: FakeContext) -> None:
    """A fetcher that looks at a status itself gets the beginning of the body, secrets hidden."""

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=400, text="to_date\ncannot be later, dear s3cr3t-9")

    statuses = StatusTable().with_verdict(StatusVerdict.ACCEPT, [400])
    async with (
        serve(handler) as url,
        context.http.stream("GET", url, statuses=statuses, secrets=["s3cr3t-9"]) as stream,
    ):
        assert stream.status == 400
        assert await stream.excerpt() == "to_date cannot be later, dear [hidden]"


async def test_a_bad_status_is_raised_before_the_block(context: FakeContext) -> None:
    """The block of a stream is entered only with an answer that counts."""

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=402, text="plan without the API")

    entered = False
    async with serve(handler) as url:
        with pytest.raises(Fatal, match="plan without the API"):
            async with context.http.stream("GET", url):
                entered = True
    assert not entered


@given(st.binary(max_size=3000), st.lists(st.integers(0, 3000), max_size=6))
def test_gzip_cut_anywhere_is_the_same_and_short_of_its_end_is_broken(body: bytes, cuts: list[int]) -> None:
    """However the network cuts a gzip body it is unpacked alike; any proper beginning of it is no whole body."""
    packed = gzip.compress(body) + gzip.compress(body[::-1])
    edges = sorted({0, len(packed), *(cut for cut in cuts if cut < len(packed))})
    decoder = decoder_for("gzip", is_empty=False)
    pieces = [piece for start, end in pairwise(edges) for piece in decoder.feed(packed[start:end])]
    decoder.finish()
    assert b"".join(pieces) == body + body[::-1]
    for end in {*edges[:-1], len(packed) - 1} - {len(gzip.compress(body))}:
        short = decoder_for("gzip", is_empty=False)
        for _piece in short.feed(packed[:end]):
            pass
        with pytest.raises(BrokenBodyError):
            short.finish()


def test_unpacks_in_pieces() -> None:
    """A small body that unpacks to much is handed over in pieces of bounded size."""
    decoder = decoder_for("gzip", is_empty=False)
    sizes = [len(piece) for piece in decoder.feed(gzip.compress(bytes(5 * MEBIBYTE + 7)))]
    assert sum(sizes) == 5 * MEBIBYTE + 7
    assert max(sizes) <= PIECE_BYTES_MAX


@pytest.mark.parametrize(
    ("header", "body", "is_framed"),
    [
        (b"Content-Length: 4", b"a\nb\n", True),
        (b"Transfer-Encoding: chunked", b"4\r\na\nb\n\r\n0\r\n\r\n", True),
        (b"Content-Encoding: gzip", gzip.compress(b"a\nb\n", mtime=0), True),
        (b"Content-Type: text/plain", b"a\nb\n", False),
    ],
)
async def test_tells_whether_the_end_is_proven(
    context: FakeContext, header: bytes, body: bytes, *, is_framed: bool
) -> None:
    """A body that ends where the connection does may be cut there, and no reader can know by itself."""
    async with answering(b"HTTP/1.0 200 OK\r\n" + header + b"\r\n\r\n" + body) as url:
        async with context.http.stream("GET", url) as stream:
            assert b"".join([chunk async for chunk in stream.chunks()]) == b"a\nb\n"
            assert stream.is_framed == is_framed
        assert (await context.http.request("GET", url)).is_framed == is_framed


@pytest.mark.parametrize("media_type", ["text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml"])
async def test_a_web_page_is_refused_where_it_is_said(context: FakeContext, media_type: str) -> None:
    """A login wall answers 200; a reader who could take its page for records asks for it to be refused."""

    async def handler(request: web.Request) -> web.Response:
        status = int(request.path[1:])
        return web.Response(status=status, body=b"<html>log in, s3cr3t-9", headers={"Content-Type": media_type})

    statuses = StatusTable().with_verdict(StatusVerdict.ACCEPT, [403])
    async with serve(handler) as url:
        with pytest.raises(Retriable, match=r"a web page .*: <html>log in, \[hidden\]"):
            await context.http.request("GET", f"{url}/200", is_page_refused=True, secrets=["s3cr3t-9"])
        assert (await context.http.request("GET", f"{url}/200")).status == 200
        assert (await context.http.request("GET", f"{url}/403", is_page_refused=True, statuses=statuses)).status == 403


async def test_no_content_is_an_answer_without_records(context: FakeContext) -> None:
    """204 says that there is nothing, in whatever format it would have been."""

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=204)

    async with serve(handler) as url:
        answer = await context.http.request("GET", url)
    assert (answer.is_skipped, list(answer.records("items"))) == (True, [])
