"""The writer of a source's task: Kafka's, with what each commit has to do with the topics it goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.kafka.errors import RefusedRecord
from service.kafka.producer import Writer
from service.kafka.records import TopicRecords


@dataclass(slots=True)
class TaskWriter:
    """Obeys ``Writer``: tells of each topic after a commit to it.

    ``use_topic`` hears of a topic with every commit to it (KIP-558, active topics): whoever remembers topics
    may have been told to forget them meanwhile (``PUT /connectors/{connector}/topics/reset``).
    """

    writer: Writer
    own_topics: frozenset[str]
    """Topics of offsets, de-duplication and dead letters: without schemas, and not among the connector's topics."""
    use_topic: Callable[[str], None]

    @property
    def is_usable(self) -> bool:
        """See ``Writer``."""
        return self.writer.is_usable

    async def start(self) -> None:
        """See ``Writer``."""
        await self.writer.start()

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """See ``Writer``."""
        await self.writer.commit(writes)
        for topic in {write.topic for write in writes if len(write)} - self.own_topics:
            self.use_topic(topic)

    async def refused(self, write: TopicRecords) -> Sequence[RefusedRecord]:
        """See ``Writer``."""
        return await self.writer.refused(write)

    async def stop(self) -> None:
        """See ``Writer``."""
        await self.writer.stop()
