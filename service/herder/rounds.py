"""A round of the group: what its members say, and what the leader decides and tells everyone. Pure.

Every member claims what it knows. The leader works out who is in, whose work is held for whom, and who owns what to
begin with (``convened``); everyone gets the same roster.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from service.domain.cluster import ClusterConfig, Member, Roster
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.herder.assignment import AssignmentTracker, rebased

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


@dataclass(frozen=True, slots=True)
class Grace:
    """Workers that have gone and still own something, each since when."""

    seconds: float
    since: Mapping[Member, float] = field(default_factory=dict)

    def seen(self, absent: Collection[Member], now: float) -> Grace:
        """The book when these are absent: who is new in it begins now, who is back is struck off."""
        return replace(self, since={member: self.since.get(member, now) for member in sorted(absent)})

    def held(self, now: float) -> frozenset[Member]:
        """Members whose grace is not over at ``now``, so that their work still waits for them."""
        return frozenset(member for member, since in self.since.items() if now < since + self.seconds)

    @property
    def ends_at(self) -> float | None:
        """When the first grace in the book is over; None when nobody is absent."""
        return min(self.since.values()) + self.seconds if self.since else None


_CONNECTOR_ITSELF = -1


@dataclass(frozen=True, slots=True)
class Claim:
    """What a worker brings into a round."""

    member: Member
    offset: int
    """How far it has read the config log."""
    generation: int
    """Generation of the roster from which the worker knows what it owns; 0 = it knows nothing."""
    owned: tuple[InstanceId, ...]
    others: Mapping[InstanceId, Member] = field(default_factory=dict)
    """What it knows to be others'; a few members say it, for a leader that has missed a generation."""


def encode_claim(claim: Claim) -> bytes:
    """Packed, as a member sends it to the leader in a round."""
    people = [claim.member, *sorted({*claim.others.values()} - {claim.member})]
    numbers = {member: number for number, member in enumerate(people)}
    owners = {instance: numbers[owner] for instance, owner in claim.others.items()} | dict.fromkeys(claim.owned, 0)
    return _packed([[member.url for member in people], claim.offset, claim.generation, _by_connector(owners)])


def decode_claim(data: bytes) -> Claim:
    """What a member claims; the inverse of ``encode_claim``."""
    urls, offset, generation, table = _unpacked(data)
    people = [Member(url) for url in urls]
    owners = dict(_instances(table))
    owned = tuple(instance for instance, number in owners.items() if number == 0)
    others = {instance: people[number] for instance, number in owners.items() if number}
    return Claim(people[0], offset, generation, owned, others)


def encode_roster(roster: Roster) -> bytes:
    """Packed, as the leader sends it to every member at the end of a round."""
    people = sorted({*roster.members, roster.leader, *roster.base.values()})
    numbers = {member: number for number, member in enumerate(people)}
    base = _by_connector({instance: numbers[owner] for instance, owner in roster.base.items()})
    present = [numbers[member] for member in roster.members]
    urls = [member.url for member in people]
    return _packed([roster.generation, urls, numbers[roster.leader], present, roster.base_offset, base])


def decode_roster(data: bytes) -> Roster:
    """What the leader has decided; the inverse of ``encode_roster``."""
    generation, urls, leader, present, base_offset, base = _unpacked(data)
    people = [Member(url) for url in urls]
    return Roster(
        generation=generation,
        leader=people[leader],
        members=tuple(people[number] for number in present),
        base={instance: people[number] for instance, number in _instances(base)},
        base_offset=base_offset,
    )


def _by_connector(owners: Mapping[InstanceId, int]) -> dict[str, list[int]]:
    """By connector pairs of a task's number and its owner's, one after the other; the connector itself is -1."""
    table: defaultdict[str, list[int]] = defaultdict(list)
    for instance, owner in owners.items():
        table[instance.connector] += (instance.task if isinstance(instance, TaskId) else _CONNECTOR_ITSELF, owner)
    return table


def _instances(table: Mapping[str, list[int]]) -> Iterable[tuple[InstanceId, int]]:
    for connector, pairs in table.items():
        for number, owner in zip(pairs[::2], pairs[1::2], strict=True):
            yield ConnectorId(connector) if number == _CONNECTOR_ITSELF else TaskId(connector, number), owner


def _packed(value: list[Any]) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def _unpacked(data: bytes) -> list[Any]:
    value: list[Any] = json.loads(zlib.decompress(data))
    return value
