"""The place of this worker among the workers: the roster of each generation, agreed by Kafka's own group protocol.

In a round every worker claims what it knows; the leader, chosen by the broker, reads the config log as far as anyone
has, decides, and tells everyone the same roster (`service.herder.rounds`). Between rounds nothing is agreed: each
worker folds the config log (`service.herder.assignment`). A standalone worker is a group of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from metrics.events import (
    ComponentStateChanged,
    Emit,
    GroupPlaceDoubted,
    GroupRoundBegan,
    GroupRoundEnded,
    GroupTroubled,
    discard,
)
from service.background import Background, located, persist
from service.domain.cluster import Member, Roster
from service.domain.ids import InstanceId
from service.herder.assignment import AssignmentTracker, rebased
from service.herder.ports import StatusStore
from service.herder.rounds import (
    Claim,
    Grace,
    convened,
    decode_claim,
    decode_roster,
    encode_claim,
    encode_roster,
    known_owners,
    without_lost,
)
from service.herder.view import is_told_running
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, KafkaFailure
from service.kafka.group import GroupMember
from service.kafka.group_calls import GroupSettings, opened_timed

PROTOCOL_TYPE = "connect"
PROTOCOL = "headrace-1"
HEARTBEATS_A_SESSION = 10
"""Connect's three would tell the others of a departure so late that a dead worker's tasks waited 5 s longer."""
WITNESSES = 3
"""So many members claim to know everyone's work. If the leader goes in a round in which another is back from a restart,
the broker may choose that one: without them it would take all that is held, and all that the leader had, for nobody's.
"""
_RESTLESS_SECONDS = 0.25


def group_settings(
    group_id: str, *, session_seconds: float = 10.0, heartbeat_seconds: float = 3.0, rebalance_seconds: float = 60.0
) -> GroupSettings:
    """The group of a cluster's workers. ``heartbeat_seconds`` is the most that passes between two heartbeats."""
    return GroupSettings(
        group_id=group_id,
        protocol_type=PROTOCOL_TYPE,
        protocol=PROTOCOL,
        session_seconds=session_seconds,
        heartbeat_seconds=min(heartbeat_seconds, session_seconds / HEARTBEATS_A_SESSION),
        rebalance_seconds=rebalance_seconds,
    )


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long others are waited for."""

    grace_seconds: float = 30.0
    """The work of a worker that has taken leave is held for it."""
    sync_seconds_max: float = 3.0
    """The leader reads the config log as far as another has, and the last states of who has left."""


class GroupMembership:
    """A place in the group of all workers (`service.herder.ports.Membership`, `service.kafka.group.GroupPart`).

    ``catch_up`` reads the config log to its end into ``tracker``; the leader does it where another worker has read
    further. ``statuses`` tell it who of the absent has not taken leave; None: all have.
    """

    def __init__(
        self,
        me: Member,
        kafka: KafkaSettings,
        group: GroupSettings,
        tracker: AssignmentTracker,
        *,
        catch_up: Callable[[], Awaitable[None]],
        statuses: StatusStore | None = None,
        patience: Patience | None = None,
        emit: Emit = discard,
    ) -> None:
        """Prepare; nothing is sent before ``start``. ``tracker`` must be at the config log's end and listen to it."""
        patience = patience or Patience()
        self.failure: Exception | None = None
        """Why this worker can never be a member as it is configured; listeners hear when it is set."""
        self.trouble: str | None = None
        """Why the broker could not be asked lately; None while it can."""
        self._me = me
        self._settings = group
        self._tracker = tracker
        self._catch_up = catch_up
        self._statuses = statuses
        self._sync_seconds_max = patience.sync_seconds_max
        self._emit = emit
        self._grace = Grace(patience.grace_seconds)
        self._member = GroupMember(group, self, connect=lambda: opened_timed(kafka, group, emit=emit))
        self._roster: Roster | None = None
        self._round_began: float | None = None
        self._must_rejoin = False
        self._is_told_ready = False
        self._listeners: list[Callable[[], None]] = []
        self._background = Background()
        self._is_running = False

    @property
    def me(self) -> Member:
        """See ``Membership``."""
        return self._me

    @property
    def roster(self) -> Roster | None:
        """See ``Membership``; from the moment on at which the others may believe this worker dead, None."""
        return self._roster if self._member.is_leased else None

    @property
    def is_rebalancing(self) -> bool:
        """See ``Membership``."""
        return self._round_began is not None or self.roster is None

    def listen(self, listener: Callable[[], None]) -> None:
        """See ``Membership``."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """See ``Membership``."""
        await self._background.__aenter__()
        self._is_running = True
        self._emit(ComponentStateChanged(component="group", is_ready=False, detail="joining"))
        taking_part = persist(self._take_part, tell=lambda error: self.on_trouble(located(error)))
        self._background.start(taking_part, name=f"membership in {self._settings.group_id}")

    async def stop(self) -> None:
        """See ``Membership``; harmless when repeated or never started."""
        if self._is_running:
            self._is_running = False
            await self._background.__aexit__(None, None, None)

    async def _take_part(self) -> None:
        try:
            await self._member.run()
        except DeliveryFatal as error:
            self.failure = error
            self._tell()

    def claim(self) -> bytes:
        """See ``GroupPart``."""
        tracker, me = self._tracker, self._me
        owned = tuple(tracker.owned_by(me))
        return encode_claim(Claim(me, tracker.offset, tracker.generation, owned, self._known_of_others()))

    def _known_of_others(self) -> Mapping[InstanceId, Member]:
        if self._roster is None or self._me not in self._roster.members[:WITNESSES]:
            return {}
        owners = self._tracker.assignment.owners()
        return {instance: owner for instance, owner in owners.items() if owner != self._me}

    async def lead(self, generation: int, member_id: str, claims: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """See ``GroupPart``."""
        told = {each: decode_claim(data) for each, data in claims.items()}
        await self._read_to(max(claim.offset for claim in told.values()))
        seated = _seated(told)
        members = [claim.member for claim in seated.values()]
        known = await self._without_lost(known_owners(self._tracker, seated.values()), members)
        now = _now()
        roster, self._grace = convened(
            known,
            self._tracker.config,
            self._grace,
            generation=generation,
            leader=told[member_id].member,
            members=members,
            began=now if self._round_began is None else self._round_began,
            now=now,
        )
        part = encode_roster(roster)
        return {each: part if each in seated else b"" for each in told}

    async def _read_to(self, offset: int) -> None:
        """Read as far as any member has; where that fails, those that are ahead fold their own memory."""
        if offset > self._tracker.offset:
            await self._read(self._catch_up, f"the config log could not be read to {offset}")

    async def _without_lost(
        self, known: Mapping[InstanceId, Member], present: Sequence[Member]
    ) -> Mapping[InstanceId, Member]:
        """What nobody's session has been waited for; the last words of who has left may still be to be read."""
        if self._statuses is None:
            return known
        is_told = partial(is_told_running, self._statuses)
        kept = without_lost(known, present, is_told)
        if len(kept) == len(known):
            return known
        await self._read(self._statuses.read_to_end, "the states could not be read to their end")
        return without_lost(known, present, is_told)

    async def _read(self, read_to_end: Callable[[], Awaitable[None]], trouble: str) -> None:
        """Read a topic for a moment at most, because the other members wait; what hinders it is told."""
        try:
            async with asyncio.timeout(self._sync_seconds_max):
                await read_to_end()
        except (KafkaFailure, TimeoutError) as error:
            self.on_trouble(f"{trouble}: {type(error).__name__} {error}")

    def on_round(self) -> None:
        """See ``GroupPart``."""
        if self._round_began is None:
            self._round_began = _now()
            self._emit(GroupRoundBegan(group_id=self._settings.group_id))
        self._tell()

    def on_part(self, part: bytes) -> None:
        """See ``GroupPart``."""
        began, self._round_began = self._round_began, None
        if part:
            self.trouble = None
            self._take(decode_roster(part), began=_now() if began is None else began)
        else:
            self._roster = None
            self.on_trouble(f"another worker of group '{self._settings.group_id}' has the URL {self._me.url}")
        self._tell()

    def _take(self, roster: Roster, *, began: float) -> None:
        self._roster = roster
        self._must_rejoin = not self._tracker.on_roster(roster)
        absent = {*roster.base.values()} - {*roster.members}
        self._grace = self._grace.seen(absent, began)
        self._emit(
            GroupRoundEnded(
                group_id=self._settings.group_id,
                generation=roster.generation,
                leader=roster.leader.url,
                members=len(roster.members),
                absent=len(absent),
                seconds=_now() - began,
            )
        )

    def on_lease(self) -> None:
        """See ``GroupPart``."""
        if self._is_running and not self._member.is_leased:
            self._emit(GroupPlaceDoubted(group_id=self._settings.group_id))
        self._tell()

    def on_trouble(self, text: str) -> None:
        """See ``GroupPart``; told once until something else is the matter."""
        if text != self.trouble:
            self.trouble = text
            self._emit(GroupTroubled(group_id=self._settings.group_id, message=text))

    def is_round_due(self) -> bool:
        """See ``GroupPart``: the leader ends a grace; a worker whose memory of the log is too short asks for a base."""
        if self._must_rejoin:
            return True
        ends_at = self._grace.ends_at
        is_leader = self._roster is not None and self._roster.leader == self._me
        return is_leader and ends_at is not None and ends_at <= _now()

    def pulse_seconds(self) -> float:
        """See ``GroupPart``: short when a grace is about to end, because who hears late of a round delays everyone."""
        usual, ends_at = self._settings.heartbeat_seconds, self._grace.ends_at
        is_round_near = ends_at is not None and ends_at - _now() <= usual
        return min(usual, _RESTLESS_SECONDS) if is_round_near else usual

    def _tell(self) -> None:
        self._tell_ready()
        for listener in self._listeners:
            listener()

    def _tell_ready(self) -> None:
        """Who rolls a restart on waits for it: while a worker is not back in its place, the next must not leave."""
        is_ready = self.roster is not None
        if is_ready != self._is_told_ready and self._is_running:
            self._is_told_ready = is_ready
            detail = self._settings.group_id if is_ready else self.trouble or "its place in the group is not sure"
            self._emit(ComponentStateChanged(component="group", is_ready=is_ready, detail=detail))


def _seated(claims: Mapping[str, Claim]) -> Mapping[str, Claim]:
    """One member for each URL: of two, the one that knows more (the other waits until that one has gone).

    A worker that was killed in the middle of a round and is back at once meets itself; its former self is expelled
    at the end of its session.
    """
    by_url: dict[Member, str] = {}
    for member_id in sorted(claims, key=lambda each: (-claims[each].generation, each)):
        by_url.setdefault(claims[member_id].member, member_id)
    return {member_id: claims[member_id] for member_id in by_url.values()}


def _now() -> float:
    return asyncio.get_running_loop().time()


class SoloMembership:
    """A group of one that never changes: the standalone worker."""

    def __init__(self, me: Member, tracker: AssignmentTracker) -> None:
        """Everything in ``tracker`` will be this worker's."""
        self.failure: Exception | None = None
        self._me = me
        self._tracker = tracker
        self._roster: Roster | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def me(self) -> Member:
        """See ``Membership``."""
        return self._me

    @property
    def roster(self) -> Roster | None:
        """See ``Membership``."""
        return self._roster

    @property
    def is_rebalancing(self) -> bool:
        """See ``Membership``."""
        return self._roster is None

    def listen(self, listener: Callable[[], None]) -> None:
        """See ``Membership``."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """See ``Membership``."""
        config = self._tracker.config
        base = rebased({}, config, members=(self._me,)).owners()
        self._roster = Roster(1, self._me, (self._me,), base, config.offset)
        self._tracker.on_roster(self._roster)
        for listener in self._listeners:
            listener()

    async def stop(self) -> None:
        """See ``Membership``."""
        self._roster = None
