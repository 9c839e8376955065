"""The five requests of Kafka's group protocol, each under a time limit, its error codes sorted by what they mean.

The client library's consumer is not used for it: it would have the workers subscribe to a topic, speak another
protocol type than Connect (`docs/adr/0015-group-and-assignment.md`), and it does not say until when a membership holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from aiokafka import errors as kafka
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from metrics.events import Emit, GroupRequest, GroupRequestEnded
from service.kafka import library
from service.kafka.client import KafkaSettings
from service.kafka.errors import CLIENT_ERRORS, DeliveryFatal, DeliveryRetriable, KafkaFailure, classify

CONNECT_SECONDS_MAX = 30.0
_CLOSE_SECONDS_MAX = 2.0


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Which group, and its time limits; the names are those of the worker keys, less their unit."""

    group_id: str
    protocol_type: str
    protocol: str
    session_seconds: float = 10.0
    heartbeat_seconds: float = 3.0
    rebalance_seconds: float = 60.0


class RoundBegan(Exception):
    """The group is being made anew: join again, keeping the member id."""


class PlaceLost(Exception):
    """The group does not know this member (any more): join as a new one."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Answer to joining: a generation begins. The leader is told everyone's claims, by member id."""

    generation: int
    member_id: str
    is_leader: bool
    claims: Mapping[str, bytes]


class Calls(Protocol):
    """The requests a member makes, on one connection to the coordinator."""

    async def join(self, member_id: str, claim: bytes, *, on_member_id: Callable[[str], None]) -> Joined:
        """Wait until the group is complete."""

    async def sync(self, joined: Joined, parts: Mapping[str, bytes]) -> bytes:
        """Hand out and get this member's part."""

    async def heartbeat(self, generation: int, member_id: str) -> None:
        """Say that this member is alive."""

    async def leave(self, member_id: str) -> None:
        """Leave the group, so that the others need not wait for the end of the session."""

    async def close(self) -> None:
        """Break the connection; calls that are waiting end with DeliveryRetriable."""


class GroupCalls:
    """One client's connections to the group's coordinator; use it inside `opened`, drop it after DeliveryRetriable."""

    def __init__(self, client: AIOKafkaClient, settings: GroupSettings) -> None:
        """Wrap a connected client."""
        self._client = client
        self._settings = settings
        self._coordinator = -1

    @classmethod
    @asynccontextmanager
    async def opened(cls, kafka_settings: KafkaSettings, settings: GroupSettings) -> AsyncIterator[GroupCalls]:
        """Connect to whoever coordinates the group now, for the length of a block.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        arguments = kafka_settings.connection_arguments()
        # Joining is answered when everyone has joined; each call has a limit of its own besides.
        arguments["request_timeout_ms"] = round((settings.rebalance_seconds + CONNECT_SECONDS_MAX) * 1000)
        client = AIOKafkaClient(**arguments)
        library.mend_bootstrap(client)
        calls = cls(client, settings)
        try:
            await calls._find()
            yield calls
        finally:
            await calls.close()

    async def _find(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._client.bootstrap()
                self._coordinator = await self._client.coordinator_lookup(
                    CoordinationType.GROUP, self._settings.group_id
                )
        except CLIENT_ERRORS as error:
            raise classify(error, doing=f"looking for the coordinator of group '{self._settings.group_id}'") from error

    async def close(self) -> None:
        """Disconnect within a time limit; calls that are waiting end with DeliveryRetriable."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS_MAX):
                await self._client.close()
        except CLIENT_ERRORS:
            # What is left is a socket that its broker does not answer; it goes with the client.
            return

    async def join(self, member_id: str, claim: bytes, *, on_member_id: Callable[[str], None]) -> Joined:
        """Wait until the group is complete; `on_member_id` hears the id that can be given up from then on.

        Raises PlaceLost, DeliveryFatal when the group can never be joined like this, DeliveryRetriable.
        """
        limit = self._settings.rebalance_seconds + CONNECT_SECONDS_MAX
        answer = await self._send(self._join_request(member_id, claim), seconds_max=limit, waits=True)
        if kafka.for_code(answer.error_code) is kafka.MemberIdRequired:
            # The broker gives out the id first, so that a client that never comes back leaves no trace (KIP-394).
            on_member_id(answer.member_id)
            request = self._join_request(answer.member_id, claim)
            answer = await self._send(request, seconds_max=limit, waits=True)
        self._judge(answer.error_code, doing="joining")
        return Joined(
            answer.generation_id,
            answer.member_id,
            answer.leader_id == answer.member_id,
            {member[0]: member[-1] for member in answer.members},
        )

    async def sync(self, joined: Joined, parts: Mapping[str, bytes]) -> bytes:
        """Hand out (as the leader; others give nothing) and get this member's part.

        Raises RoundBegan, PlaceLost, DeliveryFatal, DeliveryRetriable.
        """
        request = SyncGroupRequest(
            self._settings.group_id, joined.generation, joined.member_id, None, list(parts.items())
        )
        answer = await self._send(request, seconds_max=self._settings.rebalance_seconds, waits=True)
        self._judge(answer.error_code, doing="handing out work")
        part: bytes = answer.member_assignment
        return part

    async def heartbeat(self, generation: int, member_id: str) -> None:
        """Say that this member is alive.

        Raises RoundBegan, PlaceLost, DeliveryFatal, DeliveryRetriable.
        """
        request = HeartbeatRequest(self._settings.group_id, generation, member_id)
        answer = await self._send(request, seconds_max=self._settings.session_seconds / 3)
        self._judge(answer.error_code, doing="keeping the place")

    async def leave(self, member_id: str) -> None:
        """Give up the place.

        Raises PlaceLost, DeliveryFatal, DeliveryRetriable.
        """
        answer = await self._send(LeaveGroupRequest(self._settings.group_id, member_id), seconds_max=_CLOSE_SECONDS_MAX)
        self._judge(answer.error_code, doing="leaving")

    def _join_request(self, member_id: str, claim: bytes) -> JoinGroupRequest:
        settings = self._settings
        return JoinGroupRequest(
            settings.group_id,
            round(settings.session_seconds * 1000),
            round(settings.rebalance_seconds * 1000),
            member_id,
            None,
            settings.protocol_type,
            [(settings.protocol, claim)],
        )

    async def _send(self, request: Any, *, seconds_max: float, waits: bool = False) -> Any:
        """The answer. A broker answers a connection's requests in turn, so those that wait have one of their own."""
        connection = ConnectionGroup.COORDINATION if waits else ConnectionGroup.DEFAULT
        try:
            async with asyncio.timeout(seconds_max):
                return await self._client.send(self._coordinator, request, group=connection)
        except CLIENT_ERRORS as error:
            name = type(request).__name__.removesuffix("Request")
            raise classify(error, doing=f"{name} of group '{self._settings.group_id}'") from error

    def _judge(self, code: int, *, doing: str) -> None:
        """Raise what an answer's error code means."""
        error = kafka.for_code(code)
        group = self._settings.group_id
        if error is kafka.NoError:
            return
        if error is kafka.RebalanceInProgressError:
            raise RoundBegan
        if error in (kafka.UnknownMemberIdError, kafka.IllegalGenerationError):
            raise PlaceLost
        if error is kafka.InconsistentGroupProtocolError:
            raise DeliveryFatal(
                f"group '{group}' has live members of another kind (workers of Java Kafka Connect, or consumers): "
                "stop them first, or set another group.id"
            )
        if error is kafka.InvalidSessionTimeoutError:
            raise DeliveryFatal(
                f"session.timeout.ms={round(self._settings.session_seconds * 1000)} is outside of what the broker "
                "allows (group.min.session.timeout.ms to group.max.session.timeout.ms)"
            )
        if error in (kafka.InvalidGroupIdError, kafka.GroupAuthorizationFailedError):
            raise DeliveryFatal(f"group.id '{group}': {error.description}, while {doing}")
        raise DeliveryRetriable(f"{error.__name__}, while {doing} in group '{group}'")


@asynccontextmanager
async def opened_timed(kafka: KafkaSettings, group: GroupSettings, *, emit: Emit) -> AsyncIterator[Calls]:
    """`GroupCalls.opened`, each request told to ``emit`` as a `GroupRequestEnded`."""
    async with GroupCalls.opened(kafka, group) as calls:
        yield TimedCalls(calls, kafka.client_id, emit)


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """The ``Calls`` of a member, as they are; leaving and closing are nobody's figures."""

    calls: Calls
    client_id: str
    emit: Emit

    async def join(self, member_id: str, claim: bytes, *, on_member_id: Callable[[str], None]) -> Joined:
        """See ``Calls``."""
        with self._timed("join"):
            return await self.calls.join(member_id, claim, on_member_id=on_member_id)

    async def sync(self, joined: Joined, parts: Mapping[str, bytes]) -> bytes:
        """See ``Calls``."""
        with self._timed("sync"):
            return await self.calls.sync(joined, parts)

    async def heartbeat(self, generation: int, member_id: str) -> None:
        """See ``Calls``."""
        with self._timed("heartbeat"):
            await self.calls.heartbeat(generation, member_id)

    async def leave(self, member_id: str) -> None:
        """See ``Calls``."""
        await self.calls.leave(member_id)

    async def close(self) -> None:
        """See ``Calls``."""
        await self.calls.close()

    @contextmanager
    def _timed(self, request: GroupRequest) -> Iterator[None]:
        """A heartbeat that hears of a round was answered; a join or sync that does has come to nothing."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        except (KafkaFailure, PlaceLost):
            self._tell(request, began, is_success=False)
            raise
        except RoundBegan:
            self._tell(request, began, is_success=request == "heartbeat")
            raise
        self._tell(request, began, is_success=True)

    def _tell(self, request: GroupRequest, began: float, *, is_success: bool) -> None:
        seconds = asyncio.get_running_loop().time() - began
        self.emit(GroupRequestEnded(client_id=self.client_id, request=request, seconds=seconds, is_success=is_success))
