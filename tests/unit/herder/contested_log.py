"""A config log in memory that others may claim and writes may fail on, as on a topic: the newest claim alone writes."""

from __future__ import annotations

from collections.abc import Sequence

from service.kafka.errors import DeliveryRetriable, WriterFenced
from service.stores.state_log import KeyedValue, MemoryStateLog


class ContestedLog(MemoryStateLog):
    """A worker's view of it."""

    def __init__(self, topic: str) -> None:
        """Nobody has claimed."""
        super().__init__(topic)
        self.failures = 0
        """How many of the leader's writes fail from now on."""
        self._claims = 0
        self._own_claim = 0

    async def claim_leadership(self) -> None:
        """See ``StateLog``: older claims end."""
        self.claim_elsewhere()
        self._own_claim = self._claims
        await super().claim_leadership()

    def claim_elsewhere(self) -> None:
        """Another worker claims; this one does not hear of it before it writes."""
        self._claims += 1

    async def write(self, records: Sequence[KeyedValue], *, as_leader: bool = False) -> None:
        """See ``StateLog``: who fails has lost its claim."""
        if as_leader and self.is_leader:
            if self._own_claim != self._claims:
                await self.drop_leadership()
                raise WriterFenced("a newer writer took over")
            if self.failures:
                self.failures -= 1
                await self.drop_leadership()
                raise DeliveryRetriable("the broker is away")
        await super().write(records, as_leader=as_leader)
