"""The dead-letter topic as a source: every letter between the last redrive and the topic's end at the start."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from fetchers.sdk import FetchContext, FetcherConfig, Offset, Page, Partition, PayloadKind, SourceConnector
from service.kafka.client import KafkaSettings
from service.kafka.reader import StoredRecord, read_topic

PARTITION_HEADER = "__headrace.errors.source.partition"
OFFSET_HEADER = "__headrace.errors.source.offset"
_NAME, _NUMBER, _OFFSET = "dead.letters", "partition", "offset"


class RedriveConfig(FetcherConfig):
    """One redrive; ``topic`` is the dead-letter topic that is read."""


@dataclass(frozen=True, slots=True)
class DeadLetterFeed:
    """Where the letters are."""

    settings: KafkaSettings
    target_topic: str
    """Where those that pass go."""


class DeadLetterSource(SourceConnector[RedriveConfig]):
    """Reads dead letters once; those written meanwhile, and those that fail again, are for the next redrive."""

    payload_kind = PayloadKind.BYTES

    def __init__(self, config: RedriveConfig, feed: DeadLetterFeed) -> None:
        super().__init__(config)
        self._feed = feed

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Pages of letters, in the order of the topic."""
        async with aclosing(read_topic(self._feed.settings, self.config.topic)) as batches:
            async for records in batches:
                # A list may be empty: what came after the end that was asked for is cut off.
                fresh = [record for record in records if record.offset >= self._begin(context, record.partition)]
                if fresh:
                    yield self._page(fresh, self._partition(fresh[0].partition))

    def _partition(self, number: int) -> Partition:
        return {_NAME: self.config.topic, _NUMBER: number}

    def _begin(self, context: FetchContext, number: int) -> int:
        """Where the last redrive stopped in this partition."""
        return int(context.offset_of(self._partition(number)).get(_OFFSET) or 0)

    def _page(self, records: Sequence[StoredRecord], partition: Partition) -> Page:
        return Page(
            [record.value for record in records],
            offset={_OFFSET: records[-1].offset + 1},
            partition=partition,
            topic=self._feed.target_topic,
            keys=[record.key for record in records],
            origins=[_origin(record, partition) for record in records],
        )


def _origin(record: StoredRecord, partition: Partition) -> tuple[Partition, Offset]:
    """Where the letter came from by its headers; where it lies, when it has none."""
    headers: Mapping[str, Any] = dict(record.headers)
    try:
        return json.loads(headers[PARTITION_HEADER]), json.loads(headers[OFFSET_HEADER])
    except (KeyError, TypeError, ValueError):
        return partition, {_OFFSET: record.offset}
