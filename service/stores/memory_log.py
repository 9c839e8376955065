"""A log of state in memory: what a standalone worker has instead of topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.stores.state_log import ClaimMissing, KeyedValue, Receive


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
