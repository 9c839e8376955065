"""A ``Writer`` around another one, for those that add something to its commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.kafka.errors import RefusedRecord
from service.kafka.producer import Writer
from service.kafka.records import TopicRecords


@dataclass(slots=True)
class ForwardingWriter:
    """Does what ``writer`` does."""

    writer: Writer

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

    async def refused(self, write: TopicRecords) -> Sequence[RefusedRecord]:
        """See ``Writer``."""
        return await self.writer.refused(write)

    async def stop(self) -> None:
        """See ``Writer``."""
        await self.writer.stop()
