"""What the leader of the group decides in a round: who is in, and who owns what to begin with. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from service.domain.cluster import ClusterConfig, Member, Roster
from service.domain.ids import InstanceId
from service.herder.assignment import rebased
from service.herder.claims import Claim
from service.herder.grace import Grace
from service.herder.tracking import AssignmentTracker


def known_owners(tracker: AssignmentTracker, claims: Iterable[Claim]) -> Mapping[InstanceId, Member]:
    """Who owned what before: as the leader knows, or as the others say of themselves if it has missed a generation.

    A worker that was away claims what was its own long ago; only claims of the latest generation count.
    """
    latest = sorted(claims, key=lambda claim: (-claim.generation, claim.member))
    generation = latest[0].generation
    if tracker.generation >= generation:
        return tracker.assignment.owners()
    owners: dict[InstanceId, Member] = {}
    for claim in latest:
        if claim.generation == generation:
            for instance in claim.owned:
                owners.setdefault(instance, claim.member)
    return owners


def convened(
    known: Mapping[InstanceId, Member],
    config: ClusterConfig,
    grace: Grace,
    *,
    generation: int,
    leader: Member,
    members: Iterable[Member],
    began: float,
    now: float,
) -> tuple[Roster, Grace]:
    """The roster of a new generation, and the book of those whose work waits for them.

    Who is missed first in this round has gone before it ``began``, and its grace counts from there.
    """
    present = tuple(sorted(set(members)))
    grace = grace.seen({*known.values()} - {*present}, began)
    assignment = rebased(known, config, members=present, held=grace.held(now))
    roster = Roster(generation, leader, present, assignment.owners(), config.offset)
    return roster, grace
