"""The convert stage: micro-batch → Arrow table → Spark job → outcome, tried again when Spark was lost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol, cast

import pyarrow as pa

from fetchers.sdk import BackOff, Clock
from metrics.events import BatchConverted, RetryScheduled, TaskEvents
from service.domain.errors import PoisonedBatchError, described
from service.pipeline.batching import MicroBatch
from spark_batch.errors import ConversionFatal, ConversionRetriable, SparkUnavailable
from spark_batch.outcome import INPUT_SCHEMA, OUTCOME_SCHEMA
from spark_batch.plan import ConversionPlan

ALONE_AFTER_LOSSES = 2
"""From then on a micro-batch is tried beside no other: it may be what kills Spark."""


class Convert(Protocol):
    """The worker's conversion service: one Spark session for all tasks."""

    async def __call__(self, plan: ConversionPlan, batch: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """The outcome of a micro-batch; ``is_alone``: with no other beside it."""


class Admit(Protocol):
    """Checks and registers the schemas of one connector's records for a topic that its pages name."""

    async def __call__(self, topic: str, *, is_tombstone: bool) -> None:
        """Return once records, or tombstones, of pages for ``topic`` may be written where they end.

        Raises ``RegistryRetriable`` where the registry cannot be asked, ``RegistryFatal`` where it refuses.
        """


async def admit_every_topic(topic: str, *, is_tombstone: bool) -> None:
    """Obey ``Admit`` where no schema registry is used."""
    del topic, is_tombstone


@dataclass(frozen=True, slots=True)
class ConvertedBatch:
    """A micro-batch, its input columns and the verdict on each of its records."""

    batch: MicroBatch
    records: pa.Table
    outcome: pa.Table


@dataclass(frozen=True, slots=True)
class ConvertStage:
    """One task's plan and the worker's conversion service."""

    convert: Convert
    plan: ConversionPlan
    events: TaskEvents
    clock: Clock
    back_off: BackOff = BackOff()
    attempts_max: int = 4
    """A conversion that is lost this often is the batch's own doing; not counted: that Spark does not start."""
    admit: Admit = admit_every_topic
    admitted: set[tuple[str, bool]] = field(default_factory=set)
    """Topics that pages named, and whether for tombstones, which need no more asking."""

    async def run(self, batch: MicroBatch) -> ConvertedBatch:
        """Convert, once the schemas are registered for every topic that a page names.

        Raises ``ConversionFatal``, ``PoisonedBatchError`` after ``attempts_max`` lost conversions, and before the first
        record is converted what ``admit`` raises.
        """
        records = input_table(batch)
        if not records.num_rows:
            # Pages that only move the offset do not wait for Spark.
            return ConvertedBatch(batch, records, OUTCOME_SCHEMA.empty_table())
        await self._admit_topics(batch)
        lost = attempt = 0
        while lost < self.attempts_max:
            attempt += 1
            started_at = self.clock.monotonic()
            try:
                outcome = await self._outcome(batch, records, is_alone=lost >= ALONE_AFTER_LOSSES)
            except ConversionRetriable as error:
                lost += not isinstance(error, SparkUnavailable)
                await self._wait(error, attempt)
            else:
                _demand_verdicts(outcome, records.num_rows)
                self.events(BatchConverted, records=batch.records, seconds=self.clock.monotonic() - started_at)
                return ConvertedBatch(batch, records, outcome)
        message = f"the conversion of one micro-batch of {batch.records} records was lost {self.attempts_max} times"
        raise PoisonedBatchError(message)

    async def _admit_topics(self, batch: MicroBatch) -> None:
        """Those of the connector's own topic were registered when the task was planned."""
        for page in (item.page for item in batch.pages):
            if page.topic is None or page.topic == self.plan.topic:
                continue
            nulls = page.payload_column.null_count
            for is_tombstone in [False] * (nulls < len(page)) + [True] * (nulls > 0):
                if (page.topic, is_tombstone) not in self.admitted:
                    await self.admit(page.topic, is_tombstone=is_tombstone)
                    self.admitted.add((page.topic, is_tombstone))

    async def _outcome(self, batch: MicroBatch, records: pa.Table, *, is_alone: bool) -> pa.Table:
        """The verdicts; where transformations ask for topics, those of each topic's pages by a plan of their own."""
        shares = shares_of(batch, self.plan)
        if len(shares) == 1:
            return await self.convert(shares[0].plan, records, is_alone=is_alone)
        outcomes: dict[int, pa.Table] = {}
        for share in shares:
            outcomes |= share.cut(await self.convert(share.plan, share.of(records), is_alone=is_alone))
        return pa.concat_tables([outcomes[start] for start in sorted(outcomes)])

    async def _wait(self, error: ConversionRetriable, attempt: int) -> None:
        wait_seconds = self.back_off.wait_seconds(attempt)
        self.events(
            RetryScheduled,
            stage="convert",
            error_class=type(error).__name__,
            attempt=attempt,
            wait_seconds=wait_seconds,
            message=described(error),
        )
        await self.clock.sleep(wait_seconds)


def input_table(batch: MicroBatch) -> pa.Table:
    """The pages' columns one after another, as the conversion takes them; no copy of a payload."""
    pages = [item.page for item in batch.pages]
    columns = {
        "key": [_column(page.keys, pa.binary(), len(page)) for page in pages],
        "value": [page.payload_column for page in pages],
        "timestamp": [_column(page.timestamps_ms, pa.int64(), len(page)) for page in pages],
    }
    arrays = [pa.chunked_array(chunks, type=INPUT_SCHEMA.field(name).type) for name, chunks in columns.items()]
    return pa.table(arrays, schema=INPUT_SCHEMA)


@dataclass(frozen=True, slots=True)
class TopicShare:
    """The pages of a micro-batch that go to one topic, wherever they stand in it. Nothing is copied."""

    plan: ConversionPlan
    runs: tuple[tuple[int, int], ...]
    """First row and number of rows of each run of such pages."""

    def of(self, records: pa.Table) -> pa.Table:
        """The rows of this share, one run after another, without a copy."""
        return pa.concat_tables([records.slice(start, count) for start, count in self.runs])

    def cut(self, outcome: pa.Table) -> dict[int, pa.Table]:
        """Its verdicts, by the first row of each run."""
        _demand_verdicts(outcome, sum(count for _, count in self.runs))
        found, at = {}, 0
        for start, count in self.runs:
            found[start] = outcome.slice(at, count)
            at += count
        return found


def shares_of(batch: MicroBatch, plan: ConversionPlan) -> list[TopicShare]:
    """One for each topic, as far as the plan cares; runs without records are left out."""
    if not plan.transformations:
        return [TopicShare(plan, ((0, batch.records),))]
    runs: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    start = 0
    for topic, pages in groupby(batch.pages, key=lambda item: item.page.topic or plan.topic):
        if count := sum(len(item.page) for item in pages):
            runs[topic].append((start, count))
            start += count
    return [
        TopicShare(plan if topic == plan.topic else replace(plan, topic=topic), tuple(places))
        for topic, places in runs.items()
    ]


def _column(values: object, kind: pa.DataType, length: int) -> Any:
    return pa.nulls(length, cast("Any", kind)) if values is None else values


def _demand_verdicts(outcome: pa.Table, records: int) -> None:
    """A verdict too few or too many would pair records with the verdicts of others."""
    if outcome.num_rows != records:
        message = f"{records} records were converted to {outcome.num_rows} verdicts"
        raise ConversionFatal(message)
