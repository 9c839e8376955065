"""Connections that keep a worker waiting, or are too many: over real sockets, with limits that a test lets pass."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from yarl import URL

from metrics.events import ChangeAudited, RequestAnswered
from service.rest.connections import ConnectionLimits, Connections, counted_address
from tests.apis.rest.fake_herder import Kept
from tests.apis.rest.serving import Served, served, settings
from tests.passing_time import let_pass, let_pass_until_done

LIMIT_SECONDS = 100.0
"""Nothing that comes in time takes so long, on however slow a machine."""
TURNS_TO_RECEIVE = 5
"""Of the loop, in which the worker reads what was written."""
LIMITS = ConnectionLimits(seconds_max=LIMIT_SECONDS)
HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def connected(worker: Served) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A socket of a client."""
    url = URL(worker.urls.main[0])
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Everything until the worker closes."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def rest_after_limit(reader: asyncio.StreamReader) -> bytes:
    """Everything until the worker closes, which only its time limit makes it do."""
    async with asyncio.TaskGroup() as group:
        closed = group.create_task(rest_of(reader))
        await let_pass_until_done(closed, LIMIT_SECONDS)
    return closed.result()


def audited(worker: Served) -> list[tuple[str, int]]:
    """Path and status of what was audited."""
    return [(event.path, event.status) for event in worker.events if isinstance(event, ChangeAudited)]


@pytest.mark.parametrize(
    "sent", [b"", b"GET /connectors HTT", b"GET /connectors HTTP/1.1\r\nHost: localhost\r\nX-Slow: "]
)
async def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes) -> None:
    """Half a request was held for an hour."""
    async with served(rest=settings(connections=LIMITS)) as worker, connected(worker) as (reader, writer):
        writer.write(sent)
        assert await rest_after_limit(reader) == b""


async def test_a_head_that_comes_in_drops_is_not_waited_for() -> None:
    """Each drop begins no time anew."""
    async with served(rest=settings(connections=LIMITS)) as worker, connected(worker) as (reader, writer):
        writer.write(b"GET /connectors HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")

        async with asyncio.TaskGroup() as group:
            closed = group.create_task(rest_of(reader))
            while not closed.done():
                writer.write(b"a")
                for _ in range(TURNS_TO_RECEIVE):
                    await asyncio.sleep(0)
                let_pass(LIMIT_SECONDS / 4)
        assert closed.result() == b""


async def test_a_connection_that_says_nothing_more_is_closed() -> None:
    """After its last answer."""
    async with served(rest=settings(connections=LIMITS)) as worker, connected(worker) as (reader, writer):
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await reader.readuntil(b"\r\n\r\n")
        await rest_after_limit(reader)
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_body_that_does_not_come_is_answered_408() -> None:
    """In Connect's error body; nothing is done, and other clients are answered meanwhile."""
    async with served(rest=settings(connections=LIMITS)) as worker, connected(worker) as (reader, writer):
        worker.herder.connectors["c"] = Kept({})
        wanted = b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n{"
        writer.write(b"PUT /connectors/c/config HTTP/1.1\r\n" + HEAD + wanted)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await worker.ask("GET", "/connectors")).status == 200
        head, _, body = (await rest_after_limit(reader)).partition(b"\r\n\r\n")

        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(body)["message"].startswith("The body has not come within 100 s")
        assert audited(worker) == [("/connectors/c/config", 408)]
        assert worker.herder.connectors["c"].config == {}


async def test_a_client_that_does_not_take_its_answer_is_cut_off() -> None:
    """It would keep the answer in memory, and its connection: here the only one that there may be."""
    async with served(rest=settings(connections=ConnectionLimits(count_max=1, seconds_max=LIMIT_SECONDS))) as worker:
        worker.herder.connectors |= {f"c{number}": Kept({"key": "x" * 100_000}) for number in range(200)}
        async with connected(worker) as (_, writer):
            writer.write(b"GET /connectors?expand=info HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while await _live(worker) == b"503":
                let_pass(LIMIT_SECONDS)
                await asyncio.sleep(0)


async def test_too_many_connections_of_one_address_are_refused() -> None:
    """With 429, in one line of the audit log until there is room again; those that are there go on."""
    limits = ConnectionLimits(count_max=10, per_address_max=2)
    text = "127.0.0.1 has 2 connections (rest.connections.per.address.max)"
    async with (
        served(rest=settings(connections=limits)) as worker,
        connected(worker) as (first_reader, first),
        connected(worker) as (_, second),
    ):
        for writer in (first, second):
            writer.write(b"GET /connectors HTTP/1.1\r\nHost: localhost\r\nX: ")
        for _ in range(3):
            async with connected(worker) as (reader, _):
                head, _, body = (await rest_of(reader)).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 429 ")
                assert json.loads(body) == {"error_code": 429, "message": text}
        assert audited(worker) == [("-", 429)]
        answered = [event for event in worker.events if isinstance(event, RequestAnswered)]
        assert [event.status for event in answered] == [429] * 3
        first.write(b"y\r\nConnection: close\r\n\r\n")
        assert (await rest_of(first_reader)).startswith(b"HTTP/1.1 200 ")


async def test_connections_that_have_ended_make_room() -> None:
    """However they ended."""
    async with served(rest=settings(connections=ConnectionLimits(count_max=1))) as worker:
        for _ in range(5):
            while (answer := await _live(worker)) == b"503":
                await asyncio.sleep(0)  # The worker has not heard of the last one's end yet.
            assert answer == b"200"
        assert not worker.herder.asked


async def _live(worker: Served) -> bytes:
    async with connected(worker) as (reader, writer):
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return (await rest_of(reader))[9:12] or b"503"


def test_limits_are_counted_by_address_and_in_all() -> None:
    """One address leaves room for the others; all of them together leave none."""
    connections = Connections(ConnectionLimits(count_max=3, per_address_max=2), lambda _event: None)

    assert [connections.open("a") for _ in range(2)] == [None, None]
    refused = connections.open("a")
    assert refused is not None
    assert refused[0] == 429
    assert connections.open("b") is None
    full = connections.open("c")
    assert full == (503, "There are 3 connections already (rest.connections.max)")
    connections.close("a")
    assert connections.open("c") is None


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 1, 0, 0), "2001:db8:1:2::/64"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("::1", 1, 0, 0), "::1"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        (None, "unknown"),
    ],
)
def test_what_counts_as_one_address(peer: object, counted: str) -> None:
    """Whoever has one address of IPv6 has 2⁶⁴ of them."""
    assert counted_address(peer) == counted


@pytest.mark.parametrize(
    "sent",
    [
        b"junk\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"POST /connectors HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    ],
)
async def test_what_is_no_request_gets_connects_error_body(sent: bytes) -> None:
    """No name or two of them, TLS on a plain port, a body of two lengths: 400, a line in the audit log, no trace."""
    async with served() as worker, connected(worker) as (reader, writer):
        writer.write(sent)
        head, _, body = (await rest_of(reader)).partition(b"\r\n\r\n")

        assert head.split(b" ", 2)[1] == b"400"
        assert json.loads(body)["error_code"] == 400
        assert audited(worker) == [("-", 400)]
