"""Shares of equal things among workers: even to within one, and with as few moves as that takes. Pure.

Which member may have one more than the others is decided by what it has already, then by the members' order, so that
every worker that starts from the same shares comes to the same ones.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from service.domain.cluster import Member
from service.domain.ids import InstanceId

Kind = TypeVar("Kind", bound=InstanceId)


@dataclass(frozen=True, slots=True)
class Shares(Generic[Kind]):
    """Who has what, of one kind of instance."""

    owners: Mapping[Kind, Member] = field(default_factory=dict)
    loads: Mapping[Member, int] = field(default_factory=dict)
    """How much each has; kept with the owners because counting them is the dear part of a change."""
    moved: tuple[Kind, ...] = field(default=(), compare=False)
    """What the change that made these shares took from whoever had it."""

    @classmethod
    def of(cls, owners: Mapping[Kind, Member]) -> Shares[Kind]:
        """Shares with their loads counted."""
        return cls(owners, Counter(owners.values()))


def changed(
    shares: Shares[Kind], members: Sequence[Member], *, gone: Iterable[Kind] = (), new: Iterable[Kind] = ()
) -> Shares[Kind]:
    """Shares without ``gone``, with ``new`` given to the least loaded members, and evened out among ``members``.

    Owners that are no members keep what they have. Adding to even shares moves nothing.
    """
    owners, loads = dict(shares.owners), Counter(shares.loads)
    for instance in gone:
        loads[owners.pop(instance)] -= 1
    new, moved = list(new), list[Kind]()
    for member, excess in _excess(loads, members, len(new)):
        moved += sorted(instance for instance, owner in owners.items() if owner == member)[-excess:]
        loads[member] -= excess
    _deal(sorted(new + moved), owners, loads, members)
    return Shares(owners, +loads, tuple(moved))


def _excess(loads: Mapping[Member, int], members: Sequence[Member], new: int) -> list[tuple[Member, int]]:
    """Members above their fair part, with how much they have to give; the remainder is granted to who has most."""
    present = sorted(((-loads.get(member, 0), index) for index, member in enumerate(members)))
    fair, remainder = divmod(new - sum(load for load, _ in present), len(members))
    above = [(members[index], -load - fair - (place < remainder)) for place, (load, index) in enumerate(present)]
    return [(member, excess) for member, excess in above if excess > 0]


def _deal(pool: Iterable[Kind], owners: dict[Kind, Member], loads: Counter[Member], members: Sequence[Member]) -> None:
    """Give each of the pool to whoever has least then, the first in order among equals."""
    heap = [(loads[member], index) for index, member in enumerate(members)]
    heapq.heapify(heap)
    for instance in pool:
        load, index = heap[0]
        heapq.heapreplace(heap, (load + 1, index))
        owners[instance] = members[index]
        loads[members[index]] += 1
