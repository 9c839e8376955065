"""What is told of requests to the coordinator, and that they are passed on as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from metrics.events import Event, GroupRequestEnded
from service.kafka.errors import DeliveryRetriable
from service.kafka.group_calls import Joined, PlaceLost, RoundBegan, TimedCalls

pytestmark = pytest.mark.looptime
JOINED = Joined(3, "me", is_leader=False, claims={})


class Coordinator:
    """Takes half a second for everything, and fails as told."""

    def __init__(self, failure: Exception | None) -> None:
        self.failure = failure
        self.asked: list[object] = []

    async def join(self, member_id: str, claim: bytes, *, on_member_id: Callable[[str], None]) -> Joined:
        """See ``Calls``."""
        on_member_id("given")
        await self._answer("join", member_id, claim)
        return JOINED

    async def sync(self, joined: Joined, parts: Mapping[str, bytes]) -> bytes:
        """See ``Calls``."""
        await self._answer("sync", joined, parts)
        return b"part"

    async def heartbeat(self, generation: int, member_id: str) -> None:
        """See ``Calls``."""
        await self._answer("heartbeat", generation, member_id)

    async def leave(self, member_id: str) -> None:
        """See ``Calls``."""
        await self._answer("leave", member_id)

    async def close(self) -> None:
        """See ``Calls``."""
        await self._answer("close")

    async def _answer(self, *asked: object) -> None:
        self.asked.append(asked)
        await asyncio.sleep(0.5)
        if self.failure is not None:
            raise self.failure


async def test_requests_are_passed_on_and_timed() -> None:
    """Leaving and closing are passed on."""
    coordinator, events, ids = Coordinator(None), list[Event](), list[str]()
    calls = TimedCalls(coordinator, "w1", events.append)
    assert await calls.join("me", b"claim", on_member_id=ids.append) is JOINED
    assert await calls.sync(JOINED, {"me": b"x"}) == b"part"
    await calls.heartbeat(3, "me")
    await calls.leave("me")
    await calls.close()
    assert ids == ["given"]
    assert coordinator.asked == [
        ("join", "me", b"claim"), ("sync", JOINED, {"me": b"x"}), ("heartbeat", 3, "me"), ("leave", "me"), ("close",)
    ]  # fmt: skip
    assert events == [
        GroupRequestEnded(client_id="w1", request=request, seconds=0.5, is_success=True)
        for request in ("join", "sync", "heartbeat")
    ]


@pytest.mark.parametrize(
    ("failure", "has_answered"),
    [(DeliveryRetriable("away"), False), (PlaceLost(), False), (RoundBegan(), True)],
)
async def test_failures_go_on_and_are_told(failure: Exception, *, has_answered: bool) -> None:
    """A heartbeat that hears of a new round was answered; a sync that does was for nothing."""
    events: list[Event] = []
    calls = TimedCalls(Coordinator(failure), "w1", events.append)
    with pytest.raises(type(failure)):
        await calls.heartbeat(3, "me")
    with pytest.raises(type(failure)):
        await calls.sync(JOINED, {})
    assert [event.is_success for event in events if isinstance(event, GroupRequestEnded)] == [has_answered, False]


async def test_a_request_that_is_given_up_is_no_figure() -> None:
    """A worker that stops in the middle of a round has not failed."""
    events: list[Event] = []
    calls = TimedCalls(Coordinator(None), "w1", events.append)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await calls.join("me", b"", on_member_id=lambda _: None)
    assert events == []
