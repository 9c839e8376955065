"""Which topics a task writes its records to, noticed at the writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from service.kafka.records import TopicRecords
from service.worker.forwarding import ForwardingWriter


@dataclass(slots=True)
class NoticingWriter(ForwardingWriter):
    """A ``Writer`` that tells of each topic once it has committed to it."""

    use_topic: Callable[[str], None]
    own_topics: frozenset[str]
    """Offsets, de-duplication, dead letters: Connect does not count them as the connector's."""
    _told: set[str] = field(default_factory=set)

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """See ``Writer``."""
        await self.writer.commit(writes)
        for topic in {write.topic for write in writes if len(write)} - self._told - self.own_topics:
            self._told.add(topic)
            self.use_topic(topic)
