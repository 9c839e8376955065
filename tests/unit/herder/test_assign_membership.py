"""When a member asks for a round, and how it is told what; the broker's part is in tests/integration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from fetchers.sdk import SystemClock
from metrics.events import Event, GroupRoundBegan, GroupRoundEnded, GroupTroubled, discard
from service.domain.cluster import InstanceStatus, Roster
from service.domain.ids import InstanceId, TaskId
from service.domain.states import State
from service.herder.assignment import AssignmentTracker
from service.herder.membership import GroupMembership, Patience, group_settings
from service.herder.rounds import Claim, decode_claim, decode_roster, encode_claim, encode_roster
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryRetriable
from service.stores.state_log import MemoryStateLog
from service.stores.statuses import Statuses
from tests.unit.herder.config_log import ConfigLog, cluster, member, members

pytestmark = pytest.mark.looptime

A, B, C = members("abc")
CONFIG = cluster({"c": 3}, offset=10)


async def nothing() -> None:
    """The log stands still."""


def membership_of(
    tracker: AssignmentTracker,
    *,
    catch_up: Callable[[], Awaitable[None]] = nothing,
    events: list[Event] | None = None,
    me: str = "a",
    statuses: Statuses | None = None,
) -> GroupMembership:
    """A worker that has not begun to join."""
    return GroupMembership(
        member(me),
        KafkaSettings(bootstrap="nowhere:1"),
        group_settings("g"),
        tracker,
        catch_up=catch_up,
        statuses=statuses,
        patience=Patience(grace_seconds=3),
        emit=(events if events is not None else []).append,
    )


def roster(*, leader: str = "a", present: str = "ab", owner: str = "c", offset: int = 10) -> Roster:
    """Generation 2, in which one task is somebody's."""
    return Roster(2, members(leader)[0], members(present), {TaskId("c", 0): members(owner)[0]}, offset)


async def test_the_leader_asks_for_a_round_when_a_grace_is_over() -> None:
    """Heartbeats are quick from a moment before, so that everyone hears of it at once."""
    leading, following = membership_of(AssignmentTracker(CONFIG)), membership_of(AssignmentTracker(CONFIG))
    leading.on_part(encode_roster(roster()))
    following.on_part(encode_roster(roster(leader="b")))

    assert (leading.is_round_due(), leading.pulse_seconds(), following.pulse_seconds()) == (False, 1.0, 1.0)
    await asyncio.sleep(2.5)
    assert (leading.is_round_due(), leading.pulse_seconds(), following.pulse_seconds()) == (False, 0.25, 0.25)
    await asyncio.sleep(0.5)
    assert (leading.is_round_due(), following.is_round_due()) == (True, False)
    leading.on_part(encode_roster(roster(owner="b")))
    assert (leading.is_round_due(), leading.pulse_seconds()) == (False, 1.0)


async def test_the_first_members_claim_to_know_the_work_of_all() -> None:
    """Of absent ones too; the rest only what is their own, so that a round of many workers stays small."""
    membership = membership_of(AssignmentTracker(cluster({"c": 1}, offset=10)))
    membership.on_part(encode_roster(roster()))
    assert decode_claim(membership.claim()).others[TaskId("c", 0)] == C
    me = membership_of(AssignmentTracker(cluster({"c": 1}, offset=10)), me="d")
    me.on_part(encode_roster(roster(present="abcd", owner="d")))
    assert decode_claim(me.claim()) == Claim(member("d"), 10, 2, (TaskId("c", 0),))


async def test_a_worker_that_remembers_too_little_asks_for_another_base() -> None:
    """Until one comes that it can follow."""
    log = ConfigLog()
    log.write("c", 1)
    early = log.config.offset
    log.write("d", 1)
    membership = membership_of(AssignmentTracker(log.config))
    membership.on_part(encode_roster(roster(owner="a", offset=early)))
    assert membership.is_round_due()
    membership.on_part(encode_roster(roster(owner="a", offset=log.config.offset)))
    assert not membership.is_round_due()


async def test_a_leader_that_cannot_read_on_leads_from_where_it_stands() -> None:
    """And says what is the matter; the others fold what they remember."""

    async def fail() -> None:
        raise DeliveryRetriable("no leader for the config topic")

    events: list[Event] = []
    membership = membership_of(AssignmentTracker(CONFIG), catch_up=fail, events=events)
    claims = {"m1": encode_claim(Claim(A, 10, 0, ())), "m2": encode_claim(Claim(B, 12, 0, ()))}
    parts = await membership.lead(3, "m1", claims)

    told = decode_roster(parts["m2"])
    assert (told.generation, told.leader, told.members, told.base_offset) == (3, A, (A, B), 10)
    assert parts["m1"] == parts["m2"]
    assert [type(event) for event in events] == [GroupTroubled]


async def test_a_leader_does_not_wait_for_ever_to_read_on() -> None:
    """The others wait for it."""

    async def hang() -> None:
        await asyncio.Event().wait()

    membership = membership_of(AssignmentTracker(CONFIG), catch_up=hang)
    claims = {"m1": encode_claim(Claim(A, 99, 0, ()))}

    assert decode_roster((await membership.lead(3, "m1", claims))["m1"]).base_offset == 10


class LateStatuses(Statuses):
    """The topic holds more states than are read here, until it is read to its end."""

    unread: Mapping[InstanceId, InstanceStatus]
    failure: Exception | None = None

    async def read_to_end(self) -> None:
        """See ``StatusStore``."""
        if self.failure is not None:
            raise self.failure
        for instance, status in self.unread.items():
            self.put(instance, status)


@pytest.mark.parametrize("last_word", [State.UNASSIGNED, State.RUNNING])
@pytest.mark.parametrize("failure", [None, DeliveryRetriable("no leader for the status topic")])
async def test_a_leader_reads_the_last_words_of_who_has_left_before_it_deals_out_its_work(
    last_word: State, failure: Exception | None
) -> None:
    """A worker that stops tells that it lets go, then leaves; the group may hear of it first. Its work is held then.

    What is still told to run at the end of the topic is of a worker that has died. Where the topic cannot be read,
    what is known counts, and the round goes on.
    """
    events: list[Event] = []
    task = TaskId("c", 0)
    tracker = AssignmentTracker(cluster({"c": 1}, offset=10))
    statuses = LateStatuses(MemoryStateLog("s"), clock=SystemClock(), emit=discard)
    statuses.put(task, InstanceStatus(State.RUNNING, C.worker_id, 2))
    statuses.unread = {task: InstanceStatus(last_word, C.worker_id, 2)}
    statuses.failure = failure
    membership = membership_of(tracker, statuses=statuses, events=events)
    membership.on_part(encode_roster(roster(present="abc", owner="c")))
    parts = await membership.lead(
        3, "m1", {"m1": encode_claim(Claim(A, 10, 2, ())), "m2": encode_claim(Claim(B, 10, 2, ()))}
    )

    is_held = last_word is State.UNASSIGNED and failure is None
    assert (decode_roster(parts["m1"]).base[task] == C) is is_held
    assert any(isinstance(event, GroupTroubled) for event in events) is (failure is not None)


async def test_of_two_with_one_url_the_one_that_was_there_has_the_place() -> None:
    """The other is told nothing at all, which it says."""
    events: list[Event] = []
    membership = membership_of(AssignmentTracker(CONFIG), events=events)
    claims = {
        "m1": encode_claim(Claim(A, 10, 0, ())),
        "m2": encode_claim(Claim(B, 10, 0, ())),
        "m3": encode_claim(Claim(B, 10, 7, ())),
    }
    parts = await membership.lead(8, "m1", claims)
    membership.on_part(b"")
    membership.on_part(b"")

    assert (parts["m2"], decode_roster(parts["m3"]).members) == (b"", (A, B))
    assert [type(event) for event in events] == [GroupTroubled]


async def test_a_round_is_told_once_with_its_length() -> None:
    """From the first that was heard of it, however often it had to be begun."""
    events: list[Event] = []
    membership = membership_of(AssignmentTracker(CONFIG), events=events)
    membership.on_round()
    await asyncio.sleep(2)
    membership.on_round()
    await asyncio.sleep(1)
    membership.on_part(encode_roster(roster()))

    began, ended = events
    assert isinstance(began, GroupRoundBegan)
    assert isinstance(ended, GroupRoundEnded)
    assert (ended.generation, ended.leader, ended.members, ended.absent) == (2, A.url, 2, 1)
    assert ended.seconds == pytest.approx(3)
