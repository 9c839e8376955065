"""The dead-letter topic as a source: every letter between the last redrive and the topic's end at the start."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import groupby
from typing import Any

from fetchers.sdk import (
    Fatal,
    FetchContext,
    FetcherConfig,
    Offset,
    Page,
    Partition,
    PayloadKind,
    Rejection,
    SourceConnector,
)
from metrics.events import DeadLettersReadAnew
from service.kafka.client import KafkaSettings
from service.kafka.reader import StoredRecord, last_ends, read_topic
from service.kafka.records import Header
from service.pipeline.dead_letters import (
    CONNECTOR_HEADER,
    FETCH_STAGE,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PAGE_TOPIC_HEADER,
    PARTITION_HEADER,
    REASON_HEADER,
    STAGE_HEADER,
    TIMESTAMP_HEADER,
    TOPIC_HEADER,
    TRIES_HEADER,
)

_TRIES = re.compile(rb"[1-9][0-9]{0,8}")
_TIMESTAMP = re.compile(rb"-?[0-9]{1,18}")
_NAME, _CONNECTOR, _NUMBER, _OFFSET = "dead.letters", "connector", "partition", "offset"


class RedriveConfig(FetcherConfig):
    """One redrive; ``topic`` is the dead-letter topic that is read."""


class Nameless(Enum):
    """Whose a letter is that does not say it, because its writer has headers switched off."""

    OWN = auto()
    """The connector's: it alone of the job writes such letters."""
    OTHERS = auto()
    """Not the connector's, whose letters have headers."""
    UNKNOWN = auto()
    """Several connectors of the job write such letters."""


@dataclass(slots=True)
class PassedOver:
    """Letters that do not say whose they are, each counted once, however often it is read."""

    count: int = 0
    _ends: dict[int, int] = field(default_factory=dict)

    def add(self, record: StoredRecord) -> None:
        """One more, unless it was seen before; a partition is read in order."""
        if record.offset >= self._ends.get(record.partition, 0):
            self._ends[record.partition] = record.offset + 1
            self.count += 1


@dataclass(frozen=True, slots=True)
class DeadLetterFeed:
    """Where a connector's letters are."""

    settings: KafkaSettings
    connector: str
    """Letters of others in the topic are passed over."""
    nameless: Nameless = Nameless.OTHERS
    passed_over: PassedOver = field(default_factory=PassedOver)
    """Counts the nameless ones of others."""


class DeadLetterSource(SourceConnector[RedriveConfig]):
    """Reads dead letters once; those written meanwhile, and those that fail again, are for the next redrive."""

    payload_kind = PayloadKind.BYTES

    def __init__(self, config: RedriveConfig, feed: DeadLetterFeed) -> None:
        super().__init__(config)
        self._feed = feed

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Pages of letters, in the order of the topic."""
        ends = await last_ends(self._feed.settings, self.config.topic)
        begins = {place.partition: self._begin(context, place.partition, end) for place, end in ends.items()}
        async with aclosing(read_topic(self._feed.settings, self.config.topic)) as batches:
            async for records in batches:
                # A list may be empty: what came after the end that was asked for is cut off.
                fresh = [record for record in records if record.offset >= begins.get(record.partition, 0)]
                for page in self.pages(fresh):
                    yield page

    def _partition(self, number: int) -> Partition:
        return letter_partition(self.config.topic, self._feed.connector, number)

    def _begin(self, context: FetchContext, number: int, end: int) -> int:
        """Where the last redrive stopped in this partition; 0 where that lies beyond its end."""
        begin = redriven_to(context.offset_of(self._partition(number)))
        if begin <= end:
            return begin
        context.emit(
            DeadLettersReadAnew(
                context.connector,
                context.task,
                topic=self.config.topic,
                partition=number,
                offset_redriven=begin,
                offset_end=end,
            )
        )
        return 0

    def pages(self, records: Sequence[StoredRecord]) -> Iterator[Page]:
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
                timestamps_ms=[_timestamp_ms(record) for record in own],
                headers=[_own_headers(record) for record in own],
                origins=[_origin(record, partition) for record in own],
                tries=[tries_of(record.headers) for record in own],
                rejections=tuple(_own_verdicts(own)),
            )

    def _is_own(self, record: StoredRecord) -> bool:
        name = dict(record.headers).get(CONNECTOR_HEADER)
        if name is not None:
            return bool(name == self._feed.connector.encode())
        if self._feed.nameless is Nameless.UNKNOWN:
            message = (
                f"the letter at partition {record.partition}, offset {record.offset} does not say whose it is, and "
                "several connectors of this job write such letters there"
            )
            raise Fatal(message)
        if self._feed.nameless is Nameless.OTHERS:
            self._feed.passed_over.add(record)
        return self._feed.nameless is Nameless.OWN


def redrive_name(topic: str, connector: str) -> str:
    """The name under which the redrives of a connector's letters keep how far they have read."""
    return f"redrive-{topic}-{connector}"


def letter_partition(topic: str, connector: str, number: int) -> Partition:
    """The source partition of a redrive: a partition of a dead-letter topic, and whose letters are read of it."""
    return {_NAME: topic, _CONNECTOR: connector, _NUMBER: number}


def redriven_to(offset: Mapping[str, object]) -> int:
    """Up to which offset of its partition the letters were redriven: each was delivered, or has another further on."""
    told = offset.get(_OFFSET)
    return told if isinstance(told, int) else 0


def _own_verdicts(records: Sequence[StoredRecord]) -> Iterator[Rejection]:
    """What a fetcher could not vouch for no contract can: a row cut from its table, the head of a line."""
    for index, record in enumerate(records):
        headers = dict(record.headers)
        if headers.get(STAGE_HEADER) == FETCH_STAGE.encode():
            reason, message = (
                (headers.get(name) or b"").decode(errors="replace") for name in (REASON_HEADER, MESSAGE_HEADER)
            )
            yield Rejection(index, reason, message)


def _page_topic(record: StoredRecord) -> str | None:
    """Topic that the record's page named; without one it goes where the connector's records go now."""
    topic = dict(record.headers).get(PAGE_TOPIC_HEADER)
    return None if topic is None else topic.decode(errors="replace")


def _own_headers(record: StoredRecord) -> Sequence[Header]:
    """Those that the record had before it became a letter, whose headers stand behind them."""
    headers: Sequence[Header] = record.headers
    names = [name for name, _ in headers]
    if CONNECTOR_HEADER not in names or TOPIC_HEADER not in names:
        return headers
    return headers[: len(names) - 1 - names[::-1].index(TOPIC_HEADER)]


def tries_of(headers: Sequence[Header]) -> int:
    """How often the record of a letter was rejected; 1 where nothing is told that can be a number of tries."""
    told = dict(headers).get(TRIES_HEADER) or b""
    return int(told) if _TRIES.fullmatch(told) else 1


def _timestamp_ms(record: StoredRecord) -> int | None:
    """The timestamp that the record had; None where it is not told, as a number that a timestamp can be."""
    told = dict(record.headers).get(TIMESTAMP_HEADER) or b""
    return int(told) if _TIMESTAMP.fullmatch(told) else None


def _origin(record: StoredRecord, partition: Partition) -> tuple[Partition, Offset]:
    """Where the letter came from by its headers; where it lies, when it has none."""
    headers: Mapping[str, Any] = dict(record.headers)
    try:
        told = [json.loads(headers[name]) for name in (PARTITION_HEADER, OFFSET_HEADER)]
    except (KeyError, TypeError, ValueError, RecursionError):
        told = []
    match told:
        case [dict() as from_partition, dict() as from_offset]:
            return from_partition, from_offset
    return partition, {_OFFSET: record.offset}
