"""What a leader goes by in a round, how long it holds work, and how a worker follows."""

from __future__ import annotations

from service.domain.cluster import Member, Roster
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.herder.assignment import AssignmentTracker, rebased
from service.herder.membership import SoloMembership
from service.herder.rounds import Claim, Grace, convened, known_owners, without_lost
from tests.unit.herder.config_log import ConfigLog, cluster, member, members

A, B, C = members("abc")


def tracker_of(generation: int, present: tuple[Member, ...], *, of: str = "cde") -> AssignmentTracker:
    """A worker's knowledge after so many rounds, with one connector for each letter."""
    config = cluster(dict.fromkeys(of, 1), offset=10)
    tracker = AssignmentTracker(config)
    base = rebased({}, config, members=present).owners()
    tracker.on_roster(Roster(generation, present[0], present, base, config.offset))
    return tracker


def claim(who: Member, generation: int, *owned: InstanceId) -> Claim:
    """As a worker makes it."""
    return Claim(who, 10, generation, owned)


def test_a_leader_that_took_part_goes_by_its_own_knowledge() -> None:
    """It knows what everyone had, those who are gone too."""
    tracker = tracker_of(4, (A, B, C))
    known = known_owners(tracker, [claim(A, 4), claim(B, 4)])

    assert known == tracker.assignment.owners()
    assert set(known.values()) == {A, B, C}


def test_a_leader_that_has_slept_goes_by_what_the_others_claim() -> None:
    """While it was away its work went to others, and they keep it."""
    tracker = tracker_of(2, (A, B))
    known = known_owners(tracker, [claim(A, 2, ConnectorId("c")), claim(B, 3, ConnectorId("c"), TaskId("c", 0))])

    assert known == {ConnectorId("c"): B, TaskId("c", 0): B}


def test_a_claim_from_an_older_generation_does_not_count() -> None:
    """A newcomer that leads believes only those who were there last."""
    newcomer = AssignmentTracker(cluster({"c": 1}, offset=10))
    known = known_owners(newcomer, [claim(A, 2, TaskId("c", 0)), claim(B, 3, ConnectorId("c")), claim(C, 0)])

    assert known == {ConnectorId("c"): B}


def test_two_that_claim_the_same_are_told_apart_by_their_order() -> None:
    """They had read the log to different records."""
    newcomer = AssignmentTracker(cluster({"c": 1}, offset=10))

    assert known_owners(newcomer, [claim(C, 0), claim(B, 3, ConnectorId("c")), claim(A, 3, ConnectorId("c"))]) == {
        ConnectorId("c"): A
    }


def test_a_newcomer_that_leads_holds_what_is_held_and_what_the_leader_before_had() -> None:
    """As one that knows does: B is back and leads, while A, which has led, goes and C is away still."""
    tracker = tracker_of(3, (A, B, C))
    owners = tracker.assignment.owners()
    d = member("d")
    claims = [claim(B, 0), Claim(d, 10, 3, (), owners)]
    newcomer = AssignmentTracker(tracker.config)
    known = known_owners(newcomer, claims)
    roster, _ = convened(known, newcomer.config, Grace(9), generation=4, leader=B, members=[B, d], began=1.0, now=1.0)

    assert known == owners
    assert roster.base == owners


def test_who_has_read_furthest_is_believed_first() -> None:
    """Of two that were there, one has seen a move that the other has not."""
    newcomer = AssignmentTracker(cluster({"c": 1}, offset=10))
    behind = Claim(A, 9, 3, (), {ConnectorId("c"): A})
    ahead = Claim(B, 10, 3, (), {ConnectorId("c"): C})

    assert known_owners(newcomer, [behind, ahead]) == {ConnectorId("c"): C}


def test_work_of_the_departed_is_held_until_its_grace_is_over_and_then_handed_out() -> None:
    """Rounds in between do not prolong it."""
    tracker = tracker_of(1, (A, B, C))
    grace = Grace(3.0)
    rosters = []
    for now in (100.0, 102.9, 103.0):
        roster, grace = convened(
            tracker.assignment.owners(),
            tracker.config,
            grace,
            generation=2,
            leader=A,
            members=[B, A],
            began=now,
            now=now,
        )
        rosters.append(roster)

    assert [C in set(roster.base.values()) for roster in rosters] == [True, True, False]
    assert rosters[0].base == rosters[1].base == tracker.assignment.owners()
    assert {i for i, owner in rosters[2].base.items() if owner != rosters[0].base[i]} == {
        ConnectorId("e"),
        TaskId("e", 0),
    }


def test_a_grace_of_nothing_holds_nothing() -> None:
    """`scheduled.rebalance.max.delay.ms=0` hands out at once."""
    roster, _ = convened(
        {ConnectorId("c"): C}, cluster({"c": 0}), Grace(0), generation=2, leader=A, members=[A, B], began=5.0, now=5.0
    )

    assert roster.base == {ConnectorId("c"): A}


def test_a_grace_counts_from_the_beginning_of_the_round_that_misses_someone() -> None:
    """A round that took as long as the grace has given it already."""
    tracker = tracker_of(1, (A, B, C))
    roster, grace = convened(
        tracker.assignment.owners(), tracker.config, Grace(3), generation=2, leader=A, members=[A, B], began=5, now=8
    )

    assert C not in set(roster.base.values())
    assert grace.since == {C: 5}


def test_who_went_without_a_word_is_not_waited_for_and_who_took_leave_is() -> None:
    """One task that is still told to run where it was is enough: a worker lets go of all before it leaves."""
    known = tracker_of(1, (A, B, C)).assignment.owners()
    told = {(TaskId("e", 0), C), (TaskId("c", 0), A)}

    left = without_lost(known, [A], lambda instance, owner: (instance, owner) in told)
    assert left == {each: owner for each, owner in known.items() if owner in {A, B}}
    assert {*left.values()} == {A, B}


def test_who_is_there_keeps_what_it_runs() -> None:
    """Running is what the present do."""
    known = tracker_of(1, (A, B)).assignment.owners()

    assert without_lost(known, [A, B], lambda _instance, _owner: True) == known


def test_each_absence_has_a_grace_of_its_own() -> None:
    """Who is back is struck off, and gone again begins anew."""
    grace = Grace(3.0).seen({A}, 10.0).seen({A, B}, 12.0)

    assert grace.held(12.9) == {A, B}
    assert grace.held(13.0) == {B}
    assert grace.ends_at == 13.0
    assert grace.seen({B}, 12.5).seen({A, B}, 12.6).held(14.0) == {A, B}
    assert Grace(3.0).ends_at is None


def test_a_base_that_speaks_of_records_not_read_yet_waits_for_them() -> None:
    """Until then the worker goes on with what it knew."""
    log = ConfigLog()
    log.write("c", 1)
    tracker = AssignmentTracker(log.config)
    tracker.on_roster(Roster(1, A, (A,), {ConnectorId("c"): A, TaskId("c", 0): A}, log.config.offset))
    ahead = log.write("d", 0)
    base: dict[InstanceId, Member] = {ConnectorId("c"): A, TaskId("c", 0): B, ConnectorId("d"): B}

    assert tracker.on_roster(Roster(2, A, (A, B), base, log.config.offset))
    assert (tracker.is_behind, tracker.generation, tracker.owner(TaskId("c", 0))) == (True, 1, A)
    tracker.on_change(ahead)
    assert (tracker.is_behind, tracker.generation, tracker.assignment.owners()) == (False, 2, base)


def test_a_base_older_than_what_is_remembered_cannot_be_followed() -> None:
    """The worker says so, and keeps what it knew, instead of disagreeing with the others unseen."""
    log = ConfigLog()
    old = log.write("a", 1).after.offset
    tracker = AssignmentTracker(log.config, remembered_max=2)
    for name in "bcd":
        tracker.on_change(log.write(name, 0))

    assert not tracker.on_roster(Roster(1, A, (A,), {}, old))
    assert tracker.on_roster(Roster(1, A, (A,), {}, log.changes[1].after.offset))
    assert set(tracker.owned_by(A)) == {ConnectorId("c"), ConnectorId("d")}


def test_a_record_that_was_read_before_changes_nothing() -> None:
    """A reader that begins again at the beginning does no harm."""
    log = ConfigLog()
    first = log.write("a", 1)
    log.write("a", None)
    tracker = AssignmentTracker(log.config)
    tracker.on_roster(Roster(1, A, (A,), {}, log.config.offset))
    tracker.on_change(first)

    assert (tracker.offset, list(tracker.owned_by(A))) == (log.config.offset, [])


async def test_a_standalone_worker_owns_everything_from_the_start() -> None:
    """And whatever comes after."""
    log = ConfigLog()
    log.write("a", 2)
    tracker = AssignmentTracker(log.config)
    membership = SoloMembership(member("a"), tracker)
    heard = []
    membership.listen(lambda: heard.append(membership.roster))

    assert membership.is_rebalancing
    await membership.start()
    tracker.on_change(log.write("b", 1))

    assert heard == [membership.roster]
    assert membership.roster is not None
    assert membership.roster.leader == membership.me
    assert not membership.is_rebalancing
    assert set(tracker.owned_by(A)) == {
        ConnectorId("a"),
        ConnectorId("b"),
        TaskId("a", 0),
        TaskId("a", 1),
        TaskId("b", 0),
    }
    await membership.stop()
    assert membership.roster is None
