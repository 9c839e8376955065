"""Offsets of a sink's task: what was put is flushed, then committed; never the other way round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fetchers.sdk import Clock, Retriable
from metrics.events import OffsetCommitted, SinkCommitFailed, SinkOffsetsCommitted, TaskEvents
from service.kafka.errors import DeliveryRetriable
from service.kafka.group_consumer import CommitOutdated, GroupConsumer
from service.sinks.batch import Offsets, Partition, ends_of
from service.sinks.contract import SinkConnector
from service.sinks.dead_letters import Polled, RefusedRecords
from service.sinks.putting import limited

FLUSH_SECONDS_MAX = 60.0


@dataclass(slots=True)
class Commits:
    """How far one task has put, flushed and committed the partitions that it has now."""

    connector: SinkConnector[Any]
    consumer: GroupConsumer
    refused: RefusedRecords
    events: TaskEvents
    clock: Clock
    interval_seconds: float
    _put: dict[Partition, int] = field(default_factory=dict)
    _committed: dict[Partition, int] = field(default_factory=dict)
    _records: int = 0
    """Put and not settled by a commit."""
    _number: int = 0
    _due_at: float = field(init=False)

    def __post_init__(self) -> None:
        """The first commit is due with the first put: until then nobody can tell a new group from a reset one."""
        self._due_at = self.clock.monotonic()

    def note_done(self, polled: Polled, *, rows: int) -> None:
        """The sink has taken, or something has refused, all records of a poll before row ``rows``."""
        count = rows - polled.rows_done
        if count:
            self._put |= ends_of(polled.records.slice(polled.rows_done, count))
            self._records += count
            polled.rows_done = rows

    def forget(self) -> None:
        """Drop all that was noted: the partitions are gone."""
        self._put.clear()
        self._committed.clear()
        self._records = 0
        self.refused.forget()

    @property
    def is_due(self) -> bool:
        """Whether there is anything to commit, and the interval is over."""
        return bool(self._news) and self.clock.monotonic() >= self._due_at

    @property
    def _news(self) -> dict[Partition, int]:
        return {partition: end for partition, end in self._put.items() if self._committed.get(partition) != end}

    async def run(self) -> None:
        """Flush and commit what was put since the last time.

        What fails for a while is told, and tried again when the next commit is due. Raises Fatal, DeliveryFatal,
        RecordRejectedError, and DeliveryRetriable of dead letters.
        """
        self._due_at = self.clock.monotonic() + self.interval_seconds
        news = self._news
        if not news:
            return
        started_at = self.clock.monotonic()
        safe = await self._flush(news)
        await self.refused.settle()
        if safe and await self._commit(safe):
            self._tell(seconds=self.clock.monotonic() - started_at)
            await self._let_sink_hear(safe)

    async def _flush(self, news: Offsets) -> dict[Partition, int]:
        try:
            async with limited(FLUSH_SECONDS_MAX, call="flush"):
                flushed = await self.connector.flush(news)
        except Retriable as error:
            self.events(SinkCommitFailed, error_class=type(error).__name__, is_outdated=False)
            return {}
        # A sink that says more than it was given has a bug; believing it would lose records.
        return {partition: min(end, news[partition]) for partition, end in flushed.items() if partition in news}

    async def _commit(self, safe: Offsets) -> bool:
        try:
            await self.consumer.commit(safe)
        except DeliveryRetriable as error:
            is_outdated = isinstance(error, CommitOutdated)
            self.events(SinkCommitFailed, error_class=type(error).__name__, is_outdated=is_outdated)
            return False
        self._committed |= safe
        return True

    async def _let_sink_hear(self, safe: Offsets) -> None:
        """A sink that cannot note it now does not undo the commit."""
        try:
            async with limited(FLUSH_SECONDS_MAX, call="committed"):
                await self.connector.committed(safe)
        except Retriable as error:
            self.events(SinkCommitFailed, error_class=type(error).__name__, is_outdated=False)

    def _tell(self, *, seconds: float) -> None:
        self._number += 1
        is_all = all(self._committed.get(partition) == end for partition, end in self._put.items())
        settled = self._records if is_all else 0
        self._records -= settled
        self.events(SinkOffsetsCommitted, number=self._number, records=settled, seconds=seconds)
        self.events(OffsetCommitted, seconds=seconds)
