"""Listening: connecting again by policy, silence, ends, and stopping."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fetchers.sdk import (
    BackOff,
    Disconnected,
    Fatal,
    Inbox,
    Linear,
    Page,
    RateLimited,
    Reconnect,
    Retriable,
    SourceEnded,
    SystemClock,
    listen,
)
from fetchers.sdk.inbox import MESSAGE_HEALTHY_SECONDS
from fetchers.sdk.testing import FakeContext
from fetchers.sdk.testing.tasks import watched_family
from metrics.events import ReconnectCeilingReached, SourceGap

pytestmark = pytest.mark.looptime
STEADY = Reconnect(
    refused=BackOff(first_seconds=5, cap_seconds=320, jitter_seconds=0),
    limited=BackOff(first_seconds=60, cap_seconds=320, jitter_seconds=0),
)


class Source:
    """What happens on each connection, one step after the other; then the source ends."""

    def __init__(self, *steps: Callable[[Inbox], Awaitable[None]] | Exception) -> None:
        self.steps = list(steps)

    async def receive(self, inbox: Inbox) -> None:
        """One connection."""
        if not self.steps:
            raise SourceEnded
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        await step(inbox)


def say(*payloads: bytes, stands_seconds: float = MESSAGE_HEALTHY_SECONDS) -> Callable[[Inbox], Awaitable[None]]:
    """Connect, put these, and end the connection after so long."""

    async def run(inbox: Inbox) -> None:
        inbox.connected(is_resumed=True)
        for payload in payloads:
            await inbox.put([payload], offset={"last": payload.decode()})
        await asyncio.sleep(stands_seconds)

    return run


async def heard(source: Source, context: FakeContext, silence_seconds: float | None = None) -> list[bytes | None]:
    """Everything until the source ends."""
    pages = listen(context, source.receive, reconnect=STEADY, silence_seconds=silence_seconds)
    return [value async for page in pages for value in page.values()]


async def test_it_connects_again_from_where_it_was() -> None:
    """At once after a connection that gave something."""
    offsets: list[object] = []

    async def look(inbox: Inbox) -> None:
        offsets.append(inbox.offset)
        await say(b"c")(inbox)

    context = FakeContext()
    assert await heard(Source(say(b"a", b"b"), look), context) == [b"a", b"b", b"c"]
    assert offsets == [{"last": "b"}]
    assert [wait for _, wait in context.retries] == [0.0, 0.0]


async def test_waits_follow_the_kind_of_failure() -> None:
    """Refused connections 0, 250, 500 ms …; 503 five times 5, 10, 20, 40, 80 s; 429 not before the moment it names."""
    lost = [Disconnected("refused")] * 3
    busy = [Retriable("503")] * 5
    context = FakeContext()
    await heard(Source(*lost, *busy, RateLimited("429", wait_seconds=90.0)), context)
    assert [wait for _, wait in context.retries] == [0.0, 0.25, 0.5, 5.0, 10.0, 20.0, 40.0, 80.0, 90.0]


async def test_a_connection_alone_is_no_health_and_a_message_is() -> None:
    """A source that accepts and hangs up would otherwise be asked without end."""
    context = FakeContext()
    await heard(Source(say(), say(), say(), say(b"a"), say()), context)
    assert [wait for _, wait in context.retries] == [0.0, 0.25, 0.5, 0.0, 0.25]


async def test_a_page_without_records_is_no_message() -> None:
    """It only moves the offset, such as at the beginning of each connection."""

    async def begin(inbox: Inbox) -> None:
        inbox.connected(is_resumed=True)
        await inbox.put_page(Page([], {"since": 1}))
        await asyncio.sleep(MESSAGE_HEALTHY_SECONDS)

    context = FakeContext()
    await heard(Source(begin, begin, begin), context)
    assert [wait for _, wait in context.retries] == [0.0, 0.25, 0.5]


async def test_a_message_on_a_connection_that_does_not_last_is_no_health() -> None:
    """Such as the words by which a source refuses us, or a document that is whole: it would be asked without pause."""
    context = FakeContext()
    short = [say(b"invalid token", stands_seconds=1.0)] * 5
    await heard(Source(*short, say(b"a"), *short[:2]), context)
    assert [wait for _, wait in context.retries] == [0.0, 0.25, 0.5, 0.75, 1.0, 0.0, 0.25, 0.5]


async def test_a_minute_of_keep_alives_is_health() -> None:
    """Nothing may have happened at the source."""

    async def quiet(inbox: Inbox) -> None:
        inbox.connected(is_resumed=True)
        for _ in range(7):
            await asyncio.sleep(10)
            inbox.heard()

    context = FakeContext()
    await heard(Source(say(), say(), quiet, say()), context)
    assert [wait for _, wait in context.retries] == [0.0, 0.25, 0.0, 0.25]


@pytest.mark.parametrize(
    "error",
    [
        OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 101] Network is unreachable"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
        TimeoutError(),
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        ssl.SSLError("the other side speaks no TLS"),
        asyncio.IncompleteReadError(b"half", 8),
    ],
    ids=repr,
)
async def test_whatever_a_network_does_is_a_lost_connection(error: Exception) -> None:
    """As the libraries raise it, whatever its class: the author need not know them all."""
    context = FakeContext()
    failing = Source()
    failing.steps = [error, say(b"a")]
    assert await heard(failing, context, silence_seconds=60.0) == [b"a"]
    assert [type(each) for each, _ in context.retries] == [Disconnected, Disconnected]
    assert context.retries[0][0].__cause__ is error


async def test_a_certificate_that_is_not_trusted_is_for_a_person_to_mend() -> None:
    """Asking again changes nothing, and whoever answers may be a stranger."""
    untrusted = ssl.SSLCertVerificationError(1, "self-signed certificate")
    with pytest.raises(Fatal, match="certificate of the source is not trusted"):
        await heard(Source(untrusted), FakeContext())


async def test_a_file_that_is_missing_is_no_lost_connection() -> None:
    """It is on this machine: a mistake of the config or of the code."""
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "meter.pem")
    with pytest.raises(FileNotFoundError):
        await heard(Source(missing), FakeContext())


async def test_a_receiver_that_wants_to_end_the_process_ends_its_fetch_alone() -> None:
    """It is raised where the worker makes a failed task of it; what came before is handed over."""

    async def leave(inbox: Inbox) -> None:
        await say(b"a")(inbox)
        sys.exit(3)

    found: list[Page] = []
    with pytest.raises(SystemExit):
        await _into(found, listen(FakeContext(), Source(leave).receive))
    assert [value for page in found for value in page.values()] == [b"a"]


async def test_the_ceiling_is_told_once() -> None:
    """And again after the next outage."""
    context = FakeContext()
    failures = [Retriable("503")] * 9
    await heard(Source(*failures, say(b"a"), *failures), context)
    told = [event for event in context.events if isinstance(event, ReconnectCeilingReached)]
    assert [event.wait_seconds for event in told] == [320.0, 320.0]


async def test_a_source_that_ends_the_connection_was_there_until_then() -> None:
    """A quiet one that cannot be resumed: the gap begins with the end of the connection."""
    context = FakeContext()

    async def quiet(inbox: Inbox) -> None:
        inbox.connected(is_resumed=False)
        await context.clock.advance(1_000)

    async def again(inbox: Inbox) -> None:
        await context.clock.advance(7)
        inbox.connected(is_resumed=False)

    await heard(Source(quiet, again), context)
    waited = sum(seconds for _, seconds in context.retries[:1])
    gaps = [event.seconds for event in context.events if isinstance(event, SourceGap)]
    assert gaps == [pytest.approx(7 + waited)]


async def test_silence_is_a_lost_connection() -> None:
    """Nothing for so long, be it before the source has accepted, or after a keep-alive; a full inbox is no silence."""

    async def nothing(_inbox: Inbox) -> None:
        await asyncio.Event().wait()

    async def keep_alive(inbox: Inbox) -> None:
        inbox.connected(is_resumed=True)
        await asyncio.sleep(15)
        inbox.heard()
        await asyncio.Event().wait()

    context = FakeContext()
    await heard(Source(nothing, keep_alive), context, silence_seconds=21.0)
    assert asyncio.get_running_loop().time() == 21 + 15 + 21
    assert [type(error) for error, _ in context.retries] == [Disconnected, Disconnected]


async def test_a_full_inbox_is_no_silence() -> None:
    """The source may well talk: it is not read."""
    context = FakeContext()

    async def flood(inbox: Inbox) -> None:
        inbox.connected(is_resumed=True)
        for number in range(3):
            await inbox.put([b"x" * 16 * 1024 * 1024], offset={"n": number})

    pages = listen(context, Source(flood).receive, silence_seconds=5.0)
    await anext(pages)
    await asyncio.sleep(60)
    assert len([page async for page in pages]) == 2
    assert [str(error) for error, _ in context.retries] == ["the source ended the connection"]


async def test_what_came_before_a_fatal_end_is_handed_over_first() -> None:
    """And then the end is raised."""

    async def fail(inbox: Inbox) -> None:
        await say(b"a")(inbox)
        raise Fatal("the key is wrong")

    found: list[Page] = []
    with pytest.raises(Fatal, match="the key is wrong"):
        await _into(found, listen(FakeContext(), Source(fail).receive))
    assert [value for page in found for value in page.values()] == [b"a"]


async def _into(found: list[Page], pages: AsyncIterator[Page]) -> None:
    async for page in pages:
        found += (page,)


async def test_stopping_ends_the_receiver() -> None:
    """Whether it is connected or waits to connect again: nobody is left behind."""

    async def hold(inbox: Inbox) -> None:
        await say(b"a")(inbox)
        await asyncio.Event().wait()

    for source in (Source(hold), Source(Retriable("503"), hold)):
        context = FakeContext()
        context.clock.is_automatic = False
        with watched_family() as family:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(_into([], listen(context, source.receive)))
                family.found(work)
                await asyncio.sleep(1)
                work.cancel()
        assert not family.alive


async def test_policies_grow_to_their_ceilings() -> None:
    """Linear and at once; exponential is tested with the fetch stage."""
    assert [Linear(0.25, 1.0).wait_seconds(attempt) for attempt in range(1, 8)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert [Linear(0.0).wait_seconds(attempt) for attempt in (1, 50)] == [0.0, 0.0]
    assert [Linear(0.25, 1.0).is_at_cap(attempt) for attempt in (4, 5)] == [False, True]
    assert not Linear(0.0).is_at_cap(10_000)
    assert BackOff().is_at_cap(10_000)
    assert isinstance(SystemClock().monotonic(), float)
