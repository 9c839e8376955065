"""Who has to carry out a request: this worker, or another whose URL is told (`connect-rest`, 1.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from service.domain.cluster import Member
from service.domain.ids import InstanceId
from service.herder.errors import ConflictError, ElsewhereError
from service.herder.parts import Owners
from service.herder.ports import Membership

NO_LEADER = "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
CONFLICT = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
STALE = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The group, as far as requests care."""

    membership: Membership
    owners: Owners
    has_claim: Callable[[], bool] = lambda: True
    """Whether this worker, being the leader, may write as such already."""

    @property
    def is_leader(self) -> bool:
        """Whether this worker leads the group."""
        roster = self.membership.roster
        return roster is not None and roster.leader == self.membership.me

    @property
    def generation(self) -> int:
        """Of the group, for states; 0 before the first."""
        roster = self.membership.roster
        return 0 if roster is None else roster.generation

    def demand_leader(self) -> None:
        """Raises ``ElsewhereError`` with the leader's URL, ``ConflictError`` while there is none."""
        roster = self.membership.roster
        if roster is None:
            raise ConflictError(NO_LEADER)
        if roster.leader != self.membership.me:
            raise ElsewhereError(roster.leader.url)
        if not self.has_claim():
            raise ConflictError(NO_LEADER)

    def demand_settled(self) -> None:
        """Raises ``ConflictError`` while a rebalance is due."""
        if self.membership.roster is None or self.membership.is_rebalancing:
            raise ConflictError(STALE)

    def demand_owner(self, instance: InstanceId) -> None:
        """Raises ``ElsewhereError`` with the owner's URL, ``ConflictError`` while it has none that is there."""
        owner = self.owners.owner(instance)
        if owner is None or not self.is_present(owner):
            raise ConflictError(CONFLICT)
        if owner != self.membership.me:
            raise ElsewhereError(owner.url)

    def is_present(self, member: Member) -> bool:
        """Whether a worker is in the group."""
        roster = self.membership.roster
        return roster is not None and member in roster.members
