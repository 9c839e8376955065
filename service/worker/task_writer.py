"""The writer of a source's task: Kafka's, with what each commit has to do with the topics it goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from service.kafka.errors import RefusedRecord
from service.kafka.producer import Writer
from service.kafka.records import TopicRecords


class Admit(Protocol):
    """Checks and registers the schemas of a connector's records for one more topic."""

    async def __call__(self, topic: str, *, has_values: bool) -> None:
        """Return once records may be written to ``topic``; ``has_values``: it gets more than tombstones.

        Raises ``RegistryRetriable`` where the registry cannot be asked, ``RegistryFatal`` where it refuses.
        """


@dataclass(slots=True)
class TaskWriter:
    """Obeys ``Writer``: has each topic admitted before the first commit to it, and tells of it after each commit.

    Pages may name topics, which are known only as they come: their subjects are asked for before anything is produced
    to them. ``use_topic`` hears of a topic with every commit to it (KIP-558, active topics): whoever remembers topics
    may have been told to forget them meanwhile (``PUT /connectors/{connector}/topics/reset``).
    """

    writer: Writer
    own_topics: frozenset[str]
    """Of offsets, de-duplication, dead letters: they have no schema, and are not among the topics of the connector."""
    admitted: set[str]
    """Topics of records that need no more asking; grows."""
    admit: Admit
    use_topic: Callable[[str], None]

    @property
    def is_usable(self) -> bool:
        """See ``Writer``."""
        return self.writer.is_usable

    async def start(self) -> None:
        """See ``Writer``."""
        await self.writer.start()

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """See ``Writer``; raises what ``admit`` does, before anything is written."""
        written = [write for write in writes if len(write) and write.topic not in self.own_topics]
        for topic in dict.fromkeys(write.topic for write in written if write.topic not in self.admitted):
            has_values = any(write.values.null_count < len(write) for write in written if write.topic == topic)
            await self.admit(topic, has_values=has_values)
            if has_values:
                self.admitted.add(topic)
        await self.writer.commit(writes)
        for topic in {write.topic for write in written}:
            self.use_topic(topic)

    async def refused(self, write: TopicRecords) -> Sequence[RefusedRecord]:
        """See ``Writer``."""
        return await self.writer.refused(write)

    async def stop(self) -> None:
        """See ``Writer``."""
        await self.writer.stop()
