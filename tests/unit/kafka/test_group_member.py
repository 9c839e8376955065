"""A place in a group: for how long it is believed in, how it is lost, kept and given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from service.background import Background
from service.kafka.errors import DeliveryFatal, DeliveryRetriable
from service.kafka.group import GroupMember
from service.kafka.group_calls import GroupSettings, Joined, PlaceLost, RoundBegan

pytestmark = pytest.mark.looptime

SETTINGS = GroupSettings(group_id="g", protocol_type="connect", protocol="p", session_seconds=10, heartbeat_seconds=1)


class Coordinator:
    """A broker with one member; what it does to heartbeats and joins is set by the test."""

    def __init__(self) -> None:
        self.joins: list[str] = []
        self.left: list[str] = []
        self.generation = 0
        self.heartbeat_error: Exception | None = None
        self.heartbeat_seconds = 0.0
        self.join_error: Exception | None = None
        self.join_seconds = 0.1
        self.asked_at: list[float] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[FakeCalls]:
        """A connection, like `GroupCalls.opened`."""
        if isinstance(self.heartbeat_error, DeliveryRetriable):
            raise self.heartbeat_error
        yield FakeCalls(self)


class FakeCalls:
    """One connection to the coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._closed = asyncio.Event()

    async def join(self, member_id: str, claim: bytes, *, on_member_id: Callable[[str], None]) -> Joined:
        """After `join_seconds`, unless the connection is closed before."""
        assert claim == b"claim"
        self._coordinator.joins.append(member_id)
        on_member_id(member_id or f"m{len(self._coordinator.joins)}")
        try:
            async with asyncio.timeout(self._coordinator.join_seconds):
                await self._closed.wait()
        except TimeoutError:
            if self._coordinator.join_error:
                raise self._coordinator.join_error from None
        else:
            raise DeliveryRetriable("closed")
        self._coordinator.generation += 1
        member_id = member_id or f"m{len(self._coordinator.joins)}"
        return Joined(self._coordinator.generation, member_id, is_leader=True, claims={member_id: claim})

    async def sync(self, joined: Joined, parts: Mapping[str, bytes]) -> bytes:
        """What was handed out."""
        return parts[joined.member_id]

    async def heartbeat(self, generation: int, member_id: str) -> None:
        """After `heartbeat_seconds`, with `heartbeat_error`."""
        assert generation == self._coordinator.generation
        assert member_id
        self._coordinator.asked_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._coordinator.heartbeat_seconds)
        if self._coordinator.heartbeat_error:
            raise self._coordinator.heartbeat_error

    async def leave(self, member_id: str) -> None:
        """Remembered."""
        self._coordinator.left.append(member_id)

    async def close(self) -> None:
        """Ends a join."""
        self._closed.set()


class Part:
    """Hears everything."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.is_due = False

    def claim(self) -> bytes:
        """See `GroupPart`."""
        return b"claim"

    async def lead(self, generation: int, member_id: str, claims: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """See `GroupPart`."""
        assert claims == {member_id: b"claim"}
        return {member_id: f"part {generation}".encode()}

    def on_round(self) -> None:
        """See `GroupPart`."""
        self.heard.append("round")

    def on_part(self, part: bytes) -> None:
        """See `GroupPart`."""
        self.is_due = False
        self.heard.append(part.decode())

    def on_lease(self) -> None:
        """See `GroupPart`."""
        self.heard.append("lease")

    def is_round_due(self) -> bool:
        """See `GroupPart`."""
        return self.is_due

    def pulse_seconds(self) -> float:
        """See `GroupPart`."""
        return SETTINGS.heartbeat_seconds

    def on_trouble(self, text: str) -> None:
        """See `GroupPart`."""
        if text not in self.heard:
            self.heard.append(text)


class World:
    """A member, its part and its coordinator."""

    def __init__(self) -> None:
        self.coordinator, self.part = Coordinator(), Part()
        self.member = GroupMember(SETTINGS, self.part, connect=self.coordinator.connect)

    @property
    def now(self) -> float:
        """Virtual time."""
        return asyncio.get_running_loop().time()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The member has its place by the beginning of the block, and leaves at its end."""
        async with Background() as background:
            background.start(self.member.run(), name="member")
            await asyncio.sleep(1)
            yield


async def test_a_lease_counts_from_the_sending_of_the_last_heartbeat_that_was_answered() -> None:
    """The broker counts its session from when it got it, whenever the answer came."""
    world = World()
    async with world.running():
        world.coordinator.heartbeat_seconds = 6.0
        await asyncio.sleep(8)
        answered = world.coordinator.asked_at[-2]
        world.coordinator.heartbeat_error = DeliveryRetriable("silence")
        while world.member.is_leased:
            await asyncio.sleep(0.01)

        assert answered + 9.9 < world.now < answered + 10.1


async def test_a_place_is_doubted_after_a_session_without_the_broker_and_comes_back_without_a_round() -> None:
    """The broker, back again, may never have missed the member."""
    world = World()

    async with world.running():
        begun = world.now
        world.coordinator.heartbeat_error = DeliveryRetriable("no broker")
        while world.member.is_leased:
            await asyncio.sleep(0.01)
        assert 8.5 <= world.now - begun <= 10.1
        world.coordinator.heartbeat_error = None
        await asyncio.sleep(1)
        assert world.member.is_leased

    assert world.part.heard[:6] == ["round", "part 1", "lease", "no broker", "lease", "lease"]
    assert world.coordinator.joins == [""]


async def test_who_is_unknown_to_the_broker_believes_it_at_once_and_joins_as_a_new_member() -> None:
    """Its old id is worth nothing."""
    world = World()

    async with world.running():
        world.coordinator.heartbeat_error = PlaceLost()
        world.coordinator.join_seconds = 5
        await asyncio.sleep(2)
        assert not world.member.is_leased
        world.coordinator.heartbeat_error = None
        await asyncio.sleep(5)
        assert world.member.is_leased

    assert world.part.heard[:6] == ["round", "part 1", "lease", "lease", "round", "part 2"]
    assert world.coordinator.joins == ["", ""]


async def test_a_round_that_others_began_keeps_id_and_place_until_its_end() -> None:
    """However long the others take."""
    world = World()

    async with world.running():
        world.coordinator.heartbeat_error = RoundBegan()
        world.coordinator.join_seconds = 50
        await asyncio.sleep(45)
        assert world.member.is_leased
        world.coordinator.heartbeat_error = None
        await asyncio.sleep(10)

    assert world.part.heard[:5] == ["round", "part 1", "lease", "round", "part 2"]
    assert world.coordinator.joins == ["", "m1"]


async def test_a_coordinator_that_goes_in_the_middle_of_a_round_is_not_waited_for() -> None:
    """Heartbeats notice it; the place holds for its session, and the round is begun again."""
    world = World()

    async with world.running():
        world.coordinator.join_seconds = 80
        world.member.request_rejoin()
        await asyncio.sleep(2)
        world.coordinator.heartbeat_error = DeliveryRetriable("no broker")
        await asyncio.sleep(5)
        world.coordinator.heartbeat_error = None
        world.coordinator.join_seconds = 0.1
        await asyncio.sleep(2)
        assert world.member.is_leased

    assert world.part.heard[:3] == ["round", "part 1", "lease"]
    assert "no broker" in world.part.heard
    assert "part 2" in world.part.heard
    assert world.coordinator.joins == ["", "m1", "m1"]


async def test_many_requests_for_a_round_make_one() -> None:
    """Also where the part itself sees a reason."""
    world = World()

    async with world.running():
        world.part.is_due = True
        world.member.request_rejoin()
        world.member.request_rejoin()
        await asyncio.sleep(5)

    assert world.coordinator.joins == ["", "m1"]


@pytest.mark.parametrize("join_seconds", [0.1, 50])
async def test_who_stops_leaves_even_in_the_middle_of_its_first_round(join_seconds: float) -> None:
    """Else the others would wait for it for a session."""
    world = World()
    world.coordinator.join_seconds = join_seconds

    async with world.running():
        pass

    assert world.coordinator.left == ["m1"]
    assert not world.member.is_leased


async def test_a_group_that_can_never_be_joined_ends_the_member() -> None:
    """Trying again would not help."""
    world = World()
    world.coordinator.join_error = DeliveryFatal("of another kind")

    with pytest.raises(DeliveryFatal, match="of another kind"):
        await world.member.run()

    assert world.coordinator.joins == [""]
