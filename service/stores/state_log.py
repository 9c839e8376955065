"""What the stores of state stand on: a log of keyed records that is read continuously.

Two of them: a compacted topic (`kafka_log`), and memory (`MemoryStateLog`) for a standalone worker. The stores are the
same on both, down to the bytes of their records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One record; the log has one partition."""

    key: bytes
    value: bytes | None
    offset: int
    partition: int = 0


class MemoryStateLog:
    """See `StateLog`; it ends with the process. Compacted at once: the newest record of each key, nothing forgotten."""

    def __init__(self, topic: str, *, records: Sequence[KeyedValue] = ()) -> None:
        """Begin with these records."""
        self.topic = topic
        self.is_leader = False
        self._newest: dict[bytes, MemoryRecord] = {}
        self._end_offset = 0
        self._receive: Receive | None = None
        self._append(records)

    async def start(self, receive: Receive) -> None:
        """Give everything that is there to ``receive``, and from now on what is written."""
        self._receive = receive
        receive(list(self._newest.values()))

    async def stop(self) -> None:
        """Give nothing more to ``receive``; what is there stays."""
        self._receive = None

    async def read_to_end(self) -> None:
        """See `StateLog`: writers read back at once."""

    async def write(self, records: Sequence[KeyedValue], *, as_leader: bool = False) -> None:
        """Take in the records at once. Raises ClaimMissing for a leader's without a claim."""
        if as_leader and not self.is_leader:
            raise ClaimMissing("this worker may not write as leader: it has not claimed leadership")
        written = self._append(records)
        if self._receive is not None:
            self._receive(written)

    async def claim_leadership(self) -> None:
        """See `StateLog`: there is no other to take it from."""
        self.is_leader = True

    async def drop_leadership(self) -> None:
        """Give the claim up; harmless without one."""
        self.is_leader = False

    def _append(self, records: Sequence[KeyedValue]) -> list[MemoryRecord]:
        written = [MemoryRecord(key, value, offset) for offset, (key, value) in enumerate(records, self._end_offset)]
        self._end_offset += len(written)
        for record in written:
            self._newest.pop(record.key, None)  # so that they stand in the order of their writing
            if record.value is not None:
                self._newest[record.key] = record
        return written
