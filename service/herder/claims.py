"""What workers tell one another in a round of the group: claims to the leader, the roster to everyone.

Packed, because the broker keeps a group's whole round in one record of 1 MB at most: every member's claim and, for
every member, the roster. Names stand once per connector, owners as numbers. The version is in the group protocol's
name (`service.herder.membership.PROTOCOL`), so that workers of two versions agree on one before they meet here.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.domain.cluster import Member, Roster
from service.domain.ids import ConnectorId, InstanceId, TaskId

_CONNECTOR_ITSELF = -1


@dataclass(frozen=True, slots=True)
class Claim:
    """What a worker brings into a round."""

    member: Member
    offset: int
    """How far it has read the config log."""
    generation: int
    """Of the roster from which it knows what it owns; 0 = it knows nothing."""
    owned: tuple[InstanceId, ...]
    others: Mapping[InstanceId, Member] = field(default_factory=dict)
    """What it knows to be others'; a few members say it, for a leader that has missed a generation."""


def encode_claim(claim: Claim) -> bytes:
    """For the leader."""
    people = [claim.member, *sorted({*claim.others.values()} - {claim.member})]
    numbers = {member: number for number, member in enumerate(people)}
    owners = {instance: numbers[owner] for instance, owner in claim.others.items()} | dict.fromkeys(claim.owned, 0)
    return _packed([[member.url for member in people], claim.offset, claim.generation, _by_connector(owners)])


def decode_claim(data: bytes) -> Claim:
    """As the leader reads it."""
    urls, offset, generation, table = _unpacked(data)
    people = [Member(url) for url in urls]
    owners = dict(_instances(table))
    owned = tuple(instance for instance, number in owners.items() if number == 0)
    others = {instance: people[number] for instance, number in owners.items() if number}
    return Claim(people[0], offset, generation, owned, others)


def encode_roster(roster: Roster) -> bytes:
    """For every member."""
    people = sorted({*roster.members, roster.leader, *roster.base.values()})
    numbers = {member: number for number, member in enumerate(people)}
    base = _by_connector({instance: numbers[owner] for instance, owner in roster.base.items()})
    present = [numbers[member] for member in roster.members]
    urls = [member.url for member in people]
    return _packed([roster.generation, urls, numbers[roster.leader], present, roster.base_offset, base])


def decode_roster(data: bytes) -> Roster:
    """As every member reads it."""
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
