"""One place in a Kafka group, kept for as long as a worker lives: join, keep alive, join again, leave.

```
      ┌────────── a round: join ─► (leader: lead) ─► sync ──► told ───┐
      ▼                                                               ▼
  no place ◄── the group does not know us ── heartbeats, each of which prolongs the lease
```

The **lease** says until when this member may believe in its place: one session after it sent the last heartbeat that
was answered well. The broker counts its session from when it *got* that heartbeat, so the lease never outlives it: a
process that was stopped for longer knows that it is out the moment it wakes, before it has asked anyone. The same
holds when the broker cannot be reached. A heartbeat that is answered well later brings the same place back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

from service.background import Background
from service.kafka.errors import DeliveryRetriable, KafkaFailure
from service.kafka.group_calls import Calls, GroupSettings, Joined, PlaceLost, RoundBegan

RETRY_SECONDS = 0.25
_LOOKS_A_SESSION = 10


class GroupPart(Protocol):
    """What a member does in its group. None of it raises, and all but `lead` returns at once."""

    def claim(self) -> bytes:
        """What this member brings into the round that begins."""

    async def lead(self, generation: int, member_id: str, claims: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Make everyone's part, by member id; only called for the leader, within the rebalance's time limit."""

    def on_round(self) -> None:
        """The group is being made anew; the place holds until the round ends."""

    def on_part(self, part: bytes) -> None:
        """The round has ended with this part."""

    def on_lease(self) -> None:
        """Hear that `GroupMember.is_leased` has changed."""

    def is_round_due(self) -> bool:
        """Whether this member has a reason for a new round; asked after each heartbeat."""

    def pulse_seconds(self) -> float:
        """Until the next heartbeat; the default of `GroupSettings`, or sooner."""

    def on_trouble(self, text: str) -> None:
        """The broker could not be reached, or refused; it is tried again."""


class GroupMember:
    """Takes part in a group until cancelled; `connect` opens `Calls` for the length of a block."""

    def __init__(
        self, settings: GroupSettings, part: GroupPart, *, connect: Callable[[], AbstractAsyncContextManager[Calls]]
    ) -> None:
        """Prepare; nothing is sent before `run`."""
        self._connect = connect
        self._settings = settings
        self._part = part
        self._member_id = ""
        self._generation = 0
        self._leased_until = 0.0
        self._is_lease_told = False
        self._rejoin = asyncio.Event()

    @property
    def is_leased(self) -> bool:
        """Whether this member may believe in its place at this moment."""
        return _now() < self._leased_until

    def request_rejoin(self) -> None:
        """Ask for a new round; repeated requests before it make one."""
        self._rejoin.set()

    async def run(self) -> None:
        """Keep a place; leave when cancelled.

        Raises DeliveryFatal when the group can never be joined like this.
        """
        async with Background() as background:
            background.start(self._watch_lease(), name=f"lease in {self._settings.group_id}")
            while True:
                try:
                    async with self._connect() as calls:
                        await self._take_part(calls)
                except DeliveryRetriable as error:
                    self._part.on_trouble(str(error))
                    await asyncio.sleep(RETRY_SECONDS)

    async def _take_part(self, calls: Calls) -> None:
        """Go round and round on one connection until it breaks; leave when cancelled."""
        try:
            while True:
                try:
                    if not self._generation or self._rejoin.is_set():
                        await self._go_round(calls)
                    await self._keep(calls)
                except RoundBegan:
                    self._rejoin.set()
                except PlaceLost:
                    self._forget()
        except asyncio.CancelledError:
            await self._leave(calls)
            raise

    async def _go_round(self, calls: Calls) -> None:
        """One round: join, lead where this member is chosen, hear the part."""
        self._rejoin.clear()
        self._part.on_round()
        async with Background() as background:
            if self._generation:
                background.start(self._keep_lease(calls), name=f"heartbeats of a round of {self._settings.group_id}")
            try:
                joined = await calls.join(self._member_id, self._part.claim(), on_member_id=self._take_id)
                self._member_id, self._generation = joined.member_id, joined.generation
                parts = await self._parts(joined)
                asked_at = _now()
                part = await calls.sync(joined, parts)
            except KafkaFailure:
                # Whether the broker has counted us in is not known: only another round can tell.
                self._rejoin.set()
                raise
        # First the part: a lease that is new must not show the place of an older generation.
        self._part.on_part(part)
        self._prolong(asked_at)

    async def _parts(self, joined: Joined) -> Mapping[str, bytes]:
        if not joined.is_leader:
            return {}
        return await self._part.lead(joined.generation, joined.member_id, joined.claims)

    def _take_id(self, member_id: str) -> None:
        self._member_id = member_id

    async def _keep(self, calls: Calls) -> None:
        """Heartbeats, until a round begins or is asked for."""
        while not self._rejoin.is_set():
            asked_at = _now()
            await calls.heartbeat(self._generation, self._member_id)
            self._prolong(asked_at)
            if self._part.is_round_due():
                self._rejoin.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._part.pulse_seconds()):
                    await self._rejoin.wait()

    async def _keep_lease(self, calls: Calls) -> None:
        """Heartbeats while a round goes on: they tell whether the broker still counts on us."""
        while True:
            asked_at = _now()
            try:
                await calls.heartbeat(self._generation, self._member_id)
            except RoundBegan:
                self._prolong(asked_at)
            except PlaceLost:
                # The round itself will end with it; until then the lease runs out.
                return
            except KafkaFailure:
                # Else the round would wait for a coordinator that is not there for as long as a round may take.
                await calls.close()
                return
            else:
                self._prolong(asked_at)
            await asyncio.sleep(self._settings.session_seconds / _LOOKS_A_SESSION)

    async def _watch_lease(self) -> None:
        """Tell of the lease's end when it comes; its holders may have looked before."""
        while True:
            self._tell_lease()
            remaining = self._leased_until - _now()
            await asyncio.sleep(remaining if remaining > 0 else self._settings.session_seconds / _LOOKS_A_SESSION)

    def _prolong(self, asked_at: float) -> None:
        self._leased_until = max(self._leased_until, asked_at + self._settings.session_seconds)
        self._tell_lease()

    def _forget(self) -> None:
        self._member_id, self._generation, self._leased_until = "", 0, 0.0
        self._tell_lease()

    def _tell_lease(self) -> None:
        if self._is_lease_told != self.is_leased:
            self._is_lease_told = self.is_leased
            self._part.on_lease()

    async def _leave(self, calls: Calls) -> None:
        if not self._member_id:
            return
        try:
            await calls.leave(self._member_id)
        except (KafkaFailure, RoundBegan, PlaceLost):
            # The others will learn of it by the end of the session.
            return
        finally:
            self._forget()


def _now() -> float:
    return asyncio.get_running_loop().time()
