"""The dead-letter topic as a source: every letter between the last redrive and the topic's end at the start."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fetchers.sdk import Fatal, FetchContext, FetcherConfig, Offset, Page, Partition, PayloadKind, SourceConnector
from service.kafka.client import KafkaSettings
from service.kafka.reader import StoredRecord, read_topic
from service.pipeline.dead_letters import CONNECTOR_HEADER, OFFSET_HEADER, PAGE_TOPIC_HEADER, PARTITION_HEADER

_NAME, _CONNECTOR, _NUMBER, _OFFSET = "dead.letters", "connector", "partition", "offset"


class RedriveConfig(FetcherConfig):
    """One redrive; ``topic`` is the dead-letter topic that is read."""


@dataclass(frozen=True, slots=True)
class DeadLetterFeed:
    """Where a connector's letters are."""

    settings: KafkaSettings
    connector: str
    """Letters of others in the topic are passed over."""
    is_shared: bool = False
    """Whether others of the job write there too, so that a letter that does not say whose it is cannot be told."""


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
                for page in self._pages(fresh):
                    yield page

    def _partition(self, number: int) -> Partition:
        return {_NAME: self.config.topic, _CONNECTOR: self._feed.connector, _NUMBER: number}

    def _begin(self, context: FetchContext, number: int) -> int:
        """Where the last redrive stopped in this partition."""
        return int(context.offset_of(self._partition(number)).get(_OFFSET) or 0)

    def _pages(self, records: Sequence[StoredRecord]) -> Iterator[Page]:
        """The connector's own, in pages for one topic each."""
        for topic, letters in groupby(filter(self._is_own, records), key=_page_topic):
            own = list(letters)
            partition = self._partition(own[0].partition)
            yield Page(
                [record.value for record in own],
                offset={_OFFSET: own[-1].offset + 1},
                partition=partition,
                topic=topic,
                keys=[record.key for record in own],
                origins=[_origin(record, partition) for record in own],
            )

    def _is_own(self, record: StoredRecord) -> bool:
        name = dict(record.headers).get(CONNECTOR_HEADER)
        if name is None and self._feed.is_shared:
            message = (
                f"the letter at partition {record.partition}, offset {record.offset} does not say whose it is, and "
                "several connectors of this job write there"
            )
            raise Fatal(message)
        return name is None or name == self._feed.connector.encode()


def _page_topic(record: StoredRecord) -> str | None:
    """Topic that the record's page named; without one it goes where the connector's records go now."""
    topic = dict(record.headers).get(PAGE_TOPIC_HEADER)
    return None if topic is None else topic.decode(errors="replace")


def _origin(record: StoredRecord, partition: Partition) -> tuple[Partition, Offset]:
    """Where the letter came from by its headers; where it lies, when it has none."""
    headers: Mapping[str, Any] = dict(record.headers)
    try:
        return json.loads(headers[PARTITION_HEADER]), json.loads(headers[OFFSET_HEADER])
    except (KeyError, TypeError, ValueError):
        return partition, {_OFFSET: record.offset}
