"""A writer that is always there: made when first needed, kept open, made anew after an error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from service.kafka.errors import DeliveryRetriable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from service.kafka.producer import Writer
    from service.kafka.records import TopicRecords

RETRY_SECONDS = 0.5


class StandbyWriter:
    """Commits of many callers, one after the other. For writes that may be repeated, and never fence anyone."""

    def __init__(self, new_writer: Callable[[], Writer]) -> None:
        """`new_writer` gives a writer that is not started."""
        self._new_writer = new_writer
        self._writer: Writer | None = None
        self._writing = asyncio.Lock()

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """Deliver, trying again for as long as the caller waits.

        Raises DeliveryFatal.
        """
        # Held across the delivery: a writer takes one commit at a time.
        async with self._writing:
            while True:
                try:
                    await self._commit(writes)
                except DeliveryRetriable:
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    return

    async def _commit(self, writes: Sequence[TopicRecords]) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            writer = self._new_writer()
        try:
            if not writer.is_usable:
                await writer.start()
            await writer.commit(writes)
        except BaseException:
            await writer.stop()
            raise
        self._writer = writer

    async def stop(self) -> None:
        """Disconnect; a later commit connects again."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.stop()
