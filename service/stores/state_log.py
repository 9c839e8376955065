"""What the stores of state stand on: a log of keyed records that is read continuously.

Two of them: a compacted topic (`kafka_log`), and memory (`memory_log`) for a standalone worker. The stores are the
same on both, down to the bytes of their records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from service.kafka.errors import KafkaFailure


class ClaimMissing(KafkaFailure):
    """A write as leader without a claim: nothing was written. Who leads still claims and writes again.

    It does not say that another has claimed: any write that fails may cost the claim.
    """


class LogRecord(Protocol):
    """A record as it was read."""

    @property
    def key(self) -> bytes | None:
        """The key's bytes as they were written; None where somebody else wrote none."""

    @property
    def value(self) -> bytes | None:
        """None = the key is forgotten."""

    @property
    def partition(self) -> int:
        """Order is kept within a partition only."""

    @property
    def offset(self) -> int:
        """Position in its partition; there are gaps after transactions and compaction."""


KeyedValue: TypeAlias = tuple[bytes, bytes | None]
Receive: TypeAlias = Callable[[Sequence[LogRecord]], None]


class StateLog(Protocol):
    """A compacted log. Writers return once their records can be read back here."""

    @property
    def topic(self) -> str:
        """Name of the topic, also of a log that is none, for events and messages."""

    @property
    def is_leader(self) -> bool:
        """Whether `write(as_leader=True)` is allowed: claimed, and no newer claim known."""

    async def start(self, receive: Receive) -> None:
        """Make it if it is missing, check it, give everything in it to ``receive``, and go on doing so.

        Raises DeliveryFatal (not compacted, too many partitions, no permission), DeliveryRetriable.
        """

    async def stop(self) -> None:
        """Receive and write no more; harmless when repeated or never started."""

    async def read_to_end(self) -> None:
        """Until everything written before the call has been received. Raises DeliveryRetriable."""

    async def write(self, records: Sequence[KeyedValue], *, as_leader: bool = False) -> None:
        """Write all of them, in this order; as leader: all or none, and only while no other has claimed.

        Raises WriterFenced (as leader, another has claimed), ClaimMissing, DeliveryRetriable, DeliveryFatal; after any
        of them a leader may have lost its claim.
        """

    async def claim_leadership(self) -> None:
        """Take over the leader's part: who had it before can no longer write as leader.

        Raises DeliveryRetriable, DeliveryFatal.
        """

    async def drop_leadership(self) -> None:
        """Give it up; harmless without a claim."""
