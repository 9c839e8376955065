"""The port through which a task reads and writes its source offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from service.kafka.records import TopicRecords


class SourceOffsets(Protocol):
    """Committed source offsets of connectors; ``service.stores.connector_offsets`` keeps them in topics."""

    async def read(self, connector: str) -> Mapping[str, Mapping[str, object]]:
        """Last committed offset of each source partition (as JSON text); after the task's writer has started."""

    def encode(
        self, connector: str, offsets: Iterable[tuple[Mapping[str, object], Mapping[str, object] | None]], /
    ) -> Sequence[TopicRecords]:
        """Records that set these offsets, for the transaction of the data they stand for."""

    async def committed(
        self, connector: str, offsets: Iterable[tuple[Mapping[str, object], Mapping[str, object] | None]], /
    ) -> None:
        """Hear, before the next transaction, that the one with these offsets is committed."""
