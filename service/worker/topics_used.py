"""Which topics a source's task writes its records to, noticed at its writer (KIP-558, active topics)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.kafka.records import TopicRecords
from service.worker.forwarding import ForwardingWriter


@dataclass(slots=True)
class NoticingWriter(ForwardingWriter):
    """A ``Writer`` that tells of the topics of each commit once it has succeeded.

    ``use_topic`` hears of a topic again with every commit to it: whoever remembers topics may have been told to forget
    them meanwhile (``PUT /connectors/{connector}/topics/reset``).
    """

    use_topic: Callable[[str], None]
    own_topics: frozenset[str]
    """Offsets, de-duplication, dead letters: Connect does not count them as the connector's."""

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """Commit as ``writer`` does, then tell of each topic that got a record; raises what ``writer`` raises."""
        await self.writer.commit(writes)
        for topic in {write.topic for write in writes if len(write)} - self.own_topics:
            self.use_topic(topic)
