"""What the leader of the group decides in a round: who is in, and who owns what to begin with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from service.domain.cluster import ClusterConfig, Member, Roster
from service.domain.ids import InstanceId
from service.herder.assignment import rebased
from service.herder.claims import Claim
from service.herder.grace import Grace
from service.herder.tracking import AssignmentTracker

IsToldRunning = Callable[[InstanceId, Member], bool]
"""Whether the last that is told of an instance is that this worker has it: running, paused, restarting."""


def known_owners(tracker: AssignmentTracker, claims: Iterable[Claim]) -> Mapping[InstanceId, Member]:
    """Who owned what before: as the leader knows, or as the others say of themselves if it has missed a generation.

    A worker that was away claims what was its own long ago; only claims of the latest generation count, whoever has
    read furthest first. What they know of others tells what is held for the absent, and what those had who go just now.
    """
    latest = sorted(claims, key=lambda claim: (-claim.generation, -claim.offset, claim.member))
    generation = latest[0].generation
    if tracker.generation >= generation:
        return tracker.assignment.owners()
    owners: dict[InstanceId, Member] = {}
    for claim in latest:
        if claim.generation == generation:
            for instance in claim.owned:
                owners.setdefault(instance, claim.member)
            for instance, owner in claim.others.items():
                owners.setdefault(instance, owner)
    return owners


def without_lost(
    known: Mapping[InstanceId, Member], present: Iterable[Member], is_told_running: IsToldRunning
) -> Mapping[InstanceId, Member]:
    """What is owned by the present, and by those absent that have taken leave.

    A worker that stops tells first that it lets go, then leaves. Who is still told to run something is missing because
    its session has expired: it was waited for all that time, and nothing is held for it.
    """
    absent = {*known.values()} - {*present}
    lost = {owner for instance, owner in known.items() if owner in absent and is_told_running(instance, owner)}
    return {instance: owner for instance, owner in known.items() if owner not in lost}


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
