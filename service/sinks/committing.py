"""Offsets of a sink's task: what was put is flushed, then committed; never the other way round."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from fetchers.sdk import Clock, Retriable
from metrics.events import OffsetCommitted, SinkCommitFailed, SinkOffsetsCommitted, TaskEvents
from service.kafka.errors import CommitOutdated, DeliveryRetriable
from service.kafka.group_consumer import GroupConsumer
from service.sinks.batch import Offsets, Partition
from service.sinks.contract import SinkConnector
from service.sinks.dead_letters import Polled, RefusedRecords
from service.sinks.putting import CallLimits
from service.sinks.readings import Rows

FLUSH_SECONDS_MAX = 60.0
ALL = slice(None)


@dataclass(slots=True)
class Commits:
    """How far one task has put, flushed and committed the partitions that it has now."""

    connector: SinkConnector[Any]
    calls: CallLimits
    consumer: GroupConsumer
    refused: RefusedRecords
    events: TaskEvents
    clock: Clock
    interval_seconds: float
    _polls: list[Polled] = field(default_factory=list)
    """Those of which something is not done, in order."""
    _put: dict[Partition, int] = field(default_factory=dict)
    """The offset before which everything of a partition is done."""
    _committed: dict[Partition, int] = field(default_factory=dict)
    _records: int = 0
    """Put and not settled by a commit."""
    _number: int = 0
    _due_at: float = field(init=False)

    def __post_init__(self) -> None:
        """The first commit is due with the first put: until then nobody can tell a new group from a reset one."""
        self._due_at = self.clock.monotonic()

    def note_polled(self, polled: Polled) -> None:
        """Records have come, to be done in any order."""
        self._polls.append(polled)

    def note_done(self, polled: Polled, rows: Rows | slice = ALL) -> None:
        """The sink has taken, or something has refused, these rows of a poll."""
        polled.is_done[rows] = True
        waiting: set[Partition] = set()
        for each in self._polls:
            for index, (partition, _, end) in enumerate(each.slices):
                if partition not in waiting:
                    self._reach(each, index)
                    if each.reached[index] < end:
                        waiting.add(partition)
        is_held = [any(map(operator.lt, each.reached, each.ends)) for each in self._polls]
        polls, self._polls = self._polls, list(compress(self._polls, is_held))
        for each in compress(polls, map(operator.not_, is_held)):
            each.let_go()

    def _reach(self, polled: Polled, index: int) -> None:
        """Move on to the first row of this slice that is not done."""
        partition, _, end = polled.slices[index]
        begin = polled.reached[index]
        is_done = polled.is_done[begin:end]
        row = end if is_done.all() else begin + int(np.argmin(is_done))
        if row > begin:
            polled.reached[index] = row
            self._put[partition] = polled.records.column("offset")[row - 1].as_py() + 1
            self._records += row - begin

    def forget(self) -> None:
        """Drop all that was noted: the partitions are gone."""
        for polled in self._polls:
            polled.let_go()
        self._polls.clear()
        self._put.clear()
        self._committed.clear()
        self._records = 0
        self.refused.forget()

    @property
    def is_due(self) -> bool:
        """Whether there is anything to commit, and the interval is over."""
        return bool(self._news) and self.clock.monotonic() >= self._due_at

    def wait_seconds(self, seconds_max: float) -> float:
        """How long to wait for records at most, so that what was put is committed as soon as that is due."""
        return min(seconds_max, max(0.0, self._due_at - self.clock.monotonic())) if self._news else seconds_max

    def request(self, after_seconds: float = 0.0) -> None:
        """Make what was put due by then, if it is not due before; `SinkContext.request_flush`."""
        at = self.clock.monotonic() + after_seconds if after_seconds > 0 else -math.inf  # no clock: from any thread
        self._due_at = min(self._due_at, at)

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
        self.refused.demand_tolerance()
        safe = await self._flush(news)
        if safe and (await self.refused.settle(safe, self.consumer.member) or await self._commit(safe)):
            self._committed |= safe
            self._tell(seconds=self.clock.monotonic() - started_at)
            await self._let_sink_hear(safe)

    async def _flush(self, news: Offsets) -> dict[Partition, int]:
        try:
            async with self.calls.limited(FLUSH_SECONDS_MAX, call="flush"):
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
        return True

    async def _let_sink_hear(self, safe: Offsets) -> None:
        """A sink that cannot note it now does not undo the commit."""
        try:
            async with self.calls.limited(FLUSH_SECONDS_MAX, call="committed"):
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
