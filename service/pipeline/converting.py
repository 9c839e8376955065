"""The convert stage: micro-batch → Arrow table → Spark job → outcome, tried again when Spark was lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol, cast

import pyarrow as pa

from fetchers.sdk import BackOff, Clock
from metrics.events import BatchConverted, RetryScheduled, TaskEvents
from service.domain.errors import PoisonedBatchError
from service.pipeline.batching import MicroBatch
from spark_batch.errors import ConversionFatal, ConversionRetriable, SparkUnavailable
from spark_batch.outcome import INPUT_SCHEMA, OUTCOME_SCHEMA
from spark_batch.plan import ConversionPlan

ALONE_AFTER_LOSSES = 2
"""From then on a micro-batch is tried beside no other: it may be what kills Spark."""


class Convert(Protocol):
    """The worker's conversion service."""

    async def __call__(self, plan: ConversionPlan, batch: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """The outcome of a micro-batch; ``is_alone``: with no other beside it."""


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

    async def run(self, batch: MicroBatch) -> ConvertedBatch:
        """Convert; raises ``ConversionFatal``, or ``PoisonedBatchError`` after ``attempts_max`` lost conversions."""
        records = input_table(batch)
        if not records.num_rows:
            # Pages that only move the offset do not wait for Spark.
            return ConvertedBatch(batch, records, OUTCOME_SCHEMA.empty_table())
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
                _demand_verdict_on_each(records, outcome)
                self.events(BatchConverted, records=batch.records, seconds=self.clock.monotonic() - started_at)
                return ConvertedBatch(batch, records, outcome)
        message = f"the conversion of one micro-batch of {batch.records} records was lost {self.attempts_max} times"
        raise PoisonedBatchError(message)

    async def _outcome(self, batch: MicroBatch, records: pa.Table, *, is_alone: bool) -> pa.Table:
        """The verdicts; where transformations ask for topics, those of each topic's pages by a plan of their own."""
        outcomes = []
        start = 0
        for plan, count in plans_of(batch, self.plan):
            outcomes.append(await self.convert(plan, records.slice(start, count), is_alone=is_alone))
            start += count
        return outcomes[0] if len(outcomes) == 1 else pa.concat_tables(outcomes)

    async def _wait(self, error: ConversionRetriable, attempt: int) -> None:
        wait_seconds = self.back_off.wait_seconds(attempt)
        self.events(
            RetryScheduled,
            stage="convert",
            error_class=type(error).__name__,
            attempt=attempt,
            wait_seconds=wait_seconds,
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


def plans_of(batch: MicroBatch, plan: ConversionPlan) -> list[tuple[ConversionPlan, int]]:
    """The plan of each run of pages with one topic, and how many records these have."""
    if not plan.transformations:
        return [(plan, batch.records)]
    runs = [
        (topic, sum(len(item.page) for item in pages))
        for topic, pages in groupby(batch.pages, key=lambda item: item.page.topic or plan.topic)
    ]
    return [(plan if topic == plan.topic else replace(plan, topic=topic), count) for topic, count in runs if count]


def _column(values: object, kind: pa.DataType, length: int) -> Any:
    return pa.nulls(length, cast("Any", kind)) if values is None else values


def _demand_verdict_on_each(records: pa.Table, outcome: pa.Table) -> None:
    """A verdict too few or too many would pair records with the verdicts of others."""
    if outcome.num_rows != records.num_rows:
        message = f"{records.num_rows} records were converted to {outcome.num_rows} verdicts"
        raise ConversionFatal(message)
