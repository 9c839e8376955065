"""Topics that pages name are known only as they come: their subjects are asked before anything is produced to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from service.kafka.records import TopicRecords
from service.worker.forwarding import ForwardingWriter


class Admit(Protocol):
    """Checks and registers schemas for a topic."""

    async def __call__(self, topic: str, *, has_values: bool) -> None:
        """Raises ``RegistryRetriable``, ``RegistryFatal``."""


@dataclass(slots=True)
class AdmittingWriter(ForwardingWriter):
    """A ``Writer`` that has each topic admitted before the first commit to it."""

    admit: Admit
    admitted: set[str]
    """Those that need no more asking, such as dead letters, which have no schema."""

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """See ``Writer``; raises what ``admit`` does."""
        new = [write for write in writes if len(write) and write.topic not in self.admitted]
        for topic in dict.fromkeys(write.topic for write in new):
            has_values = any(_has_values(write) for write in new if write.topic == topic)
            await self.admit(topic, has_values=has_values)
            if has_values:
                self.admitted.add(topic)
        await self.writer.commit(writes)


def _has_values(write: TopicRecords) -> bool:
    return write.values.null_count < len(write)
