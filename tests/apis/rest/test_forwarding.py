"""Requests that another worker has to answer, and requests between workers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from yarl import URL

from service.herder.api import Signature
from service.herder.errors import ElsewhereError
from tests.apis.rest.fake_herder import FakeHerder, Kept, elsewhere
from tests.apis.rest.serving import served

LOST = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"


async def test_a_request_is_forwarded_as_it_is() -> None:
    """Method, encoded path, query, body and who asks go there; status, body and ``Location`` come back."""
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(served())
        worker = await stack.enter_async_context(served(elsewhere(leader.urls.main[0])))
        created = await worker.ask("PUT", "/connectors/a%2Fb%25/config", {"connector.class": "x"})
        refused = await worker.ask("POST", "/connectors", {"name": "a/b%", "config": {"connector.class": "x"}})
        restarted = await worker.ask("POST", "/connectors/a%2Fb%25/restart?includeTasks=true&onlyFailed=false")
        deleted = await worker.ask("DELETE", "/connectors/a%2Fb%25")

    assert (created.status, created.headers["Location"]) == (201, "/connectors/a%2Fb%25")
    assert created.headers["Content-Type"].startswith("application/json")
    assert refused.error == (409, "Connector a/b% already exists")
    assert (restarted.status, restarted.body["connector"]["state"]) == (202, "RESTARTING")
    assert (deleted.status, deleted.text) == (204, "")


async def test_a_request_makes_two_hops_at_most() -> None:
    """It may be sent on once by whoever gets it from us, and no further."""
    async with AsyncExitStack() as stack:
        third = await stack.enter_async_context(served(elsewhere("http://127.0.0.1:1")))
        second = await stack.enter_async_context(served(elsewhere(third.urls.main[0])))
        first = await stack.enter_async_context(served(elsewhere(second.urls.main[0])))
        answer = await first.ask("PUT", "/connectors/c/pause")
        asked = [len(worker.herder.asked) for worker in (first, second, third)]

    assert answer.error == (409, LOST)
    assert asked == [1, 1, 1]


async def test_two_hops_are_enough_where_the_second_is_right() -> None:
    """A worker that thought it knew the leader sends it on to the one that is."""
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(served(FakeHerder({"c": Kept({})})))
        second = await stack.enter_async_context(served(elsewhere(leader.urls.main[0])))
        first = await stack.enter_async_context(served(elsewhere(second.urls.main[0])))
        answer = await first.ask("PUT", "/connectors/c/stop")

    assert answer.status == 204


@pytest.mark.parametrize(
    ("forward", "is_sent"), [("false", False), ("FALSE", False), ("true", True), ("nonsense", False)]
)
async def test_forward_says_how_far(forward: str, *, is_sent: bool) -> None:
    """``false``: no further."""
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(served(FakeHerder({"c": Kept({})})))
        worker = await stack.enter_async_context(served(elsewhere(leader.urls.main[0])))
        answer = await worker.ask("PUT", f"/connectors/c/stop?forward={forward}")

    assert answer.status == (204 if is_sent else 409)


async def test_a_worker_that_is_gone_is_a_conflict() -> None:
    """Nothing was sent, and a rebalance is due: clients retry."""
    async with served(elsewhere("http://127.0.0.1:1")) as worker:
        status, text = (await worker.ask("DELETE", "/connectors/c")).error

    assert status == 409
    assert text.startswith("Cannot complete request momentarily: the worker at http://127.0.0.1:1 cannot be reached")


async def test_who_asks_is_passed_on() -> None:
    """The other worker demands the same proof."""
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(served())
        middle = elsewhere(leader.urls.main[0])
        worker = await stack.enter_async_context(served(middle))
        await worker.ask("POST", "/connectors/c/tasks", b"[]", headers=SIGNED)

    assert [asked[2] for asked in leader.herder.asked] == [Signature("c2lnbmVk", "HmacSHA256", "aGVhZA==")]


SIGNED = {
    "X-Connect-Authorization": "c2lnbmVk",
    "X-Connect-Request-Signature-Algorithm": "HmacSHA256",
    "X-Headrace-Request-Signature": "aGVhZA==",
}


async def test_internal_requests() -> None:
    """204; the herder gets the raw body, and the signature where both headers are there."""
    async with served() as worker:
        signed = await worker.ask("POST", "/connectors/c/tasks", b'[{"a": "1"}]', headers=SIGNED)
        half = await worker.ask("POST", "/connectors/c/tasks", b"[]", headers={"X-Connect-Authorization": "c2lnbmVk"})

    assert signed.status == 204
    assert half.error == (400, "Internal request missing required signature")
    assert worker.herder.asked == [
        ("publish", "c", Signature("c2lnbmVk", "HmacSHA256", "aGVhZA=="), b'[{"a": "1"}]'),
    ]


async def test_nothing_is_read_of_a_body_before_its_signature() -> None:
    """Anyone may send one: who is no member is answered although it has not come, and is waited for by nobody."""
    async with served() as worker:
        url = URL(worker.urls.main[0])
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(
                b"POST /connectors/c/tasks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                b"Content-Length: 1000000\r\n\r\n"
            )
            answer = await reader.readuntil(b"\r\n\r\n")
            writer.close()

        assert answer.startswith(b"HTTP/1.1 400 ")
        assert worker.herder.asked == []


async def test_reads_are_forwarded_nowhere_unless_the_herder_says_so() -> None:
    """They are answered from memory."""
    async with served(FakeHerder({"c": Kept({})}, failure=ElsewhereError("http://127.0.0.1:1"))) as worker:
        assert (await worker.ask("GET", "/connectors/c/status")).status == 200
