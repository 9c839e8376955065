"""The leader's claim to write: taken when the group makes this worker its leader, given up when it does not.

The claim fences the leader before. So a worker that was frozen and still takes itself for the leader must not claim
again the moment it is fenced: it waits until the group has told it of a newer generation, or would have by now.
"""

from __future__ import annotations

from dataclasses import dataclass

from fetchers.sdk import Clock
from service.herder.ports import ConfigStore
from service.herder.whereabouts import Whereabouts


@dataclass(slots=True)
class Leadership:
    """Owner of the claim."""

    configs: ConfigStore
    whereabouts: Whereabouts
    clock: Clock
    doubt_seconds: float
    """How long a frozen worker may take to learn that it is out: the session time-out."""
    _fenced_in: int | None = None
    _doubt_ends: float = 0.0

    def on_fenced(self) -> None:
        """Another worker has claimed."""
        self._fenced_in = self.whereabouts.generation
        self._doubt_ends = self.clock.monotonic() + self.doubt_seconds

    async def settle(self) -> None:
        """Claim or give up, whichever is due; raises ``KafkaFailure``."""
        if self.whereabouts.is_leader:
            if not self.configs.is_leader and not self._is_in_doubt():
                await self.configs.claim_leadership()
        elif self.configs.is_leader and self.whereabouts.membership.roster is not None:
            await self.configs.drop_leadership()

    def _is_in_doubt(self) -> bool:
        return self._fenced_in == self.whereabouts.generation and self.clock.monotonic() < self._doubt_ends
